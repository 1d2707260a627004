"""Identify, by its first bytes, a file that was passed as an ONNX model but is not one."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from ...base.element_types import Bytes

# (offset, magic bytes, file type)
_SIGNATURES = (
    (0, b"\x93NUMPY", "a NumPy array (.npy)"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes them; tf2onnx makes an ONNX model of one"),
    (4, b"TFL3", "a TensorFlow Lite model; tf2onnx makes an ONNX model of one"),
    (4, b"ORTM", "a model in ONNX Runtime's own format (.ort); load the .onnx file that it was made from"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"\x1f\x8b", "a compressed file (gzip); unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a compressed file (7z); unpack it first"),
    (0, b"version https://git-lfs", "a Git LFS pointer, whose file was not fetched; `git lfs pull` fetches it"),
    (0, b"\x80\x02", "a Python pickle, as PyTorch used to write them; torch.onnx.export makes an ONNX model"),
    (0, b"<?xml", "an XML text"),
    (0, b"<!DOCTYPE", "an HTML page"),
    (0, b"<html", "an HTML page"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x89PNG", "a picture"),
    (0, b"\xff\xd8\xff", "a picture"),
)


class _BytesReader(io.RawIOBase):
    """A file object over a buffer. Unlike io.BytesIO, it does not copy the buffer."""

    def __init__(self, data: Bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        if begin + offset < 0:
            raise ValueError(f"seek: expected a non-negative offset, given {begin + offset}")
        self._position = begin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        chunk = self._data[self._position : self._position + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)


def detect_file_type(data: Bytes) -> str:
    """Return a description of the file type, detected by its first bytes; "" if unknown."""
    head = bytes(data[:64])
    if not head:
        return "an empty file"
    for position, magic, description in _SIGNATURES:
        if head[position : position + len(magic)] == magic:
            return description
    if head.startswith(b"PK\x03\x04"):
        return _detect_archive_type(data)
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < len(data):
        return "a safetensors file, which holds weights but no graph"
    return ""


def _detect_archive_type(data: Bytes) -> str:
    """Return a description of a zip file, detected by its member names."""
    try:
        with zipfile.ZipFile(_BytesReader(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return "a zip archive that cannot be read"
    if any(name.endswith("data.pkl") for name in names):
        return "a PyTorch file (.pt); torch.onnx.export makes an ONNX model of its module"
    if names and all(name.endswith(".npy") for name in names):
        return "NumPy arrays (.npz)"
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return "a Keras model (.keras); tf2onnx makes an ONNX model of one"
    inner = [name for name in names if name.endswith(".onnx")]
    return f"a zip archive{f' with {inner[0]} in it' if inner else ''}; unpack it first"
