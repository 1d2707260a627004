"""Translators of ONNX operators that become several engine nodes; operator_table.py lists them."""
