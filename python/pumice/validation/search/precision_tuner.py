"""Finds a minimal set of nodes that have to stay in float32, by trial."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..._pumice import Context, UnsupportedError, sha256
from ...base.atomic_files import write_text_atomic
from ...base.element_types import Array
from ...base.errors import InputError, unsupported_error
from ...base.log import forward_log
from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from ...base.progress import Progress
from ...importer.file.model_file import Folder, Source
from ...importer.load_graph import load_recipe
from ...model.model import Model
from ...model.precision_policy import DEFAULT, escape_literal
from ..checker.error_propagation import compute_relative_error
from ..checker.options import Case, read_case_inputs
from ..rules.bounded_tensor import BoundedTensor
from ..rules.float_types import ProgramTypes, is_float
from ..rules.user_kernel_rules import describe_kernel_nodes
from .precision_loss import Float32Candidate, PrecisionLossAnalysis

Metric: TypeAlias = Callable[[list[Any]], float]

_DEFAULT_LIMIT_UNITS = 16  # default error limit, in half ulps of the low-precision type
_MIN_ROUNDS = 7  # minimum number of timing rounds, of which the fastest counts
# Minimum total time of all rounds in seconds; an idle GPU takes about as long to raise its clocks.
_MIN_SECONDS = 0.3
_MAX_SINGLE_TRIALS = 24  # maximum number of candidates to try individually


class TunedPrecision(NamedTuple):
    """Result of tune_precision.

    policy: for `pumice.load(precision=...)`. nodes: the fp32 nodes, with reasons. value: largest relative error of an
    output, or the metric, with the policy. default_value: without it. limit: the target. total: nodes of the model.
    trials: programs tried. seconds, device_bytes: best run time, and memory of weights and intermediates, by "fp32",
    the default's name and "policy"; bytes are empty for programs with several lists of dispatches.
    """

    policy: dict[str, str]
    nodes: tuple[Float32Candidate, ...]
    value: float
    default_value: float
    limit: float
    total: int
    trials: int
    seconds: dict[str, float]
    device_bytes: dict[str, int]

    @property
    def default(self) -> str:
        """The precision of the nodes that are not in fp32."""
        return self.policy[DEFAULT]

    @property
    def speed_kept(self) -> float:
        """Run time of the default divided by that of the policy; 1 if the policy is as fast."""
        return self.seconds[self.default] / self.seconds["policy"]

    @property
    def memory_kept(self) -> float | None:
        """Share of the default's memory savings that the policy keeps; None if unknown or if the default saves nothing."""
        sizes = self.device_bytes
        saved = sizes["fp32"] - sizes[self.default] if sizes else 0
        return (sizes["fp32"] - sizes["policy"]) / saved if saved > 0 else None

    @property
    def summary(self) -> str:
        """One line: the number of fp32 nodes, and how much of the savings in time and memory the policy keeps."""
        memory_text = "" if self.memory_kept is None else f", {self.memory_kept:.0%} of the memory saved"
        value = f"{self.value:.3g} with the policy, {self.default_value:.3g} without, limit {self.limit:.3g}"
        nodes_text = f"{len(self.nodes)} of {self.total} nodes in fp32: {value}"
        return f"{nodes_text}; {self.speed_kept:.0%} of the speed of {self.default}{memory_text}; {self.trials} trials"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON; infinity becomes None."""
        record = {**self._asdict(), "nodes": [node._asdict() for node in self.nodes]}
        record.update(speed_kept=self.speed_kept, memory_kept=self.memory_kept)
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy as JSON for `pumice.load(precision=path)`; the file name has to end in .json."""
        if not os.fspath(path).endswith(".json"):
            raise InputError(f"policy '{os.fspath(path)}': expected a name that ends in .json")
        write_text_atomic(path, json.dumps(self.policy, indent=1) + "\n")

    def __str__(self) -> str:
        nodes = (
            f"{shorten_and_escape(node.node)} ({shorten_and_escape(node.op)}): {shorten_and_escape(node.kind)}: "
            f"{shorten_and_escape(node.text, MAX_SENTENCE_CHARS)}"
            for node in self.nodes
        )
        return "\n".join([self.summary, *nodes])


