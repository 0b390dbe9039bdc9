"""Campaigns of faults against a stack on this machine, the truth beside the outcome."""
