"""Rounding-error bounds per element, derived together with a float64 NumPy reference and independently of the engine."""
