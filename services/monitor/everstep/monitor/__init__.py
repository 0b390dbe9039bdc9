"""Owns incidents, the detectors, the goodput ledger and metric roll-ups."""
