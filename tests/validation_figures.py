"""Measure what validation costs and finds on a device: for GPUs, which the test suite does not cover.

PUMICE_DEVICE=discrete python tests/validation_figures.py bert repeat tight tuner
PUMICE_DEVICE=discrete python tests/validation_figures.py repeat --explain
PUMICE_DEVICE=discrete python tests/validation_figures.py tuner long_product cubes
PUMICE_DEVICE=discrete python tests/validation_figures.py alarms --part 1/2 --jobs 12

bert: a model of BERT-base's shape, node by node. repeat: 100 runs compared bit by bit against 100 plain calls; --explain also shows the
time of each stage. alarms: the corpus of exported models, none of which is wrong. tight: the fraction of nodes for which an error of 8 ulp
in one element is found, by operator; how many correct elements are that far off; and both without the accumulation details reported by
kernels. tuner: the speed kept if some nodes stay in float32, the additional dispatches, and for slow models the kernels that take longer;
for all 20 models, or the named ones. The exit status is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import onnx

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "support")]

import pumice  # noqa: E402
import repeat_breakdown  # noqa: E402
from corpus import store  # noqa: E402
from corpus.case import arrays  # noqa: E402
from onnx_models import model, node, value  # noqa: E402
from precision_models import TRAPS, precision_model  # noqa: E402
from pumice.validation.checker import model_validation  # noqa: E402
from pumice.validation.reference.reference_model import ReferenceNode  # noqa: E402
from pumice.validation.report.deviation import compare_tensor  # noqa: E402
from pumice.validation.rules.bounded_tensor import BoundedTensor  # noqa: E402
from pumice.validation.rules.float_types import ProgramTypes  # noqa: E402
from pumice.validation.search.precision_tuner import measure_best_seconds  # noqa: E402

FLOAT = np.float32
BERT_SECONDS, REPEAT_FACTOR, FOUND, KEPT = 60.0, 3.0, 0.95, 0.9
REPEAT_TURNS = 12.0  # seconds of validations with and without repeated runs; these vary by more than the runs take
TURNS = 1.5  # seconds of calls with and without a policy; a GPU raises its clocks faster
TIGHT = ("bert.script", "resnet.script", "swin.script", "whisper_decoder.script")
REFUSED = ("sklearn_dictionaries",)


# ---- a model of BERT-base's shape


class Bert:
    """Nodes and weights: 12 layers, hidden size 768, 12 heads, intermediate size 3,072, 128 tokens."""

    def __init__(
        self, layers: int, width: int = 768, heads: int = 12, tokens: int = 128, vocabulary: int = 30522
    ) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self.width, self.heads, self.tokens, self.vocabulary = width, heads, tokens, vocabulary
        x = self.add("Gather", self.weight(vocabulary, width, scale=0.02), "ids")
        x = self.norm(self.add("Add", x, self.weight(tokens, width, scale=0.02)))
        for _ in range(layers):
            x = self.layer(x)
        self.nodes[-1].output[0] = "y"

    def proto(self) -> onnx.ModelProto:
        ids = value("ids", [1, self.tokens], onnx.TensorProto.INT64)
        made: onnx.ModelProto = model(self.nodes, [ids], constants=self.constants)
        return made

    def ids(self) -> Any:
        return self.random.integers(0, self.vocabulary, (1, self.tokens))

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        wide = self.random.standard_normal(shape, FLOAT)
        return self.constant(wide * FLOAT(shape[0] ** -0.5 if scale is None else scale))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(node(op, list(inputs), [f"t{len(self.nodes)}"], name=name, **attributes))
        return self.nodes[-1].output[0]

    def norm(self, x: str) -> str:
        ones, zeros = self.constant(np.ones(self.width, FLOAT)), self.constant(np.zeros(self.width, FLOAT))
        return self.add("LayerNormalization", x, ones, zeros, axis=-1)

    def linear(self, x: str, wide: int, out: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(wide, out)), self.weight(out, scale=0.02))

    def layer(self, x: str) -> str:
        each = self.width // self.heads
        apart = self.constant(np.array([1, self.tokens, self.heads, each]))
        q, k, v = (self.add("Reshape", self.linear(x, self.width, self.width), apart) for _ in range(3))
        q, v = (self.add("Transpose", one, perm=[0, 2, 1, 3]) for one in (q, v))
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 2, 3, 1]))
        shares = self.add("Softmax", self.add("Div", scores, self.constant(np.array(each**0.5, FLOAT))), axis=-1)
        joined = self.add("Transpose", self.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        flat = self.add("Reshape", joined, self.constant(np.array([1, self.tokens, self.width])))
        x = self.norm(self.add("Add", x, self.linear(flat, self.width, self.width)))
        inside = self.linear(x, self.width, 4 * self.width)
        half = self.add("Mul", inside, self.constant(np.array(0.5, FLOAT)))
        erf = self.add("Erf", self.add("Div", inside, self.constant(np.array(2**0.5, FLOAT))))
        gelu = self.add("Mul", half, self.add("Add", erf, self.constant(np.array(1, FLOAT))))
        return self.norm(self.add("Add", x, self.linear(gelu, 4 * self.width, self.width)))


def bert(context: pumice.Context, options: argparse.Namespace) -> bool:
    made = Bert(options.layers)
    source, ids = made.proto(), made.ids()
    passed = True
    for precision in options.precision.split(","):
        begin = time.perf_counter()
        report = pumice.validate(source, [ids], context=context, precision=precision)
        seconds = time.perf_counter() - begin
        passed = passed and report.ok and seconds < BERT_SECONDS
        print(
            f"bert {precision}: {report.state}, {len(report.rows)} tensors, {len(report.kernels)} of kernels, {seconds:.1f} s"
        )
        print(f"  {report.summary.splitlines()[0]}")
    return passed


# ---- 100 runs


def repeat(context: pumice.Context, options: argparse.Namespace) -> bool:
    stored = store.load("bert.script")
    made = Bert(options.layers)
    cases = {
        "bert.script": (stored.model, arrays(stored.inputs, stored.sizes[0])),
        "bert": (made.proto(), {"ids": made.ids()}),
    }
    passed = True
    for name, (source, case) in cases.items():
        try:
            with pumice.load(source, context, "fp16") as loaded:
                passed = repeated(name, loaded, case, options) and passed
        except Exception:  # measure the other anyway
            traceback.print_exc()
            passed = False
    return passed


def repeated(name: str, loaded: pumice.Model, case: Any, options: argparse.Namespace) -> bool:
    """Return whether 100 runs are cheap enough compared with 100 calls, excluding what the first validation loads."""
    for _ in range(10):
        loaded(**case)
    begin = time.perf_counter()
    for _ in range(100):
        loaded(**case)
    plain = time.perf_counter() - begin
    report = pumice.validate(loaded, [case], mode="chained", repeat=100)
    judged = functools.partial(pumice.validate, loaded, [case], mode="chained")
    calls = {"once": judged, "repeated": functools.partial(judged, repeat=100)}
    best = measure_best_seconds(calls, REPEAT_TURNS, min_rounds=2)
    once = best["once"]
    seconds = best["repeated"] - once
    runs = [one.runs for one in report.repeats][:1]
    print(
        f"repeat {name}: 100 calls {plain:.4f} s, repeat=100 {seconds:.4f} s: {seconds / plain:.2f} times; runs {runs}; "
        f"validated without it in {once:.3f} s",
        flush=True,
    )
    if options.explain:
        for line in repeat_breakdown.explained(loaded, case, 100):
            print(line, flush=True)
    return seconds <= REPEAT_FACTOR * plain and all(one.deterministic for one in report.repeats)


# ---- no false alarm


def checked(work: tuple[str, str]) -> tuple[str, str, Counter[str], list[str]]:
    """Return row counts by program and verdict of one model at one precision, and its errors."""
    name, precision = work
    stored = store.load(name)
    cases = [arrays(stored.inputs, sizes) for sizes in stored.sizes]
    found: Counter[str] = Counter()
    wrong = []
    try:
        report = pumice.validate(stored.model, cases, precision=precision)
    except pumice.UnsupportedError as error:  # unsupported by this device
        return name, precision, Counter({"refused": 1}), [str(error)[:160]]
    for row in (*report.rows, *report.kernels):
        found[f"{row.program} {row.verdict}"] += 1
        if row.verdict == "wrong":
            wrong.append(
                f"{row.program} {row.node}: {row.output} ({row.deviation.severity if row.deviation else row.fault})"
            )
        if row.verdict == "ill-conditioned":
            wrong.append(f"{row.program} {row.node}: {row.note}")
    return name, precision, found, wrong


def alarms(_: pumice.Context, options: argparse.Namespace) -> bool:
    part, parts = map(int, options.part.split("/"))
    names = [name for name in store.names() if name not in REFUSED][part - 1 :: parts]
    work = [(name, precision) for precision in options.precision.split(",") for name in names]
    work = [one for one in work if one[0] != "script_newton" or one[1] == "fp32"]  # its loop never ends in 16 bits
    total: dict[str, Counter[str]] = defaultdict(Counter)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:  # GPU drivers do not survive a fork
        for name, precision, found, wrong in pool.map(checked, work):
            total[precision] += found
            for one in wrong:
                print(f"  {name} at {precision}: {one}", flush=True)
    for precision, found in total.items():
        print(f"alarms {precision}, {len(names)} models: {dict(sorted(found.items()))}")
    return not any(key.endswith(("wrong", "ill-conditioned")) for found in total.values() for key in found)


# ---- tightness


class Spoiler:
    """Add 8 ulp to a random element of each judged tensor, and count how often it is found, by operator."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        self.found: dict[str, list[bool]] = defaultdict(list)
        self.bounds: dict[str, list[float]] = defaultdict(list)  # at that element, in ulp
        self.far: dict[str, list[float]] = defaultdict(list)  # fraction of correct elements that are over 8 ulp off
        self.worst: dict[str, list[float]] = defaultdict(list)  # largest error of a correct element, in ulp
        self._near = model_validation.ModelValidation._compare_isolated

    def near(
        self, spoilt: model_validation.ModelValidation, node: ReferenceNode, name: str, actual: Any, expected: Any
    ) -> Any:
        if isinstance(expected, BoundedTensor) and expected.is_float and actual.dtype == FLOAT:
            self.spoil(spoilt, node.op, actual, expected)
        return self._near(spoilt, node, name, actual, expected)

    def spoil(self, one: model_validation.ModelValidation, op: str, actual: Any, expected: BoundedTensor) -> None:
        places = np.flatnonzero(np.isfinite(actual) & (actual != 0))
        if not places.size:
            return
        kept = one.types.get_storage_type(actual.dtype)
        units = 2 * kept.unit * 2.0 ** np.floor(np.log2(np.abs(actual.flat[places].astype(np.float64))))
        units = 8 * np.maximum(units, kept.step)
        own = np.abs(actual.flat[places].astype(np.float64) - expected.value.flat[places])
        self.far[op].append(float(np.mean(own > units)))
        self.worst[op].append(float(np.max(own / units) * 8))
        changed, k = actual.copy(), self.random.integers(len(places))
        changed.flat[places[k]] += units[k]
        self.found[op].append(not compare_tensor(changed, expected, one.types).ok)
        self.bounds[op].append(float(expected.get_errors().flat[places[k]] / units[k] * 8))


