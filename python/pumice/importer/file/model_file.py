"""Model sources (a file, bytes, a file object or a ModelProto) and their external weights files."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

import pumice._pumice as _pumice

from ..._pumice import MappedFile
from ...base.element_types import Bytes
from ...base.errors import graph_error

if TYPE_CHECKING:
    from onnx import ModelProto

Folder: TypeAlias = "str | os.PathLike[str]"
Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | ModelProto"


MODEL_FILE_LOCATION = "\0"  # external-data location that means the model file itself; not a possible file name
_MAX_PIPE_BYTES = 1 << 31  # size limit for pipes and other sources without a length: protobuf's maximum message size
_CHUNK_BYTES = 1 << 24


def make_rereadable(source: Source) -> Source:
    """Return a source that can be read repeatedly: a file object is replaced by its remaining bytes.

    Raise TypeError for a text file object, GraphError for a device or an endless pipe.
    """
    return _read_all(cast("BinaryIO", source), "the file object") if hasattr(source, "read") else source


def _read_all(file: BinaryIO, source_name: str) -> bytes:
    """Read a file object to its end. Raise TypeError for a text file object, GraphError for a device or an endless pipe."""
    if _has_file_mode(file, stat.S_ISCHR) or _has_file_mode(file, stat.S_ISBLK):
        raise graph_error("model", "model", f"expected a file, a pipe or bytes, given {source_name} of a device")
    chunks: list[bytes] = []
    length = 0
    while True:
        chunk = file.read(_CHUNK_BYTES)
        if not isinstance(chunk, bytes):
            raise TypeError(f"a model's file object must return bytes, not {type(chunk).__name__}: open it with 'rb'")
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        length += len(chunk)
        if length > _MAX_PIPE_BYTES and not _has_file_mode(file, stat.S_ISREG, otherwise=True):
            raise graph_error(
                "model", "model", f"expected at most {_MAX_PIPE_BYTES} bytes from {source_name}, given more"
            )


def _has_file_mode(file: BinaryIO, is_kind: Callable[[int], bool], otherwise: bool = False) -> bool:
    """Return whether `is_kind` holds for a file object's mode; `otherwise` if it has no descriptor, such as an in-memory file."""
    try:
        return is_kind(os.fstat(file.fileno()).st_mode)
    except (OSError, AttributeError):
        return otherwise


def to_path_or_bytes(source: Source) -> str | bytes:
    """Convert a source to an absolute path or bytes, which another process can read. Raise TypeError if it is not a model source."""
    if isinstance(source, str | os.PathLike):
        return os.path.abspath(os.fspath(source))
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    serialize = getattr(source, "SerializeToString", None)
    if serialize is None:
        raise _make_source_error(source)
    return bytes(serialize())


def _make_source_error(received: object) -> TypeError:
    hint = getattr(received, "_no_source_hint", "")  # set by classes that wrap a model
    actual = f"not {type(received).__name__}{f': {hint}' if hint else ''}"
    return TypeError(f"a model must be a path, bytes, a file object or a ModelProto, {actual}")


def get_source_size(source: Source) -> int:
    """Return the model's size in bytes; 0 if it is unknown before reading the source."""
    if isinstance(source, str | os.PathLike):
        try:
            return os.path.getsize(source)
        except (OSError, ValueError):  # no such file, or an invalid name
            return 0
    return memoryview(source).nbytes if isinstance(source, bytes | bytearray | memoryview) else 0


def map_file(path: str | os.PathLike[str]) -> Bytes:
    """Return the bytes of a file, memory-mapped, or of a pipe, read to its end.

    Raise GraphError for a device or an endless pipe, OSError for an unreadable file.
    """
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return MappedFile(file.fileno(), os.fspath(path)).view()
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise graph_error("model", os.fspath(path), "expected a file or a pipe, given a device")
        return _read_all(file, f"the pipe '{os.fspath(path)}'")


def strip_tensor_data(data: Bytes) -> Bytes:
    """Return a serialised ModelProto without the data of large tensors, which refer to MODEL_FILE_LOCATION as external data.

    Return the bytes unchanged if they are not a ModelProto.
    """
    small = _pumice.onnx_skeleton(data, MODEL_FILE_LOCATION)
    return data if small is None else small


class ModelFile:
    """An opened model source. Raise OSError for an unreadable path, GraphError for a device or an endless pipe.

    folder: the folder of its external weights files; None: the model's own folder.
    """

    def __init__(self, source: Source, folder: Folder | None = None) -> None:
        self.path = ""
        self.name = "model"
        self.data: Bytes | None = None
        self.proto: ModelProto | None = None
        self.is_cacheable = True  # whether the recipe depends only on data that is part of the cache key
        self._external_files: dict[str, Bytes] = {}
        source = make_rereadable(source)
        if isinstance(source, str | os.PathLike):
            self.path = os.fspath(source)
            self.name = os.path.basename(self.path)
            self.data = map_file(self.path)
        elif isinstance(source, bytes | bytearray | memoryview):
            self.data = memoryview(source).cast("B") if source else b""
        elif hasattr(source, "SerializeToString") and hasattr(source, "graph"):
            self.proto = cast("ModelProto", source)
        else:
            raise _make_source_error(source)
        self.folder = os.path.dirname(self.path) or os.curdir if folder is None and self.path else folder

    @functools.cached_property
    def stripped_data(self) -> Bytes:
        """The file's bytes without the data of large tensors; see strip_tensor_data()."""
        return strip_tensor_data(self.data or b"")

    def read_external(self, location: str, tensor: str) -> Bytes:
        """Return the bytes of an external weights file. Raise GraphError if it is missing or outside the model's folder."""
        if location not in self._external_files:
            path = self.get_external_path(location, tensor)
            try:
                self._external_files[location] = map_file(path)
            except OSError as error:
                raise graph_error(
                    "tensor", tensor, f"expected its weights in the file '{path}', given {error}"
                ) from None
        return self._external_files[location]

    def get_external_path(self, location: str, tensor: str) -> str:
        normal = os.path.normpath(location)
        if not location or os.path.isabs(normal) or normal.split(os.sep)[0] == os.pardir or "\0" in location:
            raise graph_error("tensor", tensor, f"expected a weight file in the model's own folder, given '{location}'")
        if self.folder is None:
            received = "the model was not given as a path: give the folder of the file (folder=...)"
            raise graph_error("tensor", tensor, f"its weights are in the file '{location}', but {received}")
        path = os.path.join(self.folder, normal)
        if not os.path.exists(path):
            raise graph_error("tensor", tensor, f"expected its weights in the file '{path}', given no such file")
        real = os.path.realpath(path)
        if not any(os.path.commonpath([folder, real]) == folder for folder in self._get_allowed_folders()):
            raise graph_error(
                "tensor",
                tensor,
                f"expected a weight file in the model's own folder, given a link, '{path}', to '{real}'",
            )
        if not os.path.isfile(real):
            raise graph_error(
                "tensor", tensor, f"expected its weights in the file '{path}', given one that is not a regular file"
            )
        return real

    def _get_allowed_folders(self) -> list[str]:
        """Return the folders in which weights files may be: the model's folder, and that of its target if the model is a symlink."""
        folders = [os.path.realpath(self.folder or os.curdir)]
        if self.path:
            folders.append(os.path.dirname(os.path.realpath(self.path)))
        return folders