def tune_precision(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    metric: Metric | None = None,
    limit: float | None = None,
    default: str = "fp16",
    context: Context | None = None,
    progress: bool = True,
    folder: Folder | None = None,
) -> TunedPrecision:
    """Find a minimal set of nodes that have to stay in fp32, with all others in `default` ("fp16" or "bf16").

    Without a metric, the results of all cases are compared with the fp32 program's: the largest error of an output,
    relative to its largest magnitude, may be at most `limit` (by default 16 half ulps: 0.0078 at fp16, 0.0625 at bf16).
    For integers it is the share of differing elements. `metric` receives the list of the model's results for each case
    and returns a number, which has to be at least `limit`; then `limit` is required.

    Overflowing nodes, and amplifying nodes with their inputs, are tried first; then every node that can be removed is
    removed. The set is minimal, but a smaller set of other nodes may exist. On one device the same arguments give the
    same set, if the model is deterministic. A control-flow node includes all nodes of its graphs.

    progress: show a bar on a terminal. folder: stores "policy.json" and the trials, so that an interrupted search
    can resume. It is identified by the model, cases, arguments, device and the metric's name, not its code.

    Raise InputError if there is no case, an argument is out of range, fp32 does not reach `limit`, or the model has
    random numbers and no seed. Loading and calling the model may raise their own errors.
    """
    limit = _check_limit(metric, limit, default)
    with _load_in_float32(model, context) as exact, Progress("trials", progress) as bar:
        search = _PrecisionSearch(exact, [*cases], metric, limit, default)
        if folder is not None:
            search.resume(os.fspath(folder))
        search.bar = bar
        tuned = search.run()
        if folder is not None:
            tuned.save(os.path.join(os.fspath(folder), "policy.json"))
    forward_log()
    return tuned


def _check_limit(metric: Metric | None, limit: float | None, default: str) -> float:
    if default not in ("fp16", "bf16"):
        raise InputError(f"tune_precision: default: expected 'fp16' or 'bf16', given {default!r}")
    if metric is not None and not callable(metric):
        raise InputError(f"tune_precision: metric: expected a callable, given {type(metric).__name__}")
    if limit is None:
        if metric is not None:
            raise InputError("tune_precision: limit: expected a number, the minimum value of the metric, given none")
        return _DEFAULT_LIMIT_UNITS * ProgramTypes(default).get_storage_type("float32").unit
    if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
        raise InputError(f"tune_precision: limit: expected a number, given {limit!r}")
    if metric is None and limit <= 0:
        raise InputError(f"tune_precision: limit: expected a positive relative error, given {limit!r}")
    return float(limit)


def _load_in_float32(model: Model | Source, context: Context | None) -> Model:
    """Reload the model in fp32."""
    if not isinstance(model, Model):
        loaded = Model(model, context, "fp32", seed=0, progress=False)
    else:
        loaded = model.loaded_again(context, "fp32")
        if loaded.seed not in (None, model.seed):
            loaded.close()
            raise InputError(
                f"tune_precision: model '{model.name}' generates random numbers: expected a seed, given none"
            )
    if strings := [str(value) for value in (*loaded.inputs, *loaded.outputs) if value.dtype == object]:
        loaded.close()
        raise unsupported_error(f"tuning of model '{loaded.name}'", strings)
    return loaded


def _flatten_arrays(results: Any) -> list[Array]:
    """Return all arrays in a model's result, also in sequences and optional values."""
    if results is None:
        return []
    if isinstance(results, list | tuple):
        return [array for item in results for array in _flatten_arrays(item)]
    return [np.asarray(results)]


def _find_largest_error(actual: Any, expected: Any) -> float:
    """Return the largest error of the outputs; infinity if their number or shapes differ."""
    actual_arrays, expected_arrays = _flatten_arrays(actual), _flatten_arrays(expected)
    if [actual_array.shape for actual_array in actual_arrays] != [
        actual_array.shape for actual_array in expected_arrays
    ]:
        return math.inf
    worst = 0.0
    for actual_array, expected_array in zip(actual_arrays, expected_arrays, strict=True):
        if is_float(actual_array.dtype):
            worst = max(worst, compute_relative_error(actual_array, BoundedTensor(expected_array)))
        elif actual_array.size:
            worst = max(worst, float(np.mean(actual_array != expected_array)))
    return worst


