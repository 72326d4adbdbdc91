"""The training engine: one run from its recipe to its folder, on one process or several."""
