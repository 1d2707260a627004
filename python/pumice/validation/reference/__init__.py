"""The float64 reference, other references, and the programs whose tensors are compared."""
