"""Bounds of rounding errors, derived element by element beside values in float64 that NumPy computes, independent of the engine."""
