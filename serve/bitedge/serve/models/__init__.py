"""Finding, checking, loading and replacing models."""
