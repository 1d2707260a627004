"""String inputs and outputs of a call. On the device, a string is its index in a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .element_types import Array
from .errors import binding_error
from .host_arrays import unmasked

EXPECTED = "an array of str"


class StringTable:
    """The strings in a model, with their indices."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = list(strings)
        self.places = {text: place for place, text in enumerate(self.strings)}
        self.array = np.array(self.strings, object)


class CallStrings:
    """The string table of one call: the model's strings, followed by those of the arguments."""

    def __init__(self, table: StringTable) -> None:
        self._table = table
        self._more: dict[str, int] = {}

    def _place(self, text: str) -> int:
        known = self._table.places.get(text)
        return self._more.setdefault(text, len(self._table.strings) + len(self._more)) if known is None else known

    def encoded(self, value: Any, name: str) -> Any:
        """Convert the strings of an array, or of each array of a list, to int64 indices of the same shape.

        Raise BindingError (K5) naming the input if it contains anything but strings.
        """
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self.encoded(item, name) for item in value]
        unmasked(value, name)
        # An object array, because NumPy string dtypes lose trailing NULs.
        array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
        texts = array.reshape(-1).tolist()
        if array.dtype.kind not in "UOT" or not all(isinstance(text, str) for text in texts):
            given = str(array.dtype) if array.dtype.kind != "O" else "other objects"
            raise binding_error("K5", name, "an array of str", given)
        return np.array([self._place(text) for text in texts], np.int64).reshape(array.shape)

    def decoded(self, value: Any) -> Any:
        """Convert arrays of indices to object arrays of str."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self.decoded(item) for item in value]
        count = len(self._table.strings)
        places = value.reshape(-1)
        behind = places >= count
        if not behind.any():
            return self._table.array[places].reshape(value.shape)
        texts = np.empty(places.shape, object)
        texts[~behind] = self._table.array[places[~behind]]
        texts[behind] = np.array([*self._more], object)[places[behind] - count]
        return texts.reshape(value.shape)


class KeptStrings(CallStrings):
    """The strings of a model and of several calls, and which of its program's tensors hold string indices, for later inspection of results.

    values: names of the model's values that are strings, sequences of strings or optional strings.
    """

    def __init__(self, table: StringTable, values: Collection[str]) -> None:
        super().__init__(table)
        self._values = frozenset(values)

    def _has(self, name: str) -> bool:
        value, _, part = name.rpartition("/")
        return name in self._values or (part in ("data", "element") and value in self._values)

    def texts(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors by name, with strings in place of indices. Invalid indices remain numbers."""
        return {name: self._texts(one) if self._has(name) else one for name, one in tensors.items()}

    def _texts(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != np.int64:
            return value
        count = len(self._table.strings) + len(self._more)
        wrong = (value < 0) | (value >= count)
        made: Array = self.decoded(np.where(wrong, 0, value))
        return np.where(wrong, value.astype(object), made) if wrong.any() else made

    def places(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors by name, with indices in place of strings."""
        return {
            name: self.encoded(one, name) if isinstance(one, np.ndarray) and one.dtype == object else one
            for name, one in tensors.items()
        }
