"""Operators that are several nodes of the engine; table.py lists them."""
