"""ONNX and QONNX files, as ONNX Runtime and qonnx compute them."""
