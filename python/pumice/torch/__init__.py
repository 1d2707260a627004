"""PyTorch integration: the backend `torch.compile(model, backend="pumice")`, `wrap` to turn a kernel into a custom operator, and `ordered`
to order the work of torch and pumice on a GPU.

Importing this module registers the backend; torch finds it without the import if pumice is installed. Requires the extra `pumice[torch]`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from .compile_backend import backend as backend
from .cuda_memory import ordered as ordered
from .custom_operators import wrap as wrap

__all__ = ["backend", "ordered", "wrap"]


def _register_backend() -> None:
    """Register the backend with torch unless an installed package already does; torch rejects a second registration."""
    if "pumice" in entry_points(group="torch_dynamo_backends").names:
        return
    from torch._dynamo import list_backends, register_backend

    if "pumice" not in list_backends(exclude_tags=()):
        register_backend(backend, name="pumice")


_register_backend()
