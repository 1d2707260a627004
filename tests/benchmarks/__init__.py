"""Benchmarks: the source of every performance claim of the project. `./dev bench --help` lists the options."""
