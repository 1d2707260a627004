"""Searches for the cause of a failure, and for a precision that avoids it."""
