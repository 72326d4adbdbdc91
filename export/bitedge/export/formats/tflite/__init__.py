"""The TFLite file of Larq Compute Engine."""
