"""Strings that a call gives and gets: the device knows each by its place in a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .element_types import Array
from .errors import binding_error
from .host_arrays import unmasked

EXPECTED = "an array of str"


class StringTable:
    """The strings of a model, each with its place."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = list(strings)
        self.places = {text: place for place, text in enumerate(self.strings)}
        self.array = np.array(self.strings, object)


class CallStrings:
    """The strings of one call: the model's, and behind them those that the arguments bring."""

    def __init__(self, table: StringTable) -> None:
        self._table = table
        self._more: dict[str, int] = {}

    def _place(self, text: str) -> int:
        known = self._table.places.get(text)
        return self._more.setdefault(text, len(self._table.strings) + len(self._more)) if known is None else known

    def encoded(self, value: Any, name: str) -> Any:
        """The places of the strings in an array, int64 of its shape, or in each array of a list.

        Raises BindingError (K5) naming the input where it holds anything but strings.
        """
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self.encoded(item, name) for item in value]
        unmasked(value, name)
        # An array of objects: NumPy's own strings lose a NUL at the end.
        array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
        texts = array.reshape(-1).tolist()
        if array.dtype.kind not in "UOT" or not all(isinstance(text, str) for text in texts):
            given = str(array.dtype) if array.dtype.kind != "O" else "other objects"
            raise binding_error("K5", name, "an array of str", given)
        return np.array([self._place(text) for text in texts], np.int64).reshape(array.shape)

    def decoded(self, value: Any) -> Any:
        """The strings at these places, as arrays of objects, each of them a str."""
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
    """The strings of a model and of several calls, and which tensors of its program are places in them: for what looks at results later.

    values: the names that the model has of strings, of sequences of them and of optional ones.
    """

    def __init__(self, table: StringTable, values: Collection[str]) -> None:
        super().__init__(table)
        self._values = frozenset(values)

    def _has(self, name: str) -> bool:
        value, _, part = name.rpartition("/")
        return name in self._values or (part in ("data", "element") and value in self._values)

    def texts(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors, by name, with strings in place of their places. A number that is no place stays one."""
        return {name: self._texts(one) if self._has(name) else one for name, one in tensors.items()}

    def _texts(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != np.int64:
            return value
        count = len(self._table.strings) + len(self._more)
        wrong = (value < 0) | (value >= count)
        made: Array = self.decoded(np.where(wrong, 0, value))
        return np.where(wrong, value.astype(object), made) if wrong.any() else made

    def places(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors, by name, with places in place of strings."""
        return {
            name: self.encoded(one, name) if isinstance(one, np.ndarray) and one.dtype == object else one
            for name, one in tensors.items()
        }
