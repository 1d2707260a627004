"""Loaded models: loading, calls, batches, several devices, tuning and reports."""
