"""HTTP and gRPC routes, their schemas and errors."""
