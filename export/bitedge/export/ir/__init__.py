"""The graph that a network is captured into: operators, shapes, meaning in numpy, limits, files, pictures."""
