"""The two ONNX files."""
