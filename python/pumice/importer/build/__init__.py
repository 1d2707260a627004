"""A Recipe becomes the engine's Graph."""
