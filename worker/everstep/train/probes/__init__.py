"""The probes that a host without ranks runs: products, memory, links; see ``run`` for the order."""
