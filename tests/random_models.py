"""Random small ONNX models: fused, unfused and node by node, compared with ONNX Runtime and onnx's reference.

python tests/random_models.py --seeds 0:1000 --jobs 4
"""

from __future__ import annotations

import collections
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import pumice
from features import reason_of_refusal
from random_nodes import OPERATORS, Made, Maker, SkipError, workers
from random_nodes.maker import is_float
from random_nodes.oracle import Array, Data, RefusedError, describe, epsilon, same

OPSETS = (18, 20, 21, 21, 22, 23, 24, 26)
ULPS = 64  # tolerance in ulp of the sum of the magnitudes added
LOOSE = {"float16": 3e-2, "float32": 1e-3, "float64": 1e-6}


@dataclass
class Result:
    seed: int
    failures: list[str] = field(default_factory=list)
    disputed: list[str] = field(default_factory=list)
    operators: collections.Counter[str] = field(default_factory=collections.Counter)
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)
    lacking: str = ""  # what the device lacks and the model needs
    calls: int = 0


def random_model(seed: int, only: str | None = None) -> tuple[Maker, collections.Counter[str]]:
    """Return a model of 3 to 12 nodes, and what could not be added to it."""
    random = np.random.default_rng(seed)
    symbolic = bool(random.random() < 0.4)
    opset = int(random.choice(OPSETS))
    m = Maker(random, opset, calls=3 if symbolic else 1, symbolic=symbolic)
    wanted = m.whole(3, 12)
    skipped: collections.Counter[str] = collections.Counter()
    names = list(OPERATORS)
    while len(m.nodes) < wanted and skipped.total() < 60:
        op = only if only and not m.nodes else m.one(names)
        mark = m.mark()
        try:
            OPERATORS[op](m, op)
        except SkipError as error:
            m.back(mark)
            skipped[f"{op}: {error}"] += 1
    return m, skipped


def terms_of(made: Made, reads: list[Data]) -> Array | float:
    """Return the sum of the magnitudes that are added for each element of the result."""
    if not made.sums:
        return 0.0
    try:
        return np.asarray(made.oracle([np.abs(one) if is_float(one) else one for one in reads])[0], np.float64)
    except RefusedError:
        return 0.0


def apart(got: Data, expected: Data, allowed: Any) -> bool:
    """Return whether float values differ by more than allowed, or the kinds differ."""
    if isinstance(got, list) or isinstance(expected, list):
        if not isinstance(got, list) or not isinstance(expected, list) or len(got) != len(expected):
            return True
        return any(apart(a, b, allowed) for a, b in zip(got, expected, strict=True))
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return True
    a, b = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= allowed
    return bool(~np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))


def largest(data: Data) -> float:
    if isinstance(data, list):
        return max((largest(one) for one in data), default=0.0)
    return float(np.abs(data).max(initial=0))


def sensitivity(made: Made, reads: list[Data], at: int, expected: Array) -> Array:
    """Return how much the result changes if the inputs change by a few ulp."""
    random = np.random.default_rng(1)
    most = np.zeros(expected.shape)
    for _ in range(8):  # half of the draws move two elements in the same direction
        moved = []
        for k, one in enumerate(reads):
            # Do not perturb the scales of a Resize: they change the result's shape.
            if is_float(one) and not isinstance(one, list) and (k == 0 or made.node.op_type != "Resize"):
                step = 2 * epsilon(one.dtype) * np.abs(one).max(initial=0)
                one = (one.astype(np.float64) + random.choice([-1, 1], one.shape) * step).astype(one.dtype)
            moved.append(one if isinstance(one, list) else np.asarray(one))
        try:
            result = made.oracle(moved)[at]
        except RefusedError:
            continue
        if result.shape == expected.shape:
            most = np.maximum(most, np.abs(result.astype(np.float64) - expected.astype(np.float64)))
    return most


