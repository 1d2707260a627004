"""Inputs and outputs that are stored beside a model: ONNX's folders test_data_set_*, and .npz files."""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.errors import InputError

if TYPE_CHECKING:
    from ..model.model import Model
    from ..model.values import ModelValue

_NUMBER = re.compile(r"_(\d+)\.pb$")


class DataSet(NamedTuple):
    """Inputs, and the outputs that somebody stored for them, by name."""

    name: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


def data_sets(model: Path) -> list[Path]:
    """What is stored beside a model file: folders test_data_set_*, and .npz files.

    In a folder with several models the folders are of model.onnx, and of the .npz files those are a model's whose names begin with its
    own: NAME.npz, NAME.anything.npz.
    """
    alone = len(list(model.parent.glob("*.onnx"))) == 1
    folders = [path for path in model.parent.glob("test_data_set_*") if path.is_dir()]
    archives = [path for path in model.parent.glob("*.npz") if alone or path.name.startswith(f"{model.stem}.")]
    return [*(sorted(folders, key=_order) if alone or model.name == "model.onnx" else ()), *sorted(archives)]


def _order(path: Path) -> tuple[int, str]:
    number = path.name.rpartition("_")[2]
    return (int(number) if number.isdigit() else 1 << 30, path.name)


def read(path: Path, model: Model) -> DataSet:
    """A data set of a model. Raises InputError, which names the file, for what cannot be read or the model does not have."""
    return _archive(path, model) if path.suffix == ".npz" else _folder(path, model)


def _archive(path: Path, model: Model) -> DataSet:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"'{path}': {error}") from None
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
    """By the names in the files where all of them have one that the model knows, else in the model's order."""
    paths = [path for path in folder.glob(f"{kind}_*.pb") if _NUMBER.search(path.name)]
    paths.sort(key=lambda path: int(_NUMBER.search(path.name).group(1)))  # type: ignore[union-attr]
    if len(paths) > len(wanted):
        raise InputError(f"'{folder}': expected at most {len(wanted)} {kind}s, given {len(paths)}")
    texts = [path.read_bytes() for path in paths]
    by_name = {value.name: value for value in wanted}
    # A name is the protobuf field of a tensor and of a sequence alike, so that what it names says which of them it is.
    names = [_name_in(text) for text in texts]
    if not set(names) <= by_name.keys() or len(set(names)) < len(names):
        names = [value.name for value in wanted[: len(paths)]]
    return {name: _value(text, by_name[name].kind, path) for name, text, path in zip(names, texts, paths, strict=True)}


def _name_in(text: bytes) -> str:
    import onnx

    for proto in (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto):
        with contextlib.suppress(
            Exception
        ):  # protobuf's own, in a module that is not onnx's to promise; _value tells of it
            if name := proto.FromString(text).name:
                return str(name)
    return ""


def _value(text: bytes, kind: str, path: Path) -> Any:
    import onnx
    from onnx import numpy_helper

    try:
        if kind == "tensor":
            return numpy_helper.to_array(onnx.TensorProto.FromString(text), str(path.parent))
        if kind == "sequence":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(text))
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(text))
    except Exception as error:  # protobuf's and NumPy's
        raise InputError(f"'{path}': expected a {kind} of ONNX; {error}") from None
