"""Find the files of a model: the model file, and the weights files that it references as external data."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pumice._pumice as _pumice

from ..._pumice import sha256
from ...base.errors import graph_error
from .model_file import OWN_FILE, Folder, ModelFile, mapped

# The beginning of an external tensor's "location" entry as protobuf libraries serialise it: the key, then the value's length.
_ENTRY = re.compile(rb"\x0a\x08location\x12([\x80-\xff]{0,4}[\x00-\x7f])")
_KEY = b"location"
_OTHER_FILE = "\1"  # replaces OWN_FILE in the skeleton, to detect whether a model uses that name itself


class FileState(NamedTuple):
    """Metadata of a file, to detect cheaply whether the file has changed."""

    path: str
    size: int  # bytes; -1 if the file does not exist
    changed: int  # mtime in nanoseconds
    inode: int


def state_of_file(path: str) -> FileState:
    """Return the state of a file, which need not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return FileState(path, -1, 0, 0)
    return FileState(path, status.st_size, status.st_mtime_ns, status.st_ino)


def weight_locations(file: ModelFile, exact: bool = True) -> list[str]:
    """Return the weights files that a model references, sorted, without duplicates; empty if it is not a model.

    exact=False: faster, without the onnx package; similar-looking text in the file may be included.
    """
    if file.data is None:
        found = {location for _, location in external_tensors(file.proto)}
    else:
        skeleton = bytes(file.skeleton)
        listed = [] if exact else list(_in_bytes(skeleton))
        if exact or len(listed) != skeleton.count(_KEY):  # a name contains the key, or the field order differs
            listed = [location for _, location in external_tensors(_parsed(skeleton))]
        found = set(listed)
    return sorted(found - {OWN_FILE})


def _in_bytes(skeleton: bytes) -> Iterator[str]:
    for match in _ENTRY.finditer(skeleton):
        length = sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(match[1]))
        yield skeleton[match.end() : match.end() + length].decode("utf-8", "replace")


def _parsed(skeleton: bytes) -> Any:
    import onnx

    model = onnx.ModelProto()
    with contextlib.suppress(Exception):  # any protobuf error; loading the file reports it properly
        model.ParseFromString(skeleton)
    return model


def external_tensors(message: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and location of each external tensor in a protobuf message."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield from ((message.name, entry.value) for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in [value] if hasattr(value, "ListFields") else value:
                yield from external_tensors(item)


def check_locations(file: ModelFile) -> None:
    """Raise GraphError if a tensor's file is named OWN_FILE, which is reserved for large tensors of the model file itself."""
    if file.data is None:
        found = list(external_tensors(file.proto))
    else:
        skeleton = bytes(_pumice.onnx_skeleton(file.data, _OTHER_FILE) or file.data)
        if b"\x12\x01" + OWN_FILE.encode() not in skeleton:  # field number, length and content
            return
        found = list(external_tensors(_parsed(skeleton)))
    for name, location in found:
        if location == OWN_FILE:
            expected = "expected the name of a weight file in the model's own folder"
            raise graph_error("tensor", name, f"{expected}, given a NUL byte ('\\0'): write its location again")


def model_states(source: str | bytes, folder: Folder | None) -> tuple[FileState, ...]:
    """Return the states of all of a model's files; for bytes, of its weights files only.

    Locations with a NUL byte are skipped, because loading rejects them. Raise GraphError or OSError if the model cannot be read.
    """
    own = (state_of_file(source),) if isinstance(source, str) else ()
    if own and own[0].size < 0:
        return own
    base = os.fspath(folder) if folder is not None else os.path.dirname(source) if isinstance(source, str) else None
    if base is None:
        return own
    locations = _locations_in(own[0]) if own else tuple(weight_locations(ModelFile(source), exact=False))
    return (*own, *(state_of_file(os.path.join(base, one)) for one in locations if "\0" not in one))


@functools.lru_cache(maxsize=64)
def _locations_in(state: FileState) -> tuple[str, ...]:
    return tuple(weight_locations(ModelFile(state.path), exact=False))


def model_digests(source: str | bytes, folder: Folder | None) -> tuple[tuple[str, str], ...]:
    """Return (name, SHA-256) of each of a model's files: "" for the model file (omitted for bytes), then its weights files.

    Raise GraphError if a weights file is missing or outside the model's folder, OSError if a file is unreadable.
    """
    file = ModelFile(source, folder)
    digests = [("", _digest(state_of_file(source)))] if isinstance(source, str) else []
    for location in weight_locations(file):
        digests.append((location, _digest(state_of_file(file.path_beside(location, location)))))
    return tuple(digests)


@functools.lru_cache(maxsize=256)
def _digest(state: FileState) -> str:
    """Return the SHA-256 of a file. The result is cached: a file is hashed again only if its state changes."""
    return sha256(mapped(state.path))


def states_key(file: ModelFile) -> str:
    """Return the sizes and mtimes of a model's weights files; cached import results are valid until these change."""
    states = []
    for location in weight_locations(file, exact=False):
        if file.folder is not None and "\0" not in location:
            state = state_of_file(os.path.join(os.fspath(file.folder), location))
            states.append(f"{location} {state.size} {state.changed}")
    return "\n".join(states)
