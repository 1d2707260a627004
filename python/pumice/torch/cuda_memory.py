"""Allocate torch tensors in memory that a context shares with CUDA, and order the work of torch and pumice."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

import pumice._pumice as _pumice

from .._pumice import Buffer, Context, Tensor, TensorDesc, UnsupportedError
from ..base.errors import binding_error
from ..device.context import default_context, validate_context
from ..device.cuda_sharing import StreamOrder, empty_shared, get_cuda_interop

_ADVICE = 'torch.from_dlpack(pumice.empty(shape, dtype, share="cuda")) is a tensor in memory that both use'
_MAX_IDLE_BYTES = 1 << 28  # maximum free memory kept for later results
_ALIGNMENT = 512


def ordered(stream: Any = None, context: Context | None = None) -> StreamOrder:
    """Return a context manager that runs kernels, command lists and models between torch's earlier and later work on a stream.

    The GPU keeps the order without waiting on the host: a call to a kernel with only Tensors as arguments returns at once. Applies to
    submissions of the calling thread. stream: a torch.cuda.Stream; None for the current stream. context: the default context if omitted.
    Raise UnsupportedError naming the missing driver, device or function, BindingError (K5) for a stream on another GPU, and StateError if
    nested in an order with another stream.
    """
    target_context = validate_context(context) or default_context()
    device_index = get_cuda_interop(target_context).primary.device_index
    if stream is None:
        return StreamOrder(target_context, get_current_stream(device_index))
    if not isinstance(stream, torch.cuda.Stream) or stream.device.index != device_index:
        received = repr(stream) if isinstance(stream, torch.cuda.Stream) else type(stream).__name__
        raise binding_error("K5", "stream", f"a torch.cuda.Stream of cuda:{device_index}", received, kind="argument")
    return StreamOrder(target_context, stream.cuda_stream)


def get_current_stream(device_index: int) -> int:
    """Return the handle of torch's current stream of a CUDA device."""
    return int(torch.cuda.current_stream(device_index).cuda_stream)


def get_dtype_name(tensor: Any) -> str:
    """Return the name of a torch tensor's dtype, which NumPy and pumice share."""
    return str(tensor.dtype).removeprefix("torch.")


def find_shared_tensor(tensor: Any, context: Context) -> Tensor | None:
    """Return the Tensor that aliases a torch.cuda tensor; None if the context does not share its memory."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    if tensor.numel() == 0:  # an empty tensor has no address
        return empty_shared(list(tensor.shape), get_dtype_name(tensor), context)
    return _pumice.shared_tensor(
        context, tensor.data_ptr(), get_dtype_name(tensor), list(tensor.shape), list(tensor.stride())
    )


def make_not_shared_error(tensor: Any, name: str) -> UnsupportedError:
    """Return the error to raise for a torch.cuda tensor in memory that is not shared."""
    return UnsupportedError(f"'{name}' is on '{tensor.device}' in memory that pumice does not share: {_ADVICE}")


def make_torch_view(tensor: Tensor) -> Any:
    """Return a torch.cuda tensor that aliases a Tensor in shared memory, without waiting for the context's work."""
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__(stream=-1, max_version=(1, 0)))


class SharedMemoryPool:
    """A caching allocator for shared memory: like torch's, it reuses buffers that torch has dropped on the same stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[tuple[int, int], list[Buffer]] = {}  # (stream, size in bytes) -> buffers

    def empty(self, shape: Sequence[int], dtype: str, context: Context, stream: int) -> tuple[Tensor, Any]:
        """Return an uninitialised Tensor and the torch.cuda tensor that aliases it; its memory is in use until the latter is dropped."""
        desc = TensorDesc(dtype, list(shape))
        size = -(-max(desc.bytes, 1) // _ALIGNMENT) * _ALIGNMENT
        with self._lock:
            pooled = self._buffers.setdefault((stream, size), [])
            free_buffer = next((pooled_buffer for pooled_buffer in pooled if pooled_buffer._views == 0), None)
            if free_buffer is not None:
                tensor = Tensor(desc, free_buffer)
                return tensor, make_torch_view(tensor)
        new_buffer = empty_shared(size, "uint8", context).buffer
        tensor = Tensor(desc, new_buffer)
        view = make_torch_view(tensor)
        with self._lock:
            idle = self._remove_excess_idle_buffers()
            pooled.append(new_buffer)
        del idle  # free outside the lock, because CUDA waits for its work when it frees memory
        return tensor, view

    def _remove_excess_idle_buffers(self) -> list[Buffer]:
        """Remove all idle buffers from the pool if their total size exceeds the limit, and return them."""
        idle = [
            (key, pooled_buffer)
            for key, pool_buffers in self._buffers.items()
            for pooled_buffer in pool_buffers
            if pooled_buffer._views == 0
        ]
        if sum(key[1] for key, _ in idle) <= _MAX_IDLE_BYTES:
            return []
        for key, pooled_buffer in idle:
            self._buffers[key].remove(pooled_buffer)
        return [pooled_buffer for _, pooled_buffer in idle]


_pools: WeakKeyDictionary[Context, SharedMemoryPool] = WeakKeyDictionary()
_lock = threading.Lock()


def get_shared_memory_pool(context: Context) -> SharedMemoryPool:
    """Return the pool of a context, created on first use."""
    with _lock:
        if (pool := _pools.get(context)) is None:
            pool = _pools[context] = SharedMemoryPool()
        return pool
