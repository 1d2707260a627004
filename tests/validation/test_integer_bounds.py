"""Bounds of undecided integers: any integers within the input errors give results within the result's error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError
from pumice.validation.rules.float_types import ProgramTypes

SHAPE = (64,)
DTYPES = ("int8", "uint8", "int32", "int64")
UNARY: dict[str, Any] = {"Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "BitwiseNot": np.invert}
BINARY: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Equal": np.equal,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
}
REDUCTIONS: dict[str, Any] = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod}


def near_limits(dtype: str, random: np.random.Generator) -> Any:
    """Return small numbers, and some at the limits of the dtype, where sums wrap around."""
    limits = np.iinfo(dtype)
    small = random.integers(max(limits.min, -4), 5, SHAPE)
    ends = random.choice(np.array([limits.min, limits.min + 1, limits.max - 1, limits.max], dtype), SHAPE)
    return np.where(random.random(SHAPE) < 0.3, ends, small).astype(dtype)


def moved(value: Any, error: Any, random: np.random.Generator) -> Any:
    """Return other numbers of the same dtype within the errors."""
    limits, step = np.iinfo(value.dtype), error.astype(value.dtype)
    low = np.where(value >= limits.min + step, value - step, limits.min)
    high = np.where(value <= limits.max - step, value + step, limits.max)
    choice = random.integers(0, 3, SHAPE)
    return np.where(choice == 0, low, np.where(choice == 1, value, high)).astype(value.dtype)


def made(op: str, values: list[Any], errors: list[Any], **attributes: Any) -> BoundedTensor | None:
    """Evaluate the rule; return None if it is inconclusive."""
    names = [f"x{i}" for i in range(len(values))]
    proto = helper.make_node(op, names, ["y"], name="n", **attributes)
    given: list[Any] = [
        BoundedTensor(value, error if error.any() else None, value.dtype)
        for value, error in zip(values, errors, strict=True)
    ]
    try:
        (result,) = RuleRunner({"": 21}, ProgramTypes()).run_node(proto, given, dict(zip(names, given, strict=True)))
    except (UndecidedError, UnprovedError):
        return None
    assert isinstance(result, BoundedTensor)
    return result


def check(op: str, function: Any, values: list[Any], random: np.random.Generator, **attributes: Any) -> None:
    errors = [np.where(random.random(SHAPE) < 0.5, random.integers(1, 3, SHAPE), 0).astype(float) for _ in values]
    result = made(op, values, errors, **attributes)
    if result is None:
        return
    exact = np.asarray(function(*values))
    np.testing.assert_array_equal(result.value, exact)
    for _ in range(40):
        other = np.asarray(
            function(*(moved(value, error, random) for value, error in zip(values, errors, strict=True)))
        )
        apart = np.abs(other.astype(object) - exact.astype(object)) if exact.dtype != bool else other != exact
        if beyond := (apart.astype(float) > result.get_errors()).nonzero()[0].tolist():
            given = [value[beyond[0]] for value in values], [error[beyond[0]] for error in errors]
            pytest.fail(f"{op} of {given[0]} with errors {given[1]}: {exact[beyond[0]]} or {other[beyond[0]]}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [*UNARY, *BINARY])
def test_elementwise(op: str, dtype: str) -> None:
    if op == "Neg" and dtype == "uint8":
        pytest.skip("ONNX has no Neg of unsigned integers")
    random = np.random.default_rng(len(op))
    count = 1 if op in UNARY else 2
    for _ in range(4):
        values = [near_limits(dtype, random) for _ in range(count)]
        if op == "Mod":
            values[1] = np.where(values[1] == 0, 1, values[1]).astype(dtype)
        with np.errstate(all="ignore"):
            check(op, (UNARY | BINARY)[op], values, random)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op: str, dtype: str) -> None:
    random = np.random.default_rng(len(op))

    def function(value: Any) -> Any:
        keep = {"dtype": value.dtype} if op in ("ReduceSum", "ReduceProd") else {}
        return REDUCTIONS[op](value, keepdims=True, **keep)

    for _ in range(4):
        with np.errstate(all="ignore"):
            check(op, function, [near_limits(dtype, random)], random)


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype: str, to: str) -> None:
    random = np.random.default_rng(3)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    for _ in range(4):
        check("Cast", lambda value: value.astype(to), [near_limits(dtype, random)], random, to=kind)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(direction: str) -> None:
    random = np.random.default_rng(4)
    function = np.left_shift if direction == "LEFT" else np.right_shift
    for _ in range(4):
        values = [near_limits("uint8", random), random.integers(0, 6, SHAPE).astype("uint8")]
        check("BitShift", function, values, random, direction=direction)
