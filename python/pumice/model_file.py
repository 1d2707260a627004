"""Where a model comes from: a file, bytes or a ModelProto; and the files of weights beside it."""

from __future__ import annotations

import mmap
import os
import stat
from typing import TYPE_CHECKING, TypeAlias

from .element_types import Bytes
from .errors import graph_error

if TYPE_CHECKING:
    from onnx import ModelProto

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | ModelProto"


def mapped(path: str | os.PathLike[str]) -> Bytes:
    """A file's bytes, read as they are needed; a pipe's at once."""
    with open(path, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file.read()
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


class ModelFile:
    """A model as it was given. Raises FileNotFoundError and other OSErrors for a path that cannot be read."""

    def __init__(self, source: Source) -> None:
        self.path = ""
        self.name = "model"
        self.data: Bytes | None = None
        self.proto: ModelProto | None = None
        self._beside: dict[str, Bytes] = {}
        if isinstance(source, str | os.PathLike):
            self.path = os.fspath(source)
            self.name = os.path.basename(self.path)
            self.data = mapped(self.path)
        elif isinstance(source, bytes | bytearray | memoryview):
            self.data = memoryview(source).cast("B") if source else b""
        elif hasattr(source, "SerializeToString") and hasattr(source, "graph"):
            self.proto = source
        else:
            raise TypeError(f"a model is a path, bytes or a ModelProto, not {type(source).__name__}")

    def beside(self, location: str, tensor: str) -> Bytes:
        """The bytes of a file of weights that the model names. It may not lie outside the model's folder."""
        if location not in self._beside:
            self._beside[location] = mapped(self._path_beside(location, tensor))
        return self._beside[location]

    def _path_beside(self, location: str, tensor: str) -> str:
        normal = os.path.normpath(location)
        if not location or os.path.isabs(normal) or normal.split(os.sep)[0] == os.pardir or "\0" in location:
            raise graph_error("tensor", tensor, f"expected a weight file in the model's own folder, given '{location}'")
        if not self.path:
            raise graph_error(
                "tensor", tensor, f"its weights are in the file '{location}', but the model was not given as a path"
            )
        path = os.path.join(os.path.dirname(self.path), normal)
        if not os.path.isfile(path):
            raise graph_error("tensor", tensor, f"expected its weights in the file '{path}', given no such file")
        return path
