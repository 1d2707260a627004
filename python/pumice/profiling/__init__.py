"""Profiles of models, kernels and command lists, their plots and pages, and the peak rates of a device."""
