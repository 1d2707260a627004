"""Checks whether every run of a program gives the same bits, and analyses differences between runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from ..._pumice import Context, Error, IndexRangeError, Program, another_context, keep_spare, take_spare
from ...base.element_types import Array
from ...base.errors import InputError
from ...base.host_arrays import bitwise_equal, find_bit_differences
from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from ...model.model import Model
from ..checker.case_result_cache import compare_output_bits
from ..checker.model_validation import ModelValidation
from ..reference.subgraph_extraction import extract_subgraph, make_subgraph_precision
from ..reference.tensor_sources import DeviceTensors
from ..report.report_rows import NOT_DETERMINISTIC, Finding

SAME_RECORDING, FRESH_CONTEXT, UNDER_LOAD = "one list", "fresh context", "beside load"
_FRESH_RUN_DIVISOR = 4  # for N runs on one recording, N / 4 run on a fresh context
# Only N / 8 runs are under load, because switching contexts on a GPU takes longer than running a small model.
_LOADED_RUN_DIVISOR = 8
_MAX_DISTINCT_RESULTS = 8  # distinct results kept per tensor; later ones are only counted
_ALIGNMENTS = (128, 32, 16)  # sizes of tiles, subgroups and vector loads in elements, largest first
_MIN_FILL = 0.75  # a row, column or block counts as differing if at least this share of its elements differs
# Device features that select between kernels of an operator.
OPTIONAL_FEATURES = ("cooperativeMatrix", "subgroupShuffle")
_MAX_CHANCE = 0.05

Results = Mapping[str, Array]


# ---- patterns of differing elements


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


# ---- runs


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


def _make_replay(program: Program, inputs: Results) -> Callable[[], Results]:
    """Return a function that replays the program's recording on these inputs and waits."""
    execution = program.execution()
    for name, array in inputs.items():
        execution.set(name, array)
    return lambda: execution.compute(loop_timeout=None)


def _tally_runs(run: Callable[[], Results], count: int) -> ResultTallies:
    tallies = ResultTallies()
    for _ in range(count):
        tallies.add(SAME_RECORDING, run())
    return tallies


def count_differing_runs(model: Model, inputs: Results, count: int) -> int:
    """Return how many of `count` runs differ from the most common result, for the output with the most."""
    names = (value.name for value in model.program.inputs)
    run = _make_replay(model.program, dict(zip(names, model.arguments(**inputs), strict=True)))
    return _tally_runs(run, count).max_differing


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
    UNDER_LOAD: "beside other load",
}


def check_repeat_count(repeat: int) -> int:
    """Return the number of runs. Raise InputError if it is neither 0 (no repeats) nor at least 2."""
    if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 0 or repeat == 1:
        raise InputError(f"validate: repeat: expected 0 or at least 2 runs, given {repeat!r}")
    return repeat


class _WarmProgram(NamedTuple):
    """A program after its first run, which does not count because the device was busy. run: reruns it on `inputs`."""

    inputs: Results
    run: Callable[[], Results]


class _FreshContextProgram:
    """A model's program on another context of the same device. first_run: the program after its first run, or None."""

    def __init__(self, program: Program, first_run: _WarmProgram | None) -> None:
        self.program = program
        self.first_run = first_run

    def take_first_run(self, inputs: Results) -> Callable[[], Results] | None:
        """Return the function that reruns the program, if its first run used these inputs; later calls return None."""
        first_run, self.first_run = self.first_run, None
        return first_run.run if first_run is not None and first_run.inputs is inputs else None


