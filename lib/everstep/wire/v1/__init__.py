"""Generated from proto/everstep/v1 by make proto; never edited."""
