"""Tensors with error bounds, their arithmetic, and the registry of the rules that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...base.element_types import Array
from .alternative_values import AlternativeValues
from .block_ranges import BLOCK_ELEMENTS, compute_in_blocks
from .float_types import FLOAT16, FLOAT32, FloatType, ProgramTypes, is_float


class BoundedTensor:
    """A tensor with per-element error bounds.

    value: float64, or the declared type for integers and booleans. error: float64, >= 0; None if all errors are zero,
    infinity where the error is unknown.
    dtype: the declared type.
    stored: whether the value was already rounded to the storage type, so storing it again is exact.
    constant: whether this is a constant, possibly rearranged. GEMM kernels read constants in the storage type; other
    kernels may read them in float32.
    alternatives: alternative values of elements that depend on an undecided choice; `error` covers all of them. None
    if no element is undecided or the alternatives are not tracked.
    exact_sums: mask of elements whose sum is exact in any order, unless a kernel fuses the next operation into the sum.
    None if unknown.
    memo: cache of results derived from a constant that several nodes read; None for tensors without a cache.
    """

    __slots__ = ("alternatives", "constant", "dtype", "error", "exact_sums", "memo", "stored", "value")

    def __init__(
        self, value: Any, error: Array | None = None, dtype: Any = None, stored: bool = False, constant: bool = False
    ) -> None:
        array: Array = np.asarray(value)
        self.dtype = np.dtype(array.dtype if dtype is None else dtype)
        self.value: Array = array.astype(np.float64) if is_float(self.dtype) and array.dtype != np.float64 else array
        self.error = error
        self.stored = stored
        self.constant = constant
        self.alternatives: AlternativeValues | None = None
        self.exact_sums: Array | None = None
        self.memo: dict[str, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.value.shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def is_float(self) -> bool:
        """Whether the declared type is a float."""
        return is_float(self.dtype)

    @property
    def is_exact(self) -> bool:
        """Whether all errors are zero."""
        return self.error is None

    def get_errors(self) -> Array:
        """Return the errors as an array, possibly read-only."""
        return np.broadcast_to(np.float64(0), self.shape) if self.error is None else self.error

    def memoize(self, key: str, make: Callable[[], Any]) -> Any:
        """Return `make()`, cached under `key` if this tensor has a memo."""
        if self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def max_magnitude(self) -> Array:
        """Return the largest magnitude that the device's value may have."""
        with np.errstate(all="ignore"):
            size = np.abs(self.value.astype(np.float64, copy=False))
        return size if self.error is None else size + self.error

    def with_error(self, error: Array | None) -> BoundedTensor:
        """Return a tensor with the same value and the given error."""
        return BoundedTensor(self.value, error, self.dtype)

    def set_alternatives(self, alternatives: AlternativeValues | None) -> BoundedTensor:
        """Set the alternative values and return self."""
        self.alternatives = alternatives
        return self

    def set_exact_sums(self, unrounded: Array | None) -> BoundedTensor:
        """Set the mask of exact sums and return self."""
        self.exact_sums = unrounded
        return self

    def compute_exact_stored_sum_mask(self, storage: FloatType) -> Array | None:
        """Return a mask of the exact sums that the storage type represents exactly."""
        return None if self.exact_sums is None else self.exact_sums & (storage.round(self.value) == self.value)

    def assume_unfused_sums(self) -> BoundedTensor:
        """Return the tensor as an operator reads it that is never fused into a sum: exact sums have no error."""
        if self.exact_sums is None or self.error is None:
            return self
        error = np.where(self.exact_sums, 0.0, self.error)
        result = BoundedTensor(self.value, error if error.any() else None, self.dtype, self.stored, self.constant)
        return result.set_alternatives(self.alternatives)

    def select_nearest_alternative(self, actual: Array, error_factor: float = 1.0) -> BoundedTensor:
        """Return the tensor with the alternative nearest to each device value. error_factor: factor applied to the errors."""
        if self.alternatives is None or actual.shape != self.shape:
            return self
        value, error = self.alternatives.find_nearest(actual, self.value, error_factor)
        mask = self.alternatives.mask
        result = BoundedTensor(
            np.where(mask, value, self.value), np.where(mask, error, self.get_errors()), self.dtype, self.stored
        )
        result.constant = self.constant
        return result

    def get_block(self, index: tuple[slice, ...]) -> BoundedTensor:
        """Return a view of the elements that the index selects."""
        error = None if self.error is None else np.broadcast_to(self.error, self.value.shape)[index]
        result = BoundedTensor(self.value[index], error, self.dtype, self.stored, self.constant)
        result.exact_sums = None if self.exact_sums is None else self.exact_sums[index]
        return result if self.alternatives is None else result.set_alternatives(self.alternatives.get_block(index))

    def materialize(self) -> BoundedTensor:
        """Return self; subclasses assemble their blocks."""
        return self

    def as_constant(self) -> BoundedTensor:
        """Return the tensor marked as a constant, as if it were computed before the program runs, with the same errors."""
        return BoundedTensor(self.value, self.error, self.dtype, True, self.constant).set_alternatives(
            self.alternatives
        )

    def rearrange(self, move: Callable[[Array], Array]) -> BoundedTensor:
        """Apply an operation that only moves elements."""
        error = None if self.error is None else move(self.error)
        result = BoundedTensor(move(self.value), error, self.dtype, self.stored, self.constant)
        result.exact_sums = None if self.exact_sums is None else move(self.exact_sums.astype(np.float64)) == 1
        return result if self.alternatives is None else result.set_alternatives(self.alternatives.rearrange(move))

    def __repr__(self) -> str:
        worst = 0.0 if self.error is None else float(np.max(self.error, initial=0.0))
        return f"BoundedTensor({self.dtype}{list(self.shape)}, error <= {worst:.3g})"


