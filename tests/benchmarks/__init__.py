"""Benchmarks: every speed claim of the project comes from here. `./dev bench [launch|models|first_use|memory ...]`."""
