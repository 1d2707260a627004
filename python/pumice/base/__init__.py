"""Helpers shared by all packages: errors, element types, the log, progress bars, HTML."""
