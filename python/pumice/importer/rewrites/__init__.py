"""Rewrite nodes as other ONNX nodes before the build: older opsets, ONNX Runtime contrib operators, strings.

The table of rewrites is in table.py.
"""
