"""Read an ONNX file into a Recipe and build the engine's Graph from it. The entry point is load.py."""
