"""The everstep command."""
