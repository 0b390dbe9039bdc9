"""The fleet-scale simulation: weeks of thousands of hosts in seconds, with the real decisions."""
