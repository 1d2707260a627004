"""Validates a model node by node against a reference."""
