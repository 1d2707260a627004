"""Read arrays from .npy, .npz and ONNX tensor files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.atomic_files import Path, convert_read_errors
from ..base.element_types import Array, array_from_bytes
from ..base.errors import InputError

if TYPE_CHECKING:
    from onnx import TensorProto


def read_npz(path: Path, only_name: str | None = None) -> dict[str, Array]:
    """Return the arrays of an .npz file by name. only_name: return only this array, or the only array of the file.

    Raise InputError if the content is invalid or the array is missing, OSError if the file is unreadable.
    """
    with open(path, "rb") as file:  # NumPy leaves the file open if it rejects the content
        with convert_read_errors(path):
            archive: Any = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"'{os.fspath(path)}': expected an .npz file, given a single array")
        return {
            name: _read_npz_member(archive, path, name) for name in _select_array_names(archive.files, path, only_name)
        }


def _select_array_names(names: list[str], path: Path, only_name: str | None) -> list[str]:
    if only_name is None or len(names) == 1:
        return names
    if only_name not in names:
        given = ", ".join(names) or "none"
        raise InputError(f"'{os.fspath(path)}': expected an array '{only_name}' or a single one, given {given}")
    return [only_name]


def _read_npz_member(archive: Any, path: Path, name: str) -> Array:
    with convert_read_errors(path, name):
        array = archive[name]
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"'{os.fspath(path)}', member '{name}': expected a NumPy array, given a file of another format"
        )
    return array


def read_npy(path: Path) -> Array:
    """Return the array of an .npy file. Raise InputError if the content is invalid, OSError if the file is unreadable."""
    with open(path, "rb") as file, convert_read_errors(path):
        array: Any = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise InputError(f"'{os.fspath(path)}': expected one NumPy array, given an .npz file: call it NAME.npz")
    return array


def read_tensor_file(path: Path) -> Array:
    """Return the array of an ONNX TensorProto file. Raise InputError if the content is invalid, OSError if the file is unreadable."""
    from onnx import TensorProto

    with open(path, "rb") as file:
        data = file.read()
    with convert_read_errors(path, kind="an ONNX TensorProto"):
        return convert_tensor_to_array(TensorProto.FromString(data), path)


def convert_tensor_to_array(tensor: TensorProto, path: Path) -> Array:
    """Return the elements of a TensorProto as an array. External data is read from the folder of the file `path`.

    Raise GraphError if external data is missing or has the wrong size, InputError for an invalid location, and protobuf's errors.
    """
    from onnx import TensorProto, numpy_helper

    if tensor.data_location != TensorProto.EXTERNAL:
        return np.asarray(numpy_helper.to_array(tensor))
    from ..importer.file.model_file import ModelFile
    from ..importer.file.onnx_tensor import make_constant
    from ..importer.file.weight_files import iterate_external_tensors

    if any("\0" in location for _, location in iterate_external_tensors(tensor)):
        raise InputError(f"'{os.fspath(path)}': expected the name of a file as location of its data, given a NUL byte")
    file = ModelFile(b"", os.path.dirname(os.fspath(path)) or os.curdir)
    constant = make_constant(tensor, tensor.name, file)
    return array_from_bytes(constant.raw, constant.dtype, constant.shape)
