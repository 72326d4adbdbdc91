"""From the captured graph to the operators of docs/format.md: one file per pass, each a pure function."""
