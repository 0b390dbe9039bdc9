"""The message bus: NATS and memory under one contract."""
