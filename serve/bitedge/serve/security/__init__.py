"""API keys, rate limits, resource limits and response headers."""
