"""Cast between all pairs of dtypes, as an operator, on the host and in Tensor.to, against NumPy and ml_dtypes."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import pumice
from described_operators import Array, Operand, executed
from pumice import _pumice

# ONNX numbers of the element types.
DTYPES: dict[str, int] = {
    "float64": 11,
    "float32": 1,
    "float16": 10,
    "bfloat16": 16,
    "int64": 7,
    "uint64": 13,
    "int32": 6,
    "uint32": 12,
    "int16": 5,
    "uint16": 4,
    "int8": 3,
    "uint8": 2,
    "bool": 9,
}
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = [dtype for dtype in DTYPES if "int" in dtype]


def dtype_of(name: str) -> np.dtype[np.generic]:
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def assert_same(actual: Array, expected: Array) -> None:
    """Compare exactly; NaNs are equal, in bfloat16 too."""
    assert actual.dtype == expected.dtype
    wide = "float32" if expected.dtype == ml_dtypes.bfloat16 else expected.dtype
    np.testing.assert_array_equal(actual.astype(wide), expected.astype(wide))


def numbers(source: str, target: str) -> Array:
    """Return 3 x 37 values for which the result is well defined."""
    random = np.random.default_rng(7)
    if source == "bool":
        return random.integers(0, 2, (3, 37)).astype(bool)
    if source in INTEGERS:
        limits = np.iinfo(source)
        values = random.integers(limits.min, limits.max, (3, 37), source, endpoint=True)
        values[0, :3] = limits.min, 0, limits.max
        return values
    if target in INTEGERS:
        limits = np.iinfo(target)
        low, high = max(limits.min, -1000), min(limits.max, 1000)
        return (random.integers(8 * low, 8 * high, (3, 37)) / 8).astype(dtype_of(source))
    values = random.normal(0, 100, (3, 37)).astype("float32")
    values[0, :10] = np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-3, 65504, 65536, 3e38, -1e30
    with np.errstate(over="ignore"):
        return values.astype(dtype_of(source))


@pytest.mark.parametrize(("source", "target"), list(product(DTYPES, DTYPES)))
def test_every_dtype_becomes_every_other(context: pumice.Context, source: str, target: str) -> None:
    x = numbers(source, target)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype_of(target))
    (made,) = executed(context, "Cast", [Operand(x)], [Operand(expected)], to=DTYPES[target])
    assert_same(made, expected)
    assert_same(pumice.tensor(x, context).to(target).numpy(), expected)
    (turned,) = executed(context, "Cast", [Operand(x, [1, 4], 16)], [Operand(expected, [1, 3])], to=DTYPES[target])
    assert_same(turned, expected)
    (folded,) = _pumice.evaluate_on_host("Cast", [x], to=DTYPES[target]) or [None]
    if folded is None:
        assert source == "uint64"  # the host cannot compute it
    else:
        assert_same(folded, expected)


def saturated(x: Array, target: str) -> Array:
    """Truncate and clamp to the range, in exact arithmetic; NaN becomes 0."""
    limits = np.iinfo(target)
    exact = [0 if np.isnan(v) else v if np.isinf(v) else int(v) for v in x.astype("float64").ravel().tolist()]
    return np.array([int(min(max(v, limits.min), limits.max)) for v in exact], target).reshape(x.shape)


BEYOND = [0, 0.5, 0.99, 1, 126.5, 127, 127.5, 128, 255, 255.5, 256, 300, 32767, 32768, 65535, 65536, 2.0**31, 2.0**32]
BEYOND += [2.0**31 - 128, 2.0**32 - 256, 2.0**62, 2.0**63, 2.0**63 - 2.0**39, 2.0**64, 2.0**64 - 2.0**40, 1e20, 3e38]


@pytest.mark.parametrize(("source", "target"), list(product(FLOATS, INTEGERS)))
def test_floats_beyond_the_integers_become_their_ends(context: pumice.Context, source: str, target: str) -> None:
    values = np.array([*BEYOND, *(-v for v in BEYOND), np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        x = values.astype(dtype_of(source))
    expected = saturated(x, target)
    (made,) = executed(context, "Cast", [Operand(x)], [Operand(expected)], to=DTYPES[target])
    assert_same(made, expected)
    (folded,) = _pumice.evaluate_on_host("Cast", [x], to=DTYPES[target]) or [None]
    assert_same(folded, expected)


@pytest.mark.parametrize("target", ["int32", "uint32", "int64", "uint64"])
def test_a_cast_inside_a_fused_map_is_the_same(context: pumice.Context, target: str) -> None:
    x = np.array([1.5, -1.5, 3e9, -3e9, 1e19, -1e19, 1e30, np.nan, np.inf, -np.inf], "float32")
    graph = pumice.Graph()
    doubled = graph.add("Add", graph.input("x", "float32", [10]), np.float32(0).reshape(1))
    whole = graph.add("Cast", doubled, to=DTYPES[target])
    graph.output("y", graph.add("Cast", whole, to=1))
    program = graph.compile(context)
    np.testing.assert_array_equal(program({"x": x})["y"], saturated(x, target).astype("float32"))
    assert len({row["node"] for row in program.report() if row["kernel"]}) == 1


def test_conversions_are_compiled_once(context: pumice.Context) -> None:
    """The plan of each kind of tensor is cached: a repeat compiles no kernel, and 100 other kinds evict it."""
    x = pumice.tensor(np.arange(24, dtype="float32").reshape(4, 6), context)
    for _ in range(3):
        np.testing.assert_array_equal(x[:, ::2].to("int32").numpy(), np.arange(24).reshape(4, 6)[:, ::2])
    for size in range(1, 101):
        part = pumice.tensor(np.arange(size, dtype="int16"), context)
        np.testing.assert_array_equal(part.to("float32").numpy(), np.arange(size))
    np.testing.assert_array_equal(x.transpose((1, 0)).to("float16").numpy(), np.arange(24).reshape(4, 6).T)
