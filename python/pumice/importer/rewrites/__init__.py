"""Nodes that become other nodes of ONNX before anything is built: older operator sets, ONNX Runtime's own operators, strings.

The table of them is in table.py.
"""
