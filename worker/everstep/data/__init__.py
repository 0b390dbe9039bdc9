"""Token shards and the deterministic loader. No torch."""
