"""Bounds of primitives against NumPy simulations of a device: no rounding that a device may do exceeds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules.bounded_tensor import (
    RULES,
    BoundedArithmetic,
    BoundedTensor,
    OperatorCall,
    round_to_storage,
)
from pumice.validation.rules.float_types import (
    BFLOAT16,
    COVERAGE_FACTOR,
    FLOAT16,
    FLOAT32,
    ProgramTypes,
    compute_gamma,
    compute_probabilistic_gamma,
)
from pumice.validation.rules.math_functions import FUNCTIONS, apply_function

Array = np.ndarray[Any, Any]
FLOAT = np.float32
SEEDS = range(20)
KEPT = {"fp32": FLOAT32, "fp16": FLOAT16, "bf16": BFLOAT16}


def rule(op: str, inputs: list[Any], types: ProgramTypes, **attributes: Any) -> BoundedTensor:
    """Return the first output of an operator, rounded to its storage type."""
    assert RuleRunner  # importing its module fills the table of rules
    made = RULES[op](OperatorCall(op, inputs, attributes, 23, types))[0]
    return round_to_storage(made, types)


def spread_numbers(random: np.random.Generator, *shape: int) -> Array:
    """Return numbers of several magnitudes and both signs."""
    return (random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape)).astype(FLOAT)


def within(device: Array, made: BoundedTensor) -> bool:
    return bool((np.abs(device.astype(np.float64) - made.value) <= made.get_errors()).all())


def test_gamma_is_what_the_books_say() -> None:
    assert compute_gamma(1, 2.0**-24) == pytest.approx(2.0**-24, rel=1e-6)
    assert compute_gamma(2**24, 2.0**-24) == np.inf
    assert compute_probabilistic_gamma(10_000, 2.0**-11) < compute_gamma(1000, 2.0**-11)
    assert compute_probabilistic_gamma(1, 2.0**-24) == pytest.approx(6 * 2.0**-24, rel=1e-6)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("seed", SEEDS)
def test_arithmetic_of_inexact_numbers(op: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = spread_numbers(random, 500), spread_numbers(random, 500)
    errors = [np.abs(x) * random.choice([0, 1e-7, 1e-4], 500) for x in (a, b)]
    arithmetic = BoundedArithmetic(ProgramTypes("fp32"), FLOAT)
    made = getattr(arithmetic, op)(
        *(BoundedTensor(x, e.astype(np.float64)) for x, e in zip((a, b), errors, strict=True))
    )
    device = [(x + random.uniform(-1, 1, 500) * e).astype(np.float64) for x, e in zip((a, b), errors, strict=True)]
    result = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op](*device).astype(FLOAT)
    assert within(result, made)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("seed", SEEDS)
def test_elementary_functions_of_inexact_numbers(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    function = FUNCTIONS[name]
    x = random.uniform(max(function.domain_min, -4), min(function.domain_max, 4), 300).astype(FLOAT)
    error = random.choice([0, 1e-6, 1e-3], 300) * np.abs(x)
    made = apply_function(name, BoundedTensor(x, error), BoundedArithmetic(ProgramTypes("fp32"), FLOAT))
    moved = np.clip(x + random.uniform(-1, 1, 300) * error, function.domain_min, function.domain_max)
    with np.errstate(divide="ignore"):
        exact = function.value(moved)
    stated = function.error_units * np.spacing(np.abs(exact).astype(FLOAT)) * 0.5
    if name == "normal_cdf":  # 10 ULP; near and above 0, of 1 - result, which is then computed
        least = function.value(-np.abs(moved))
        units = np.where(np.abs(moved) < 3, 10.0, function.error_units)
        stated = units * np.spacing(least.astype(FLOAT)) * 0.5 + (moved > 0) * np.spacing(exact.astype(FLOAT)) * 0.5
    wrong_by = random.uniform(-1, 1, 300) * stated
    assert within(np.where(np.isfinite(exact), exact + wrong_by, exact), made)


def test_a_zero_times_anything_unknown_is_zero() -> None:
    arithmetic = BoundedArithmetic(ProgramTypes("fp32"), FLOAT)
    zero, unknown = BoundedTensor(np.zeros(2, FLOAT)), BoundedTensor(np.ones(2, FLOAT), np.full(2, np.inf))
    assert not arithmetic.mul(zero, unknown).get_errors().any()


def one_after_the_other(a: Array, b: Array) -> Array:
    """Matrix product with sequential float32 sums that start at the first term."""
    total = np.zeros((a.shape[0], b.shape[1]), FLOAT)
    for k in range(a.shape[1]):
        total = total + np.multiply.outer(a[:, k].astype(FLOAT), b[k].astype(FLOAT))
    return total


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_matmul_bounds(precision: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    types, kept = ProgramTypes(precision), KEPT[precision]
    depth = int(random.integers(1, 400))
    a, b = (kept.round(spread_numbers(random, *shape) / 100).astype(FLOAT) for shape in ((7, depth), (depth, 5)))
    made = rule("MatMul", [BoundedTensor(a), BoundedTensor(b)], types)
    result = kept.round(one_after_the_other(a, b))
    assert within(result, made)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_convolution_that_begins_with_its_bias(seed: int) -> None:
    """Each term is added to the bias, which may be larger than all of them."""
    random = np.random.default_rng(seed)
    x, w = random.standard_normal((1, 4, 6, 6)).astype(FLOAT) / 100, random.standard_normal((3, 4, 3, 3)).astype(FLOAT)
    bias = spread_numbers(random, 3)
    made = rule("Conv", [BoundedTensor(x), BoundedTensor(w), BoundedTensor(bias)], ProgramTypes("fp32"))
    result = np.broadcast_to(bias[:, None, None], (3, 4, 4)).copy()
    for c, i, j in np.ndindex(4, 3, 3):
        result = (result + w[:, c, i, j][:, None, None] * x[0, c, i : i + 4, j : j + 4]).astype(FLOAT)
    assert within(result[None], made)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_softmax(precision: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    kept = KEPT[precision]
    x = kept.round(random.standard_normal((6, 50)) * 10.0 ** random.integers(-1, 2)).astype(FLOAT)
    error = np.abs(x) * random.choice([0, 1e-4])
    made = rule("Softmax", [BoundedTensor(x, error.astype(np.float64))], ProgramTypes(precision), axis=-1)
    given = (x + random.uniform(-1, 1, x.shape) * error).astype(FLOAT)
    shifted = np.exp(given - given.max(axis=-1, keepdims=True), dtype=FLOAT)
    total = np.cumsum(shifted, axis=-1, dtype=FLOAT)[:, -1:]
    assert within(kept.round(shifted / total), made)


def test_scores_that_rounding_makes_equal_share_what_there_is() -> None:
    made = rule(
        "Softmax",
        [BoundedTensor(np.array([[10000.0, 9970.0]], FLOAT), np.array([[16.0, 14.0]]))],
        ProgramTypes("fp32"),
        axis=-1,
    )
    assert within(np.array([[0.5, 0.5]], FLOAT), made)


@pytest.mark.parametrize("offset", [0.0, 30.0, 1000.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_normalisations_far_from_zero(offset: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = (random.standard_normal((5, 200)) + offset).astype(FLOAT)
    scale, bias = random.standard_normal(200).astype(FLOAT), random.standard_normal(200).astype(FLOAT)
    made = rule(
        "LayerNormalization", [BoundedTensor(x), BoundedTensor(scale), BoundedTensor(bias)], ProgramTypes("fp32")
    )
    mean = np.cumsum(x, axis=-1, dtype=FLOAT)[:, -1:] / FLOAT(200)
    centred = x - mean
    variance = np.cumsum(centred * centred, axis=-1, dtype=FLOAT)[:, -1:] / FLOAT(200)
    result = centred * (FLOAT(1) / np.sqrt(variance + FLOAT(1e-5))) * scale + bias
    assert within(result, made)


@pytest.mark.parametrize("seed", SEEDS)
def test_reductions_and_running_sums(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = spread_numbers(random, 4, 300)
    types = ProgramTypes("fp32")
    running = np.cumsum(x, axis=1, dtype=FLOAT)
    axis = BoundedTensor(np.array([1]))
    assert within(running[:, -1:], rule("ReduceSum", [BoundedTensor(x), axis], types))
    assert within(running[:, -1:] / FLOAT(300), rule("ReduceMean", [BoundedTensor(x), axis], types))
    assert within(running, rule("CumSum", [BoundedTensor(x), axis], types))
    squares = np.cumsum(x * x, axis=1, dtype=FLOAT)[:, -1:]
    assert within(np.sqrt(squares), rule("ReduceL2", [BoundedTensor(x), axis], types))


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_that_are_independent_stay_below_four_times_their_joint_size(seed: int) -> None:
    """A float16 chain of MatMul and LayerNormalization stays within its bound, which is less than 100 times too large."""
    random = np.random.default_rng(seed)
    types = ProgramTypes("fp16").with_independent_errors()
    value = BoundedTensor(FLOAT16.round(random.standard_normal((6, 40))), None, FLOAT, stored=True)
    device = value.value.astype(np.float16)
    for _ in range(8):
        w = (random.standard_normal((40, 40)) / 6).astype(np.float16)
        value = rule("MatMul", [value, BoundedTensor(w.astype(np.float64), None, FLOAT)], types)
        value = rule("LayerNormalization", [value, BoundedTensor(np.ones(40, FLOAT))], types)
        made = (device.astype(FLOAT) @ w.astype(FLOAT)).astype(np.float16).astype(FLOAT)
        centred = made - made.mean(axis=-1, keepdims=True)
        device = (centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + FLOAT(1e-5))).astype(np.float16)
    errors = np.abs(device.astype(np.float64) - value.value)
    assert (errors <= COVERAGE_FACTOR * value.get_errors()).all()
    assert errors.max() > value.get_errors().max() / 25


CHOICES: dict[str, Callable[[Array], Array]] = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint}


@pytest.mark.parametrize("op", CHOICES)
def test_choices_are_exact_away_from_their_boundary(op: str) -> None:
    x = np.array([0.2, 0.49, 0.51, 0.999, 1.001, 2.5], FLOAT)
    made = rule(op, [BoundedTensor(x, np.full(6, 0.02))], ProgramTypes("fp32"))
    np.testing.assert_array_equal(made.value, CHOICES[op](x))
    undecided = {"Floor": [3, 4], "Ceil": [3, 4], "Round": [1, 2, 5]}[op]
    np.testing.assert_array_equal(np.flatnonzero(made.get_errors()), undecided)
    assert compare_tensor(made.value.astype(FLOAT), made, ProgramTypes("fp32")).ok


def test_comparisons_and_indices_of_what_is_close_are_undecided() -> None:
    types = ProgramTypes("fp32")
    a, b = BoundedTensor(np.array([1.0, 2.0], FLOAT), np.array([0.1, 0.1])), BoundedTensor(np.array([1.05, 1.0], FLOAT))
    made = rule("Less", [a, b], types)
    np.testing.assert_array_equal(made.get_errors() > 0, [True, False])
    for flag in (True, False):
        assert compare_tensor(np.array([flag, False]), made, types).ok
    assert not compare_tensor(np.array([True, True]), made, types).ok
    rows = BoundedTensor(np.array([[1.0, 1.01, 0.0], [1.0, 5.0, 0.0]], FLOAT), np.full((2, 3), 0.02))
    best = rule("ArgMax", [rows], types, axis=1)
    np.testing.assert_array_equal(best.value, [[1], [1]])
    np.testing.assert_array_equal(np.isinf(best.get_errors()), [[True], [False]])
    exact = rule("ArgMax", [BoundedTensor(rows.value, None, FLOAT)], types, axis=1)
    assert exact.error is None


def test_quantised_numbers_between_two_steps_go_to_either() -> None:
    types = ProgramTypes("fp32")
    x = BoundedTensor(np.array([0.1, 0.25, 0.4], FLOAT), np.full(3, 0.001))
    made = rule("QuantizeLinear", [x, BoundedTensor(np.array(0.1, FLOAT)), BoundedTensor(np.array(0, np.uint8))], types)
    np.testing.assert_array_equal(made.get_errors(), [0, 1, 0])
    assert compare_tensor(np.array([1, 3, 4], np.uint8), made, types).ok
    assert not compare_tensor(np.array([2, 2, 4], np.uint8), made, types).ok


def test_storing_rounds_once_and_what_was_stored_never_again() -> None:
    types = ProgramTypes("fp16")
    exact = round_to_storage(BoundedTensor(np.array([1.0, 1 + 2.0**-12], FLOAT)), types)
    np.testing.assert_array_equal(exact.get_errors(), [0, 2.0**-12])
    moved = round_to_storage(BoundedTensor(np.array([1.0, 0.5]), np.array([0.1, 0.0]), FLOAT, stored=True), types)
    np.testing.assert_array_equal(moved.get_errors(), [0.1, 0.0])


def test_a_number_beyond_the_range_may_be_infinity_or_the_largest() -> None:
    types = ProgramTypes("fp16")
    expected = round_to_storage(BoundedTensor(np.array([71204.0, 100.0], FLOAT)), types)
    for made, right in ((np.inf, True), (65504.0, True), (-np.inf, False), (100.0, False)):
        assert compare_tensor(np.array([made, 100.0], FLOAT), expected, types).ok == right
    assert not compare_tensor(np.array([np.inf, np.inf], FLOAT), expected, types).ok


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_eight_units_in_the_last_place_are_found(precision: str) -> None:
    """Change one element of a 16-bit result by 8 ULP; at least 95% of these errors are found, whatever the operator."""
    random = np.random.default_rng(5)
    types, kept = ProgramTypes(precision), KEPT[precision]
    ones = np.ones(64, FLOAT)
    makers: list[Callable[[BoundedTensor, BoundedTensor], BoundedTensor]] = [
        lambda x, y: rule("MatMul", [x, y], types),
        lambda x, y: rule("Softmax", [x], types, axis=-1),
        lambda x, y: rule("LayerNormalization", [x, BoundedTensor(ones)], types),
        lambda x, y: rule("Add", [x, y], types),
        lambda x, y: rule("Gelu", [x], types),
        lambda x, y: rule("Sigmoid", [x], types),
        lambda x, y: rule("ReduceMean", [x, BoundedTensor(np.array([1]))], types),
    ]
    found = total = 0
    for _ in range(20):
        x, y = (BoundedTensor(kept.round(random.standard_normal((64, 64))), None, FLOAT, stored=True) for _ in range(2))
        for maker in makers:
            made = maker(x, y)
            result = kept.round(made.value).astype(FLOAT)
            at = tuple(random.integers(0, size) for size in result.shape)
            result[at] += 8 * 2 * kept.unit * 2.0 ** np.floor(np.log2(abs(result[at]) or 1.0))
            found += not compare_tensor(result, made, types).ok
            total += 1
    assert found >= 0.95 * total


def test_what_is_cut_off_nearby_is_not_farther_away() -> None:
    """Independent errors may reach four times their size, so a number just below 0 may end up above it."""
    arithmetic = BoundedArithmetic(ProgramTypes("fp16").with_independent_errors(), FLOAT)
    made = arithmetic.maximum(BoundedTensor(np.array([-0.003, -0.005]), np.full(2, 0.001), FLOAT), arithmetic.wrap(0.0))
    np.testing.assert_allclose(made.get_errors(), [0.00025, 0.0], rtol=1e-9)
