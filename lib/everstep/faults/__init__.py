"""Faults that are made on purpose, as values: what ranks, campaigns and tests share."""