def spoilt(context: pumice.Context, precision: str, tells: bool) -> Spoiler:
    spoiler = Spoiler()

    def near(self: model_validation.ModelValidation, *given: Any) -> Any:
        return spoiler.near(self, *given)

    taken = ProgramTypes.with_additions if tells else lambda self, most: self
    with (
        mock.patch.object(model_validation.ModelValidation, "_compare_isolated", near),
        mock.patch.object(ProgramTypes, "with_additions", taken),
    ):
        for name in TIGHT:
            stored = store.load(name)
            report = pumice.validate(
                stored.model,
                [arrays(stored.inputs, stored.sizes[0])],
                context=context,
                precision=precision,
                mode="isolated",
            )
            assert report.state == "right", report.summary
    return spoiler


def share(found: dict[str, list[bool]]) -> str:
    right, count = sum(map(sum, found.values())), sum(map(len, found.values()))
    return f"{right} of {count}, {right / count:.1%}"


def tight(context: pumice.Context, options: argparse.Namespace) -> bool:
    passed = True
    for precision in options.precision.split(","):
        silent, told = spoilt(context, precision, False), spoilt(context, precision, True)
        print(f"tight {precision}: {share(told.found)}; where kernels tell nothing {share(silent.found)}")
        passed = passed and np.mean(list(chain(*told.found.values()))) >= FOUND
        for line in lines_of(silent, told):
            print(f"  {line}")
        for line in near_nodes(told):
            print(f"  {line}")
    return passed


