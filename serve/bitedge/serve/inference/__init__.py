"""Decoding images, queueing and running batches."""
