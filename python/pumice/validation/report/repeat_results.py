"""Results of repeated runs: how many differ, and the pattern of the elements that do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal, find_bit_differences
from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape

_MAX_DISTINCT_RESULTS = 8  # distinct results kept per tensor; later ones are only counted


SAME_RECORDING, FRESH_CONTEXT, UNDER_LOAD = "one list", "fresh context", "under load"
_ALIGNMENTS = (128, 32, 16)  # sizes of tiles, subgroups and vector loads in elements, largest first


_MIN_FILL = 0.75  # a row, column or block counts as differing if at least this share of its elements differs


Results = Mapping[str, Array]


class DifferencePattern(NamedTuple):
    """Indices of the elements that differ between runs.

    kind: "all", "element", "rows", "columns" (of the last axis), "block" or "scattered". box: [begin, end) on each
    axis. first, last: flat row-major indices. first_aligned, extent_aligned: largest of 128, 32, 16 and 1 that
    divides the first index, and the number of elements from first to last.
    """

    elements: int
    of: int
    kind: str
    box: tuple[tuple[int, int], ...]
    first: int
    last: int
    first_aligned: int
    extent_aligned: int

    def __str__(self) -> str:
        box = ", ".join(f"{begin}:{end}" for begin, end in self.box)
        where = {
            "all": "all of it",
            "element": "one element",
            "rows": "whole rows",
            "columns": "whole columns",
            "block": "a block",
            "scattered": "scattered",
        }
        first = f"element {self.first} ({_format_alignment(self.first_aligned)})" if self.first else "element 0"
        return (
            f"{self.elements} of {self.of} elements, {where[self.kind]} in [{box}]; the first is {first}, with "
            f"{self.last - self.first + 1} elements to the last ({_format_alignment(self.extent_aligned)})"
        )


def _format_alignment(alignment: int) -> str:
    return f"a multiple of {alignment}" if alignment > 1 else "no multiple of 16"


def _find_largest_alignment(number: int) -> int:
    return next((step for step in _ALIGNMENTS if number % step == 0), 1)


def find_pattern(mask: Array) -> DifferencePattern:
    """Return the pattern of the true elements in a boolean array, which must have at least one."""
    indices = np.flatnonzero(mask)
    first, last = int(indices[0]), int(indices[-1])
    axes = [np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis))) for axis in range(mask.ndim)]
    box = tuple((int(i[0]), int(i[-1]) + 1) for i in axes)
    alignments = _find_largest_alignment(first), _find_largest_alignment(last - first + 1)
    return DifferencePattern(len(indices), mask.size, _classify_pattern(mask, box), box, first, last, *alignments)


def _classify_pattern(mask: Array, box: tuple[tuple[int, int], ...]) -> str:
    table = mask.reshape(-1, mask.shape[-1] if mask.ndim else 1)
    rows, columns = table.any(axis=1), table.any(axis=0)
    if mask.all():
        return "all"
    if table.sum() == 1:
        return "element"
    if table.shape[1] > 1 and table[rows].mean() >= _MIN_FILL:
        return "rows"
    if table.shape[0] > 1 and table[:, columns].mean() >= _MIN_FILL:
        return "columns"
    inside = mask[tuple(slice(*ends) for ends in box)]
    return "block" if inside.mean() >= _MIN_FILL else "scattered"


class ResultTally:
    """Counts the distinct results of a tensor in each setting. max_kinds: maximum number of distinct results to keep."""

    def __init__(self, max_kinds: int = _MAX_DISTINCT_RESULTS) -> None:
        self.max_kinds = max_kinds
        self.kinds: list[Array] = []
        self.counts: dict[str, Counter[int]] = {}

    def add(self, setting: str, array: Array) -> bool:
        """Count a result. Return whether it is a new one that was kept."""
        index = next((i for i, kind in enumerate(self.kinds) if bitwise_equal(kind, array)), len(self.kinds))
        if setting not in self.counts:
            self.counts[setting] = Counter()
        self.counts[setting][index] += 1
        if index < len(self.kinds) or index >= self.max_kinds:
            return False
        self.kinds.append(array)
        return True

    @property
    def most_common(self) -> int:
        """The index of the most common result."""
        total: Counter[int] = Counter()
        for setting_counts in self.counts.values():
            total.update(setting_counts)
        return total.most_common(1)[0][0]

    @property
    def differs(self) -> bool:
        """Whether there was more than one distinct result."""
        return len(self.kinds) > 1

    def count_runs(self) -> dict[str, int]:
        """Return the number of runs per setting."""
        return {setting: counts.total() for setting, counts in self.counts.items()}

    def count_differing(self) -> dict[str, int]:
        """Return, per setting, the number of runs that differ from the most common result."""
        common = min(self.most_common, len(self.kinds) - 1)
        return {setting: counts.total() - counts[common] for setting, counts in self.counts.items()}

    def find_pattern(self) -> DifferencePattern:
        """Return the pattern of elements that differ from the most common result."""
        base = self.kinds[min(self.most_common, len(self.kinds) - 1)]
        masks = [find_bit_differences(base, kind) for kind in self.kinds if kind is not base]
        return find_pattern(np.logical_or.reduce(masks))


class ResultTallies(dict[str, ResultTally]):
    """The tallies of a program's results, by name."""

    def __init__(self, max_kinds: int = _MAX_DISTINCT_RESULTS) -> None:
        super().__init__()
        self.max_kinds = max_kinds

    def add(self, setting: str, results: Results) -> bool:
        """Count the results of a run. Return whether any of them is new."""
        new = [self.setdefault(name, ResultTally(self.max_kinds)).add(setting, x) for name, x in results.items()]
        return any(new)

    @property
    def any_differs(self) -> bool:
        """Whether any tensor had more than one distinct result."""
        return any(tally.differs for tally in self.values())

    @property
    def max_differing(self) -> int:
        """Number of differing runs of the tensor with the most."""
        return max((sum(tally.count_differing().values()) for tally in self.values() if tally.differs), default=0)


