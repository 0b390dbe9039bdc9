"""Runs the services' own decisions against a model of the fleet, under a virtual clock."""
