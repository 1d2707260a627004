"""Node by node against a reference."""
