"""Arguments of a kernel under tuning, for the device run and for the reference check."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._pumice import Context, Tensor
from ..base.element_types import Array
from ..base.errors import InputError
from .block_arguments import get_binding_names
from .context import tensor
from .tuning_store import filter_arrays

LAUNCH_ARGUMENTS = ("threads", "groups")
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Square root of each type's machine epsilon.
_TOLERANCES = {"float64": 1.5e-8, "float32": 3.5e-4, "float16": 3.2e-2, "bfloat16": 9e-2}


class VariantArguments:
    """The arguments for one variant. The caller's arrays and tensors are not modified."""

    def __init__(
        self,
        source: str,
        bindings: Sequence[Mapping[str, Any]],
        context: Context,
        arguments: Mapping[str, Any],
        precision: str | None,
    ) -> None:
        """Store the arguments. source: the kernel's source. bindings: the buffers in its interface."""
        self._source = source
        self._context = context
        self.arguments = dict(arguments)
        self._written_names = [binding["name"] for binding in bindings if binding["access"] != "read"]
        self._buffer_names = {name for binding in bindings for name in get_binding_names(binding)}
        self._precision = precision
        self.precision_arrays = self._find_precision_arrays() if precision is not None else set()

    def _find_precision_arrays(self) -> set[str]:
        """Return the names of the float arrays bound to sfp buffers, which are converted if the variant sets a precision."""
        return {
            name
            for name, value in filter_arrays(self.arguments).items()
            if name in self._buffer_names
            and str(value.dtype) in PRECISIONS.values()
            and re.search(rf"\bsfp\w*\s+{re.escape(name)}\s*\[", self._source)
        }

    def make_reference_arguments(self) -> dict[str, Any]:
        """Return the arguments for the reference function: copies of the arrays, and the numbers."""
        return {
            name: np.array(value.numpy() if isinstance(value, Tensor) else value)
            if isinstance(value, (np.ndarray, Tensor))
            else value
            for name, value in self.arguments.items()
            if name not in LAUNCH_ARGUMENTS
        }

    def copy_arguments(self) -> dict[str, Any]:
        """Return copies of arrays and tensors, converted to the precision if there is one; other arguments are unchanged."""
        return {name: self._copy_argument(name, value) for name, value in self.arguments.items()}

    def _copy_argument(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):  # the members of a block
            return {member: self._copy_argument("", item) for member, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._copy_argument("", item) for item in value]
        if name in LAUNCH_ARGUMENTS or not isinstance(value, (np.ndarray, Tensor)):
            return value
        array = value.numpy() if isinstance(value, Tensor) else np.array(value)
        if self._precision is not None and name in self.precision_arrays:
            array = array.astype(_get_dtype(PRECISIONS[self._precision]))
        return tensor(array, context=self._context) if isinstance(value, Tensor) else array

    def compute_expected(self, reference: Callable[..., Any]) -> dict[str, Array]:
        """Return the reference's results by buffer name. Raise InputError if they are invalid."""
        reference_results = reference(**self.make_reference_arguments())
        if not isinstance(reference_results, Mapping):
            if len(self._written_names) != 1:
                raise InputError(
                    f"Kernel.tune: check: expected a dict with some of {', '.join(self._written_names)}; given one value"
                )
            reference_results = {self._written_names[0]: reference_results}
        arrays = {name: np.asarray(value) for name, value in reference_results.items()}
        if not arrays:
            raise InputError("Kernel.tune: check: expected at least one array; given an empty dict")
        for name, array in arrays.items():
            argument = self.arguments.get(name)
            if name in LAUNCH_ARGUMENTS or not isinstance(argument, (np.ndarray, Tensor)):
                raise InputError(f"Kernel.tune: check: '{name}' is not an array of the kernel's call")
            if array.shape != tuple(argument.shape):
                raise InputError(
                    f"Kernel.tune: check: '{name}': expected shape {tuple(argument.shape)}; given {array.shape}"
                )
        return arrays

    def describe_difference(self, name: str, result: Array, expected: Array, tolerance: float | None) -> str:
        """Describe how a result differs from the expected one; "" if it is correct."""
        dtype = self.arguments[name].dtype
        if dtype.names:
            fields = ((field, str(dtype[field].base)) for field in dtype.names)
            messages = (
                describe_difference(
                    f"{name}.{field}", result[field], expected[field], _tolerance_or_default(kind, tolerance)
                )
                for field, kind in fields
            )
            return next((message for message in messages if message), "")
        return describe_difference(name, result, expected, _tolerance_or_default(str(dtype), tolerance))


def _tolerance_or_default(dtype: str, tolerance: float | None) -> float:
    return get_default_tolerance(dtype) if tolerance is None else tolerance


def get_default_tolerance(dtype: str) -> float:
    """Return the default tolerance for rounding in sums of this dtype, relative to the largest value; 0 for integers."""
    return _TOLERANCES.get(dtype, 0.0)


def describe_difference(name: str, result: Array, expected: Array, allowed: float) -> str:
    """Describe how an array differs from the expected one; "" if the error is at most `allowed` times the largest expected value."""
    as_float64 = [np.asarray(operand, np.float64) for operand in (result, expected)]
    if not allowed:
        num_wrong = int(np.count_nonzero(~((result == expected) | (np.isnan(as_float64[0]) & np.isnan(as_float64[1])))))
        return f"'{name}' differs in {num_wrong:,} of {expected.size:,} elements" if num_wrong else ""
    finite = [np.isfinite(operand) for operand in as_float64]
    nonfinite_result, nonfinite_expected = (
        np.where(ok, 0.0, operand) for ok, operand in zip(finite, as_float64, strict=True)
    )
    if not np.array_equal(nonfinite_result, nonfinite_expected, equal_nan=True):
        return f"'{name}' has NaN or infinity at different positions than the reference"
    both_finite = finite[0] & finite[1]
    scale = float(np.max(np.abs(as_float64[1]), where=both_finite, initial=0.0)) or 1.0
    error = (
        float(
            np.max(
                np.abs(as_float64[0] - as_float64[1], where=both_finite, out=np.zeros_like(as_float64[0])), initial=0.0
            )
        )
        / scale
    )
    return "" if error <= allowed else f"'{name}' differs by {error:.2g} of its largest value; {allowed:.2g} is allowed"


def _get_dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)
