"""The tensors in outputs that are sequences or optional values."""

from __future__ import annotations

import numpy as np

from .bounds.bounded import Bounded
from .bounds.registry import Value
from .bounds.float_types import is_float
from .live_values import Carried, arrays_of
from .tensor_sources import Subject


def packed_parts(fused: Subject, chain: Carried) -> dict[str, Value]:
    """Return the reference's values for the tensors of such outputs, with their errors."""
    known = chain.known()
    tensors = {value.name for value in fused.program.outputs}
    lists = {value.name: known[value.name] for value in fused.outputs if value.name in known.keys() - tensors}
    values = fused.packed_outputs({name: arrays_of(one, False) for name, one in lists.items()})
    errors = fused.packed_outputs({name: arrays_of(one, True) for name, one in lists.items()})
    made: dict[str, Value] = {}
    for name, value in values.items():
        source = name.rsplit("/", 1)[0]
        if source in chain.unproved:
            chain.unproved[name] = chain.unproved[source]
        same = errors[name].shape == value.shape and is_float(value.dtype)
        error = np.asarray(errors[name], np.float64) if same else None
        made[name] = Bounded(value, error, value.dtype, stored=True)
    return made
