"""Owns jobs: spec, phase, generation, placement, and their recovery."""