def near_nodes(told: Spoiler) -> Iterator[str]:
    """Report only nodes whose correct elements are all within 8 ulp. In others, 8 ulp is no sign of a fault."""
    near = {
        op: [found for found, far in zip(told.found[op], told.worst[op], strict=True) if far < 8] for op in told.found
    }
    count, right = sum(map(len, near.values())), sum(map(sum, near.values()))
    total = sum(map(len, told.found.values()))
    yield f"nodes with a right element that is 8 units off or more: {total - count} of {total}, {(total - count) / total:.1%}"
    yield f"found in the other {count}: {right}, {right / max(count, 1):.1%}"
    for op, found in near.items():
        if not all(told.found[op]):
            far = np.array(told.worst[op])
            yield (
                f"  {op}: {len(far) - len(found)} of {len(far)} with such an element; farthest right element, median {np.median(far):.1f}, "
                f"least {far.min():.1f}; found in the others: {sum(found)} of {len(found)}"
            )


def lines_of(silent: Spoiler, told: Spoiler) -> Iterator[str]:
    """Report operators with a node in which the error was not found."""
    for op, found in sorted(told.found.items(), key=lambda item: sum(item[1]) - len(item[1])):
        if all(found):
            continue
        before, after = (np.median(one.bounds[op]) for one in (silent, told))
        yield (
            f"{op}: {sum(found)} of {len(found)}; bound, median, in units: {before:.1f}, as told {after:.1f}; "
            f"right elements over 8 units off: {np.mean(told.far[op]):.1%}"
        )


