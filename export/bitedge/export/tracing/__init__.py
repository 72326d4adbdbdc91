"""Capture: torch modules become graphs."""
