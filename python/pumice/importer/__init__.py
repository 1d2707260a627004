"""Import ONNX models: parse a file into a GraphRecipe, then build the engine's Graph from it. The entry point is load_graph.py."""