class RepeatedRuns:
    """Repeats the cases of a validation, also on a second context, which close() keeps for the next validation.

    A thread creates or reuses that context, compiles the model and runs it once on `first`, while the first case is
    checked on the host.
    """

    def __init__(self, validation: ModelValidation, first: Results | None = None) -> None:
        self.validation = validation
        self.model = cast(Model, validation.fused)  # candidates are not repeated
        self.count = validation.options.repeat
        self._thread = ThreadPoolExecutor(1)
        self._fresh_future: Future[_FreshContextProgram] | None = (
            self._thread.submit(self._load, first) if self.count else None
        )
        self._worst_by_output: dict[str, Repeatability] = {}

    def close(self) -> None:
        """Free the program on the second context. If it is still compiling, the thread frees it later."""
        if self._fresh_future is not None:
            self._fresh_future.cancel()
            # The callback runs immediately if loading is complete.
            self._fresh_future.add_done_callback(partial(_close_program, self.model.context))
        self._thread.shutdown(wait=False)

    @property
    def fresh_program(self) -> _FreshContextProgram:
        """The program on the second context. Wait until it is loaded, and raise what loading raises."""
        # The future is set whenever cases are repeated.
        return cast("Future[_FreshContextProgram]", self._fresh_future).result()

    @property
    def _device_tensors(self) -> DeviceTensors:
        return cast(DeviceTensors, self.validation.tensors)  # candidates are not repeated

    def _load(self, first: Results | None) -> _FreshContextProgram:
        context = get_fresh_context(self.model.context)
        try:
            program = self._device_tensors.compile_optimized(context)
            return _FreshContextProgram(program, None if first is None else _start_program(program, first))
        except BaseException:
            context.close()
            raise

    def run(self, inputs: dict[str, Array], case: int) -> None:
        """Run a case repeatedly. Check each distinct result like the first."""
        tallies, distinct = ResultTallies(), []
        try:
            for setting, results in self._iter_runs(inputs):
                if tallies.add(setting, results):
                    distinct.append(results)
        except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
            return
        checked = self.validation.runs.compute_outputs(inputs)
        decoded = self.validation.reference.decode_strings(distinct[0])
        checked_run = "the run that is judged, which begins on filled memory"
        findings = compare_output_bits(decoded, checked, checked_run, case)
        for finding in findings:
            if not tallies[finding.node].differs:  # a difference between runs is reported as a Repeatability result
                self.validation.collected.add_finding(finding)
        for results in distinct:
            if (tallies.any_differs or findings) and self.validation.check_results:
                self.validation.check_results(results)
        differing = {name: tally for name, tally in tallies.items() if tally.differs}
        node, outcomes = self._find_cause(inputs, tallies) if differing else ("", {})
        for name, tally in tallies.items():
            counts, pattern = (tally.count_differing(), tally.find_pattern()) if tally.differs else ({}, None)
            result = Repeatability(name, case, tally.count_runs(), counts, len(tally.kinds), node, pattern, outcomes)
            if name not in self._worst_by_output or result.rate > self._worst_by_output[name].rate:
                self._worst_by_output[name] = result if tally.differs else result._replace(node="", tried={})

    def _iter_runs(self, inputs: dict[str, Array]) -> Iterator[tuple[str, Results]]:
        """Yield the setting and the results of every run of a case."""
        fresh = self.fresh_program
        first_run, replay = fresh.take_first_run(inputs), _make_replay(self.model.program, inputs)
        fresh_replay = first_run or _make_replay(fresh.program, inputs)
        for _ in range(self.count):
            yield SAME_RECORDING, replay()
        for _ in range(math.ceil(self.count / _FRESH_RUN_DIVISOR)):
            yield FRESH_CONTEXT, fresh_replay()
        with ThreadPoolExecutor(1) as pool:
            for _ in range(math.ceil(self.count / _LOADED_RUN_DIVISOR / 2)):
                concurrent = pool.submit(fresh_replay)
                yield UNDER_LOAD, replay()
                yield UNDER_LOAD, concurrent.result()

    def _find_cause(self, inputs: dict[str, Array], tallies: ResultTallies) -> tuple[str, dict[str, str]]:
        """Return the first differing node of the unfused program, and the changes that remove the difference."""
        tensor_tallies = self._tally_unfused_tensors(inputs)
        differing = {name for name, tally in tensor_tallies.items() if tally.differs}
        nodes = (node for node in self.validation.reference.nodes if not differing.isdisjoint(node.outputs))
        first = next((node.name for node in nodes), "")
        worst = max(tallies.values(), key=lambda tally: sum(tally.count_differing().values()))
        rate = sum(worst.count_differing().values()) / sum(worst.count_runs().values())
        return first, {
            variant: self._try_variant(variant, inputs, tensor_tallies, first, rate)
            for variant in self._list_variants(first)
        }

    def _tally_unfused_tensors(self, inputs: dict[str, Array]) -> ResultTallies:
        """Run the unfused program repeatedly and tally every tensor. To save memory, keep only two results of each."""
        tensor_tallies = ResultTallies(2)
        settings = (
            (SAME_RECORDING, self.model.context, self.count),
            (FRESH_CONTEXT, self.fresh_program.program.context, math.ceil(self.count / _FRESH_RUN_DIVISOR)),
        )
        for setting, context, count in settings:
            with self._device_tensors.compile(context, keep_all=True, fuse=False) as program:
                run = _make_replay(program, inputs)
                for _ in range(count):
                    tensor_tallies.add(setting, run())
        return tensor_tallies

    # ---- variants that may remove a difference

    def _list_variants(self, node: str) -> list[str]:
        context = self.model.context
        families = [f"without {name}" for name in OPTIONAL_FEATURES if context.feature(name)]
        isolated_node = [f"node '{node}' alone, with waits around it"] if node else []
        return ["fuse=False", "deterministic=True", *families, *isolated_node]

    def _try_variant(
        self, variant: str, inputs: dict[str, Array], tensor_tallies: ResultTallies, node: str, rate: float
    ) -> str:
        try:
            with self._variant_program(variant, inputs, tensor_tallies, node) as (program, variant_inputs):
                num_differing = _tally_runs(_make_replay(program, variant_inputs), self.count).max_differing
        except Error as error:
            return f"does not run ({error})"
        if num_differing:
            return f"{num_differing} of {self.count} runs differ"
        chance = (1 - rate) ** self.count
        return f"the same bits in {self.count} runs" + (", which may be chance" if chance > _MAX_CHANCE else "")

    @contextmanager
    def _variant_program(
        self, variant: str, inputs: dict[str, Array], tensor_tallies: ResultTallies, node: str
    ) -> Iterator[tuple[Program, dict[str, Array]]]:
        """Yield the program with one change, and its inputs."""
        context = self.model.context
        if variant.startswith("without "):
            with (
                another_context(context, [variant.removeprefix("without ")]) as lesser,
                self._device_tensors.compile(lesser) as program,
            ):
                yield program, inputs
        elif variant.startswith("node "):
            values = {**inputs, **{name: tally.kinds[0] for name, tally in tensor_tallies.items()}}
            subgraph = extract_subgraph(self.validation.reference, [node], values)
            precision, kernels = make_subgraph_precision(self.model.policy, subgraph.proto), self.model.kernel_table
            with Model(subgraph.proto, context, precision, progress=False, kernels=kernels) as isolated_model:
                yield isolated_model.program, subgraph.inputs
        else:
            name, _, value = variant.partition("=")
            with self._device_tensors.compile(context, **{name: value == "True"}) as program:
                yield program, inputs

    # ---- results

    def results(self) -> list[Repeatability]:
        """Return the result of each output."""
        return list(self._worst_by_output.values())


def _start_program(program: Program, inputs: Results) -> _WarmProgram | None:
    """Run a program for the first time. Return None if that fails or if the program has loops, which may not end."""
    if program.has_control_flow:
        return None
    try:
        run = _make_replay(program, inputs)
        run()
    except Error:
        return None
    return _WarmProgram(inputs, run)


def _close_program(model_context: Context, loaded: Future[_FreshContextProgram]) -> None:
    """Close a program, and keep its context as a spare for the next validation on the model's context."""
    if not loaded.cancelled() and loaded.exception() is None:
        program = loaded.result().program
        context = program.context
        try:
            program.close()
        finally:
            keep_spare(model_context, context)


def get_fresh_context(model_context: Context) -> Context:
    """Return another context of the device without the model's data: a spare one, or a new one."""
    return take_spare(model_context) or another_context(model_context)


def make_repeatability_findings(repeats: list[Repeatability]) -> list[Finding]:
    """Return a finding for each output that differs between runs."""
    return [
        Finding(NOT_DETERMINISTIC, repeat.node or repeat.output, str(repeat), repeat.rate, repeat.case)
        for repeat in repeats
        if not repeat.deterministic
    ]
