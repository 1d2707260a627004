"""Run operators described by TensorDescs through binding tables, on tensors at any offset of guarded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pumice
from binding_tables import execute, initialise
from pumice import BufferRange, TensorDesc

Array = npt.NDArray[Any]

GUARD = 0xA5
MARGIN = 64  # minimum guard bytes on either side
OF_THE_HOST = ("Constant", "NonZero", "Shape", "Size")  # operators evaluated only on the host


@dataclass
class Operand:
    """An array for the device, and its layout."""

    array: Array
    strides: Sequence[int] | None = None  # strides in elements; None: packed
    offset: int = 0  # offset of the first byte after the guard

    @property
    def desc(self) -> TensorDesc:
        return TensorDesc(str(self.array.dtype), self.array.shape, self.strides)


def laid_out(memory: Array, desc: TensorDesc, dtype: np.dtype[Any], begin: int) -> Array:
    """Return a writable view of a tensor's elements in a byte array; elements may overlap."""
    strides = [stride * dtype.itemsize for stride in desc.strides]
    flat = memory[begin : begin + desc.bytes // dtype.itemsize * dtype.itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(flat, desc.shape, strides)


def placed(context: pumice.Context, desc: TensorDesc, offset: int, array: Array | None = None) -> BufferRange:
    """Return a range in guard-filled memory that holds the elements of `array`."""
    begin = MARGIN + offset
    memory = np.full(begin + desc.bytes + MARGIN, GUARD, "uint8")
    if array is not None and array.size and not is_packed_bits(desc):
        laid_out(memory, desc, array.dtype, begin)[...] = array
    buffer = pumice.tensor(memory, context).buffer
    if array is not None and is_packed_bits(desc):
        pumice.Tensor(desc, buffer, 2 * begin).upload(array)
    return BufferRange(buffer, begin, desc.bytes)


def is_packed_bits(desc: TensorDesc) -> bool:
    """Return whether elements are 4 bits wide, which NumPy does not support."""
    return desc.dtype in ("int4", "uint4")


def executed(
    context: pumice.Context,
    name: str,
    inputs: Sequence[Operand | Array | None],
    outputs: Sequence[Operand],
    **attributes: Any,
) -> list[Array]:
    """Return the outputs' elements; operands give dtype, shape and layout, and plain arrays are inputs read by the host. Fail if a byte
    outside the outputs is written."""
    given = [value.desc if isinstance(value, Operand) else value for value in inputs]
    compiled = pumice.Operator(name, given, [output.desc for output in outputs], **attributes).compile(context)
    initialise(context, compiled)
    sources = [
        placed(context, element.desc, element.offset, element.array) if isinstance(element, Operand) else None
        for element in inputs
    ]
    targets = [placed(context, item.desc, item.offset) for item in outputs]
    execute(context, compiled, sources, targets)
    results = []
    for one, target in zip(outputs, targets, strict=True):
        memory = pumice.Tensor(TensorDesc("uint8", [target.buffer.bytes]), target.buffer).numpy()
        begin, end = target.offset, target.offset + one.desc.bytes
        assert (memory[:begin] == GUARD).all(), f"{name} wrote before its output"
        assert (memory[end:] == GUARD).all(), f"{name} wrote past its output"
        if is_packed_bits(one.desc):
            results.append(pumice.Tensor(one.desc, target.buffer, 2 * begin).numpy())
        else:
            results.append(laid_out(memory, one.desc, one.array.dtype, begin).copy())
    return results


def spread(shape: Sequence[int]) -> list[int] | None:
    """Return strides for reversed axis order with gaps between elements; None below two axes."""
    strides, reach = [], 1
    for size in shape:
        strides.append(reach)
        reach = reach * max(size, 1) + 1
    return strides if len(shape) > 1 else None
