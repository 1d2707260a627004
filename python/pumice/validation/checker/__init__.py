"""Checks of nodes, kernels and outputs against the reference, case by case."""
