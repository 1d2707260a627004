"""Tensors that are evaluated block by block, so that temporaries need only the memory of one block.

Validation keeps a float64 value and a float64 error for every element that is read later. If the device also computed
the tensor, float32 differences from it suffice; their known rounding error is added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...base.element_types import Array, Index
from .alternative_values import AlternativeValues, BlockAlternatives
from .block_ranges import BLOCK_ELEMENTS, iter_blocks
from .bounded_tensor import BoundedTensor
from .float_types import is_float

MIN_LAZY_SIZE = 1 << 12  # smaller tensors stay in float64
_FULL_SLICE = slice(None)  # index of an axis of size 1, which broadcasts


class LazyValue(BoundedTensor):
    """A tensor whose blocks are computed on access. Each access to `value` or `error` computes the whole tensor."""

    __slots__ = ("_shape",)

    def __init__(self, shape: tuple[int, ...], dtype: Any, stored: bool, constant: bool) -> None:
        self._shape = shape
        self.dtype, self.stored, self.constant = np.dtype(dtype), stored, constant
        self.alternatives: AlternativeValues | None = None
        self.memo = None
        self.exact_sums = None

    def get_block(self, index: Index) -> BoundedTensor:
        """Return the elements selected by `index`."""
        raise NotImplementedError

    def materialize(self) -> BoundedTensor:
        """Return the full tensor, computed from its blocks."""
        return self.get_block(tuple(slice(0, size) for size in self._shape))

    def __getattr__(self, name: str) -> Any:
        # `value` and `error` stay unset, because a result with one reader is not cached.
        if name in ("value", "error"):
            return getattr(self.materialize(), name)
        raise AttributeError(name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self._shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)


def iter_block_pairs(array: Array, value: BoundedTensor) -> Iterator[tuple[Index, Array, BoundedTensor]]:
    """Yield (index, block of the device array, block of the value). Small tensors form a single block with index ()."""
    if array.size <= BLOCK_ELEMENTS:
        yield (), array, value.materialize()
        return
    for index in iter_blocks(array.shape):
        yield index, array[index], value.get_block(index)


class LazyDeviceTensor(LazyValue):
    """A device tensor whose blocks are converted by the elementwise function `make` on access."""

    __slots__ = ("_array", "_make")

    def __init__(self, array: Array, make: Callable[[Array], BoundedTensor]) -> None:
        like = make(array[:0] if array.ndim else array)
        super().__init__(array.shape, like.dtype, like.stored, like.constant)
        self._array, self._make = array, make

    def get_block(self, index: Index) -> BoundedTensor:
        """Return the elements selected by `index`."""
        return self._make(self._array[index])


class PackedValue(LazyValue):
    """A value stored as float32 differences from the device's tensor, and a float32 error; None means all zeros."""

    __slots__ = ("_device_tensor", "_difference", "_error")

    def __init__(self, device_tensor: Array, distance: Array | None, error: Array | None, like: BoundedTensor) -> None:
        super().__init__(device_tensor.shape, like.dtype, like.stored, like.constant)
        self._device_tensor, self._difference, self._error = device_tensor, distance, error

    @property
    def is_exact(self) -> bool:
        """Whether all errors are zero."""
        return self._error is None

    def get_block(self, index: Index) -> BoundedTensor:
        """Return the elements selected by `index`."""
        value = self._device_tensor[index].astype(np.float64)
        if self._difference is not None:
            value += self._difference[index]
        error = None if self._error is None else self._error[index].astype(np.float64)
        result = BoundedTensor(value, error, self.dtype, self.stored, self.constant)
        return result if self.alternatives is None else result.set_alternatives(self.alternatives.get_block(index))


class StreamedValue(LazyValue):
    """A value evaluated block by block for a single reader. Only the block last yielded by `iter_indices` is available."""

    __slots__ = ("_block", "_block_index", "_evaluate", "_indices")

    def __init__(
        self, shape: tuple[int, ...], indices: Iterator[Index], evaluate: Callable[[Index], BoundedTensor]
    ) -> None:
        self._indices, self._evaluate = indices, evaluate
        self._block_index = next(indices)
        self._block = evaluate(self._block_index)
        super().__init__(shape, self._block.dtype, self._block.stored, self._block.constant)

    def iter_indices(self) -> Iterator[Index]:
        """Yield the indices of blocks of about BLOCK_ELEMENTS elements, into which the evaluated blocks are split."""
        while True:
            for inner in iter_blocks(self._block.shape):
                yield tuple(
                    slice(inner_slice.start + at.start, inner_slice.stop + at.start)
                    for inner_slice, at in zip(inner, self._block_index, strict=True)
                )
            at = next(self._indices, None)
            if at is None:
                return
            del self._block  # freed before the next block is evaluated
            self._block_index, self._block = at, self._evaluate(at)

    def get_block(self, index: Index) -> BoundedTensor:
        """Return the selected elements, which must be in the current block."""
        pairs_of = zip(index, self._block_index, strict=True)
        inner = (
            inner_slice
            if inner_slice == _FULL_SLICE
            else slice(inner_slice.start - at.start, inner_slice.stop - at.start)
            for inner_slice, at in pairs_of
        )
        return self._block.get_block(tuple(inner))


