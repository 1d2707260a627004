"""Checks whether every run of a program gives the same bits, and analyses differences between runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from ..._pumice import Context, Error, IndexRangeError, Program, another_context, keep_spare, take_spare
from ...base.element_types import Array
from ...base.errors import InputError
from ...model.model import Model
from ..checker.case_results import CaseResultCache, ResultCollector, compare_output_bits
from ..checker.options import ValidationOptions
from ..reference.reference_model import ReferenceModel
from ..reference.subgraph_extraction import extract_subgraph
from ..reference.tensor_sources import OPTIONAL_FEATURES, DeviceTensors, make_replay, tally_runs
from ..report.findings import NOT_DETERMINISTIC, Finding
from ..report.repeat_results import (
    FRESH_CONTEXT,
    SAME_RECORDING,
    UNDER_LOAD,
    Repeatability,
    Results,
    ResultTallies,
)
from ..report.subgraph import make_subgraph_precision

_FRESH_RUN_DIVISOR = 4  # for N runs on one recording, N / 4 run on a fresh context
# Only N / 8 runs are under load, because switching contexts on a GPU takes longer than running a small model.
_LOADED_RUN_DIVISOR = 8
_MAX_CHANCE = 0.05


# ---- patterns of differing elements


# ---- runs


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


class CheckedModel(Protocol):
    """The parts of a validation that repeated runs need."""

    fused: Any
    options: ValidationOptions
    tensors: Any
    reference: ReferenceModel
    runs: CaseResultCache
    collected: ResultCollector
    check_results: Callable[[Mapping[str, Array]], None] | None


class RepeatedRuns:
    """Repeats the cases of a validation, also on a second context, which close() keeps for the next validation.

    A thread creates or reuses that context, compiles the model and runs it once on `first`, while the first case is
    checked on the host.
    """

    def __init__(self, validation: CheckedModel, first: Results | None = None) -> None:
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
        first_run, replay = fresh.take_first_run(inputs), make_replay(self.model.program, inputs)
        fresh_replay = first_run or make_replay(fresh.program, inputs)
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
                run = make_replay(program, inputs)
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
                num_differing = tally_runs(make_replay(program, variant_inputs), self.count).max_differing
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
        run = make_replay(program, inputs)
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
