"""String tensors. On the device, a string is represented by its int64 index in a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .element_types import Array
from .errors import binding_error
from .host_arrays import reject_masked

EXPECTED_STRINGS = "an array of str"


class StringTable:
    """The strings in a model, with their indices."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = list(strings)
        self.indices = {text: index for index, text in enumerate(self.strings)}
        self.array = np.array(self.strings, object)


class PerCallStringTable:
    """The string table of one call: the model's strings, followed by the strings in the call's arguments."""

    def __init__(self, table: StringTable) -> None:
        self._table = table
        self._added: dict[str, int] = {}

    def _get_or_add_index(self, text: str) -> int:
        index = self._table.indices.get(text)
        return self._added.setdefault(text, len(self._table.strings) + len(self._added)) if index is None else index

    def encode(self, value: Any, name: str) -> Any:
        """Convert an array of strings, or a list of such arrays, to int64 indices of the same shape.

        Raise BindingError (K5) naming the input if an element is not a string.
        """
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self.encode(item, name) for item in value]
        reject_masked(value, name)
        # An object array, because NumPy string dtypes lose trailing NULs.
        array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
        texts = array.reshape(-1).tolist()
        if array.dtype.kind not in "UOT" or not all(isinstance(text, str) for text in texts):
            given = str(array.dtype) if array.dtype.kind != "O" else "other objects"
            raise binding_error("K5", name, "an array of str", given)
        return np.array([self._get_or_add_index(text) for text in texts], np.int64).reshape(array.shape)

    def decode(self, value: Any) -> Any:
        """Convert arrays of indices to object arrays of str."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        count = len(self._table.strings)
        indices = value.reshape(-1)
        is_added = indices >= count
        if not is_added.any():
            return self._table.array[indices].reshape(value.shape)
        texts = np.empty(indices.shape, object)
        texts[~is_added] = self._table.array[indices[~is_added]]
        texts[is_added] = np.array([*self._added], object)[indices[is_added] - count]
        return texts.reshape(value.shape)


class TensorStringTable(PerCallStringTable):
    """The string table of several calls to a model, with the names of the tensors that hold string indices.

    values: names of the model's values that are strings, sequences of strings or optional strings.
    """

    def __init__(self, table: StringTable, values: Collection[str]) -> None:
        super().__init__(table)
        self._values = frozenset(values)

    def _has_strings(self, name: str) -> bool:
        value, _, suffix = name.rpartition("/")
        return name in self._values or (suffix in ("data", "element") and value in self._values)

    def decode_tensors(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the indices in string tensors by strings; invalid indices remain numbers. Return the tensors by name."""
        return {
            name: self._decode_tensor(tensor) if self._has_strings(name) else tensor for name, tensor in tensors.items()
        }

    def _decode_tensor(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != np.int64:
            return value
        count = len(self._table.strings) + len(self._added)
        is_invalid = (value < 0) | (value >= count)
        decoded: Array = self.decode(np.where(is_invalid, 0, value))
        return np.where(is_invalid, value.astype(object), decoded) if is_invalid.any() else decoded

    def encode_tensors(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Replace strings by their indices. Return the tensors by name."""
        return {
            name: self.encode(tensor, name) if isinstance(tensor, np.ndarray) and tensor.dtype == object else tensor
            for name, tensor in tensors.items()
        }
