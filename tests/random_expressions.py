"""Random expressions of exact operations, checked against NumPy operation by operation.

python tests/random_expressions.py --seeds 0:1000 --jobs 4      16 expressions per seed, fused and unfused
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

import pumice
from random_nodes import workers

AT_ONCE = 16  # expressions per graph
Array = npt.NDArray[Any]
F32 = np.float32

# Numbers that expose float folding as if with real numbers: they absorb others, cancel, or are powers of two.
NUMBERS = (
    12582912.0,
    -12582912.0,
    8388608.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    3.0,
    1 / 3,
    0.1,
    10.0,
    1e-3,
    4097.0,
    1e10,
    1e-10,
    0.0,
    7.0,
)


def larger(a: Array, b: Array) -> Array:
    """Return the maximum as the engine's Max: NaN if either is NaN, the second of equal values."""
    return np.where((a > b) | (a != a), a, b).astype(a.dtype)


def smaller(a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a), a, b).astype(a.dtype)


def to_int32(a: Array) -> Array:
    """Convert with saturation; NaN becomes 0."""
    inside = np.where((a != a) | (a >= 2.0**31) | (a <= -(2.0**31)), 0, a).astype(np.int32)
    ends = np.where(a >= 2.0**31, 2**31 - 1, np.where(a <= -(2.0**31), -(2**31), 0))
    return np.where((a >= 2.0**31) | (a <= -(2.0**31)), ends, inside).astype(np.int32)


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Max": larger,
    "Min": smaller,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "Neg": lambda a: -a,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda a: F32(1) / a,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Relu": lambda a: larger(a, np.zeros_like(a)),
}
TESTS: dict[str, Callable[[Array, Array], Array]] = {
    "Less": lambda a, b: a < b,
    "Equal": lambda a, b: a == b,
    "GreaterOrEqual": lambda a, b: a >= b,
}
UNDONE = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul"}
LEAST = float(np.finfo(F32).tiny)


@dataclass
class Term:
    """A value of the graph and NumPy's result for it."""

    value: Any
    array: Array
    text: str
    op: str = ""
    operands: tuple[Term, ...] = ()


