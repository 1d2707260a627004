"""pumice.testing: the tolerance of assert_close, and its error messages."""

from __future__ import annotations

import numpy as np
import pytest

from pumice.testing import assert_close, compare

ml_dtypes = pytest.importorskip("ml_dtypes")


def expect_error(*arguments: object, **options: float) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_close(*arguments, **options)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ml_dtypes.bfloat16])
def test_defaults_follow_the_less_precise_type(dtype: object) -> None:
    one = np.ones(3, np.dtype(dtype))
    epsilon = float(ml_dtypes.finfo(one.dtype).eps)
    assert_close(one + one.dtype.type(epsilon), one)
    assert_close(one + one.dtype.type(epsilon), np.ones(3))
    expect_error(
        (one * one.dtype.type(1 + 64 * epsilon)).astype(one.dtype) + one.dtype.type(2e-5 + 0.02 * (epsilon > 1e-3)), one
    )


def test_a_rejection_reports_the_largest_errors_and_where() -> None:
    expected = np.array([[1.0, 100.0], [0.001, 4.0]], "float32")
    actual = expected + np.array([[0, 0.5], [0.01, 0]], "float32")
    message = expect_error(actual, expected)
    assert "2 of 4 elements differ, the first at [0, 1]" in message
    assert "max absolute error 0.5 at [0, 1] (100.5 instead of 100.0)" in message
    assert "max relative error 10 at [1, 0]" in message
    assert "max ULP error" in message


@pytest.mark.parametrize(
    ("actual", "expected", "steps"),
    [
        (np.nextafter(np.float32(1), np.float32(2)), np.float32(1), 1),
        (np.float32(-1e-45), np.float32(1e-45), 2),
        (np.float16(0.0), np.float16(-0.0), 0),
        (np.float64(1.0), np.nextafter(1.0, 0.0), 1),
        (np.float32(1), 1 + 2.0**-23, 1),
    ],
)
def test_ulps_count_representable_numbers(actual: object, expected: object, steps: int) -> None:
    ulp = compare(np.array([actual]), np.array([expected])).ulp
    assert ulp is not None
    assert ulp.error == steps


def test_tolerances_can_be_given() -> None:
    assert_close(np.float32([1.1]), np.float32([1.0]), rtol=0.2)
    assert_close(np.float32([0.1]), np.float32([0.0]), atol=0.2)
    assert "rtol=0, atol=0" in expect_error(np.float32([1.0000001]), np.float32([1.0]), rtol=0, atol=0)


def test_integers_and_bools_have_to_be_equal() -> None:
    assert_close(np.array([1, 2]), np.array([1, 2]))
    assert "1 of 2" in expect_error(np.array([1, 2]), np.array([1, 3]))
    assert "1 of 1" in expect_error(np.array([2**63 - 1]), np.array([2**63 - 2]))
    assert "1 of 1" in expect_error(np.array([True]), np.array([False]))
    assert "1 of 1" in expect_error(np.array([255], np.uint8), np.array([-1], np.int8))


def test_nan_and_infinity_are_close_to_themselves_alone() -> None:
    odd = np.float32([np.nan, np.inf, -np.inf])
    assert_close(odd, odd)
    for i, other in ((0, 1.0), (1, 3e38), (2, np.inf), (1, np.nan)):
        changed = odd.copy()
        changed[i] = other
        assert f"first at [{i}]" in expect_error(changed, odd)
        assert f"first at [{i}]" in expect_error(odd, changed)
        assert f"first at [{i}]" in expect_error(changed, odd, rtol=np.inf)


def test_shapes_have_to_be_the_same() -> None:
    assert "expected [3], given [1, 3]" in expect_error(np.zeros((1, 3)), np.zeros(3))


def test_scalars_and_empty_arrays() -> None:
    assert_close(1.0, 1.0)
    assert_close(np.zeros((0, 3)), np.zeros((0, 3)))
    assert "at []" in expect_error(1.0, 2.0)
