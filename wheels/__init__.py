"""Builds what is released: manylinux wheels for every Python that can be had, and an sdist. `./dev wheels` runs it."""
