"""Find a model's weights files (its external data), and identify the content of all its files."""

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
from .model_file import MODEL_FILE_LOCATION, Folder, ModelFile, map_file

# Start of an external tensor's "location" entry as protobuf libraries serialise it: the key, then the length of the value.
_LOCATION_ENTRY = re.compile(rb"\x0a\x08location\x12([\x80-\xff]{0,4}[\x00-\x7f])")
_LOCATION_KEY = b"location"
_OTHER_LOCATION = "\1"  # used instead of MODEL_FILE_LOCATION to detect models that use that name themselves


class FileState(NamedTuple):
    """The path, size, mtime and inode of a file, by which changes are detected without reading it."""

    path: str
    size: int  # bytes; -1 if the file does not exist
    mtime: int  # in nanoseconds
    inode: int


def get_file_state(path: str) -> FileState:
    """Return the state of a file, which need not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return FileState(path, -1, 0, 0)
    return FileState(path, status.st_size, status.st_mtime_ns, status.st_ino)


def find_weight_files(file: ModelFile, exact: bool = True) -> list[str]:
    """Return the locations of the weights files that a model references, sorted and unique; empty if it is not a model.

    exact=False: scan the bytes without the onnx package, which is faster but may return text that only looks like a location.
    """
    if file.data is None:
        external = {location for _, location in iterate_external_tensors(file.proto)}
    else:
        stripped_data = bytes(file.stripped_data)
        locations_found = [] if exact else list(_scan_weight_locations(stripped_data))
        if exact or len(locations_found) != stripped_data.count(
            _LOCATION_KEY
        ):  # some occurrences of the key are part of names, or a library serialises fields in another order
            locations_found = [
                location for _, location in iterate_external_tensors(_parse_model_without_weights(stripped_data))
            ]
        external = set(locations_found)
    return sorted(external - {MODEL_FILE_LOCATION})


def _scan_weight_locations(stripped_data: bytes) -> Iterator[str]:
    for match in _LOCATION_ENTRY.finditer(stripped_data):
        length = sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(match[1]))
        yield stripped_data[match.end() : match.end() + length].decode("utf-8", "replace")


def _parse_model_without_weights(stripped_data: bytes) -> Any:
    import onnx

    model = onnx.ModelProto()
    with contextlib.suppress(Exception):  # any protobuf error; loading the file reports it properly
        model.ParseFromString(stripped_data)
    return model


def iterate_external_tensors(message: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and location of each external tensor in a protobuf message."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield from ((message.name, entry.value) for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in [value] if hasattr(value, "ListFields") else value:
                yield from iterate_external_tensors(item)


def check_tensor_locations(file: ModelFile) -> None:
    """Raise GraphError if the file itself uses MODEL_FILE_LOCATION, which is reserved for strip_tensor_data()."""
    if file.data is None:
        external = list(iterate_external_tensors(file.proto))
    else:
        stripped_data = bytes(_pumice.onnx_skeleton(file.data, _OTHER_LOCATION) or file.data)
        if b"\x12\x01" + MODEL_FILE_LOCATION.encode() not in stripped_data:  # field number, length and content
            return
        external = list(iterate_external_tensors(_parse_model_without_weights(stripped_data)))
    for name, location in external:
        if location == MODEL_FILE_LOCATION:
            expected = "expected the name of a weight file in the model's own folder"
            raise graph_error("tensor", name, f"{expected}, given a NUL byte ('\\0'): write its location again")


def get_model_file_states(source: str | bytes, folder: Folder | None) -> tuple[FileState, ...]:
    """Return the states of all files of a model: the model file (omitted for bytes) and its weights files.

    Locations with a NUL byte are skipped, because loading rejects them. Raise GraphError or OSError if the model cannot be read.
    """
    model_file_state = (get_file_state(source),) if isinstance(source, str) else ()
    if model_file_state and model_file_state[0].size < 0:
        return model_file_state
    base = os.fspath(folder) if folder is not None else os.path.dirname(source) if isinstance(source, str) else None
    if base is None:
        return model_file_state
    locations = (
        _get_cached_locations(model_file_state[0])
        if model_file_state
        else tuple(find_weight_files(ModelFile(source), exact=False))
    )
    return (
        *model_file_state,
        *(
            get_file_state(os.path.join(base, location_item))
            for location_item in locations
            if "\0" not in location_item
        ),
    )


@functools.lru_cache(maxsize=64)
def _get_cached_locations(state: FileState) -> tuple[str, ...]:
    return tuple(find_weight_files(ModelFile(state.path), exact=False))


def compute_model_digests(source: str | bytes, folder: Folder | None) -> tuple[tuple[str, str], ...]:
    """Return (name, SHA-256) of each file of a model: "" for the model file (omitted for bytes), then its weights files.

    Raise GraphError if a weights file is missing or outside the model's folder, OSError if a file is unreadable.
    """
    file = ModelFile(source, folder)
    digests = [("", _hash_file(get_file_state(source)))] if isinstance(source, str) else []
    for location in find_weight_files(file):
        digests.append((location, _hash_file(get_file_state(file.get_external_path(location, location)))))
    return tuple(digests)


@functools.lru_cache(maxsize=256)
def _hash_file(state: FileState) -> str:
    """Return the SHA-256 of a file, cached until the state of the file changes."""
    return sha256(map_file(state.path))


def make_weight_state_key(file: ModelFile) -> str:
    """Return the sizes and mtimes of a model's weights files as text, which is part of the cache key of its recipe."""
    states = []
    for location in find_weight_files(file, exact=False):
        if file.folder is not None and "\0" not in location:
            state = get_file_state(os.path.join(os.fspath(file.folder), location))
            states.append(f"{location} {state.size} {state.mtime}")
    return "\n".join(states)
