"""Torch's tensors in memory that a context shares with CUDA, and the order of the work of both."""

from __future__ import annotations

from typing import Any

import torch

import pumice._pumice as _pumice

from .._pumice import Context, Tensor, UnsupportedError
from ..device.context import checked_context, default_context
from ..device.sharing import Order, cuda_side
from ..base.errors import binding_error

_ADVICE = 'pumice.empty(shape, dtype, share="cuda") makes memory that both use, and torch.from_dlpack its tensor of torch'


def ordered(stream: Any = None, context: Context | None = None) -> Order:
    """A `with` block whose kernels, command lists and models come after torch's work on a stream so far, and before its work afterwards.

    The order is kept by the GPU: no host waits, and a kernel that is called with Tensors alone returns at once. It holds for what
    the calling thread submits. stream: a torch.cuda.Stream; None for the current stream. context: by default the default context.
    Raises UnsupportedError, which names what is missing, and BindingError (K5) for a stream of another GPU.
    """
    on = checked_context(context) or default_context()
    number = cuda_side(on).primary.number
    if stream is None:
        return Order(on, torch.cuda.current_stream(number).cuda_stream)
    if not isinstance(stream, torch.cuda.Stream) or stream.device.index != number:
        given = repr(stream) if isinstance(stream, torch.cuda.Stream) else type(stream).__name__
        raise binding_error("K5", "stream", f"a torch.cuda.Stream of cuda:{number}", given, kind="argument")
    return Order(on, stream.cuda_stream)


def shared_tensor_of(tensor: Any, name: str, context: Context) -> Tensor:
    """The Tensor whose memory a torch.cuda tensor has. Raises UnsupportedError, which names the tensor, for any other memory."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    dtype = str(plain.dtype).removeprefix("torch.")
    found = _pumice.shared_tensor(context, plain.data_ptr(), dtype, list(plain.shape), list(plain.stride()))
    if found is None:
        raise UnsupportedError(f"'{name}' lies on '{tensor.device}' in memory that pumice does not share: {_ADVICE}")
    return found


def view_of(tensor: Tensor) -> Any:
    """The torch.cuda tensor of a Tensor in shared memory, without waiting for the context's work."""
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__(stream=-1, max_version=(1, 0)))


