"""Inputs of models kept in folders: `test_data_set_*` with `input_0.pb` and so on, as ONNX's own tests have them, or .npz files."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ..base.element_types import Array
from ..base.errors import InputError
from .inputs import npz, readable, tensor_proto
from .model import Model

_SETS = "test_data_set_"
_INPUT = re.compile(r"input_(\d+)\.pb")


class DataSet(NamedTuple):
    """One case: the name of its folder or file, and the inputs by name."""

    name: str
    inputs: dict[str, Array]


def data_sets(model: Model, folder: str) -> list[DataSet]:
    """The cases of a folder in the order of their names, numbers by their size.

    A folder is one with `test_data_set_*` in it, or .npz files with arrays by the names of inputs, or itself a set of `input_*.pb`. Results
    that are stored beside the inputs are left alone. Raises InputError, OSError.
    """
    names = sorted(os.listdir(folder), key=_by_number)
    if any(_INPUT.fullmatch(name) for name in names):
        return [DataSet(os.path.basename(os.path.normpath(folder)), _protos(model, folder))]
    found = []
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(_SETS) and os.path.isdir(path):
            found.append(DataSet(name, _protos(model, path)))
        elif name.endswith(".npz"):
            found.append(DataSet(name, _arrays(model, path)))
    if not found:
        raise InputError(f"'{folder}': expected folders {_SETS}*, files input_*.pb or .npz files, found none")
    return found


def _by_number(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _protos(model: Model, folder: str) -> dict[str, Array]:
    """Arrays of `input_N.pb`: N counts the model's inputs."""
    arrays: dict[str, Array] = {}
    for name in sorted(os.listdir(folder), key=_by_number):
        if not (match := _INPUT.fullmatch(name)):
            continue
        number = int(match[1])
        if number >= len(model.inputs):
            raise InputError(
                f"'{os.path.join(folder, name)}': the model has {len(model.inputs)} inputs, counted from 0"
            )
        arrays[model.inputs[number].name] = tensor_proto(os.path.join(folder, name))
    return _complete(model, folder, arrays)


def _arrays(model: Model, path: str) -> dict[str, Array]:
    inputs, outputs = ([value.name for value in values] for values in (model.inputs, model.outputs))
    with npz(path) as archive, readable(path):
        unknown = [name for name in archive.files if name not in inputs and name not in outputs]
        if unknown:
            raise InputError(f"'{path}': no input {', '.join(unknown)}; the model has {', '.join(inputs)}")
        return _complete(model, path, {name: archive[name] for name in archive.files if name in inputs})


def _complete(model: Model, path: str, arrays: dict[str, Array]) -> dict[str, Array]:
    missing = [value.name for value in model.inputs if value.name not in arrays]
    if missing:
        raise InputError(f"'{path}': expected every input of the model; {', '.join(missing)} is missing")
    return arrays
