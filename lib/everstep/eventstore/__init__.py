"""Append-only event streams: PostgreSQL and memory, and the outbox that publishes them."""
