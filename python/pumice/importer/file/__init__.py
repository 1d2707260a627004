"""Read model files. A file becomes a Recipe, which does not need the onnx package."""
