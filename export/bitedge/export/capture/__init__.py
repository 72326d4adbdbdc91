"""From a torch module to the captured graph."""
