"""Networks that exist as files: read as a torch module, with the engine that they come from as reference."""
