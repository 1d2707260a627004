"""Parse ONNX into a Recipe. Everything in the file is checked here or by the engine's Graph; nothing is trusted."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import onnx

import pumice._pumice as _pumice

from ..base.element_types import Bytes
from ..base.errors import graph_error, truncate_middle
from .composed.operator_table import COMPOSED
from .file.file_signatures import detect_file_type
from .file.model_file import ModelFile
from .file.recipe import Overridable, Recipe
from .file.weight_files import check_locations
from .graph_importer import GraphImporter
from .onnx_functions import expand_functions
from .onnx_values import ONNX_DOMAINS
from .rewrites.rewrite_table import UPGRADES
from .rewrites.string_to_index import convert_strings

if TYPE_CHECKING:
    from onnx import ModelProto


def parse_model(file: ModelFile, with_weights: bool = False) -> ModelProto:
    """Return a file's ModelProto with functions expanded. with_weights: include the data of large tensors (see skeleton).

    Raise GraphError if the file is not an ONNX model.
    """
    model = file.proto if file.data is None else _decode(file.data if with_weights else file.skeleton, file)
    if model is None or not model.HasField("graph"):
        raise graph_error(
            "model", file.name, f"expected an ONNX model, given {_describe_file(file) or 'a file that holds no graph'}"
        )
    _check_text(model, file)
    check_locations(file)
    return expand_functions(model, _is_claimed, file.name, in_place=file.proto is None)


def _is_claimed(op: str, domain: str, dtype: str) -> bool:
    """Return whether the engine or the importer supports an operator with this dtype of its first input, or with any dtype if it is ""."""
    full_op_name = f"{domain}::{op}" if domain else op
    if dtype and full_op_name in _input_dtypes() and full_op_name not in COMPOSED:
        return dtype in _input_dtypes()[full_op_name]
    return _pumice.has_operator(op, domain) or full_op_name in COMPOSED or full_op_name in UPGRADES


@functools.cache
def _input_dtypes() -> dict[str, set[str]]:
    """Return the element types of the first input, keyed by engine operator."""
    return {row.name: set(row.inputs[0].dtypes) for row in _pumice.operators() if row.inputs}


def _check_text(message: Any, file: ModelFile) -> None:
    """Raise GraphError for text that is not UTF-8, which protobuf returns as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE) or isinstance(value, str):
            continue
        for item in [value] if isinstance(value, bytes) or hasattr(value, "DESCRIPTOR") else value:
            if isinstance(item, bytes):
                raise graph_error("model", file.name, f"expected UTF-8 text as {field.full_name}, given {item[:40]!r}")
            if not isinstance(item, str):
                _check_text(item, file)


def _decode(data: Bytes, file: ModelFile) -> ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except Exception as error:  # the exception class differs between versions of protobuf
        description = _describe_file(file) or f"bytes that the ONNX format does not allow ({error})"
        raise graph_error("model", file.name, f"expected an ONNX model, given {description}") from None
    return model


def _describe_file(file: ModelFile) -> str:
    """Return a short description of what the file seems to be instead of a model; "" if unknown."""
    return "" if file.data is None else detect_file_type(file.data)


def get_opsets(model: ModelProto) -> dict[str, int]:
    """Return the opset version of each domain, the latest if listed repeatedly; ONNX's own domain is ""."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in ONNX_DOMAINS else entry.domain
        versions[domain] = max(entry.version, versions.get(domain, 0))
    return versions


def _find_warnings(model: ModelProto) -> list[str]:
    """Return a warning for each declaration in the file that is not followed as written."""
    warnings = []
    if model.ir_version > onnx.IR_VERSION:
        warnings.append(
            f"ir_version {model.ir_version} is newer than {onnx.IR_VERSION}, the newest that the package onnx "
            f"{onnx.__version__} knows: what a newer format adds is not read"
        )
    versions_by_domain: dict[str, list[int]] = {}
    for entry in model.opset_import:
        versions_by_domain.setdefault("" if entry.domain in ONNX_DOMAINS else entry.domain, []).append(entry.version)
    for domain, versions in versions_by_domain.items():
        if len(versions) > 1:
            version_list = ", ".join(map(str, versions))
            warnings.append(
                f"the operators of domain '{domain or 'ai.onnx'}' are imported {len(versions)} times, of versions {version_list}: "
                f"{max(versions)} is taken"
            )
    return [truncate_middle(warning) for warning in warnings]


def make_recipe(model: ModelProto, file: ModelFile, overridable: Overridable = False) -> Recipe:
    """Return the Recipe of a parsed model, including a list of unsupported features. overridable: initializers to expose as inputs.

    Raise GraphError if the model breaks a rule, BindingError if a name in `overridable` is not such an initializer.
    """
    recipe = GraphImporter(model.graph, get_opsets(model), file, overridable_request=overridable).recipe()
    recipe = convert_strings(recipe)
    return recipe._replace(
        metadata={entry.key: entry.value for entry in model.metadata_props},
        warnings=_find_warnings(model),
        plain=not any(node.qualified_op in COMPOSED for node in recipe.nodes),
    )
