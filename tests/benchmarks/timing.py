"""Fair timing: contenders take turns, are warmed up first, and the quietest round gives the median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Sampler = Callable[[int], Sequence[float]]  # seconds of each of so many calls

_SETTLE = 0.02  # seconds between contenders: threads of the one before may still spin


class Absent(Exception):
    """A contender that cannot be measured here, and why."""


@dataclass(frozen=True)
class Effort:
    rounds: int
    budget: float  # seconds that a contender gets in a round
    runs: int | None = None  # calls in a round, where they fit in the budget; None: what the benchmark thinks fit
    processes: int = 10  # processes of which the best counts, where a whole process is measured


@dataclass
class Times:
    """Seconds."""

    rounds: list[Sequence[float]] = field(default_factory=list)
    absent: str = ""  # why there are none

    @property
    def best(self) -> float:
        return min(min(seconds) for seconds in self.rounds)

    @property
    def median(self) -> float:
        """The median of the quietest round."""
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
    """At least 3 calls of each in a round, or one where that takes longer than the budget."""
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
