"""Code for Ray's workers: tasks that create blocks of images, and actors that record their calls."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pumice

from .contender import Array
from .resnet import pictures

TOLD = ("process", "begin", "end", "made")  # columns that an actor adds


@dataclass(frozen=True)
class MakeBlock:
    """Creates a block of images for each input row, with each image's index in the whole data set."""

    rows: int
    side: int

    def __call__(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        count = len(batch["id"])
        made = pictures(self.rows, self.side)
        return {
            "pixels": made if count == 1 else np.concatenate([made] * count),
            "place": np.tile(np.arange(self.rows), count),
        }


class TimedPredictor(pumice.BatchPredictor):
    """A predictor whose results record the process, the time of the call, and its own creation time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.made = time.monotonic()
        super().__init__(*arguments, **options)

    def __call__(self, batch: Any) -> Any:
        begin = time.monotonic()
        results = super().__call__(batch)
        told = (float(os.getpid()), begin, time.monotonic(), self.made)
        rows = len(batch["place"])
        return {**results, **{name: np.full(rows, value) for name, value in zip(TOLD, told, strict=True)}}


@dataclass(frozen=True)
class Call:
    """One call in an actor's process."""

    process: int
    begin: float
    end: float
    made: float  # creation time of the predictor
    rows: int


def call_of(block: Mapping[str, Array]) -> Call:
    process, begin, end, made = (float(block[name][0]) for name in TOLD)
    return Call(int(process), begin, end, made, len(block["place"]))


def steady_rate(calls: Iterable[Call]) -> float:
    """Return the rows per second while all processes were working: from the last second call to the first last call."""
    of_each: dict[int, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.begin):
        of_each[call.process].append(call)
    if any(len(own) < 3 for own in of_each.values()):
        return float("nan")  # too few calls
    begin = max(own[1].begin for own in of_each.values())
    end = min(own[-1].end for own in of_each.values())
    if end <= begin:
        return float("nan")
    rows = 0.0
    for call in (call for own in of_each.values() for call in own):
        both = min(call.end, end) - max(call.begin, begin)
        rows += call.rows * max(both, 0.0) / (call.end - call.begin)
    return rows / (end - begin)


def seconds_to_first(calls: Iterable[Call]) -> float:
    """Return the slowest process's seconds from creating a predictor to the end of its first call."""
    first: dict[int, float] = {}
    for call in calls:
        first[call.process] = min(first.get(call.process, float("inf")), call.end - call.made)
    return max(first.values())
