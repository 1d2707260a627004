"""NumPy views of torch's tensors on the CPU, and tensors that view NumPy arrays, both without a copy."""

from __future__ import annotations

from typing import Any

import torch

from .._pumice import UnsupportedError
from ..base.element_types import Array
from ..base.torch_tensors import STORED_AS, plain


def array_of_tensor(tensor: Any, name: str) -> Array:
    """The elements of a tensor of the CPU as an array that shares its memory.

    Raises UnsupportedError, which names the tensor, for one of another device, and for one that is not strided.
    """
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"'{name}' lies on the device '{tensor.device}'; expected a tensor of the CPU")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(
            f"'{name}' has the layout {tensor.layout}; expected a strided tensor that is not quantized"
        )
    array = plain(tensor.resolve_conj().resolve_neg(), name)
    if isinstance(array, torch.Tensor):
        raise UnsupportedError(f"'{name}' has the dtype {tensor.dtype}; expected one that NumPy or ml_dtypes has")
    return array  # type: ignore[no-any-return]


def tensor_of_array(array: Array) -> Any:
    """A tensor that shares the memory of a NumPy array, which is writable."""
    if (stored := STORED_AS.get(array.dtype.name)) is not None:
        return torch.from_numpy(array.view(stored)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)
