"""Torch's tensors in memory that a context shares with CUDA, and the order of the work of both."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

import pumice._pumice as _pumice

from .._pumice import Buffer, Context, Tensor, TensorDesc, UnsupportedError
from ..base.errors import binding_error
from ..device.context import checked_context, default_context
from ..device.sharing import Order, cuda_side, empty_shared

_ADVICE = 'torch.from_dlpack(pumice.empty(shape, dtype, share="cuda")) is a tensor in memory that both use'
_MOST_IDLE_BYTES = 1 << 28  # of memory that is kept for the next results
_GRAIN = 512


def ordered(stream: Any = None, context: Context | None = None) -> Order:
    """A `with` block whose kernels, command lists and models come after torch's work on a stream so far, and before its work afterwards.

    The GPU keeps the order and the host waits for nothing: a kernel that is called with Tensors alone returns at once. It holds for what
    the calling thread submits. stream: a torch.cuda.Stream; None for the current stream. context: by default the default context.
    Raises UnsupportedError, which names what is missing, BindingError (K5) for a stream of another GPU, and StateError for an order
    with another stream inside.
    """
    on = checked_context(context) or default_context()
    number = cuda_side(on).primary.number
    if stream is None:
        return Order(on, current_stream(number))
    if not isinstance(stream, torch.cuda.Stream) or stream.device.index != number:
        given = repr(stream) if isinstance(stream, torch.cuda.Stream) else type(stream).__name__
        raise binding_error("K5", "stream", f"a torch.cuda.Stream of cuda:{number}", given, kind="argument")
    return Order(on, stream.cuda_stream)


def current_stream(number: int) -> int:
    """The handle of torch's current stream of a CUDA device."""
    return int(torch.cuda.current_stream(number).cuda_stream)


def dtype_name(tensor: Any) -> str:
    """The name of a torch tensor's dtype, which is NumPy's and pumice's too."""
    return str(tensor.dtype).removeprefix("torch.")


def shared_tensor_of(tensor: Any, context: Context) -> Tensor | None:
    """The Tensor whose memory a torch.cuda tensor has; None where the context does not share that memory."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    if tensor.numel() == 0:  # which has no address
        return empty_shared(list(tensor.shape), dtype_name(tensor), context)
    return _pumice.shared_tensor(
        context, tensor.data_ptr(), dtype_name(tensor), list(tensor.shape), list(tensor.stride())
    )


def not_shared(tensor: Any, name: str) -> UnsupportedError:
    """The refusal of a torch.cuda tensor in memory that is torch's alone."""
    return UnsupportedError(f"'{name}' lies on '{tensor.device}' in memory that pumice does not share: {_ADVICE}")


def view_of(tensor: Tensor) -> Any:
    """The torch.cuda tensor of a Tensor in shared memory, without waiting for the context's work."""
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__(stream=-1, max_version=(1, 0)))


class SharedPool:
    """Shared memory for results: what torch has dropped serves the next result on the same stream, as torch's own memory does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[int, int], list[Buffer]] = {}  # by stream and bytes

    def empty(self, shape: Sequence[int], dtype: str, context: Context, stream: int) -> tuple[Tensor, Any]:
        """A Tensor of undefined content, and the torch.cuda tensor of its memory, which keeps it out of the pool while it lives."""
        desc = TensorDesc(dtype, list(shape))
        size = -(-max(desc.bytes, 1) // _GRAIN) * _GRAIN
        with self._lock:
            known = self._made.setdefault((stream, size), [])
            found = next((one for one in known if one._views == 0), None)
            if found is not None:
                tensor = Tensor(desc, found)
                return tensor, view_of(tensor)
        made = empty_shared(size, "uint8", context).buffer
        tensor = Tensor(desc, made)
        view = view_of(tensor)
        with self._lock:
            idle = self._trimmed()
            known.append(made)
        del idle  # others need not wait while CUDA frees it, for which it waits for its work
        return tensor, view

    def _trimmed(self) -> list[Buffer]:
        """Takes out the idle memory where it is much."""
        idle = [(key, one) for key, every in self._made.items() for one in every if one._views == 0]
        if sum(key[1] for key, _ in idle) <= _MOST_IDLE_BYTES:
            return []
        for key, one in idle:
            self._made[key].remove(one)
        return [one for _, one in idle]


_pools: WeakKeyDictionary[Context, SharedPool] = WeakKeyDictionary()
_lock = threading.Lock()


def pool_of(context: Context) -> SharedPool:
    """The pool of a context, made on first use."""
    with _lock:
        if (pool := _pools.get(context)) is None:
            pool = _pools[context] = SharedPool()
        return pool
