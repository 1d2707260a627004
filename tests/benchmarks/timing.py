"""Repeated timing and plain tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Seconds of each run."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * 0.99))]


def measure(call: Callable[[], object], *, runs: int = 200, warmup: int = 5, budget: float = 10.0) -> Times:
    """Times of `runs` calls after a warm-up; fewer (at least 3) where they would take longer than `budget` seconds."""
    for _ in range(warmup):
        begin = time.perf_counter()
        call()
        if time.perf_counter() - begin > budget / 4:
            break
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < runs and (len(seconds) < 3 or time.perf_counter() - start < budget):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return Times(tuple(seconds))


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table in columns."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for i, row in enumerate(cells):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if i == 0:
            print("  " + "  ".join("-" * width for width in widths))


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
