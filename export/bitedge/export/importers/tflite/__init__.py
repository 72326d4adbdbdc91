"""TFLite files, with the operators of Larq Compute Engine."""