def _replace_nan_errors(error: Array | None) -> Array | None:
    """Replace NaN errors (from infinity - infinity or 0 * infinity) with infinity."""
    return error if error is None or not np.isnan(error).any() else np.where(np.isnan(error), np.inf, error)


def _scale_error(error: Array | None, factor: Any) -> Array | None:
    """Return error * factor, where 0 * infinity is 0 because exact values stay exact."""
    if error is None:
        return None
    with np.errstate(all="ignore"):
        scaled = error * factor
    return np.where((error == 0) | (np.asarray(factor) == 0), 0.0, scaled) if np.isnan(scaled).any() else scaled


def _is_inexact(x: BoundedTensor) -> bool:
    """Return whether every element has an error."""
    return x.error is not None and bool(np.min(x.error, initial=np.inf) > 0)


def _compute_exact_float64_sum_mask(total: Array, a: BoundedTensor, second: Array, b: BoundedTensor) -> Array | bool:
    """Return a mask of the sums total = a.value + second that are exact in float64. second: b.value or -b.value."""
    if _is_inexact(a) or _is_inexact(b):
        return False
    return np.asarray((total - a.value == second) & (total - second == a.value))


class BoundedArithmetic:
    """Float arithmetic in an accumulation type A (rule V2): each operation adds an error of half an ulp of its result."""

    def __init__(self, types: ProgramTypes, dtype: Any) -> None:
        self.types = types
        self.dtype = np.dtype(dtype)
        self.type: FloatType = types.get_accumulation_type(dtype)
        # Unit roundoff, with a margin for second-order terms and for the reference's own float64 rounding.
        self.unit = self.type.unit * (1 + 2.0**-10) + 2.0**-53

    def wrap(self, value: Any, error: Array | None = None) -> BoundedTensor:
        """Return a value declared in A, without rounding it."""
        return BoundedTensor(np.asarray(value, np.float64), error, self.dtype)

    def make_constant(self, value: float) -> BoundedTensor:
        """Return a constant of the kernel source, rounded to float32."""
        float32_value = float(
            FLOAT32.round(value)
        )  # ONNX attributes are float32 even if the operator computes in float64
        return self.wrap(value, None if float32_value == value else np.asarray(abs(float32_value - value)))

    def round(
        self, value: Array, error: Array | None, half_ulps: float = 1.0, lossless: Array | bool = False
    ) -> BoundedTensor:
        """Round a value to A. half_ulps: size of the rounding error. lossless: mask of values that are exact in float64."""
        with np.errstate(all="ignore"):
            size = np.abs(value) if error is None else np.abs(value) + error
            own_error = size * (self.unit * half_ulps) + self.type.step
            has_error = half_ulps > 1.0 or (error is not None and bool(np.min(error, initial=1.0) > 0))
            # False if any value is NaN.
            if has_error and size.size and size.min() >= self.type.normal and own_error.max() < np.inf:
                return self.wrap(value, self.types.combine_errors(error, own_error))
            # Subnormals may be flushed to zero.
            own_error = np.where(size < self.type.normal, size + self.type.step, own_error)
            own_error = np.where((value == 0) & (np.asarray(0.0 if error is None else error) == 0), 0.0, own_error)
            own_error = np.where(np.isfinite(value), own_error, 0.0)
            if half_ulps <= 1.0:  # sums and products of exact integers are exact in any order
                is_exact = (value == np.rint(value)) & (np.abs(value) <= 1 / self.type.unit)
                # The arithmetic type can represent the value, so rounding does not change it.
                if self.type.name != "float64" and self.types.allows_exact_sums and np.any(lossless):
                    is_exact |= (self.type.round(value) == value) & (size >= self.type.normal) & lossless
                own_error = np.where(is_exact & (np.asarray(0.0 if error is None else error) == 0), 0.0, own_error)
        total = self.types.combine_errors(error, own_error)
        return self.wrap(value, _replace_nan_errors(total) if total is not None and total.any() else None)

    def add(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the sum, rounded once."""
        with np.errstate(all="ignore"):
            total = a.value + b.value
            rounded_sum = self.round(
                total,
                self.types.combine_errors(a.error, b.error),
                1.0,
                _compute_exact_float64_sum_mask(total, a, b.value, b),
            )
        return _absorb_float16_lowest(rounded_sum, a, b) if self.types.absorbs_lowest else rounded_sum

    def sub(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the difference, rounded once."""
        with np.errstate(all="ignore"):
            total = a.value - b.value
            return self.round(
                total,
                self.types.combine_errors(a.error, b.error),
                1.0,
                _compute_exact_float64_sum_mask(total, a, -b.value, b),
            )

    def mul(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the product, rounded once."""
        with np.errstate(all="ignore"):
            error = self.types.combine_errors(
                _scale_error(a.error, b.max_magnitude()), _scale_error(b.error, np.abs(a.value))
            )
            if error is not None and (np.isinf(a.value).any() or np.isinf(b.value).any()):
                error = np.where(
                    self._compute_certainly_infinite_mask(a, b) | self._compute_certainly_infinite_mask(b, a),
                    0.0,
                    error,
                )
            return self.round(a.value * b.value, error, 1.0, lossless=not (_is_inexact(a) or _is_inexact(b)))

    def div(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the quotient, within one ulp in float32."""
        with np.errstate(all="ignore"):
            value = a.value / b.value
            error = None
            if a.error is not None or b.error is not None:
                min_divisor = np.abs(b.value) - b.get_errors()
                combined = self.types.combine_errors(a.get_errors(), np.abs(value) * b.get_errors())
                error = np.asarray(combined) / np.where(min_divisor > 0, min_divisor, 0.0)
                error = np.where(
                    (a.get_errors() == 0) & (b.get_errors() == 0) | self._compute_certainly_infinite_mask(a, b),
                    0.0,
                    error,
                )
            return self.round(value, error, 2.0 if self.type.name == "float32" else 4.0)

    def _compute_certainly_infinite_mask(self, a: BoundedTensor, b: BoundedTensor) -> Array:
        """Return a mask: a is certainly infinite, and b is finite, nonzero and of known sign."""
        sure = np.isinf(a.value) & (a.get_errors() == 0) & np.isfinite(b.value)
        return np.asarray(sure & (np.abs(b.value) > self.types.to_max_deviation(b.get_errors())))

    def neg(self, a: BoundedTensor) -> BoundedTensor:
        """Return -a, which is exact."""
        return self.wrap(-a.value, a.error)

    def abs(self, a: BoundedTensor) -> BoundedTensor:
        """Return |a|, which is exact."""
        return self.wrap(np.abs(a.value), a.error)

    def scale(self, a: BoundedTensor, factor: float) -> BoundedTensor:
        """Return a times a power of two, which is exact."""
        return self.wrap(a.value * factor, None if a.error is None else a.error * abs(factor))

    def maximum(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the elementwise maximum, without rounding."""
        return self._min_or_max(np.maximum, a, b)

    def minimum(self, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the elementwise minimum, without rounding."""
        return self._min_or_max(np.minimum, a, b)

    def _min_or_max(self, choose: Any, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return the elementwise minimum or maximum; its error is at most the larger error of the operands."""
        value = choose(a.value, b.value)
        if a.error is None and b.error is None:
            return self.wrap(value)
        # Evaluate at both ends of the intervals: the operand not chosen at the values may be chosen there.
        with np.errstate(all="ignore"):
            reach_a, reach_b = self.types.to_max_deviation(a.get_errors()), self.types.to_max_deviation(b.get_errors())
            low, high = choose(a.value - reach_a, b.value - reach_b), choose(a.value + reach_a, b.value + reach_b)
            error = self.types.from_max_deviation(np.maximum(np.abs(high - value), np.abs(value - low)))
        return self.wrap(value, np.where(np.isnan(error) & (a.get_errors() == b.get_errors()), 0.0, error))

    def select(self, mask: BoundedTensor, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
        """Return a where the mask is true, else b. Where the mask is undecided, the error covers both operands."""
        value = np.where(mask.value, a.value, b.value)
        error: Array | None = None
        if a.error is not None or b.error is not None:
            error = np.where(mask.value, a.get_errors(), b.get_errors())
        if mask.error is None:
            return self.wrap(value, error)
        with np.errstate(all="ignore"):
            either = np.abs(a.value - b.value) + np.maximum(a.get_errors(), b.get_errors())
        either = np.where((a.value == b.value) & np.isnan(either), np.maximum(a.get_errors(), b.get_errors()), either)
        error = np.where(mask.error > 0, either, 0.0 if error is None else error)
        return self.wrap(value, error)


def _absorb_float16_lowest(total: BoundedTensor, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
    """Replace sums with float16's lowest value where either operand has this value."""
    lowest = -FLOAT16.largest
    is_lowest = np.broadcast_to((a.value == lowest) | (b.value == lowest), total.shape)
    if not is_lowest.any():
        return total
    error = None if total.error is None else np.where(is_lowest, 0.0, total.error)
    return BoundedTensor(np.where(is_lowest, lowest, total.value), error, total.dtype)


def round_to_storage(result: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Round once to the storage type, as a kernel does when it stores a result (V1)."""
    if not result.is_float:
        return result
    storage = types.get_storage_type(result.dtype)
    if types.overflows_to_infinity and str(result.dtype) != "float64":
        result = replace_overflow(result, FLOAT32.largest, np.inf)
    with np.errstate(all="ignore"):
        # Storing a stored value again is exact unless its storage type was wider.
        was_stored = result.stored
        error = (
            types.combine_errors(result.error, compute_storage_distance(result.value, storage))
            if was_stored
            else compute_error_after_rounding(result, storage, types)
        )
    rounded = BoundedTensor(result.value, error, result.dtype, True, result.constant)
    rounded.exact_sums = result.compute_exact_stored_sum_mask(storage)
    if result.alternatives is None:
        return rounded

    def round_error(value: Array, error: Array) -> Array:
        return np.asarray(round_to_storage(BoundedTensor(value, error, result.dtype, was_stored), types).get_errors())

    return rounded.set_alternatives(result.alternatives.round_to_storage(round_error, storage.round))


def round_to_type(value: BoundedTensor, storage: FloatType, types: ProgramTypes) -> BoundedTensor:
    """Round a stored value again, to a narrower type."""

    def round_once(array: Array, error: Array | None) -> Array | None:
        with np.errstate(all="ignore"):  # infinities stay infinite
            return compute_error_after_rounding(BoundedTensor(array, error, value.dtype), storage, types)

    rounded = BoundedTensor(value.value, round_once(value.value, value.error), value.dtype, True, value.constant)
    rounded.exact_sums = value.compute_exact_stored_sum_mask(storage)
    return (
        rounded
        if value.alternatives is None
        else rounded.set_alternatives(value.alternatives.round_to_storage(round_once, storage.round))
    )


def replace_overflow(bounded: BoundedTensor, largest: float, replacement: float) -> BoundedTensor:
    """Replace finite values above `largest` in magnitude with `replacement`, keeping the sign."""
    beyond = np.isfinite(bounded.value) & (np.abs(bounded.value) > largest)
    if not beyond.any():
        return bounded
    value = np.where(beyond, np.copysign(replacement, bounded.value), bounded.value)
    error = None if bounded.error is None else np.where(beyond, 0.0, bounded.error)
    return BoundedTensor(value, error, bounded.dtype, bounded.stored, bounded.constant).set_alternatives(
        bounded.alternatives
    )


def compute_storage_distance(value: Array, storage: FloatType) -> Array | None:
    """Return each value's distance to the nearest number of the type; None if the type represents all values."""
    if storage.unit <= 2.0**-53:
        return None
    return (
        _compute_block_storage_distance(value, storage)
        if value.size <= BLOCK_ELEMENTS
        else compute_in_blocks(value.shape, lambda index: _compute_block_storage_distance(value[index], storage))
    )


def _compute_block_storage_distance(value: Array, storage: FloatType) -> Array | None:
    own_error = storage.compute_storage_error(value)
    return own_error if own_error.any() else None


def widen_known_errors(error: Array, value: Array, storage: FloatType) -> Array:
    """Return the unit roundoff of each inexact value in place of its known rounding error.

    Independent errors are combined by root-sum-square and multiplied by `COVERAGE_FACTOR`. That covers 6.9 standard
    deviations of sums of unit roundoffs, but only 4 of sums of known errors, which right results exceed.
    """
    return np.where(error > 0, np.maximum(error, np.abs(value) * storage.unit), 0.0)


def compute_error_after_rounding(result: BoundedTensor, storage: FloatType, types: ProgramTypes) -> Array | None:
    """Return the error of a result after it is rounded to a storage type."""
    if result.size <= BLOCK_ELEMENTS:
        return _compute_block_error_after_rounding(result, storage, types)
    return compute_in_blocks(
        result.shape, lambda index: _compute_block_error_after_rounding(result.get_block(index), storage, types)
    )


def _compute_block_error_after_rounding(result: BoundedTensor, storage: FloatType, types: ProgramTypes) -> Array | None:
    size = np.abs(result.value)
    if result.error is not None and result.size and np.min(result.error) > 0:
        own_error = (size + result.error) * storage.unit + storage.step
        if np.max(own_error) < np.inf:  # false if any value is NaN
            return types.combine_errors(result.error, own_error)
    exact = np.abs(storage.round(result.value) - result.value)
    exact = np.where(size < storage.normal, np.maximum(exact, size if storage.name != "float16" else exact), exact)
    exact = np.where(np.isfinite(exact), exact, 0.0)  # infinite values and overflow are checked in deviation.py
    if types.independent_errors:
        exact = widen_known_errors(exact, np.where(np.isfinite(size), size, 0.0), storage)
    if result.error is None:
        return exact if exact.any() else None
    own_error = (size + result.error) * storage.unit + storage.step
    own_error = np.where(result.error == 0, exact, np.where(np.isfinite(own_error), own_error, 0.0))
    return types.combine_errors(result.error, own_error)


Value: TypeAlias = "BoundedTensor | list[Any] | None"  # tensor, sequence, or empty optional


class UnprovedError(Exception):
    """Raised if no rule covers the operator, or this use of it; the message gives the reason."""


class RandomResultError(UnprovedError):
    """Raised for random numbers, which no rule can predict."""

    def __init__(self) -> None:
        super().__init__("random numbers, which are not compared")


class UndecidedError(UnprovedError):
    """Raised if the result depends on a choice that rounding may change; later nodes then use the device's result."""


class OperatorCall:
    """Arguments of a rule for one node: operator, inputs, attributes, opset and the program's types.

    `op` includes a domain other than ONNX's, as in "com.microsoft::Gelu".
    """

    def __init__(
        self,
        op: str,
        inputs: list[Any],
        attributes: Mapping[str, Any] | None = None,
        opset: int = 23,
        types: ProgramTypes | None = None,
        outputs: int = 1,
    ) -> None:
        self.domain, _, self.op = op.rpartition("::")
        self.inputs = list(inputs)
        self.attributes = dict(attributes or {})
        self.opset = opset
        self.types = types or ProgramTypes()
        self.outputs = outputs
        self.node: Any = None  # the NodeProto; None if a rule evaluates another operator
        self.opsets: Any = None
        self.run_graph: Any = None  # runs a subgraph: (GraphProto, inputs, outer values) -> outputs
        self.outer: Any = None
        # The device's stored result for each output, if the node's kernels read back their own results.
        self.stored: list[BoundedTensor | None] = []

    def __len__(self) -> int:
        return len(self.inputs)

    def optional_input(self, index: int) -> Any:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> BoundedTensor:
        """Return an input tensor. Raise UnprovedError if it is omitted or not a tensor."""
        value = self.optional_input(index)
        if not isinstance(value, BoundedTensor):
            raise UnprovedError(f"input {index} of {self.op} is not a tensor")
        return value

    def get_integer_list(self, index: int) -> list[int] | None:
        """Return the values of an integer input, or None if it is omitted. Raise UndecidedError if a value is undecided."""
        value = self.optional_input(index)
        if value is None:
            return None
        if value.error is not None and np.any(value.error > 0):
            raise UndecidedError(f"input {index} of {self.op} may change by rounding")
        return [int(element) for element in value.value.reshape(-1)]

    def get_decided_input(self, index: int) -> Array:
        """Return an integer input as an array. Raise UndecidedError if a value is undecided."""
        return self.require_decided(self.input(index), f"input {index}")

    def require_decided(self, value: BoundedTensor, description: str) -> Array:
        """Return a tensor that controls the operator as an array. Raise UndecidedError if a value is undecided."""
        if value.error is not None and np.any(value.error > 0):
            raise UndecidedError(f"{description} of {self.op} may change by rounding")
        return value.value

    def get_scalar(self, index: int, default: float) -> tuple[float, float]:
        """Return a scalar parameter and the error of the kernel's copy. The host passes constants in float32."""
        value = self.optional_input(index)
        if value is None or not value.size:
            return default, 0.0
        number = float(value.value.reshape(-1)[0])
        if value.constant and self.types.constant_rounding == "rounded":  # the constant is already rounded
            return number, abs(number) * self.types.get_constant_type(value.dtype).unit
        return number, 0.0 if value.constant else float(np.max(self.types.to_max_deviation(value.get_errors())))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node, or the default if it is not set."""
        return self.attributes.get(name, default)

    def get_axes(self, index: int = 1) -> list[int] | None:
        """Return the axes from an input, or from an attribute in older opsets."""
        axes_attribute = self.attribute("axes")
        return list(axes_attribute) if axes_attribute is not None else self.get_integer_list(index)

    def make_arithmetic(self, dtype: Any = None) -> BoundedArithmetic:
        """Return the arithmetic for a float type, by default the first input's."""
        return BoundedArithmetic(self.types, self.input(0).dtype if dtype is None else dtype)


Rule: TypeAlias = Callable[[OperatorCall], "list[Any]"]
RULES: dict[str, Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators in a domain."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[f"{domain}::{name}" if domain else name] = function
        return function

    return add


def find_rule(op: str, domain: str = "") -> Rule | None:
    """Return the rule of an operator, or None."""
    normalized_domain = "" if domain in ("", "ai.onnx") else domain
    return RULES.get(f"{normalized_domain}::{op}" if normalized_domain else op)


def evaluate_operator(
    op: str, inputs: Iterable[Any], attributes: Mapping[str, Any] | None = None, like: OperatorCall | None = None
) -> list[Any]:
    """Evaluate another operator at the latest opset as part of a rule. Raise UnprovedError if it has no rule."""
    registered = RULES.get(op)
    if registered is None:
        raise UnprovedError(f"no rule for {op}")
    return registered(OperatorCall(op, list(inputs), attributes, 23, like.types if like else None, 1))


MAX_ITERATIONS = 10_000