def wrong(made: Made, at: int, got: Data, expected: Data, reads: list[Data]) -> bool:
    """Return whether an output of a node differs from its oracle."""
    value = made.results[at]
    if value.exact or not is_float(expected):
        return not same(got, expected)
    if isinstance(expected, list):
        return apart(got, expected, ULPS * epsilon(value.dtype) * largest(expected))
    eps = max(epsilon(value.dtype), *[epsilon(one.dtype) for one in reads if not isinstance(one, list)], 0.0)
    size = np.abs(expected.astype(np.float64))
    if not apart(
        got, expected, ULPS * eps * np.maximum(size, np.maximum(terms_of(made, reads), size.max(initial=0) / 16))
    ):
        return False
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return True
    return apart(got, expected, ULPS * eps * np.maximum(size, 0.125) + 16 * sensitivity(made, reads, at, expected))


def check_nodes(m: Maker, call: int, found: dict[str, Data], result: Result) -> None:
    """Compare every node with its oracle, given the engine's inputs to it."""
    for made in m.nodes:
        here = [found.get(one.name, one.data[call]) for one in made.reads]
        unchanged = all(same(one, value.data[call]) for one, value in zip(here, made.reads, strict=True))
        try:
            expected = [one.data[call] for one in made.results] if unchanged else made.oracle(here)
        except RefusedError as error:
            result.failures.append(
                f"call {call}, {label(made)}: the oracle refuses what the engine gives: {error}"[:400]
            )
            continue
        for at, value in enumerate(made.results):
            got = found[value.name]
            if not wrong(made, at, got, expected[at], here):
                continue
            told = f"call {call}, {label(made)} output {at} of {shapes(here)}: {describe(got, expected[at])}"
            try:
                other = made.oracle.by_other(here)[at]
                agrees = not wrong(made, at, got, other, here)
            except RefusedError:
                agrees = False
            (result.disputed if agrees else result.failures).append(told)


def shapes(data: list[Data]) -> str:
    return ", ".join(
        f"{len(one)} tensors" if isinstance(one, list) else f"{one.dtype}{list(one.shape)}" for one in data
    )


def label(made: Made) -> str:
    attributes = ", ".join(
        f"{a.name}={onnx.helper.get_attribute_value(a)}" for a in made.node.attribute if a.type not in (4, 5)
    )
    return f"{made.node.op_type}({attributes})"


def noise(m: Maker, call: int) -> dict[str, float]:
    """Return how far each value moves if every rounding differs, measured over six draws."""
    random = np.random.default_rng(2)
    moved: dict[str, float] = {}
    for _ in range(6):
        values: dict[str, Data] = {}
        for made in m.nodes:
            reads = [values.get(one.name, one.data[call]) for one in made.reads]
            try:
                results = made.oracle(reads)
            except RefusedError:
                results = [one.data[call] for one in made.results]
            for value, got in zip(made.results, results, strict=True):
                if not value.exact and is_float(got) and not isinstance(got, list):
                    step = 4 * epsilon(got.dtype) * np.abs(got).max(initial=0)
                    got = (got + random.uniform(-1, 1, got.shape) * step).astype(got.dtype)
                    expected = value.data[call]
                    off = (
                        np.inf
                        if got.shape != expected.shape
                        else np.abs(got.astype(np.float64) - expected).max(initial=0)
                    )
                    moved[value.name] = max(moved.get(value.name, 0.0), float(off))
                values[value.name] = got if isinstance(got, list) else np.asarray(got)
    return moved


