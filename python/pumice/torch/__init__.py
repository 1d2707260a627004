"""PyTorch and pumice together: `torch.compile(model, backend="pumice")`, `wrap`, which makes an operator of torch from a kernel,
and `ordered`, which orders the work of both on a GPU.

Importing this module registers the backend; an installed pumice is found by torch without that import. It needs the extra
`pumice[torch]`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from .compiling import backend as backend
from .operators import wrap as wrap
from .sharing import ordered as ordered

__all__ = ["backend", "ordered", "wrap"]


def _register() -> None:
    """Tells torch of the backend where no installed package does: torch refuses a second registration."""
    if "pumice" in entry_points(group="torch_dynamo_backends").names:
        return
    from torch._dynamo import list_backends, register_backend

    if "pumice" not in list_backends(exclude_tags=()):
        register_backend(backend, name="pumice")


_register()
