"""Reads an ONNX file into a Recipe, and makes the engine's Graph of that: load.py is the door."""