@dataclass
class Maker:
    """Builds expressions over a few inputs. `fold`: the inputs are constants, so the host evaluates them."""

    random: np.random.Generator
    size: int = 64
    fold: bool = False
    doubles: bool = True
    graph: pumice.Graph = field(default_factory=lambda: pumice.Graph("expressions"))
    given: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = [self.input(k) for k in range(3)]

    def input(self, k: int) -> Term:
        array = self.numbers()
        name = "abc"[k]
        if self.fold:
            return Term(self.graph.constant(array), array, name)
        self.given[name] = array
        return Term(self.graph.input(name, "float32", [self.size]), array, name)

    def numbers(self) -> Array:
        """Return numbers of all magnitudes, with ties, duplicates and integers; no denormals, which a device may flush."""
        x = self.random.standard_normal(self.size) * np.exp2(self.random.integers(-6, 7, self.size))
        x[::5] = np.round(x[::5] * 2) / 2
        x[1::7] = self.random.choice([0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-30, 16777216.0, 0.5], x[1::7].size)
        x[3::29] = self.random.choice([np.inf, -np.inf, np.nan], x[3::29].size)
        return x.astype(F32)

    def number(self) -> Term:
        value = F32(self.random.choice(NUMBERS))
        return Term(self.graph.constant(np.array(value)), np.array(value), repr(float(value)))

    def pick(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def node(self, op: str, array: Array, *terms: Term, **attributes: Any) -> Term:
        value = self.graph.add(op, *[term.value for term in terms], **attributes)
        return Term(value, array, f"{op}({', '.join(term.text for term in terms)})", op, terms)

    def undone(self, x: Term) -> tuple[str, Term, Term] | None:
        """Return an operation that would cancel the last one with real numbers: a driver that assumes so drops both."""
        if x.op not in UNDONE:
            return None
        a, b = x.operands
        left = self.random.random() < 0.5
        if x.op in ("Add", "Mul"):
            return UNDONE[x.op], x, a if left else b
        return (x.op, a, x) if left else (UNDONE[x.op], x, b)

    def step(self, terms: list[Term]) -> Term:
        """Add one operation, usually on the latest term."""
        x = terms[-1] if self.random.random() < 0.8 else self.pick(terms)
        kind = self.random.random()
        if kind < 0.3 and (undone := self.undone(x)):
            op, a, b = undone
            return self.node(op, BINARY[op](a.array, b.array), a, b)
        if kind < 0.66:
            op = self.pick(list(BINARY))
            y = self.number() if self.random.random() < 0.4 else self.pick(terms)
            a, b = (x, y) if self.random.random() < 0.7 else (y, x)
            return self.node(op, BINARY[op](a.array, b.array), a, b)
        if kind < 0.84:
            op = self.pick(list(UNARY))
            return self.node(op, UNARY[op](x.array), x)
        if kind < 0.92:
            op = self.pick(list(TESTS))
            y, z = self.pick(terms), self.pick(terms)
            test = self.node(op, TESTS[op](x.array, y.array), x, y)
            return self.node("Where", np.where(test.array, x.array, z.array), test, x, z)
        if kind < 0.96 or not self.doubles:
            whole = self.node("Cast", to_int32(x.array), x, to=TensorProto.INT32)
            return self.node("Cast", whole.array.astype(F32), whole, to=TensorProto.FLOAT)
        wide = self.node("Cast", x.array.astype(np.float64), x, to=TensorProto.DOUBLE)
        half = self.node("Mul", wide.array * wide.array, wide, wide)
        return self.node("Cast", half.array.astype(F32), half, to=TensorProto.FLOAT)

    def expression(self, name: str, behind: Callable[[Maker, Term], Term] | None = None) -> None:
        """Add a chain that the engine can fuse into one kernel. No intermediate value is a denormal."""
        terms = list(self.inputs)
        if behind:
            terms = [behind(self, self.pick(self.inputs))]
        for _ in range(int(self.random.integers(2, 9))):
            before = len(terms)
            with np.errstate(all="ignore"):
                made = self.step(terms)
            size = np.abs(made.array)
            if made.array.dtype == F32 and not ((size > 0) & (size < 2 * LEAST)).any():
                terms.append(made)
            assert len(terms) - before in (0, 1)
        last = terms[-1]
        self.graph.output(name, last.value)
        self.outputs[name] = last

    def wrong(self, context: pumice.Context, fuse: bool) -> list[str]:
        """Return the expressions whose values are not bit-identical to NumPy's; all NaNs are equal."""
        results = self.graph.compile(context, fuse=fuse)(self.given)
        found = []
        for name, term in self.outputs.items():
            expected = np.broadcast_to(term.array, results[name].shape)
            same = (results[name].view(np.uint32) == np.ascontiguousarray(expected).view(np.uint32)) | (
                (results[name] != results[name]) & (expected != expected)
            )
            if not same.all():
                at = int(np.flatnonzero(~same.ravel())[0])
                values = ", ".join(
                    f"{key} = {float(one.array[at])!r}" for key, one in zip("abc", self.inputs, strict=True)
                )
                found.append(
                    f"{term.text} with {values}: {float(results[name].ravel()[at])!r}, not {float(expected.ravel()[at])!r}"
                )
        return found


# ---- a seed: a graph of expressions, for one of the engine's code paths


def behind_maximum(maker: Maker, x: Term) -> Term:
    """Add an exact reduction, so that the chain is fused into its kernel."""
    whole = maker.node("Unsqueeze", x.array, x, Term(maker.graph.constant(np.array([1])), np.array([1]), "1"))
    return maker.node(
        "ReduceMax", x.array, whole, Term(maker.graph.constant(np.array([1])), np.array([1]), "1"), keepdims=0
    )


def behind_pooling(maker: Maker, x: Term) -> Term:
    shape = Term(maker.graph.constant(np.array([1, 1, 1, -1])), np.array([1, 1, 1, -1]), "[1, 1, 1, -1]")
    image = maker.node("Reshape", x.array.reshape(1, 1, 1, -1), x, shape)
    return maker.node("MaxPool", image.array, image, kernel_shape=[1, 1])


WAYS: dict[str, Any] = {
    "one after the other": {},
    "folded by the host": {"fold": True},
    "behind a reduction": {"behind": behind_maximum},
    "behind a pooling": {"behind": behind_pooling},
}


def wrong_expressions(context: pumice.Context, seed: int, way: str, count: int = AT_ONCE) -> list[str]:
    options = WAYS[way]
    doubles = bool(context.info.features.get("shaderFloat64"))
    maker = Maker(np.random.default_rng(seed), fold=options.get("fold", False), doubles=doubles)
    for k in range(count):
        maker.expression(f"y{k}", options.get("behind"))
    return [
        f"{way}, {'fused' if fuse else 'not fused'}: {one}"
        for fuse in (True, False)
        for one in maker.wrong(context, fuse)
    ]


# ---- command line


@dataclass
class Result:
    seed: int
    failures: list[str] = field(default_factory=list)


def run_seed(seed: int, context: pumice.Context, _options: None) -> Result:
    return Result(seed, wrong_expressions(context, seed, list(WAYS)[seed % len(WAYS)]))


def main() -> int:
    given = workers.arguments(__doc__).parse_args()
    begin = time.perf_counter()
    done = failed = 0
    for result in workers.results(given, run_seed, None, Result):
        done += 1
        failed += bool(result.failures)
        for text in result.failures[:3]:
            print(f"seed {result.seed}: {text}", flush=True)
    print(f"{done * AT_ONCE} expressions, {failed} of {done} graphs wrong, {time.perf_counter() - begin:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
