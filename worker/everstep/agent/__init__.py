"""The host agent: forks ranks, owns host memory, answers commands. No torch."""
