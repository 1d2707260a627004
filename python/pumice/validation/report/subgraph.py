"""A subgraph of a model: how it is loaded, and its files in the layout of the backend tests of ONNX."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..._pumice import Context, Error
from ...base.element_types import Array
from ...base.errors import InputError
from ...importer.file.model_file import Folder
from ...model.model import Model
from ...model.precision_policy import DEFAULT, Precision, escape_literal, parse_policy

if TYPE_CHECKING:
    from ...importer.kernel_operator import KernelTable
    from ...model.step_variants import StepVariants


class Subgraph(NamedTuple):
    """A subgraph as a model, and its inputs by name."""

    proto: onnx.ModelProto
    inputs: dict[str, Array]

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [node.name for node in self.proto.graph.node]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [value.name for value in self.proto.graph.output]

    @property
    def constants(self) -> dict[str, Array]:
        """Constants by name."""
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in self.proto.graph.initializer}

    @property
    def bytes(self) -> int:
        """Size of the model and its inputs."""
        return int(self.proto.ByteSize()) + sum(array.nbytes for array in self.inputs.values())


class MissingTensorError(Error, LookupError):
    """Raised if a subgraph needs a tensor that is not stored: a sequence, or an intermediate of a fused kernel."""


def make_value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """Return the declaration of a graph input for an array."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def make_subgraph_precision(precision: Precision, proto: onnx.ModelProto) -> Precision:
    """Return the precision policy of a subgraph, by node name."""
    policy = parse_policy(precision)
    if policy.is_uniform:
        return policy.precision
    nodes = {
        escape_literal(node.name): policy.get_precision(node.name, _get_qualified_operator(node))
        for node in proto.graph.node
    }
    return {DEFAULT: policy.precision, **nodes}


def _get_qualified_operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


DATA_SET_FOLDER = "test_data_set_0"


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


class ModelLoadSetup(NamedTuple):
    """Device, precision and load options of a model, and the tolerances used to validate it."""

    context: Context
    precision: Precision
    fuse: bool | Sequence[str] = True
    deterministic: bool = False
    tolerances: Mapping[str, float] | None = None
    kernels: KernelTable | None = None
    variants: StepVariants | None = None  # kernel variant chosen by measurement for each step

    def load_subgraph(self, subgraph: onnx.ModelProto) -> Model:
        """Load a subgraph with this setup. Raise whatever loading a model raises."""
        options: dict[str, Any] = {"fuse": self.fuse, "deterministic": self.deterministic, "kernels": self.kernels}
        options["tuned"] = self.variants or False
        return Model(
            subgraph, self.context, make_subgraph_precision(self.precision, subgraph), progress=False, **options
        )