# ---- the tuner


class Searched(NamedTuple):
    """The result of a search for one model: the policy, its node count and the model's, and the time taken."""

    policy: dict[str, str]
    nodes: int
    total: int
    seconds: float


def trap_of(name: str, small: bool) -> Any:
    rows, width = (8, 32) if small else (4096, 512)
    return precision_model(name, rows=rows, width=width)


def searched(name: str, small: bool) -> Searched | str:
    """Return the search result, or why there is no policy. Nothing is timed, so processes may search concurrently."""
    begin = time.perf_counter()
    try:
        proto, case = trap_of(name, small)
        with pumice.Context() as context:
            found = pumice.tune_precision(proto, [case], limit=0.05, context=context, progress=False)
    except Exception:  # measure the others anyway
        return traceback.format_exc()
    return Searched(found.policy, len(found.nodes), found.total, time.perf_counter() - begin)


def searches(names: list[str], options: argparse.Namespace) -> dict[str, Searched | str]:
    jobs = min(options.jobs, len(names))
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return dict(zip(names, pool.map(searched, names, [options.small] * len(names)), strict=True))


def tuner(context: pumice.Context, options: argparse.Namespace) -> bool:
    part, parts = map(int, options.part.split("/"))
    names = [name for name in TRAPS if name in options.models or not options.models][part - 1 :: parts]
    kept, counts, begin = {}, [0, 0], time.perf_counter()
    found = searches(names, options)
    print(f"tuner: {len(names)} searches in {time.perf_counter() - begin:.0f} s", flush=True)
    for name, one in found.items():
        kept[name] = 0.0
        try:
            if isinstance(one, str):
                print(f"  {name}: {one}", flush=True)
                continue
            kept[name], own = tuned(context, name, one, options)
            counts = [few + more for few, more in zip(counts, own, strict=True)]
        except Exception:  # measure the others anyway
            traceback.print_exc()
    slow = [name for name, speed in kept.items() if speed < KEPT]
    print(f"tuner: dispatches fp16 {counts[0]}, policies {counts[1]}; {time.perf_counter() - begin:.0f} s")
    print(f"tuner: {len(kept) - len(slow)} of {len(kept)} keep at least {KEPT:.0%}; {', '.join(slow)}", flush=True)
    return not slow


