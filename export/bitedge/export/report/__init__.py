"""The conversion report."""
