"""Accept torch tensors as arguments of kernels and models, without importing torch: if torch is not loaded, no value is a torch tensor."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .._pumice import UnsupportedError
from .element_types import get_numpy_dtype

# dtype that NumPy lacks -> torch integer dtype of the same size, used to view its bytes
TORCH_STORAGE_TYPES = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}


def make_gradient_error(name: str) -> UnsupportedError:
    """Return the error for a tensor that requires a gradient."""
    return UnsupportedError(
        f"'{name}': expected a tensor without gradient, because pumice computes none; given one with requires_grad=True "
        f"(.detach() gives a tensor of the same memory; under torch.no_grad() or torch.inference_mode() no gradient is requested)"
    )


def detach_tensor(value: Any, name: str) -> Any:
    """Detach a torch tensor, sharing its memory; return other values unchanged.

    Raise UnsupportedError for a tensor that requires a gradient.
    """
    torch = sys.modules.get("torch")
    if torch is None or not _is_torch_tensor(torch, value):
        return value
    if value.requires_grad and torch.is_grad_enabled():
        raise make_gradient_error(name)
    return value.detach()


def _is_torch_tensor(torch: Any, value: Any) -> bool:
    kind = getattr(torch, "Tensor", None)  # None while torch is being imported
    return kind is not None and isinstance(value, kind)


def convert_torch_tensor(value: Any, name: str) -> Any:
    """Convert a torch tensor on the CPU to an array that shares its memory; detach one on another device; return other values unchanged.

    Raise UnsupportedError for a tensor that requires a gradient. Tensors that NumPy cannot view (sparse, lazily conjugated) are returned
    unchanged, for the caller to reject.
    """
    tensor = detach_tensor(value, name)
    torch = sys.modules.get("torch")
    if torch is None or not _is_torch_tensor(torch, tensor):
        return value
    storage_type = TORCH_STORAGE_TYPES.get(str(tensor.dtype).removeprefix("torch."))
    try:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized:
            return tensor
        if storage_type is None:
            return tensor.numpy()
        return (
            tensor.view(getattr(torch, storage_type))
            .numpy()
            .view(get_numpy_dtype(str(tensor.dtype).removeprefix("torch.")))
        )
    except (TypeError, RuntimeError):
        return tensor


def convert_torch_tensors_by_name(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the torch tensors in each argument of a call, by name."""
    return {name: convert_nested_torch_tensors(value, name) for name, value in arguments.items()}


def convert_nested_torch_tensors(value: Any, name: str) -> Any:
    """Convert torch tensors to arrays: the value itself, or the items of a dict (a kernel's block) or of a list (blocks or rows)."""
    if not is_torch_loaded():
        return value
    if type(value) is dict:
        return {key: convert_torch_tensor(item, f"{name}.{key}") for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)(convert_torch_tensor(item, f"{name}[{i}]") for i, item in enumerate(value))
    return convert_torch_tensor(value, name)


def is_torch_loaded() -> bool:
    """Return whether torch is loaded; if not, no value is a torch tensor."""
    return "torch" in sys.modules
