"""Pure detectors: observations and the time in, a verdict with its reason out."""
