"""Rewrite nodes as other ONNX nodes before the build: older opsets, ONNX Runtime contrib operators, strings.

rewrite_table.py lists the rewrites.
"""
