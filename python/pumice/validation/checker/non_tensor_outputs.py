"""Reference values of the tensors inside outputs that are sequences or optional values."""

from __future__ import annotations

import numpy as np

from ..reference.tensor_sources import ValidationSubject
from ..rules.bounded_tensor import BoundedTensor, Value
from ..rules.float_types import is_float
from .live_values import LiveValues, to_declared_arrays


def get_non_tensor_output_values(fused: ValidationSubject, chain: LiveValues) -> dict[str, Value]:
    """Return the bounded reference values of the tensors inside sequence and optional outputs, by name."""
    live_values = chain.get_live_values()
    tensors = {value.name for value in fused.program.outputs}
    lists = {
        value.name: live_values[value.name] for value in fused.outputs if value.name in live_values.keys() - tensors
    }
    values = fused.packed_outputs({name: to_declared_arrays(value, False) for name, value in lists.items()})
    errors = fused.packed_outputs({name: to_declared_arrays(value, True) for name, value in lists.items()})
    expected: dict[str, Value] = {}
    for name, value in values.items():
        source = name.rsplit("/", 1)[0]
        if source in chain.unproved:
            chain.unproved[name] = chain.unproved[source]
        has_error = errors[name].shape == value.shape and is_float(value.dtype)
        error = np.asarray(errors[name], np.float64) if has_error else None
        expected[name] = BoundedTensor(value, error, value.dtype, stored=True)
    return expected
