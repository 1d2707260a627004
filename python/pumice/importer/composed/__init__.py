"""Operators that expand to several engine nodes; table.py lists them."""
