"""Comparing arrays, how far apart they are and where, and answers on a data set, how many are right."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .base.element_types import Array
from .base.errors import InputError
from .base.host_arrays import numpy_of
from .base.proportions import Interval, McNemar, mcnemar, wilson

__all__ = ["Accuracy", "Difference", "Interval", "McNemar", "accuracy", "assert_close", "compare", "mcnemar", "wilson"]

# Relative and absolute tolerance by element type; other types have to be equal.
TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}
_MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


class Worst(NamedTuple):
    """The largest of one kind of error, and where."""

    error: float
    at: tuple[int, ...]
    actual: Any
    expected: Any

    def __str__(self) -> str:
        return f"{self.error:.6g} at {list(self.at)} ({self.actual} instead of {self.expected})"


class Difference(NamedTuple):
    """How two arrays of one shape differ. `ulp` counts representable numbers between two; None for integers."""

    elements: int
    mismatched: int
    first: tuple[int, ...] | None  # mismatched element
    absolute: Worst
    relative: Worst
    ulp: Worst | None

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


def _float_type(array: Array) -> str:
    """The name of a type of floats, else ""."""
    return str(array.dtype) if str(array.dtype) in _MANTISSA_BITS else ""


def default_tolerance(actual: Array, expected: Array) -> tuple[float, float]:
    """The tolerances of the less precise of the two types."""
    pairs = [TOLERANCES[name] for name in (_float_type(actual), _float_type(expected)) if name]
    return max(pairs, default=(0.0, 0.0))


def _wide(array: Array) -> Array:
    """The numbers in a type that holds them all and has room for differences."""
    if array.dtype.kind in "biu" and array.dtype.itemsize < 8:
        return array.astype(np.int64)
    if array.dtype.kind in "iu":
        return array.astype(np.longdouble)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _ordered(array: Array) -> Array:
    """Floats as integers in the same order, neighbours one apart."""
    bits = array.view(f"i{array.dtype.itemsize}").astype(np.int64)
    lowest = np.int64(-1) << np.int64(8 * array.dtype.itemsize - 1)
    return np.where(bits < 0, lowest - bits, bits)


def _ulps(actual: Array, expected: Array) -> Array | None:
    """Differences in steps of the less precise type; infinity where only one is NaN."""
    names = [name for name in (_float_type(actual), _float_type(expected)) if name]
    if not names:
        return None
    coarse = min(names, key=lambda name: _MANTISSA_BITS[name])
    dtype = actual.dtype if str(actual.dtype) == coarse else expected.dtype
    a, b = (np.ascontiguousarray(array).astype(dtype) for array in (actual, expected))
    ordered_a, ordered_b = _ordered(a), _ordered(b)
    larger, smaller = np.maximum(ordered_a, ordered_b), np.minimum(ordered_a, ordered_b)
    steps = (larger.view(np.uint64) - smaller.view(np.uint64)).astype(np.float64)  # modulo 2**64: never too far
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    steps[nan_a | nan_b] = np.inf
    steps[nan_a & nan_b] = 0
    return steps


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def _worst(errors: Array, actual: Array, expected: Array) -> Worst:
    """`errors` are flat."""
    flat = int(np.argmax(errors))
    return Worst(float(errors[flat]), _index(flat, actual.shape), actual.flat[flat], expected.flat[flat])


def compare(
    actual: npt.ArrayLike, expected: npt.ArrayLike, *, rtol: float | None = None, atol: float | None = None
) -> Difference:
    """Element by element: close where |actual - expected| <= atol + rtol * |expected|; NaN is close to NaN alone.

    The tolerances are by default those of the less precise element type. Raises AssertionError for different shapes, BindingError
    for masked arrays.
    """
    a, b = (
        numpy_of(given, name, "an array", "argument") for name, given in (("actual", actual), ("expected", expected))
    )
    if a.shape != b.shape:
        raise AssertionError(f"shapes differ: expected {list(b.shape)}, given {list(a.shape)}")
    default_rtol, default_atol = default_tolerance(a, b)
    if a.size == 0:
        nothing = Worst(0.0, (), None, None)
        return Difference(0, 0, None, nothing, nothing, None)
    wide_a, wide_b = _wide(a).ravel(), _wide(b).ravel()
    with np.errstate(all="ignore"):
        absolute = np.abs(wide_a - wide_b)
        same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
        absolute = np.where(same, 0, np.where(np.isnan(absolute), np.inf, absolute))
        magnitude = np.abs(wide_b)
        relative = np.where(same, 0, absolute / magnitude)
        relative = np.where(np.isnan(relative), np.inf, relative)
        allowed = (default_atol if atol is None else atol) + (default_rtol if rtol is None else rtol) * magnitude
        wrong = ~same & ~((absolute <= allowed) & np.isfinite(magnitude))
    ulps = _ulps(a.ravel(), b.ravel())
    mismatched = np.flatnonzero(wrong)
    return Difference(
        a.size,
        len(mismatched),
        _index(int(mismatched[0]), a.shape) if len(mismatched) else None,
        _worst(absolute, a, b),
        _worst(relative, a, b),
        None if ulps is None else _worst(ulps, a, b),
    )


def assert_close(
    actual: npt.ArrayLike, expected: npt.ArrayLike, *, rtol: float | None = None, atol: float | None = None
) -> None:
    """Raises AssertionError with the largest absolute, relative and ULP error, and where, unless the arrays are close.

    Close is |actual - expected| <= atol + rtol * |expected|, by default with the tolerances of the less precise element type;
    integers and bools have to be equal, and NaN is close to NaN alone.
    """
    __tracebackhide__ = True
    difference = compare(actual, expected, rtol=rtol, atol=atol)
    if difference.close:
        return
    a, b = np.asarray(actual), np.asarray(expected)
    default = default_tolerance(a, b)
    limits = f"rtol={default[0] if rtol is None else rtol:g}, atol={default[1] if atol is None else atol:g}"
    raise AssertionError(f"not close ({a.dtype} and {b.dtype}{list(a.shape)}, {limits}):\n{difference}")


class Accuracy(NamedTuple):
    """How many answers are right. `interval` holds the true share with the chance `confidence`.

    comparison: with the answers of a reference, None where there are none; its first is what was judged, its second the reference.
    unanswered: rows of scores with NaN among them, in which none is the largest; they are not right.
    """

    right: int
    total: int
    interval: Interval
    confidence: float
    comparison: McNemar | None = None
    unanswered: int = 0

    @property
    def value(self) -> float:
        """The share of right answers, from 0 to 1."""
        return self.right / self.total

    def __str__(self) -> str:
        low, high = self.interval
        text = f"{self.value:.2%} of {self.total} ({self.confidence:.0%} interval {low:.2%} to {high:.2%})"
        if self.unanswered:
            text = f"{text}; {self.unanswered} have NaN among their scores, and are not right"
        return f"{text}; {self.comparison}" if self.comparison else text


def _classes(given: npt.ArrayLike, name: str, count: int | None = None) -> tuple[Array, Array]:
    """Numbers of classes: integers, [N], or of scores, [N, classes], where the largest is, the first of equal ones.

    Beside them, which of the rows have an answer: one with NaN among its scores has none.
    """
    array = numpy_of(given, name, "classes or scores", "argument")
    answered: Array = np.ones(len(array) if array.ndim else 0, bool)
    if array.ndim == 2 and array.shape[1]:
        answered = np.asarray((array == array).all(axis=1))  # NaN alone is not itself
        array = array.argmax(axis=1)
    elif array.ndim != 1 or array.dtype.kind not in "biu":
        raise InputError(
            f"accuracy: {name}: expected integers [N] or scores [N, classes], given {array.dtype}{list(array.shape)}"
        )
    if not len(array) or (count is not None and len(array) != count):
        raise InputError(f"accuracy: {name}: expected {count or 'some'} answers, given {len(array)}")
    return array, answered


def accuracy(
    answers: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    reference: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> Accuracy:
    """How many answers on a data set are right, with Wilson's confidence interval, and beside a reference by McNemar's test.

    answers, reference: numbers of classes [N], or scores [N, classes], whose largest is the answer. labels: the right classes [N].
    A row with NaN among its scores has no largest one: it is not right, and counted in `unanswered`; labels of such rows are refused.
    reference: what another precision, device or runtime answers to the same questions; a comparison with a small p-value says that one
    of both is right more often than chance explains, which the two intervals, that overlap by far, do not tell. confidence: between 0
    and 1. See `wilson` and `mcnemar` for the formulae. Raises InputError.
    """
    truth, known = _classes(labels, "labels")
    if not known.all():
        raise InputError(f"accuracy: labels: expected a class in each row, given NaN in row {int(np.argmin(known))}")
    given, answered = _classes(answers, "answers", len(truth))
    ours = (given == truth) & answered
    comparison = None
    if reference is not None:
        others, told = _classes(reference, "reference", len(truth))
        theirs = (others == truth) & told
        comparison = mcnemar(int((ours & ~theirs).sum()), int((theirs & ~ours).sum()))
    right = int(ours.sum())
    interval = wilson(right, len(truth), confidence)
    return Accuracy(right, len(truth), interval, confidence, comparison, int((~answered).sum()))
