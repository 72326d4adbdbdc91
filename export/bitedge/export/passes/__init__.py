"""The lowering passes: one file each, each a pure function from graph to graph."""
