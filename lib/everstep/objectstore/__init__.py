"""Durable bytes: S3 and memory under one contract."""
