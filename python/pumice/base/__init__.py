"""Helpers that every stage uses: errors, element types, the log, progress bars, HTML."""
