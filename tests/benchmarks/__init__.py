"""Benchmarks: every speed claim of the project comes from here. `./dev bench --help` lists the options."""
