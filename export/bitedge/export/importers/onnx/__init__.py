"""ONNX and QONNX files."""
