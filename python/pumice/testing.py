"""Compare arrays, and measure the accuracy of predictions on a data set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .base.accuracy_statistics import Interval, McNemar, mcnemar, wilson
from .base.element_types import Array
from .base.errors import InputError
from .base.host_arrays import to_numpy

__all__ = ["Accuracy", "Difference", "Interval", "McNemar", "accuracy", "assert_close", "compare", "mcnemar", "wilson"]

# (rtol, atol) by element type. Elements of other types must be equal.
TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}
_MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


class MaxError(NamedTuple):
    """The largest absolute, relative or ULP error, its index, and the two values there."""

    error: float
    at: tuple[int, ...]
    actual: Any
    expected: Any

    def __str__(self) -> str:
        return f"{self.error:.6g} at {list(self.at)} ({self.actual} instead of {self.expected})"


class Difference(NamedTuple):
    """The difference of two arrays of the same shape. `ulp` counts representable values between two elements; None for integers."""

    elements: int
    mismatched: int
    first: tuple[int, ...] | None  # index of the first mismatched element
    absolute: MaxError
    relative: MaxError
    ulp: MaxError | None

    @property
    def close(self) -> bool:
        return self.mismatched == 0

    def __str__(self) -> str:
        lines = [
            f"{self.mismatched} of {self.elements} elements differ, the first at {list(self.first or ())}",
            f"max absolute error {self.absolute}",
            f"max relative error {self.relative}",
        ]
        return "\n".join(lines + ([f"max ULP error {self.ulp}"] if self.ulp else []))


def _get_float_type_name(array: Array) -> str:
    """Return the name of the array's float type; "" for other types."""
    return str(array.dtype) if str(array.dtype) in _MANTISSA_BITS else ""


def get_default_tolerance(actual: Array, expected: Array) -> tuple[float, float]:
    """Return (rtol, atol) of the less precise of the two element types."""
    pairs = [TOLERANCES[name] for name in (_get_float_type_name(actual), _get_float_type_name(expected)) if name]
    return max(pairs, default=(0.0, 0.0))


def _to_comparable(array: Array) -> Array:
    """Convert the array to a type that can represent all its values and their differences."""
    if array.dtype.kind in "biu" and array.dtype.itemsize < 8:
        return array.astype(np.int64)
    if array.dtype.kind in "iu":
        return array.astype(np.longdouble)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _to_ordered_integers(array: Array) -> Array:
    """Map floats to integers of the same order, such that adjacent floats map to adjacent integers."""
    bits = array.view(f"i{array.dtype.itemsize}").astype(np.int64)
    lowest = np.int64(-1) << np.int64(8 * array.dtype.itemsize - 1)
    return np.where(bits < 0, lowest - bits, bits)


def _compute_ulp_distances(actual: Array, expected: Array) -> Array | None:
    """Return the differences in ULP of the less precise type, infinity if only one value is NaN; None for arrays that are not floats."""
    names = [name for name in (_get_float_type_name(actual), _get_float_type_name(expected)) if name]
    if not names:
        return None
    coarser_type = min(names, key=lambda name: _MANTISSA_BITS[name])
    dtype = actual.dtype if str(actual.dtype) == coarser_type else expected.dtype
    a, b = (np.ascontiguousarray(array).astype(dtype) for array in (actual, expected))
    ordered_a, ordered_b = _to_ordered_integers(a), _to_ordered_integers(b)
    larger, smaller = np.maximum(ordered_a, ordered_b), np.minimum(ordered_a, ordered_b)
    distances = (larger.view(np.uint64) - smaller.view(np.uint64)).astype(np.float64)  # exact modulo 2**64
    is_nan_a, is_nan_b = np.isnan(a), np.isnan(b)
    distances[is_nan_a | is_nan_b] = np.inf
    distances[is_nan_a & is_nan_b] = 0
    return distances


def _unravel_index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def _find_max_error(errors: Array, actual: Array, expected: Array) -> MaxError:
    """Return the largest of `errors`, a flat array of the errors of all elements."""
    flat = int(np.argmax(errors))
    return MaxError(float(errors[flat]), _unravel_index(flat, actual.shape), actual.flat[flat], expected.flat[flat])


def compare(
    actual: npt.ArrayLike, expected: npt.ArrayLike, *, rtol: float | None = None, atol: float | None = None
) -> Difference:
    """Compare element by element: close if |actual - expected| <= atol + rtol * |expected|; NaN is close only to NaN.

    The default tolerances follow the less precise element type. Raise AssertionError if the shapes differ, BindingError if an array
    is masked.
    """
    a, b = (
        to_numpy(operand, name, "an array", "argument")
        for name, operand in (("actual", actual), ("expected", expected))
    )
    if a.shape != b.shape:
        raise AssertionError(f"shapes differ: expected {list(b.shape)}, given {list(a.shape)}")
    default_rtol, default_atol = get_default_tolerance(a, b)
    if a.size == 0:
        no_error = MaxError(0.0, (), None, None)
        return Difference(0, 0, None, no_error, no_error, None)
    comparable_a, comparable_b = _to_comparable(a).ravel(), _to_comparable(b).ravel()
    with np.errstate(all="ignore"):
        absolute = np.abs(comparable_a - comparable_b)
        same = (comparable_a == comparable_b) | (np.isnan(comparable_a) & np.isnan(comparable_b))
        absolute = np.where(same, 0, np.where(np.isnan(absolute), np.inf, absolute))
        magnitude = np.abs(comparable_b)
        relative = np.where(same, 0, absolute / magnitude)
        relative = np.where(np.isnan(relative), np.inf, relative)
        allowed = (default_atol if atol is None else atol) + (default_rtol if rtol is None else rtol) * magnitude
        wrong = ~same & ~((absolute <= allowed) & np.isfinite(magnitude))
    ulps = _compute_ulp_distances(a.ravel(), b.ravel())
    mismatched = np.flatnonzero(wrong)
    return Difference(
        a.size,
        len(mismatched),
        _unravel_index(int(mismatched[0]), a.shape) if len(mismatched) else None,
        _find_max_error(absolute, a, b),
        _find_max_error(relative, a, b),
        None if ulps is None else _find_max_error(ulps, a, b),
    )


