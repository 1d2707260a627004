"""Builds releases: manylinux wheels for every available Python, and an sdist. `./dev wheels` runs it."""