def measure_best_seconds(
    calls: Mapping[str, Callable[[], Any]], min_seconds: float = _MIN_SECONDS, min_rounds: int = _MIN_ROUNDS
) -> dict[str, float]:
    """Return the fastest time of each call in seconds, by name. The calls take turns, after a warm-up round."""
    best = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
    began, rounds = time.perf_counter(), 0
    while rounds < min_rounds or time.perf_counter() - began < min_seconds:
        rounds += 1
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


class _PrecisionSearch:
    """Search for the nodes that need float32, with cached trials."""

    def __init__(self, exact: Model, cases: list[Case], metric: Metric | None, limit: float, default: str) -> None:
        if not cases:
            raise InputError("tune_precision: expected at least one case, given none")
        self.fp32_model, self.metric, self.limit, self.default = exact, metric, limit, default
        self.inputs = [read_case_inputs(exact, case) for case in cases]
        with exact.loaded_again() as fresh:  # reloaded, as for every trial, so that random numbers match
            self.expected = self._run_cases(fresh)
        self.values: dict[str, float] = {}  # result of each trial, by the indices of its fp32 nodes
        self.cache_path = ""
        self.bar: Progress | None = None
        self.causes = PrecisionLossAnalysis(exact, default, [arrays for arrays, _ in self.inputs])
        self.groups = self.causes.make_trial_groups()
        self.names = sorted(name for group in self.groups for name in group)
        self.positions = {name: position for position, name in enumerate(self.names)}

    def resume(self, folder: str) -> None:
        """Load earlier trials from a folder, and store new ones there."""
        os.makedirs(folder, exist_ok=True)
        self.cache_path = os.path.join(folder, f"trials-{self._compute_digest()[:16]}.json")
        try:
            with open(self.cache_path, encoding="utf-8") as file:
                cached = json.load(file)
            self.values = {str(key): float(value) for key, value in cached.items()}
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, AttributeError):  # not a valid file of trials: start a new one
            self.values = {}

    def _compute_digest(self) -> str:
        """Return a hash of everything that affects a trial, such as weights, nodes, kernels and cases."""
        overridable = [value.name for value in self.fp32_model.overridable]
        recipe = load_recipe(self.fp32_model.source, self.fp32_model.folder, overridable)
        parts: list[Any] = [constant.raw for constant in recipe.constants.values()]
        parts += [np.ascontiguousarray(array).tobytes() for arrays, _ in self.inputs for array in arrays.values()]
        nodes = [(node.qualified_op, node.name, node.inputs, node.outputs) for node in recipe.nodes]
        metric = getattr(self.metric, "__qualname__", type(self.metric).__name__)
        digest_parts = [
            nodes,
            list(recipe.constants),
            self.limit,
            self.default,
            metric,
            self.fp32_model.device.name,
            self.fp32_model.device.restrictions,
            self.fp32_model.seed,
            *describe_kernel_nodes(self.fp32_model),
        ]
        return sha256(*parts, json.dumps(digest_parts).encode())

    def _run_cases(self, model: Model) -> list[Any]:
        return [model(**dict(case_inputs)) for case_inputs in self._make_model_inputs(model)]

    def _make_model_inputs(self, model: Model) -> list[dict[str, Any]]:
        names = {value.name for value in (*model.inputs, *model.overridable)}
        return [{name: value for name, value in case_inputs.items() if name in names} for _, case_inputs in self.inputs]

    def make_policy(self, nodes: Iterable[str]) -> dict[str, str]:
        """Return the policy with these nodes in fp32."""
        return {DEFAULT: self.default, **{escape_literal(name): "fp32" for name in sorted(nodes)}}

    def run_trial(self, nodes: Sequence[str]) -> float:
        """Return the error, or the metric, with these nodes in fp32."""
        key = " ".join(str(position) for position in sorted(self.positions[name] for name in nodes))
        if key not in self.values:
            with self.fp32_model.loaded_again(precision=self.make_policy(nodes)) as low_precision:
                self.values[key] = self._compute_score(self._run_cases(low_precision))
            if self.cache_path:
                write_text_atomic(self.cache_path, json.dumps(self.values, indent=1) + "\n")
        if self.bar:
            self.bar(len(self.values), max(2 * len(self.values), 8))
        return self.values[key]

    def _compute_score(self, results: list[Any]) -> float:
        if self.metric is not None:
            return float(self.metric(results))
        return max(
            _find_largest_error(result, expected_result)
            for result, expected_result in zip(results, self.expected, strict=True)
        )

    def is_sufficient(self, nodes: Sequence[str]) -> bool:
        """Return whether the limit is met with these nodes in fp32."""
        value = self.run_trial(nodes)
        return value >= self.limit if self.metric is not None else value <= self.limit

    # ---- the search

    def run(self) -> TunedPrecision:
        """Grow a set of nodes until it suffices, then shrink it."""
        if self.metric is not None and not (value := self._compute_score(self.expected)) >= self.limit:
            raise InputError(
                f"tune_precision: limit: the metric of the program in fp32 is {value:.4g}, below {self.limit:.4g}"
            )
        sufficient = self._find_sufficient_set()
        minimal = self._find_single_sufficient_node(sufficient) or self._minimize(sufficient)
        minimal.sort(key=self._get_position)
        seconds, sizes = self._measure_cost(minimal)
        value, default_value = self.run_trial(minimal), self.run_trial([])
        nodes = tuple(self.causes.find_float32_reason(name) for name in minimal)
        counts = (self.causes.count, len(self.values))
        return TunedPrecision(
            self.make_policy(minimal),
            nodes,
            value,
            default_value,
            self.limit,
            *counts,
            seconds=seconds,
            device_bytes=sizes,
        )

    def _get_position(self, name: str) -> int:
        return self.causes.get_position(name)

    def _find_sufficient_set(self) -> list[str]:
        """Return the first of a series of growing candidate sets that meets the limit."""
        chosen: list[str] = []
        if self.is_sufficient(chosen):
            return chosen
        for group in self.groups[:2]:
            if group:
                chosen = chosen + group
                if self.is_sufficient(chosen):
                    return chosen
        rest = [name for group in self.groups[2:] for name in group]
        count = 1
        while count < len(rest):
            if self.is_sufficient(chosen + rest[:count]):
                return chosen + rest[:count]
            count *= 2
        everything = chosen + rest
        if not self.is_sufficient(everything):
            raise InputError(
                f"tune_precision: limit: with all nodes in fp32 it is {self.run_trial(everything):.4g}, beyond {self.limit:.4g}"
            )
        return everything

    def _find_single_sufficient_node(self, sufficient: list[str]) -> list[str] | None:
        """Return a node of the set that suffices on its own; None if there is none."""
        if not 1 < len(sufficient) <= _MAX_SINGLE_TRIALS:
            return None
        return next(([name] for name in sufficient if self.is_sufficient([name])), None)

    def _minimize(self, sufficient: list[str]) -> list[str]:
        """Return a subset from which no node can be removed. Large chunks at the end are tried first."""
        minimal, size = list(sufficient), max(len(sufficient) // 2, 1)
        while minimal:
            smaller = self._try_remove_chunk(minimal, size)
            if smaller is not None:
                minimal = smaller
                size = min(size, max(len(minimal) // 2, 1))
            elif size == 1:
                break
            else:
                size = max(size // 2, 1)
        return minimal

    def _try_remove_chunk(self, nodes: list[str], size: int) -> list[str] | None:
        for end in range(len(nodes), 0, -size):
            rest = nodes[: max(end - size, 0)] + nodes[end:]
            if self.is_sufficient(rest):
                return rest
        return None

    # ---- cost

    def _measure_cost(self, nodes: Sequence[str]) -> tuple[dict[str, float], dict[str, int]]:
        """Return the run times in seconds, measured alternately, and the device bytes of the three programs."""
        policies: dict[str, Any] = {"fp32": "fp32", self.default: self.default, "policy": self.make_policy(nodes)}
        models = {name: self.fp32_model.loaded_again(precision=policy) for name, policy in policies.items()}
        try:
            case_inputs = self._make_model_inputs(self.fp32_model)[0]
            seconds = measure_best_seconds({name: partial(model, **case_inputs) for name, model in models.items()})
            sizes = {name: self._count_device_bytes(model) for name, model in models.items()}
        finally:
            for model in models.values():
                model.close()
        return seconds, {name: size for name, size in sizes.items() if size is not None} if all(sizes.values()) else {}

    def _count_device_bytes(self, model: Model) -> int | None:
        shapes = [array.shape for array in self.inputs[0][0].values()]
        try:
            sizes = model.program.arena(shapes)
        except (UnsupportedError, TypeError):
            return None
        return sizes["persistent_bytes"] + sizes["arena_bytes"]
