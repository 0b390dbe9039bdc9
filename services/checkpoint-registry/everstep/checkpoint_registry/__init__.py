"""Owns checkpoints, the memory map and restore plans."""
