"""Fair timing: contenders alternate after a warm-up, and the quietest round gives the median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Sampler = Callable[[int], Sequence[float]]  # seconds of each of n calls

_SETTLE = 0.02  # seconds between contenders: threads of the previous one may still spin


class Absent(Exception):
    """Raised for a contender that cannot be measured here, with the reason."""


@dataclass(frozen=True)
class Effort:
    rounds: int
    budget: float  # seconds per contender and round
    runs: int | None = None  # calls per round, if they fit in the budget; None: the benchmark's default
    processes: int = 10  # number of processes, of which the best counts, if whole processes are measured


@dataclass
class Times:
    """Measured seconds by round."""

    rounds: list[Sequence[float]] = field(default_factory=list)
    absent: str = ""  # why there are none

    @property
    def best(self) -> float:
        return min(min(seconds) for seconds in self.rounds)

    @property
    def median(self) -> float:
        """Return the median of the quietest round."""
        return min(statistics.median(seconds) for seconds in self.rounds)


def sample(call: Callable[[], object], runs: int) -> list[float]:
    clock = time.perf_counter
    seconds = []
    for _ in range(runs):
        begin = clock()
        call()
        seconds.append(clock() - begin)
    return seconds


def sampler(call: Callable[[], object]) -> Sampler:
    return lambda runs: sample(call, runs)


def measure(samplers: Mapping[str, Sampler], effort: Effort, runs: int = 200) -> dict[str, Times]:
    """Measure at least 3 calls of each per round, or one if it exceeds the budget."""
    measured = {label: Times() for label in samplers}
    counts: dict[str, int] = {}

    def attempt(label: str, step: Callable[[Sampler, Times], None]) -> None:
        if not measured[label].absent:
            time.sleep(_SETTLE)
            try:
                step(samplers[label], measured[label])
            except Absent as reason:
                measured[label].absent = str(reason)

    def warm_up(run: Sampler, _: Times) -> None:
        once = run(1)[0]
        if once < effort.budget / 8:
            once = min(run(5))
        least = 1 if once > effort.budget else 3
        counts[label] = max(least, min(effort.runs or runs, int(effort.budget / once)))

    for label in samplers:
        attempt(label, warm_up)
    for _ in range(effort.rounds):
        for label in samplers:
            attempt(label, lambda run, times, label=label: times.rounds.append(run(counts[label])))  # type: ignore[misc]
    return measured
