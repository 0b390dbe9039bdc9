"""The reference model and its entry point."""
