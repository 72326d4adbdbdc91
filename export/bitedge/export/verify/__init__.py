"""Comparison of every artifact with torch."""