class DtypeView(LazyValue):
    """A view of another value that declares a different dtype."""

    __slots__ = ("_inner",)

    def __init__(self, inner: BoundedTensor, dtype: Any) -> None:
        super().__init__(inner.shape, dtype, inner.stored, inner.constant)
        self._inner = inner
        self.alternatives = inner.alternatives

    @property
    def is_exact(self) -> bool:
        """Whether all errors are zero."""
        return self._inner.is_exact

    def get_block(self, index: Index) -> BoundedTensor:
        """Return the elements selected by `index`."""
        block = self._inner.get_block(index)
        return BoundedTensor(block.value, block.error, self.dtype, self.stored, self.constant).set_alternatives(
            block.alternatives
        )


class BlockAssembler:
    """Joins blocks into a tensor. device_tensor: values are packed as differences from it if that is lossless."""

    def __init__(self, shape: tuple[int, ...], device_tensor: Array | None = None) -> None:
        self._shape = shape
        fits = device_tensor is not None and device_tensor.shape == shape and is_float(device_tensor.dtype)
        self._device_tensor = device_tensor if fits else None
        self._value: Array | None = None  # if packed: float32 differences from the device's tensor
        self._error: Array | None = None
        self._first_block: BoundedTensor | None = None
        self._sides: list[tuple[Index, AlternativeValues]] = []

    def add_block(self, index: Index, block: BoundedTensor) -> None:
        """Add the block at `index`."""
        self._first_block = self._first_block or block
        if self._device_tensor is not None and not (
            block.is_float and self._pack_block(index, block, self._device_tensor)
        ):
            self._unpack_blocks(self._device_tensor)
        if self._device_tensor is None:
            self._store_block(index, block.value, block.error, np.float64)
        if block.alternatives is not None:
            self._sides.append((index, block.alternatives))

    def assemble(self) -> BoundedTensor:
        """Return the tensor joined from all blocks."""
        like = self._first_block
        assert like is not None
        alternatives = BlockAlternatives(self._shape, self._sides) if self._sides else None
        if self._device_tensor is not None:
            return PackedValue(self._device_tensor, self._value, self._error, like).set_alternatives(alternatives)
        return BoundedTensor(self._value, self._error, like.dtype, like.stored, like.constant).set_alternatives(
            alternatives
        )

    def _store_block(self, index: Index, value: Array | None, error: Array | None, dtype: Any) -> None:
        if value is not None:
            if self._value is None:
                value_dtype = np.float32 if self._device_tensor is not None else value.dtype
                self._value = np.zeros(self._shape, value_dtype)
            self._value[index] = value
        if error is not None:
            if self._error is None:
                self._error = np.zeros(self._shape, dtype)
            self._error[index] = error

    def _pack_block(self, index: Index, block: BoundedTensor, device_tensor: Array) -> bool:
        """Pack a block into float32. Return False if that would change which elements are exact, finite or have a bound."""
        with np.errstate(all="ignore"):
            device_values = device_tensor[index].astype(np.float64)
            distance = (block.value - device_values).astype(np.float32)
            representation_error = np.abs((device_values + distance) - block.value)
            if not np.isfinite(representation_error).all():
                return False
            if block.error is None:
                if representation_error.any():
                    return False
                self._store_block(index, distance if distance.any() else None, None, np.float32)
                return True
            error = np.broadcast_to(block.error, representation_error.shape)
            if (representation_error[error == 0] > 0).any():
                return False
            total = error + representation_error * (1 + 2.0**-50)
            error_float32 = total.astype(np.float32)
            error_float32 = np.where(
                error_float32 < total, np.nextafter(error_float32, np.float32(np.inf)), error_float32
            )
            if (np.isinf(error_float32) & np.isfinite(error)).any():
                return False
        self._store_block(index, distance if distance.any() else None, error_float32, np.float32)
        return True

    def _unpack_blocks(self, device_tensor: Array) -> None:
        """Convert the packed blocks to float64 and stop packing."""
        self._device_tensor = None
        assert self._first_block is not None
        if self._value is not None or self._error is not None or self._first_block.is_float:
            whole = (
                PackedValue(device_tensor, self._value, self._error, self._first_block).materialize()
                if self._first_block.is_float
                else None
            )
            self._value = None if whole is None else whole.value
            self._error = None if whole is None else whole.error


def pack_value(value: BoundedTensor, device_tensor: Array | None) -> BoundedTensor:
    """Pack a value relative to the device's tensor if that loses no information."""
    if (
        device_tensor is None
        or isinstance(value, LazyValue)
        or not value.is_float
        or device_tensor.shape != value.shape
    ):
        return value
    if value.size < MIN_LAZY_SIZE:
        return value
    result = BlockAssembler(value.shape, device_tensor)
    for index in iter_blocks(value.shape):
        result.add_block(index, value.get_block(index))
    return result.assemble()
