"""Read test data for a model: ONNX's test_data_set_* folders, and .npz files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.atomic_files import convert_read_errors
from ..base.errors import InputError
from .array_files import convert_tensor_to_array, read_npz

if TYPE_CHECKING:
    from .model import Model
    from .model_values import ModelValue

_DATA_SET_PREFIX = "test_data_set_"
_NUMBER_PATTERN = re.compile(r"_(\d+)\.pb$")


class Dataset(NamedTuple):
    """Stored inputs and expected outputs, keyed by name."""

    name: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


def read_datasets(model: Model, folder: str) -> list[Dataset]:
    """Return the data sets of a folder, sorted naturally by name, each with values for all inputs of the model.

    The folder contains `test_data_set_*` folders or .npz files (with arrays named after inputs), or is a single data set with
    `input_*.pb` files. Raise InputError if there is no data set or one is invalid, OSError if the folder or a file is unreadable.
    """
    path = Path(folder)
    if any(path.glob("input_*.pb")):
        return [_check_complete(read_dataset(path, model), path, model)]
    entries = [
        entry for entry in os.scandir(folder) if entry.name.endswith(".npz") or entry.name.startswith(_DATA_SET_PREFIX)
    ]
    data_paths = sorted(
        (Path(entry.path) for entry in entries if entry.is_dir() or entry.name.endswith(".npz")),
        key=_make_natural_sort_key,
    )
    if not data_paths:
        raise InputError(
            f"'{folder}': expected folders {_DATA_SET_PREFIX}*, files input_*.pb or .npz files, found none"
        )
    return [_check_complete(read_dataset(entry, model), entry, model) for entry in data_paths]


def _check_complete(data: Dataset, path: Path, model: Model) -> Dataset:
    missing = [value.name for value in model.inputs if value.name not in data.inputs]
    if missing:
        raise InputError(f"'{path}': expected every input of the model; {', '.join(missing)} is missing")
    return data


def find_datasets(model: Path) -> list[Path]:
    """Return the paths of the test data next to a model file: test_data_set_* folders and .npz files.

    In a folder with several models, the test_data_set_* folders belong to model.onnx, and NAME.npz and NAME.*.npz belong to NAME.onnx.
    """
    is_only_model = len(list(model.parent.glob("*.onnx"))) == 1
    folders = [path for path in model.parent.glob(f"{_DATA_SET_PREFIX}*") if path.is_dir()]
    archives = [path for path in model.parent.glob("*.npz") if is_only_model or path.name.startswith(f"{model.stem}.")]
    return [
        *(sorted(folders, key=_make_natural_sort_key) if is_only_model or model.name == "model.onnx" else ()),
        *sorted(archives, key=_make_natural_sort_key),
    ]


def _make_natural_sort_key(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that compares numbers in the file name by value."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(piece), "") if piece.isdigit() else (1 << 60, piece) for piece in pieces]


def read_dataset(path: Path, model: Model) -> Dataset:
    """Return the data set in a folder or .npz file. Raise InputError naming the file if it is invalid or does not match the model."""
    return _read_npz_dataset(path, model) if path.suffix == ".npz" else _read_folder_dataset(path, model)


def _read_npz_dataset(path: Path, model: Model) -> Dataset:
    arrays = read_npz(path)
    inputs = [value.name for value in (*model.inputs, *model.overridable)]
    outputs = [value.name for value in model.outputs]
    if unknown := [name for name in arrays if name not in inputs and name not in outputs]:
        known_names = f"the model has the inputs {', '.join(inputs)} and the outputs {', '.join(outputs)}"
        raise InputError(f"'{path}': no input or output '{unknown[0]}'; {known_names}")
    return Dataset(
        path.name,
        {name: array for name, array in arrays.items() if name in inputs},
        {name: array for name, array in arrays.items() if name in outputs},
    )


def _read_folder_dataset(path: Path, model: Model) -> Dataset:
    inputs = _read_values(path, "input", [*model.inputs, *model.overridable])
    return Dataset(path.name, inputs, _read_values(path, "output", model.outputs))


def _read_values(folder: Path, kind: str, expected_values: Sequence[ModelValue]) -> dict[str, Any]:
    """Read the `<kind>_<number>.pb` files of a folder. Return value name -> value.

    The names come from the files if they are unique names of the model, else from the values with the files' numbers.
    """
    paths = {
        int(match[1]): path for path in folder.glob(f"{kind}_*.pb") if (match := _NUMBER_PATTERN.search(path.name))
    }
    for file_index in sorted(paths):
        if file_index >= len(expected_values):
            raise InputError(f"'{paths[file_index]}': the model has {len(expected_values)} {kind}s, counted from 0")
    contents = {file_index: paths[file_index].read_bytes() for file_index in sorted(paths)}
    by_name = {value.name: value for value in expected_values}
    # The type of a value is unknown before its name is known. All message types have a name field.
    names = {file_index: _read_proto_name(content) for file_index, content in contents.items()}
    if not by_name.keys() >= set(names.values()) or len(set(names.values())) < len(names):
        names = {file_index: expected_values[file_index].name for file_index in contents}
    return {
        names[file_index]: _parse_value(content, by_name[names[file_index]].kind, paths[file_index])
        for file_index, content in contents.items()
    }


def _read_proto_name(content: bytes) -> str:
    import onnx

    for proto in (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto):
        # protobuf's exception class is not part of onnx's API. _parse_value reports invalid content.
        with contextlib.suppress(Exception):
            if name := proto.FromString(content).name:
                return str(name)
    return ""


def _parse_value(content: bytes, kind: str, path: Path) -> Any:
    import onnx
    from onnx import numpy_helper

    with convert_read_errors(path, kind=f"a {kind} of ONNX"):
        if kind == "tensor":
            return convert_tensor_to_array(onnx.TensorProto.FromString(content), path)
        if kind == "sequence":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
