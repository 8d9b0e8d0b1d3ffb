"""A network of an ONNX file in the form of another runtime, for comparison."""
