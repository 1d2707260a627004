"""Wrap kernels as custom operators for torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._pumice import Tensor, UnsupportedError
from ..base.torch_tensors import make_gradient_error
from ..device.cuda_sharing import StreamOrder
from ..device.kernel import Kernel
from .cuda_memory import (
    find_shared_tensor,
    get_current_stream,
    get_dtype_name,
    get_shared_memory_pool,
    make_not_shared_error,
)
from .tensor_views import torch_to_numpy

# The type of an output: the name of an input with the same shape and dtype, or a callable from the inputs to (shape, torch.dtype).
Output = str | Callable[..., tuple[Sequence[Any], Any]]


def wrap(kernel: Kernel, name: str, inputs: Sequence[str], outputs: Mapping[str, Output]) -> Any:
    """Return a torch custom operator that runs a kernel on tensors: `operator(x, y)`, also inside torch.compile.

    name: "namespace::operator", as for torch.library.custom_op. inputs: the kernel's read-only arrays, in argument order. outputs: the
    arrays that the kernel fills, each with the name of an input of the same shape and dtype, or a callable from the inputs to its shape and
    torch.dtype. One output is returned as a tensor, several as a tuple. The kernel runs one invocation per element of the first output.
    Non-contiguous tensors are copied first. CUDA tensors must be in memory from pumice.empty(share="cuda"), and the results are in such
    memory, too: nothing is copied, and the GPU orders the kernel with torch's current stream, without waiting on the host.
    The operator raises the errors of the kernel's call, UnsupportedError for a tensor that is not strided, is in unshared CUDA memory or
    requires a gradient, and torch's NotImplementedError for a tensor on another device. It has no gradient; use register_autograd of the
    result to add one.
    Raise ValueError for an output that names no input, for no outputs and for duplicate names.
    """
    _check_names(inputs, outputs)
    operator_impl = _TorchKernelOperator(kernel, inputs, outputs)
    parameter_schema = ", ".join(f"Tensor {input_name}" for input_name in inputs)
    result_schema = "Tensor" if len(outputs) == 1 else f"({', '.join('Tensor' for _ in outputs)})"
    operator = torch.library.custom_op(
        name,
        operator_impl.run,
        mutates_args=(),
        device_types=("cpu", "cuda"),
        schema=f"({parameter_schema}) -> {result_schema}",
    )
    operator.register_fake(operator_impl.run_fake)
    operator.register_autograd(_raise_no_gradient, setup_context=operator_impl.reject_gradients)
    return operator


def _check_names(inputs: Sequence[str], outputs: Mapping[str, Output]) -> None:
    names = [*inputs, *outputs]
    if not outputs or len(set(names)) != len(names):
        raise ValueError(
            f"expected one output or more, and each name once; given inputs {[*inputs]}, outputs {[*outputs]}"
        )
    for output, source_or_function in outputs.items():
        if isinstance(source_or_function, str) and source_or_function not in inputs:
            raise ValueError(f"output '{output}' is like '{source_or_function}'; the inputs are {', '.join(inputs)}")


class _TorchKernelOperator:
    """A kernel with the call interface of a torch operator."""

    def __init__(self, kernel: Kernel, inputs: Sequence[str], outputs: Mapping[str, Output]) -> None:
        self._kernel, self._inputs, self._outputs = kernel, tuple(inputs), dict(outputs)

    def _get_output_specs(self, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return the shape and dtype of each result."""
        tensors_by_name = dict(zip(self._inputs, tensors, strict=True))
        return [
            (tensors_by_name[source_or_function].shape, tensors_by_name[source_or_function].dtype)
            if isinstance(source_or_function, str)
            else source_or_function(*tensors)
            for source_or_function in self._outputs.values()
        ]

    def reject_gradients(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Reject gradients. torch calls this function if a gradient is requested."""
        raise make_gradient_error(
            next(
                name for name, gradient_input in zip(self._inputs, inputs, strict=True) if gradient_input.requires_grad
            )
        )

    def run_fake(self, *tensors: Any) -> Any:
        device = tensors[0].device if tensors else None
        return _unwrap_single(
            [torch.empty(tuple(shape), dtype=dtype, device=device) for shape, dtype in self._get_output_specs(tensors)]
        )

    def run(self, *tensors: Any) -> Any:
        if any(tensor.device.type == "cuda" for tensor in tensors):
            return self._run_on_cuda(tensors)
        results = [torch.empty(tuple(shape), dtype=dtype) for shape, dtype in self._get_output_specs(tensors)]
        all_tensors = dict(zip(self._inputs, (tensor.contiguous() for tensor in tensors), strict=True))
        all_tensors |= dict(zip(self._outputs, results, strict=True))
        arrays = {key: torch_to_numpy(tensor, key) for key, tensor in all_tensors.items()}
        self._kernel(arrays, threads=results[0].numel())
        return _unwrap_single(results)

    def _run_on_cuda(self, tensors: Sequence[Any]) -> Any:
        context = self._kernel._target_context
        stream = get_current_stream(tensors[0].device.index)
        pool = get_shared_memory_pool(context)
        arguments: dict[str, Tensor] = {}
        packed_copies = []  # keeps contiguous copies alive until the kernel is ordered on the stream
        for name, tensor in zip(self._inputs, tensors, strict=True):
            shared = find_shared_tensor(tensor, context)
            if shared is None:
                raise make_not_shared_error(tensor, name)
            if not tensor.is_contiguous():
                shared, view = pool.empty(tensor.shape, get_dtype_name(tensor), context, stream)
                packed_copies.append(view.copy_(tensor))
            arguments[name] = shared
        results = []
        for name, (shape, dtype) in zip(self._outputs, self._get_output_specs(tensors), strict=True):
            arguments[name], view = pool.empty(tuple(shape), str(dtype).removeprefix("torch."), context, stream)
            results.append(view)
        with StreamOrder(context, stream):
            self._kernel(arguments, threads=results[0].numel())
        return _unwrap_single(results)


def _raise_no_gradient(ctx: Any, *gradients: Any) -> Any:
    # normally unreachable, because the forward pass is rejected first
    raise UnsupportedError("an operator of a kernel has no gradient")


def _unwrap_single(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)
