"""Read model files into Recipes, which can be used without the onnx package."""
