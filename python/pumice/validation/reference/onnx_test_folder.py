"""Writes folders with a model, inputs and expected outputs in the layout of ONNX's backend tests, atomically."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper, numpy_helper

from ...base.element_types import Array
from ...base.errors import InputError
from ...importer.file.model_file import Folder
from ...model.precision_policy import Precision
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.rule_runner import make_bounded_input
from .reference_model import ReferenceModel
from .subgraph_extraction import Subgraph

if TYPE_CHECKING:
    from ...importer.kernel_operator import KernelTable

DATA_SET_FOLDER = "test_data_set_0"


def compute_expected_results(
    subgraph: Subgraph, precision: Precision, kernels: KernelTable | None = None
) -> dict[str, Array]:
    """Return the reference's results for a subgraph by name, rounded to their declared types.

    Results that no rule covers are omitted.
    """
    reference = ReferenceModel(subgraph.proto, precision=precision, kernels=kernels)
    values: dict[str, Value] = {
        name: make_bounded_input(array, reference.types) for name, array in subgraph.inputs.items() if name
    }
    for name in reference.constants:
        values.setdefault(name, reference.get_constant(name))
    for node in reference.nodes:
        try:
            values.update(node.run({name: values[name] for name in node.inputs}, reference.runner))
        except (UndecidedError, UnprovedError, KeyError, IndexError):
            continue
    outputs = {name: values[name] for name in subgraph.outputs if name in values}
    with np.errstate(all="ignore"):
        return {
            name: np.asarray(value.value).astype(value.dtype)
            for name, value in outputs.items()
            if isinstance(value, BoundedTensor)
        }


def declare_outputs(subgraph: Subgraph, results: Mapping[str, Array]) -> Subgraph:
    """Return the subgraph with its outputs' types and shapes declared."""
    proto = type(subgraph.proto)()
    proto.CopyFrom(subgraph.proto)
    for value in proto.graph.output:
        if value.name in results:
            array = results[value.name]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    return Subgraph(proto, subgraph.inputs)


def make_test_files(subgraph: Subgraph, results: Mapping[str, Array]) -> dict[str, bytes]:
    """Return the contents of the files by their path in the folder."""
    files = {"model.onnx": declare_outputs(subgraph, results).proto.SerializeToString()}
    for kind, arrays in (
        ("input", subgraph.inputs),
        ("output", {n: results[n] for n in subgraph.outputs if n in results}),
    ):
        for index, (name, array) in enumerate(arrays.items()):
            tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            files[f"{DATA_SET_FOLDER}/{kind}_{index}.pb"] = tensor.SerializeToString()
    return files


def require_empty_folder(folder: Folder) -> Path:
    """Return `folder` as a path if it is missing or empty. Raise InputError otherwise."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        actual = "a folder that is not empty" if target.is_dir() else "a file"
        raise InputError(f"'{target}': expected a new or an empty folder, given {actual}")
    return target


def write_folder(folder: Folder, files: Mapping[str, bytes]) -> Path:
    """Write files into a new or empty folder, atomically through a temporary folder next to it.

    Raise InputError if the folder is not empty, or OSError.
    """
    target = require_empty_folder(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for path, content in files.items():
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_bytes(content)
        os.chmod(temporary, 0o777 & ~_get_umask())
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def _get_umask() -> int:
    """Return the umask of the process. The only way to read it is to set it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
