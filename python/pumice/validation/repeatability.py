"""Checks that every run gives the same bits, and analyses differences between runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from .._pumice import Context, Error, IndexRangeError, Program, another_context, keep_spare, take_spare
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.host_arrays import differing, same_bits
from ..base.printable_text import LONG, plain
from ..model.model import Model
from .case_runs import compared
from .subgraph import cut, part_precision
from .model_validation import Proof
from .report_rows import Finding
from .tensor_sources import DeviceTensors

ONE_LIST, FRESH, LOADED = "one list", "fresh context", "beside load"
_SHARE = 4  # N runs use one list and N / 4 use a fresh context
# N / 8 runs are under load; switching contexts on a GPU takes longer than small models run.
_LOADED_SHARE = 8
_MOST_KINDS = 8  # distinct results kept per tensor; later ones are only counted
_ALIGNED = (128, 32, 16)  # sizes of tiles, subgroups and vector loads, in elements
_FULL = 0.75  # share of differing elements from which a row, column or block counts as differing
FAMILIES = ("cooperativeMatrix", "subgroupShuffle")  # features that select between kernels of an operator
_CHANCE = 0.05

Results = Mapping[str, Array]


# ---- bits


class Pattern(NamedTuple):
    """Indices of the elements that differ between runs.

    kind: "all", "element", "rows", "columns" (of the last axis), "block" or "scattered". box: [begin, end) on each
    axis. first, last: flat row-major indices. first_aligned, extent_aligned: largest of 128, 32, 16 and 1 that divides
    the first index, and the number of elements from the first to the last.
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
        first = f"element {self.first} ({_said(self.first_aligned)})" if self.first else "element 0"
        return (
            f"{self.elements} of {self.of} elements, {where[self.kind]} in [{box}]; the first is {first}, with "
            f"{self.last - self.first + 1} elements to the last ({_said(self.extent_aligned)})"
        )


def _said(alignment: int) -> str:
    return f"a multiple of {alignment}" if alignment > 1 else "no multiple of 16"


def _alignment(number: int) -> int:
    return next((step for step in _ALIGNED if number % step == 0), 1)


def pattern_of(mask: Array) -> Pattern:
    """Return the pattern of a boolean array with at least one true element."""
    places = np.flatnonzero(mask)
    first, last = int(places[0]), int(places[-1])
    axes = [np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis))) for axis in range(mask.ndim)]
    box = tuple((int(one[0]), int(one[-1]) + 1) for one in axes)
    return Pattern(
        len(places), mask.size, _kind(mask, box), box, first, last, _alignment(first), _alignment(last - first + 1)
    )


def _kind(mask: Array, box: tuple[tuple[int, int], ...]) -> str:
    table = mask.reshape(-1, mask.shape[-1] if mask.ndim else 1)
    rows, columns = table.any(axis=1), table.any(axis=0)
    if mask.all():
        return "all"
    if table.sum() == 1:
        return "element"
    if table.shape[1] > 1 and table[rows].mean() >= _FULL:
        return "rows"
    if table.shape[0] > 1 and table[:, columns].mean() >= _FULL:
        return "columns"
    inside = mask[tuple(slice(*ends) for ends in box)]
    return "block" if inside.mean() >= _FULL else "scattered"


# ---- runs


class Tally:
    """Counts of each distinct result of a tensor, by setting. kept: number of distinct results to keep."""

    def __init__(self, kept: int = _MOST_KINDS) -> None:
        self.kept = kept
        self.kinds: list[Array] = []
        self.counts: dict[str, Counter[int]] = {}

    def add(self, setting: str, array: Array) -> bool:
        """Count a result. Return whether it is new and kept."""
        index = next((i for i, one in enumerate(self.kinds) if same_bits(one, array)), len(self.kinds))
        if setting not in self.counts:
            self.counts[setting] = Counter()
        self.counts[setting][index] += 1
        if index < len(self.kinds) or index >= self.kept:
            return False
        self.kinds.append(array)
        return True

    @property
    def common(self) -> int:
        """The index of the most common result."""
        total: Counter[int] = Counter()
        for one in self.counts.values():
            total.update(one)
        return total.most_common(1)[0][0]

    @property
    def differs(self) -> bool:
        """Whether there was more than one result."""
        return len(self.kinds) > 1

    def runs(self) -> dict[str, int]:
        """Return the number of runs per setting."""
        return {setting: counts.total() for setting, counts in self.counts.items()}

    def differing(self) -> dict[str, int]:
        """Return, per setting, the number of runs that differ from the most common result."""
        common = min(self.common, len(self.kinds) - 1)
        return {setting: counts.total() - counts[common] for setting, counts in self.counts.items()}

    def pattern(self) -> Pattern:
        """Return where results differ from the most common one."""
        base = self.kinds[min(self.common, len(self.kinds) - 1)]
        masks = [differing(base, one) for one in self.kinds if one is not base]
        return pattern_of(np.logical_or.reduce(masks))