def assert_close(
    actual: npt.ArrayLike, expected: npt.ArrayLike, *, rtol: float | None = None, atol: float | None = None
) -> None:
    """Raise AssertionError with the largest absolute, relative and ULP error and their indices unless the arrays are close.

    Close means |actual - expected| <= atol + rtol * |expected|, by default with the tolerances of the less precise element type. Integers
    and bools must be equal, and NaN is close only to NaN.
    """
    __tracebackhide__ = True
    difference = compare(actual, expected, rtol=rtol, atol=atol)
    if difference.close:
        return
    a, b = np.asarray(actual), np.asarray(expected)
    default = get_default_tolerance(a, b)
    limits = f"rtol={default[0] if rtol is None else rtol:g}, atol={default[1] if atol is None else atol:g}"
    raise AssertionError(f"not close ({a.dtype} and {b.dtype}{list(a.shape)}, {limits}):\n{difference}")


class Accuracy(NamedTuple):
    """The accuracy of predictions on a data set, with a confidence interval for the true accuracy.

    comparison: McNemar's test against a reference's predictions (second), if given. unanswered: number of rows with NaN among their scores,
    which have no maximum and count as wrong.
    """

    right: int
    total: int
    interval: Interval
    confidence: float
    comparison: McNemar | None = None
    unanswered: int = 0

    @property
    def value(self) -> float:
        """The accuracy, from 0 to 1."""
        return self.right / self.total

    def __str__(self) -> str:
        low, high = self.interval
        text = f"{self.value:.2%} of {self.total} ({self.confidence:.0%} interval {low:.2%} to {high:.2%})"
        if self.unanswered:
            text = f"{text}; {self.unanswered} have NaN among their scores, and are not right"
        return f"{text}; {self.comparison}" if self.comparison else text


def _to_class_indices(predictions: npt.ArrayLike, name: str, count: int | None = None) -> tuple[Array, Array]:
    """Return class indices: integers [N] as they are, or the argmax of scores [N, classes]; ties go to the first class.

    Also return a mask of the rows with a prediction: a row with NaN among its scores has none.
    """
    array = to_numpy(predictions, name, "classes or scores", "argument")
    has_prediction: Array = np.ones(len(array) if array.ndim else 0, bool)
    if array.ndim == 2 and array.shape[1]:
        has_prediction = np.asarray((array == array).all(axis=1))  # False for NaN
        array = array.argmax(axis=1)
    elif array.ndim != 1 or array.dtype.kind not in "biu":
        raise InputError(
            f"accuracy: {name}: expected integers [N] or scores [N, classes], given {array.dtype}{list(array.shape)}"
        )
    if not len(array) or (count is not None and len(array) != count):
        raise InputError(f"accuracy: {name}: expected {count or 'some'} answers, given {len(array)}")
    return array, has_prediction


def accuracy(
    answers: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    reference: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> Accuracy:
    """Return the accuracy on a data set with Wilson's confidence interval, and a comparison with a reference by McNemar's test.

    answers, reference: predicted class indices [N], or scores [N, classes], whose argmax is the prediction. labels: the correct classes
    [N]. A row with NaN among its scores has no prediction: it counts as wrong and in `unanswered`. reference: predictions for the same
    samples with another precision, device or runtime. A small p-value means that one of the two is more accurate than chance explains, even
    if their intervals overlap. confidence: between 0 and 1. For the formulae see `wilson` and `mcnemar`. Raise InputError for invalid
    arguments, such as different numbers of rows or NaN labels.
    """
    true_classes, has_label = _to_class_indices(labels, "labels")
    if not has_label.all():
        raise InputError(
            f"accuracy: labels: expected a class in each row, given NaN in row {int(np.argmin(has_label))}"
        )
    predicted, has_prediction = _to_class_indices(answers, "answers", len(true_classes))
    our_correct = (predicted == true_classes) & has_prediction
    comparison = None
    if reference is not None:
        reference_classes, has_reference = _to_class_indices(reference, "reference", len(true_classes))
        reference_correct = (reference_classes == true_classes) & has_reference
        comparison = mcnemar(
            int((our_correct & ~reference_correct).sum()), int((reference_correct & ~our_correct).sum())
        )
    right = int(our_correct.sum())
    interval = wilson(right, len(true_classes), confidence)
    return Accuracy(right, len(true_classes), interval, confidence, comparison, int((~has_prediction).sum()))
