"""Owns hosts: their state, failure domains and placement of ranks."""
