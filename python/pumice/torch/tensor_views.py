"""Zero-copy conversion between torch CPU tensors and NumPy arrays."""

from __future__ import annotations

from typing import Any

import torch

from .._pumice import UnsupportedError
from ..base.element_types import Array
from ..base.torch_tensors import TORCH_STORAGE_TYPES, convert_torch_tensor


def torch_to_numpy(tensor: Any, name: str) -> Array:
    """Return a NumPy array that shares the memory of a CPU tensor.

    Raise UnsupportedError naming the tensor if it is on another device or not strided.
    """
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"'{name}' is on device '{tensor.device}'; expected a CPU tensor")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(
            f"'{name}' has the layout {tensor.layout}; expected a strided tensor that is not quantized"
        )
    array = convert_torch_tensor(tensor.resolve_conj().resolve_neg(), name)
    if isinstance(array, torch.Tensor):
        raise UnsupportedError(f"'{name}' has the dtype {tensor.dtype}; expected one that NumPy or ml_dtypes has")
    return array  # type: ignore[no-any-return]


def numpy_to_torch(array: Array) -> Any:
    """Return a tensor that shares the memory of a writable NumPy array."""
    if (storage_type := TORCH_STORAGE_TYPES.get(array.dtype.name)) is not None:
        return torch.from_numpy(array.view(storage_type)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)
