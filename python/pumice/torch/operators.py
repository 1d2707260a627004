"""Kernels as custom operators of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..device.kernel import Kernel
from .arrays import array_of_tensor

# An output: the name of the input whose shape and dtype it has, or a callable that gives a shape and a torch.dtype of the inputs.
Output = str | Callable[..., tuple[Sequence[Any], Any]]


def wrap(kernel: Kernel, name: str, inputs: Sequence[str], outputs: Mapping[str, Output]) -> Any:
    """A custom operator of torch that runs a kernel on tensors of the CPU: `operator(x, y)`, also in a graph of torch.compile.

    name: "namespace::operator", as torch.library.custom_op takes it. inputs: the kernel's arrays that the operator takes, in order,
    which the kernel only reads. outputs: the arrays that the kernel fills, each with the name of the input that it is like, or a
    callable of the inputs that gives its shape and torch.dtype; with one of them the operator gives a tensor, else a tuple. The kernel
    runs with an invocation for each element of the first output. Tensors of other strides than packed ones are copied first.
    The operator raises what the kernel's call raises, UnsupportedError for a tensor that is not strided, and torch's own
    NotImplementedError for one of another device. It has no gradient.
    Raises ValueError for an output that is like no input, for no outputs and for one name twice.
    """
    names = [*inputs, *outputs]
    if not outputs or len(set(names)) != len(names):
        raise ValueError(
            f"expected one output or more, and each name once; given inputs {[*inputs]}, outputs {[*outputs]}"
        )
    for output, like in outputs.items():
        if isinstance(like, str) and like not in inputs:
            raise ValueError(f"output '{output}' is like '{like}'; the inputs are {', '.join(inputs)}")

    def made(tensors: Sequence[Any]) -> list[Any]:
        given = dict(zip(inputs, tensors, strict=True))
        results = []
        for like in outputs.values():
            shape, dtype = (given[like].shape, given[like].dtype) if isinstance(like, str) else like(*tensors)
            results.append(torch.empty(tuple(shape), dtype=dtype, device=tensors[0].device if tensors else None))
        return results

    def run(*tensors: Any) -> Any:
        results = made(tensors)
        every = dict(zip(names, [*(tensor.contiguous() for tensor in tensors), *results], strict=True))
        kernel({key: array_of_tensor(tensor, key) for key, tensor in every.items()}, threads=results[0].numel())
        return results[0] if len(results) == 1 else tuple(results)

    def fake(*tensors: Any) -> Any:
        results = made(tensors)
        return results[0] if len(results) == 1 else tuple(results)

    taken = ", ".join(f"Tensor {one}" for one in inputs)
    given = "Tensor" if len(outputs) == 1 else f"({', '.join('Tensor' for _ in outputs)})"
    operator = torch.library.custom_op(name, run, mutates_args=(), device_types="cpu", schema=f"({taken}) -> {given}")
    operator.register_fake(fake)
    return operator