class Tallies(dict[str, Tally]):
    """The tallies of a program's results, by name."""

    def __init__(self, kept: int = _MOST_KINDS) -> None:
        super().__init__()
        self.kept = kept

    def add(self, setting: str, results: Results) -> bool:
        """Count the results of a run. Return whether any of them is new."""
        new = [self.setdefault(name, Tally(self.kept)).add(setting, array) for name, array in results.items()]
        return any(new)

    @property
    def differ(self) -> bool:
        """Whether a tensor had more than one result."""
        return any(tally.differs for tally in self.values())

    @property
    def most(self) -> int:
        """Number of differing runs of the worst tensor."""
        return max((sum(tally.differing().values()) for tally in self.values() if tally.differs), default=0)


def _runner(program: Program, inputs: Results) -> Callable[[], Results]:
    """Return a function that replays the program's recording on these inputs and waits."""
    execution = program.execution()
    for name, array in inputs.items():
        execution.set(name, array)
    return lambda: execution.compute(loop_timeout=None)


def _tallied(run: Callable[[], Results], count: int) -> Tallies:
    tallies = Tallies()
    for _ in range(count):
        tallies.add(ONE_LIST, run())
    return tallies


def differing_runs(model: Model, inputs: Results, count: int) -> int:
    """Return how many runs differ from the most common result, for the worst output."""
    names = (value.name for value in model.program.inputs)
    run = _runner(model.program, dict(zip(names, model.arguments(**inputs), strict=True)))
    return _tallied(run, count).most


class Repeatability(NamedTuple):
    """Result of the repeated runs for one output, in its worst case.

    runs, differing: per setting, the number of runs, and how many differ from the most common result. Settings are "one
    list": the first run's recording; "fresh context": compiled again on another context of the device; "beside load":
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
    pattern: Pattern | None
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
        """How many runs differ, and the first differing node."""
        total = sum(self.runs.values())
        if self.pattern is None:
            return f"output '{plain(self.output)}' has the same bits in {total} runs"
        settings = ", ".join(f"{self.differing[one]} of {runs} {_SAID[one]}" for one, runs in self.runs.items())
        where = (
            f"first at node '{plain(self.node)}'"
            if self.node
            else "the fused program alone, no node of the unfused one"
        )
        differing = sum(self.differing.values())
        return f"output '{plain(self.output)}' has other bits in {differing} of {total} runs ({settings}), {where}"

    def __str__(self) -> str:
        if self.pattern is None:
            return self.summary
        tried = "; ".join(f"{what}: {plain(said, LONG)}" for what, said in self.tried.items())
        return f"{self.summary}: {self.pattern}. {tried}"

    def as_dict(self) -> dict[str, object]:
        """Return a record for JSON."""
        pattern = None if self.pattern is None else self.pattern._asdict()
        record = {**self._asdict(), "runs": dict(self.runs), "differing": dict(self.differing), "pattern": pattern}
        return {**record, "tried": dict(self.tried), "deterministic": self.deterministic, "text": str(self)}


_SAID = {ONE_LIST: "on one recorded list", FRESH: "on a fresh context", LOADED: "beside other load"}


def checked_count(given: int) -> int:
    """Return the number of runs. Raise InputError unless it is 0 (no repeats) or at least 2."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0 or given == 1:
        raise InputError(f"validate: repeat: expected 0 or a number of runs from 2 on, given {given!r}")
    return given


