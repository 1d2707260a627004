"""Build the engine's Graph from a Recipe."""
