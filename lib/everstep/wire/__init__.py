"""Generated wire code and the codec between it and our dataclasses."""