class _Begun(NamedTuple):
    """A program after its first run, which is not counted because the device was busy. run: runs it again on `inputs`."""

    inputs: Results
    run: Callable[[], Results]


class _Fresh:
    """A model's program on another context of its device. begun: the program after its first run, or None."""

    def __init__(self, program: Program, begun: _Begun | None) -> None:
        self.program = program
        self.begun = begun

    def taken(self, inputs: Results) -> Callable[[], Results] | None:
        """Return the function that reruns the program, if its first run used these inputs; later calls return None."""
        begun, self.begun = self.begun, None
        return begun.run if begun is not None and begun.inputs is inputs else None


class Repeats:
    """Repeats the cases of a validation, also on a second context of the device, which close() keeps for the next one.

    A thread creates or reuses that context, compiles the model and runs it once on `first`, while the first case is
    checked on the host.
    """

    def __init__(self, proof: Proof, first: Results | None = None) -> None:
        self.proof = proof
        self.model = cast(Model, proof.fused)  # candidates are not repeated
        self.count = proof.options.repeat
        self._thread = ThreadPoolExecutor(1)
        self._fresh: Future[_Fresh] | None = self._thread.submit(self._load, first) if self.count else None
        self._found: dict[str, Repeatability] = {}

    def close(self) -> None:
        """Free the program on the second context. If it is still compiling, the thread frees it later."""
        if self._fresh is not None:
            self._fresh.cancel()
            # Runs immediately if loading is complete.
            self._fresh.add_done_callback(partial(_closed, self.model.context))
        self._thread.shutdown(wait=False)

    @property
    def fresh(self) -> _Fresh:
        """The program on another context of its device. Waits for it; raises whatever loading raises."""
        return cast("Future[_Fresh]", self._fresh).result()  # set whenever cases are repeated

    @property
    def _tensors_of_device(self) -> DeviceTensors:
        return cast(DeviceTensors, self.proof.tensors)  # candidates are not repeated

    def _load(self, first: Results | None) -> _Fresh:
        context = fresh_context(self.model.context)
        try:
            program = self._tensors_of_device.shipped(context)
            return _Fresh(program, None if first is None else _begun(program, first))
        except BaseException:
            context.close()
            raise

    def run(self, inputs: dict[str, Array], case: int) -> None:
        """Run a case repeatedly. Check each distinct result like the first."""
        tallies, distinct = Tallies(), []
        try:
            for setting, results in self._runs(inputs):
                if tallies.add(setting, results):
                    distinct.append(results)
        except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
            return
        judged = self.proof.runs.results(inputs)
        others = compared(
            self.proof.reference.texts(distinct[0]),
            judged,
            "the run that is judged, which begins on filled memory",
            case,
        )
        for finding in others:
            if not tallies[finding.node].differs:  # otherwise Repeatability reports it
                self.proof.collected.find(finding)
        for results in distinct:
            if (tallies.differ or others) and self.proof.judge_results:
                self.proof.judge_results(results)
        differing = {name: tally for name, tally in tallies.items() if tally.differs}
        node, tried = self._traced(inputs, tallies) if differing else ("", {})
        for name, tally in tallies.items():
            counts, pattern = (tally.differing(), tally.pattern()) if tally.differs else ({}, None)
            made = Repeatability(name, case, tally.runs(), counts, len(tally.kinds), node, pattern, tried)
            if name not in self._found or made.rate > self._found[name].rate:
                self._found[name] = made if tally.differs else made._replace(node="", tried={})

    def _runs(self, inputs: dict[str, Array]) -> Iterator[tuple[str, Results]]:
        """Yield the setting and the results of every run of a case."""
        fresh = self.fresh
        begun, ours = fresh.taken(inputs), _runner(self.model.program, inputs)
        others = begun or _runner(fresh.program, inputs)
        for _ in range(self.count):
            yield ONE_LIST, ours()
        for _ in range(math.ceil(self.count / _SHARE)):
            yield FRESH, others()
        with ThreadPoolExecutor(1) as pool:
            for _ in range(math.ceil(self.count / _LOADED_SHARE / 2)):
                beside = pool.submit(others)
                yield LOADED, ours()
                yield LOADED, beside.result()

    def _traced(self, inputs: dict[str, Array], tallies: Tallies) -> tuple[str, dict[str, str]]:
        """Return the first differing node of the unfused program, and the changes that remove the difference."""
        kept = self._tensors(inputs)
        node = next(
            (
                node.name
                for node in self.proof.reference.nodes
                if any(name in kept and kept[name].differs for name in node.outputs)
            ),
            "",
        )
        worst = max(tallies.values(), key=lambda tally: sum(tally.differing().values()))
        rate = sum(worst.differing().values()) / sum(worst.runs().values())
        return node, {what: self._tried(what, inputs, kept, node, rate) for what in self._remedies(node)}

    def _tensors(self, inputs: dict[str, Array]) -> Tallies:
        """Return every tensor of the unfused program; two results are kept, to save memory."""
        kept = Tallies(2)
        settings = (
            (ONE_LIST, self.model.context, self.count),
            (FRESH, self.fresh.program.context, math.ceil(self.count / _SHARE)),
        )
        for setting, context, count in settings:
            with self._program(context, keep_all=True, fuse=False) as program:
                run = _runner(program, inputs)
                for _ in range(count):
                    kept.add(setting, run())
        return kept

    # ---- remedies

    def _remedies(self, node: str) -> list[str]:
        context = self.model.context
        families = [f"without {name}" for name in FAMILIES if context.feature(name)]
        alone = [f"node '{node}' alone, with waits around it"] if node else []
        return ["fuse=False", "deterministic=True", *families, *alone]

    def _tried(self, what: str, inputs: dict[str, Array], kept: Tallies, node: str, rate: float) -> str:
        try:
            with self._changed(what, inputs, kept, node) as (program, given):
                differing = _tallied(_runner(program, given), self.count).most
        except Error as error:
            return f"does not run ({error})"
        if differing:
            return f"{differing} of {self.count} runs differ"
        chance = (1 - rate) ** self.count
        return f"the same bits in {self.count} runs" + (", which may be chance" if chance > _CHANCE else "")

    @contextmanager
    def _changed(
        self, what: str, inputs: dict[str, Array], kept: Tallies, node: str
    ) -> Iterator[tuple[Program, dict[str, Array]]]:
        """Yield the program with one change, and its inputs."""
        context = self.model.context
        if what.startswith("without "):
            with another_context(context, [what.removeprefix("without ")]) as lesser, self._program(lesser) as program:
                yield program, inputs
        elif what.startswith("node "):
            values = {**inputs, **{name: tally.kinds[0] for name, tally in kept.items()}}
            made = cut(self.proof.reference, [node], values)
            precision, kernels = part_precision(self.model.policy, made.proto), self.model.kernel_table
            with Model(made.proto, context, precision, progress=False, kernels=kernels) as alone:
                yield alone.program, made.inputs
        else:
            name, _, value = what.partition("=")
            with self._program(context, **{name: value == "True"}) as program:
                yield program, inputs

    def _program(self, context: Context, **options: Any) -> Program:
        return self._tensors_of_device.compiled(context, **options)

    # ---- results

    def report(self) -> list[Repeatability]:
        """Return the result of each output."""
        return list(self._found.values())


def _begun(program: Program, inputs: Results) -> _Begun | None:
    """Run a program for the first time. Return None if it fails, or if it has loops, which may not end."""
    if program.has_control_flow:
        return None
    try:
        run = _runner(program, inputs)
        run()
    except Error:
        return None
    return _Begun(inputs, run)


def _closed(first: Context, loaded: Future[_Fresh]) -> None:
    """Close a program and keep its context as a spare of the model's context for the next validation."""
    if not loaded.cancelled() and loaded.exception() is None:
        program = loaded.result().program
        context = program.context
        try:
            program.close()
        finally:
            keep_spare(first, context)


def fresh_context(first: Context) -> Context:
    """Return another context of the device without the model's data: a spare one, or a new one."""
    return take_spare(first) or another_context(first)


def findings(repeats: list[Repeatability]) -> list[Finding]:
    """Return a finding for each output that differs between runs."""
    return [
        Finding("not deterministic", one.node or one.output, str(one), one.rate, one.case)
        for one in repeats
        if not one.deterministic
    ]
