"""What a model file holds, and the Recipe that it becomes, which is free of the package onnx."""
