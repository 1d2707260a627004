"""From an ONNX file to a Recipe and from that to the engine's Graph: load.py is the door."""