class Repeatability(NamedTuple):
    """Result of the repeated runs for one output, in its worst case.

    runs, differing: per setting, the number of runs, and how many differ from the most common result. Settings are "one
    list": the first run's recording; "fresh context": compiled again on another context of the device; "under load":
    both at once.
    results: number of distinct results (at most 8). node: first node that differs in the unfused program, "" if none
    does. pattern: which elements differ. tried: change -> result of the same number of runs.
    """

    output: str
    case: int
    runs: Mapping[str, int]
    differing: Mapping[str, int]
    results: int
    node: str
    pattern: DifferencePattern | None
    tried: Mapping[str, str]

    @property
    def deterministic(self) -> bool:
        """Whether all runs gave the same bits."""
        return self.pattern is None

    @property
    def rate(self) -> float:
        """Share of runs that differ from the most common result."""
        return sum(self.differing.values()) / max(sum(self.runs.values()), 1)

    @property
    def summary(self) -> str:
        """A sentence: how many runs differ, and the first node that differs."""
        total = sum(self.runs.values())
        if self.pattern is None:
            return f"output '{shorten_and_escape(self.output)}' has the same bits in {total} runs"
        settings = ", ".join(
            f"{self.differing[setting]} of {runs} {_SETTING_TEXTS[setting]}" for setting, runs in self.runs.items()
        )
        where = (
            f"first at node '{shorten_and_escape(self.node)}'"
            if self.node
            else "the fused program alone, no node of the unfused one"
        )
        num_differing = sum(self.differing.values())
        return f"output '{shorten_and_escape(self.output)}' has other bits in {num_differing} of {total} runs ({settings}), {where}"

    def __str__(self) -> str:
        if self.pattern is None:
            return self.summary
        tried = "; ".join(
            f"{variant}: {shorten_and_escape(outcome, MAX_SENTENCE_CHARS)}" for variant, outcome in self.tried.items()
        )
        return f"{self.summary}: {self.pattern}. {tried}"

    def as_dict(self) -> dict[str, object]:
        """Return a record for JSON."""
        pattern = None if self.pattern is None else self.pattern._asdict()
        record = {**self._asdict(), "runs": dict(self.runs), "differing": dict(self.differing), "pattern": pattern}
        return {**record, "tried": dict(self.tried), "deterministic": self.deterministic, "text": str(self)}


_SETTING_TEXTS = {
    SAME_RECORDING: "on one recorded list",
    FRESH_CONTEXT: "on a fresh context",
    UNDER_LOAD: "under other load",
}
