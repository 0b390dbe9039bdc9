"""Snapshots in shared memory: the slot format and its checksums. No torch."""
