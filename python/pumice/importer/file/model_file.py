"""Sources of a model: a file, bytes, a file object or a ModelProto; and the files of weights beside it."""

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


OWN_FILE = "\0"  # location of external data that means the file itself; no other file has such a name
_MOST_PIPED = 1 << 31  # bytes of a pipe or another source without a length: protobuf has no longer message
_CHUNK = 1 << 24


def reread(source: Source) -> Source:
    """The source in a form that can be read more than once: for a file object the bytes that it still has.

    Raises TypeError for a file object of text, GraphError for one of a device and one without an end.
    """
    return _all_of(cast("BinaryIO", source), "the file object") if hasattr(source, "read") else source


def _all_of(file: BinaryIO, what: str) -> bytes:
    """All bytes to the end. Raises TypeError for text, GraphError for a device and where there is no end."""
    if _mode(file, stat.S_ISCHR) or _mode(file, stat.S_ISBLK):
        raise graph_error("model", "model", f"expected a file, a pipe or bytes, given {what} of a device")
    chunks: list[bytes] = []
    length = 0
    while True:
        chunk = file.read(_CHUNK)
        if not isinstance(chunk, bytes):
            raise TypeError(f"a model's file object gives bytes, not {type(chunk).__name__}: open it with 'rb'")
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        length += len(chunk)
        if length > _MOST_PIPED and not _mode(file, stat.S_ISREG, otherwise=True):
            raise graph_error("model", "model", f"expected at most {_MOST_PIPED} bytes from {what}, given more")


def _mode(file: BinaryIO, is_kind: Callable[[int], bool], otherwise: bool = False) -> bool:
    """Whether a file of the system is of that kind; `otherwise` for objects that are none, such as bytes in memory."""
    try:
        return is_kind(os.fstat(file.fileno()).st_mode)
    except (OSError, AttributeError):
        return otherwise


def portable(source: Source) -> str | bytes:
    """The source in a form that another process can read: an absolute path, or bytes. Raises TypeError for what is no source."""
    if isinstance(source, str | os.PathLike):
        return os.path.abspath(os.fspath(source))
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    serialize = getattr(source, "SerializeToString", None)
    if serialize is None:
        raise _no_source(source)
    return bytes(serialize())


def _no_source(given: object) -> TypeError:
    hint = getattr(given, "_no_source", "")  # of classes that hold a model
    told = f"not {type(given).__name__}{f': {hint}' if hint else ''}"
    return TypeError(f"a model is a path, bytes, a file object or a ModelProto, {told}")


def bytes_of(source: Source) -> int:
    """The size of a model in bytes; 0 where it is not known before the model is read."""
    if isinstance(source, str | os.PathLike):
        try:
            return os.path.getsize(source)
        except (OSError, ValueError):  # no such file, or no valid name
            return 0
    return memoryview(source).nbytes if isinstance(source, bytes | bytearray | memoryview) else 0


def mapped(path: str | os.PathLike[str]) -> Bytes:
    """A file's bytes, which are read as they are needed; a pipe's are read at once.

    Raises GraphError for a device and for a pipe that has no end, OSError.
    """
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return MappedFile(file.fileno(), os.fspath(path)).view()
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise graph_error("model", os.fspath(path), "expected a file or a pipe, given a device")
        return _all_of(file, f"the pipe '{os.fspath(path)}'")


def skeleton(data: Bytes) -> Bytes:
    """The ModelProto with the elements of large tensors as external data in OWN_FILE.

    Bytes that are no ModelProto are returned as they are.
    """
    small = _pumice.onnx_skeleton(data, OWN_FILE)
    return data if small is None else small


class ModelFile:
    """A model as it was given. Raises FileNotFoundError and other OSErrors for a path that cannot be read,
    GraphError.

    folder: where its files of weights lie; None for the model's own.
    """

    def __init__(self, source: Source, folder: Folder | None = None) -> None:
        self.path = ""
        self.name = "model"
        self.data: Bytes | None = None
        self.proto: ModelProto | None = None
        self.is_cacheable = True  # whether a recipe of it is right as long as its skeleton is the same
        self._beside: dict[str, Bytes] = {}
        source = reread(source)
        if isinstance(source, str | os.PathLike):
            self.path = os.fspath(source)
            self.name = os.path.basename(self.path)
            self.data = mapped(self.path)
        elif isinstance(source, bytes | bytearray | memoryview):
            self.data = memoryview(source).cast("B") if source else b""
        elif hasattr(source, "SerializeToString") and hasattr(source, "graph"):
            self.proto = cast("ModelProto", source)
        else:
            raise _no_source(source)
        self.folder = os.path.dirname(self.path) or os.curdir if folder is None and self.path else folder

    @functools.cached_property
    def skeleton(self) -> Bytes:
        """The file's bytes without its large tensors, as skeleton() makes it."""
        return skeleton(self.data or b"")

    def beside(self, location: str, tensor: str) -> Bytes:
        """The bytes of a file of weights that the model names. Raises GraphError for one outside of the model's
        folder.
        """
        if location not in self._beside:
            path = self.path_beside(location, tensor)
            try:
                self._beside[location] = mapped(path)
            except OSError as error:
                raise graph_error(
                    "tensor", tensor, f"expected its weights in the file '{path}', given {error}"
                ) from None
        return self._beside[location]

    def path_beside(self, location: str, tensor: str) -> str:
        normal = os.path.normpath(location)
        if not location or os.path.isabs(normal) or normal.split(os.sep)[0] == os.pardir or "\0" in location:
            raise graph_error("tensor", tensor, f"expected a weight file in the model's own folder, given '{location}'")
        if self.folder is None:
            given = "the model was not given as a path: give the folder of the file (folder=...)"
            raise graph_error("tensor", tensor, f"its weights are in the file '{location}', but {given}")
        path = os.path.join(self.folder, normal)
        if not os.path.exists(path):
            raise graph_error("tensor", tensor, f"expected its weights in the file '{path}', given no such file")
        real = os.path.realpath(path)
        if not any(os.path.commonpath([folder, real]) == folder for folder in self._real_folders()):
            raise graph_error(
                "tensor",
                tensor,
                f"expected a weight file in the model's own folder, given a link, '{path}', to '{real}'",
            )
        if not os.path.isfile(real):
            raise graph_error(
                "tensor", tensor, f"expected its weights in the file '{path}', given what is no regular file"
            )
        return real

    def _real_folders(self) -> list[str]:
        """The folders where files of weights may lie: the model's, and for a link also that of the file behind it."""
        folders = [os.path.realpath(self.folder or os.curdir)]
        if self.path:
            folders.append(os.path.dirname(os.path.realpath(self.path)))
        return folders