def tuned(
    context: pumice.Context, name: str, found: Searched, options: argparse.Namespace
) -> tuple[float, tuple[int, int]]:
    """Return the speed and dispatches of one model; for a slow one also report where the policy costs time."""
    begin = time.perf_counter()
    proto, case = trap_of(name, options.small)
    with pumice.load(proto, context, "fp16") as narrow, pumice.load(proto, context, found.policy) as mixed:
        counts = tuple(
            len(one.program.plan([case[value.name] for value in one.program.inputs])) for one in (narrow, mixed)
        )
        kept = speed_kept(narrow, mixed, case)
        slower = [] if kept >= KEPT else [*lines_of_change(*(steps_of(one, case) for one in (narrow, mixed)))]
        halves = sum("gemm_split_fp16" in str(row["kernel"]) for row in mixed.program.report())
    print(
        f"  {name}: {found.nodes} of {found.total} nodes in fp32, {halves} as sums of two halves, speed kept {kept:.1%}; "
        f"dispatches fp16 {counts[0]}, policy {counts[1]}; {found.seconds:.1f} s to search, {time.perf_counter() - begin:.1f} s to measure",
        flush=True,
    )
    for line in slower:
        print(f"    {line}", flush=True)
    return kept, (counts[0], counts[1])


def speed_kept(narrow: pumice.Model, mixed: pumice.Model, case: Any) -> float:
    """Like `TunedPrecision.speed_kept`, with longer runs."""
    calls = {"narrow": functools.partial(narrow, **case), "mixed": functools.partial(mixed, **case)}
    seconds = measure_best_seconds(calls, TURNS)
    return seconds["narrow"] / seconds["mixed"]


def lines_of_change(before: dict[str, float], after: dict[str, float]) -> Iterator[str]:
    """Report the five steps with the largest slowdown."""
    change = {step: after.get(step, 0.0) - before.get(step, 0.0) for step in {*before, *after}}
    for step, seconds in sorted(change.items(), key=lambda item: -item[1])[:5]:
        yield f"{seconds * 1e6:+.1f} us of {sum(before.values()) * 1e6:.1f}: {step}"


def steps_of(loaded: pumice.Model, case: Any) -> dict[str, float]:
    """Return the device seconds of each step of a call: the minimum over many calls."""
    measure_best_seconds({"model": functools.partial(loaded, **case)})
    least: dict[str, float] = {}
    for _ in range(10):
        with pumice.profile("dispatch") as profile:
            for _ in range(5):
                loaded(**case)
        for row in profile.rows():
            step = f"{row.kernel} {row.name}"
            least[step] = min(least.get(step, math.inf), row.seconds / 5)
    return least


FIGURES = {"bert": bert, "repeat": repeat, "alarms": alarms, "tight": tight, "tuner": tuner}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "figures", nargs="+", choices=[*FIGURES, *TRAPS], help="figures, and models for `tuner`", metavar="NAME"
    )
    parser.add_argument("--precision", default="fp32,fp16,bf16")
    parser.add_argument("--layers", type=int, default=12, help="of the model of BERT-base's shape")
    parser.add_argument("--explain", action="store_true", help="where the time goes, for `repeat`")
    parser.add_argument("--small", action="store_true", help="models of 8 rows of 32, for `tuner`")
    parser.add_argument("--part", default="1/1", help="of the corpus, for `alarms`, or of the models, for `tuner`")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes, for `alarms` and the searches of `tuner`"
    )
    options = parser.parse_args()
    options.models = [name for name in options.figures if name in TRAPS]
    options.figures = [name for name in options.figures if name in FIGURES]
    if options.models and "tuner" not in options.figures:
        parser.error(f"models ({', '.join(options.models)}): expected the figure 'tuner' beside them")
    with pumice.Context() as context:
        print(f"{context.info.name}, {context.info.driver}")
        passed = [FIGURES[name](context, options) for name in options.figures]
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
