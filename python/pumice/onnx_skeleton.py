"""An ONNX file without its large tensors, small enough to be parsed and hashed at once: they stay where they are in the file.

Reads protobuf's wire format only as far as it has to: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from .element_types import Bytes

OWN_FILE = "\0"  # as the location of external data: the file itself; no other file has such a name
LEAST_BYTES = 1024  # smaller tensors stay in the skeleton

_DEEPEST = 100  # messages in messages, as protobuf itself allows
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DATA_TYPE = 2
_PACKED = {1: 4, 11: 10}  # by element type, the field whose contents are those of raw data: float_data, double_data
_LARGEST_VARINT = 10  # bytes

# The fields of a message that lead to tensors, by number.
_Message: TypeAlias = "Mapping[int, Any]"
_TENSOR: dict[int, Any] = {}
_SPARSE: dict[int, Any] = {1: _TENSOR, 2: _TENSOR}
_GRAPH: dict[int, Any] = {}
_ATTRIBUTE = {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE}
_NODE = {5: _ATTRIBUTE}
_GRAPH.update({1: _NODE, 5: _TENSOR, 15: _SPARSE})
_MODEL = {7: _GRAPH, 25: {7: _NODE, 11: _ATTRIBUTE}}


class _Malformed(Exception):
    """Not protobuf's wire format, or more than is read of it here: its own parser has the last word."""


def skeleton(data: Bytes) -> Bytes:
    """The ModelProto with the elements of large tensors as external data in OWN_FILE. All of the bytes where they are no ModelProto."""
    view = memoryview(data)
    if len(view) < LEAST_BYTES:
        return view
    try:
        return b"".join(_without_tensors(view, 0, len(view), _MODEL, 0))
    except _Malformed:
        return view


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number there and where it ends."""
    value = 0
    for shift in range(min(_LARGEST_VARINT, end - at)):
        byte = view[at + shift]
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise _Malformed


def _fields(view: memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each field of a message: number, kind, where it begins, where its contents begin and end."""
    at = begin
    while at < end:
        tag, inner = _varint(view, at, end)
        kind = tag & 7
        if kind == _LENGTH:
            length, inner = _varint(view, inner, end)
            after = inner + length
        elif kind == _VARINT:
            after = _varint(view, inner, end)[1]
        elif kind in (_FIXED64, _FIXED32):
            after = inner + (8 if kind == _FIXED64 else 4)
        else:
            raise _Malformed
        if after > end:
            raise _Malformed
        yield tag >> 3, kind, at, inner, after
        at = after


def _without_tensors(view: memoryview, begin: int, end: int, message: _Message, depth: int) -> list[Bytes]:
    """The message in pieces, most of them of the file."""
    if depth > _DEEPEST:
        raise _Malformed
    if message is _TENSOR:
        return _tensor(view, begin, end)
    pieces: list[Bytes] = []
    copied = begin
    for number, kind, at, inner, after in _fields(view, begin, end):
        if kind != _LENGTH or number not in message or after - inner < LEAST_BYTES:
            continue
        parts = _without_tensors(view, inner, after, message[number], depth + 1)
        pieces += [view[copied:at], _head(number, sum(map(len, parts))), *parts]
        copied = after
    pieces.append(view[copied:end])
    return pieces


def _tensor(view: memoryview, begin: int, end: int) -> list[Bytes]:
    fields = list(_fields(view, begin, end))
    dtypes = [
        _varint(view, inner, after)[0]
        for number, kind, _, inner, after in fields
        if (number, kind) == (_DATA_TYPE, _VARINT)
    ]
    as_raw = (_RAW_DATA, _PACKED.get(dtypes[-1]) if dtypes else None)
    raw = [(at, inner, after) for number, kind, at, inner, after in fields if number in as_raw and kind == _LENGTH]
    elsewhere = any(number in (_EXTERNAL_DATA, _DATA_LOCATION) for number, *_ in fields)
    if len(raw) != 1 or elsewhere or raw[0][2] - raw[0][1] < LEAST_BYTES:
        return [view[begin:end]]
    at, inner, after = raw[0]
    place = {"location": OWN_FILE, "offset": str(inner), "length": str(after - inner)}
    entries = (_field(1, key.encode()) + _field(2, value.encode()) for key, value in place.items())
    external = b"".join(_field(_EXTERNAL_DATA, entry) for entry in entries)
    return [view[begin:at], external, bytes([_DATA_LOCATION << 3 | _VARINT, 1]), view[after:end]]


def _head(number: int, length: int) -> bytes:
    """What stands before the contents of a field."""
    coded = bytearray()
    for value in (number << 3 | _LENGTH, length):
        while value > 127:
            coded.append(value & 127 | 128)
            value >>= 7
        coded.append(value)
    return bytes(coded)


def _field(number: int, contents: bytes) -> bytes:
    return _head(number, len(contents)) + contents
