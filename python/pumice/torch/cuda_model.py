"""Run a model on torch.cuda tensors: record it once on memory shared with CUDA, then replay it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._pumice import BindingError, BindingTable, Buffer, CommandList, Tensor, UnsupportedError
from ..base.element_types import get_numpy_dtype
from ..base.errors import binding_error
from ..device.cuda_sharing import StreamOrder, empty_shared, get_cuda_interop
from ..model.model import Model
from .cuda_memory import find_shared_tensor, get_current_stream, get_dtype_name, make_torch_view

_MAX_RECORDINGS = 16  # recordings per model; each keeps the memory of its results allocated


class _Recording:
    """The model's dispatches recorded for specific buffers. staging_views: input index -> torch view of the buffer for a copied input."""

    def __init__(self, key: Any, commands: CommandList, staging_views: dict[int, Any], results: list[Tensor]) -> None:
        self.key, self.commands, self.staging_views, self.results = key, commands, staging_views, results

    @property
    def is_free(self) -> bool:
        """Return whether torch has dropped all results."""
        return all(result.buffer._views == 0 for result in self.results)


class CudaModel:
    """A model on torch.cuda tensors. Inputs outside shared memory are copied into it on the GPU; results are in shared memory."""

    def __init__(self, model: Model) -> None:
        """Raise UnsupportedError for a model with control flow, host sync points or check_indices."""
        self._model, self._program = model, model.program
        if self._program.has_control_flow:
            raise UnsupportedError(
                "on tensors of CUDA: a model with control flow or sizes that depend on data, as the host drives it"
            )
        if self._program.checks_indices:
            raise UnsupportedError("check_indices on tensors of CUDA: the host would have to wait for what was found")
        self._interop = get_cuda_interop(self._program.context)
        self._lock = threading.Lock()
        self._recordings: list[_Recording] = []
        self._arena: Buffer | None = None

    def close(self) -> None:
        """Free the model and the memory of its recordings; live results keep theirs."""
        with self._lock:
            self._recordings.clear()
            self._arena = None
        self._model.close()

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Return the results, in memory shared with pumice, ordered on torch's current stream, without waiting on the host.

        Raise BindingError for an unsupported shape or dtype, UnsupportedError for a tensor on another GPU.
        """
        context = self._program.context
        device_index = self._interop.primary.device_index
        stream = get_current_stream(device_index)
        self._check_devices(tensors, device_index)
        shared = [find_shared_tensor(tensor, context) if tensor.is_contiguous() else None for tensor in tensors]
        buffer_keys = tuple(
            (get_dtype_name(tensor), tuple(tensor.shape), None if alias is None else (alias.buffer.id, alias.offset))
            for tensor, alias in zip(tensors, shared, strict=True)
        )
        with self._lock:
            recording = next(
                (free for free in self._recordings if free.key == (stream, buffer_keys) and free.is_free), None
            )
            if recording is None:
                self._check_arguments(tensors)
                recording = self._record((stream, buffer_keys), shared)
            for input_index, staging_view in recording.staging_views.items():
                staging_view.copy_(tensors[input_index])
            with StreamOrder(context, stream):
                recording.commands.exec()
            return tuple(make_torch_view(result) for result in recording.results)

    def _check_devices(self, tensors: Sequence[Any], device_index: int) -> None:
        for tensor, value in zip(tensors, self._program.inputs, strict=True):
            if tensor.device.type == "cuda" and tensor.device.index != device_index:
                raise UnsupportedError(
                    f"'{value.name}' is on '{tensor.device}'; expected 'cuda:{device_index}', the GPU of the context"
                )

    def _check_arguments(self, tensors: Sequence[Any]) -> None:
        self._model.arguments(
            *(
                _make_placeholder(tensor, value.name)
                for tensor, value in zip(tensors, self._program.inputs, strict=True)
            )
        )

    def _record(self, key: Any, shared: Sequence[Tensor | None]) -> _Recording:
        context = self._program.context
        shapes = [list(shape) for _, shape, _ in key[1]]
        try:
            compiled = self._program.compiled(shapes)
        except BindingError as error:
            if error.rule != "K3":
                raise
            raise UnsupportedError(f"on tensors of CUDA: {error}") from error
        staging_views: dict[int, Any] = {}
        inputs: list[Tensor] = []
        for input_index, (dtype, shape, _) in enumerate(key[1]):
            input_tensor = shared[input_index]
            if input_tensor is None:
                input_tensor = empty_shared(shape, dtype, context)
                staging_views[input_index] = make_torch_view(input_tensor)
            inputs.append(input_tensor)
        results = [empty_shared(slot.desc.shape, slot.desc.dtype, context) for slot in compiled.outputs if slot.desc]
        table = BindingTable(compiled)
        names = [value.name for value in (*self._program.inputs, *self._program.outputs)]
        table.bind(**dict(zip(names, (*inputs, *results), strict=True)))  # weights are initialized already
        if compiled.binding_properties.temporary_bytes:
            table.bind_temporary(self._get_scratch_buffer(compiled.binding_properties.temporary_bytes))
        if compiled.binding_properties.persistent_bytes:
            table.bind_persistent(self._program.persistent)
        commands = CommandList(context)
        commands.dispatch(compiled, table)
        commands.commit()
        if len(self._recordings) >= _MAX_RECORDINGS:
            self._recordings.pop(0)
        recording = _Recording(key, commands, staging_views, results)
        self._recordings.append(recording)
        return recording

    def _get_scratch_buffer(self, size: int) -> Buffer:
        """Return scratch memory for the model. Executions on one context run one after another, so they share it."""
        if self._arena is None or self._arena.bytes < size:
            self._arena = Buffer(self._program.context, size)
        return self._arena


def _make_placeholder(tensor: Any, name: str) -> Any:
    """Return a placeholder array with the tensor's shape and dtype, without its elements."""
    try:
        return np.broadcast_to(np.empty((), get_numpy_dtype(get_dtype_name(tensor))), tuple(tensor.shape))
    except AttributeError:
        raise binding_error("K5", name, "a dtype that models have", get_dtype_name(tensor)) from None
