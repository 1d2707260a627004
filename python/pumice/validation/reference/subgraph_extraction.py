"""Extracts nodes of a model as a model of their own, with their constants, and stored tensors as inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.element_types import Array
from ...model.precision_policy import Precision
from ..report.subgraph import MissingTensorError, Subgraph, make_value_info
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.program_values import make_bounded_input
from .reference_model import ReferenceModel, ReferenceNode

if TYPE_CHECKING:
    from ...importer.kernel_operator import KernelTable

_MIN_IR_VERSION = 8  # ONNX file format version that most readers support


def extract_subgraph(
    reference: ReferenceModel,
    nodes: Collection[str],
    values: Mapping[str, Array],
    outputs: Iterable[str] | None = None,
    changed: Mapping[str, Array] | None = None,
) -> Subgraph:
    """Return the named nodes as a model.

    values: tensors by name; tensors that the nodes read and do not compute become inputs. outputs: by default all results
    that other nodes or the caller read. changed: new values of constants. Raise MissingTensorError if an input is not in
    `values`.
    """
    chosen = [node for node in reference.nodes if node.name in nodes]
    produced = {name for node in chosen for name in node.outputs}
    read = list(dict.fromkeys(name for node in chosen for name in node.inputs if name not in produced))
    known = {**reference.constants, **(changed or {})}
    constants = {name: known[name] for name in read if name in known and name not in values}
    missing = [name for name in read if name not in constants and not isinstance(values.get(name), np.ndarray)]
    if missing:
        raise MissingTensorError(f"no tensor is stored for {', '.join(missing)}")
    inputs = {name: values[name] for name in read if name not in constants}
    results = list(outputs) if outputs is not None else _find_outputs(reference, chosen)
    graph = helper.make_graph(
        [_copy_named_node(node) for node in chosen],
        "part",
        [make_value_info(name, array) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in reference.opsets.items()]
    version = max(helper.find_min_ir_version_for(opsets, ignore_unknown=True), _MIN_IR_VERSION)
    return Subgraph(helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="pumice"), inputs)


def _find_outputs(reference: ReferenceModel, chosen: list[ReferenceNode]) -> list[str]:
    """Return the results that other nodes read, or that none of these nodes reads."""
    read_inside = {name for node in chosen for name in node.inputs}
    names = {node.name for node in chosen}
    read_elsewhere = {name for node in reference.nodes if node.name not in names for name in node.inputs}
    read_elsewhere.update(reference.outputs)
    return [name for node in chosen for name in node.outputs if name not in read_inside or name in read_elsewhere]


def _copy_named_node(node: ReferenceNode) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node.proto)
    copied.name = node.name
    return copied


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