def check_whole(m: Maker, call: int, found: dict[str, Data], result: Result, way: str) -> None:
    """Compare the model's outputs with its nodes' outputs, run one by one, within a loose bound."""
    moved: dict[str, float] | None = None
    loose: dict[str, float] = {}
    for made in m.nodes:
        before = max((loose.get(one.name, 0.0) for one in made.reads), default=0.0)
        for value in made.results:
            loose[value.name] = 0.0 if value.exact else max(before, LOOSE[value.dtype])
            if value.name not in found:
                continue
            got, expected = found[value.name], value.data[call]
            if value.exact:
                bad = not same(got, expected)
            else:
                scale = max(0.01 * max((largest(one.data[call]) for one in made.reads), default=0.0), 1e-3)
                bad = apart(got, expected, loose[value.name] * max(largest(expected), scale))
                if bad and not isinstance(got, list) and got.dtype == expected.dtype and got.shape == expected.shape:
                    moved = moved if moved is not None else noise(m, call)
                    bad = apart(got, expected, 32 * moved.get(value.name, 0.0))
            if bad:
                result.failures.append(f"call {call}, {way}, {label(made)}: {describe(got, expected)}")


def outputs_of(model: pumice.Model, given: dict[str, Array]) -> dict[str, Data]:
    made = model(**given)
    names = [one.name for one in model.outputs]
    return dict(zip(names, [made] if len(names) == 1 else made, strict=True))


def run_seed(seed: int, context: pumice.Context, only: str | None = None) -> Result:
    """Test one model. An engine error counts as a failure of this model only."""
    result = Result(seed)
    m, skipped = random_model(seed, only)
    for text in skipped:
        result.skipped[text.split(":", 1)[0]] += 1
    result.operators.update(made.node.op_type for made in m.nodes)
    if not m.nodes:
        return result
    ways: dict[str, tuple[bool, bool]] = {
        "node by node": (True, True),
        "fused": (False, True),
        "not fused": (False, False),
    }
    for way, (everything, fuse) in ways.items():
        try:
            proto = m.model(everything)
            model = pumice.load(proto, context=context, fuse=fuse, progress=False)
        except Exception as error:
            if isinstance(error, pumice.UnsupportedError) and (lacking := reason_of_refusal(str(error), context)):
                result.lacking = lacking
                break
            result.failures.append(workers.flat(f"load, {way}: {type(error).__name__}: {error}"))
            break
        try:
            for call in range(m.calls):
                found = outputs_of(model, m.given(call))
                result.calls += 1
                if everything:
                    check_nodes(m, call, found, result)
                else:
                    check_whole(m, call, found, result, way)
        except Exception as error:
            if isinstance(error, pumice.UnsupportedError) and (lacking := reason_of_refusal(str(error), context)):
                result.lacking = lacking
                break
            where = "" if isinstance(error, pumice.Error) else traceback.format_exc().splitlines()[-3].strip()
            text = f"call {call}, {way}: {type(error).__name__}: {error} {where}"
            result.failures.append(workers.flat(text))
        finally:
            model.close()
    return result


# ---- command line


def main() -> int:
    parser = workers.arguments(__doc__)
    parser.add_argument("--only", help="the operator that each model begins with")
    parser.add_argument("--counts", action="store_true", help="show how often each operator came")
    given = parser.parse_args()
    begin = time.perf_counter()
    operators: collections.Counter[str] = collections.Counter()
    skipped: collections.Counter[str] = collections.Counter()
    models = failed = disputed = lacking = calls = 0
    for result in workers.results(given, run_seed, given.only, Result):
        models += 1
        failed += bool(result.failures)
        disputed += len(result.disputed)
        lacking += bool(result.lacking)
        calls += result.calls
        operators.update(result.operators)
        skipped.update(result.skipped)
        for text in result.failures[:4]:
            print(f"seed {result.seed}: {text}", flush=True)
        for text in result.disputed[:2]:
            print(f"seed {result.seed}: disputed (the other oracle agrees with the engine): {text}", flush=True)
    if given.counts:
        for name, count in sorted(operators.items(), key=lambda item: item[1]):
            print(f"{name} {count} ({skipped[name]} not possible)")
    missing = sorted(set(OPERATORS) - set(operators))
    print(f"operators that never came: {', '.join(missing) or 'none'}")
    seconds = time.perf_counter() - begin
    print(
        f"{models} models, {calls} calls, {failed} failed, {disputed} disputed, {lacking} lack a feature, {len(operators)} operators,"
        f" {operators.total()} nodes, {seconds:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
