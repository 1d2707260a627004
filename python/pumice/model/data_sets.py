"""Test data stored next to a model: ONNX's test_data_set_* folders of tensor files, and .npz files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import InputError
from ..base.atomic_files import readable
from .array_files import npz_arrays, tensor_array

if TYPE_CHECKING:
    from .model import Model
    from .model_values import ModelValue

_SETS = "test_data_set_"
_NUMBER = re.compile(r"_(\d+)\.pb$")


class DataSet(NamedTuple):
    """Stored inputs and expected outputs, keyed by name."""

    name: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


def in_folder(model: Model, folder: str) -> list[DataSet]:
    """Return the data sets of a folder in natural order of their names, each with every input of the model.

    The folder contains `test_data_set_*` folders, or .npz files with arrays named after inputs, or is itself a set of
    `input_*.pb`. Raise InputError if there is no data set or one is invalid, OSError if the folder or a file is unreadable.
    """
    path = Path(folder)
    if any(path.glob("input_*.pb")):
        return [_complete(read(path, model), path, model)]
    inside = [one for one in os.scandir(folder) if one.name.endswith(".npz") or one.name.startswith(_SETS)]
    found = sorted((Path(one.path) for one in inside if one.is_dir() or one.name.endswith(".npz")), key=_order)
    if not found:
        raise InputError(f"'{folder}': expected folders {_SETS}*, files input_*.pb or .npz files, found none")
    return [_complete(read(one, model), one, model) for one in found]


def _complete(data: DataSet, path: Path, model: Model) -> DataSet:
    missing = [value.name for value in model.inputs if value.name not in data.inputs]
    if missing:
        raise InputError(f"'{path}': expected every input of the model; {', '.join(missing)} is missing")
    return data


def beside(model: Path) -> list[Path]:
    """Return the test data stored next to a model file: test_data_set_* folders and .npz files.

    In a folder with several models, the test_data_set_* folders belong to model.onnx, and an .npz file belongs to the
    model whose name it starts with: NAME.npz, NAME.anything.npz.
    """
    alone = len(list(model.parent.glob("*.onnx"))) == 1
    folders = [path for path in model.parent.glob(f"{_SETS}*") if path.is_dir()]
    archives = [path for path in model.parent.glob("*.npz") if alone or path.name.startswith(f"{model.stem}.")]
    return [
        *(sorted(folders, key=_order) if alone or model.name == "model.onnx" else ()),
        *sorted(archives, key=_order),
    ]


def _order(path: Path) -> list[tuple[int, str]]:
    """Sort key for natural order: numbers in a name compare by value."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdigit() else (1 << 60, part) for part in parts]


def read(path: Path, model: Model) -> DataSet:
    """Return a data set of a model. Raise InputError naming the file if it is unreadable or does not match the model."""
    return _archive(path, model) if path.suffix == ".npz" else _folder(path, model)


def _archive(path: Path, model: Model) -> DataSet:
    arrays = npz_arrays(path)
    inputs = [value.name for value in (*model.inputs, *model.overridable)]
    outputs = [value.name for value in model.outputs]
    if unknown := [name for name in arrays if name not in inputs and name not in outputs]:
        known = f"the model has the inputs {', '.join(inputs)} and the outputs {', '.join(outputs)}"
        raise InputError(f"'{path}': no input or output '{unknown[0]}'; {known}")
    return DataSet(
        path.name,
        {name: array for name, array in arrays.items() if name in inputs},
        {name: array for name, array in arrays.items() if name in outputs},
    )


def _folder(path: Path, model: Model) -> DataSet:
    inputs = _values(path, "input", [*model.inputs, *model.overridable])
    return DataSet(path.name, inputs, _values(path, "output", model.outputs))


def _values(folder: Path, kind: str, wanted: Sequence[ModelValue]) -> dict[str, Any]:
    """Return the values, keyed by the names in the files if the model knows them all, else matched by the number in the file name."""
    paths = {int(match[1]): path for path in folder.glob(f"{kind}_*.pb") if (match := _NUMBER.search(path.name))}
    for number in sorted(paths):
        if number >= len(wanted):
            raise InputError(f"'{paths[number]}': the model has {len(wanted)} {kind}s, counted from 0")
    texts = {number: paths[number].read_bytes() for number in sorted(paths)}
    by_name = {value.name: value for value in wanted}
    # TensorProto and SequenceProto use the same protobuf field for the name, so the name decides which of them it is.
    names = {number: _name_in(text) for number, text in texts.items()}
    if not by_name.keys() >= set(names.values()) or len(set(names.values())) < len(names):
        names = {number: wanted[number].name for number in texts}
    return {names[number]: _value(text, by_name[names[number]].kind, paths[number]) for number, text in texts.items()}


def _name_in(text: bytes) -> str:
    import onnx

    for proto in (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto):
        # protobuf raises its own exception type, whose module is not part of onnx's API; _value reports the error.
        with contextlib.suppress(Exception):
            if name := proto.FromString(text).name:
                return str(name)
    return ""


def _value(text: bytes, kind: str, path: Path) -> Any:
    import onnx
    from onnx import numpy_helper

    with readable(path, kind=f"a {kind} of ONNX"):
        if kind == "tensor":
            return tensor_array(onnx.TensorProto.FromString(text), path)
        if kind == "sequence":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(text))
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(text))
