"""The files that a model consists of: its own and those of its weights, which it names as external data."""

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

# The entry of an external tensor that names its file, as protobuf's libraries write it: the key, then the length of the value.
_ENTRY = re.compile(rb"\x0a\x08location\x12([\x80-\xff]{0,4}[\x00-\x7f])")
_KEY = b"location"
_OTHER_FILE = "\1"  # in place of OWN_FILE


class FileState(NamedTuple):
    """What tells cheaply whether a file was written since."""

    path: str
    size: int  # bytes; -1: there is no such file
    changed: int  # nanoseconds
    inode: int


def state_of_file(path: str) -> FileState:
    """The state of a file, or of one that is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return FileState(path, -1, 0, 0)
    return FileState(path, status.st_size, status.st_mtime_ns, status.st_ino)


def weight_locations(file: ModelFile, exact: bool = True) -> list[str]:
    """The files of weights that a model names, each once, in the order of their names; none of a file that is no model.

    exact=False: quicker, without the onnx package; other texts of the file that look the same may be among them.
    """
    if file.data is None:
        found = {location for _, location in external_tensors(file.proto)}
    else:
        skeleton = bytes(file.skeleton)
        listed = [] if exact else list(_in_bytes(skeleton))
        if exact or len(listed) != skeleton.count(_KEY):  # a name holds the word, or the fields have another order
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
    with contextlib.suppress(Exception):  # protobuf's own; loading the file says what is wrong with it
        model.ParseFromString(skeleton)
    return model


def external_tensors(message: Any) -> Iterator[tuple[str, str]]:
    """The name and the location of each external tensor in a protobuf message."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield from ((message.name, entry.value) for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in [value] if hasattr(value, "ListFields") else value:
                yield from external_tensors(item)


def check_locations(file: ModelFile) -> None:
    """Raises GraphError for a tensor whose file is named OWN_FILE, which stands for large tensors of the model's own file."""
    if file.data is None:
        found = list(external_tensors(file.proto))
    else:
        skeleton = bytes(_pumice.onnx_skeleton(file.data, _OTHER_FILE) or file.data)
        if b"\x12\x01" + OWN_FILE.encode() not in skeleton:  # the field's number, length and content
            return
        found = list(external_tensors(_parsed(skeleton)))
    for name, location in found:
        if location == OWN_FILE:
            expected = "expected the name of a weight file in the model's own folder"
            raise graph_error("tensor", name, f"{expected}, given a NUL byte ('\\0'): write its location again")


def model_states(source: str | bytes, folder: Folder | None) -> tuple[FileState, ...]:
    """The states of all files of a model. Those of bytes are its files of weights alone.

    A location that leads out of the model's folder is left out: loading refuses it. Raises GraphError, OSError.
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
    """The SHA-256 of each file of a model, by its name: "" for the model's own, which bytes have none of, then the files of weights.

    Raises GraphError for a file of weights that is not there or not in the model's folder, OSError.
    """
    file = ModelFile(source, folder)
    digests = [("", _digest(state_of_file(source)))] if isinstance(source, str) else []
    for location in weight_locations(file):
        digests.append((location, _digest(state_of_file(file.path_beside(location, location)))))
    return tuple(digests)


@functools.lru_cache(maxsize=256)
def _digest(state: FileState) -> str:
    """The SHA-256 of a file, which is read again only when its state is another."""
    return sha256(mapped(state.path))


def states_key(file: ModelFile) -> str:
    """Sizes and times of a model's files of weights: what the importer makes of their content holds as long as these are the same."""
    states = []
    for location in weight_locations(file, exact=False):
        if file.folder is not None and "\0" not in location:
            state = state_of_file(os.path.join(os.fspath(file.folder), location))
            states.append(f"{location} {state.size} {state.changed}")
    return "\n".join(states)
