"""Parse ONNX into a Recipe. Everything in the file is checked here or by the engine's Graph; nothing is trusted."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import onnx

import pumice._pumice as _pumice

from ..base.element_types import Bytes
from ..base.errors import bounded, graph_error
from .composed.operator_table import COMPOSED
from .file.file_signatures import kind_of
from .file.model_file import ModelFile
from .file.recipe import Overridable, Recipe
from .file.weight_files import check_locations
from .graph_importer import GraphImporter
from .onnx_functions import expanded
from .onnx_values import ONNX_DOMAINS
from .rewrites.string_to_index import without_strings
from .rewrites.rewrite_table import UPGRADES

if TYPE_CHECKING:
    from onnx import ModelProto


def parse(file: ModelFile, whole: bool = False) -> ModelProto:
    """Return a file's ModelProto with functions expanded. whole: include the data of large tensors (see skeleton).

    Raise GraphError if the file is not an ONNX model.
    """
    model = file.proto if file.data is None else _decoded(file.data if whole else file.skeleton, file)
    if model is None or not model.HasField("graph"):
        raise graph_error(
            "model", file.name, f"expected an ONNX model, given {_told(file) or 'a file that holds no graph'}"
        )
    _check_text(model, file)
    check_locations(file)
    return expanded(model, _is_claimed, file.name, in_place=file.proto is None)


def _is_claimed(op: str, domain: str, dtype: str) -> bool:
    """Return whether the engine or the importer supports an operator with this dtype of its first input, or with any dtype if it is ""."""
    named = f"{domain}::{op}" if domain else op
    if dtype and named in _input_dtypes() and named not in COMPOSED:
        return dtype in _input_dtypes()[named]
    return _pumice.has_operator(op, domain) or named in COMPOSED or named in UPGRADES


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


def _decoded(data: Bytes, file: ModelFile) -> ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except Exception as error:  # the exception class differs between versions of protobuf
        given = _told(file) or f"bytes that the ONNX format does not allow ({error})"
        raise graph_error("model", file.name, f"expected an ONNX model, given {given}") from None
    return model


def _told(file: ModelFile) -> str:
    """Return a short description of what the file seems to be instead of a model; "" if unknown."""
    return "" if file.data is None else kind_of(file.data)


def opsets(model: ModelProto) -> dict[str, int]:
    """Return the opset version of each domain, the latest if listed repeatedly; ONNX's own domain is ""."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in ONNX_DOMAINS else entry.domain
        versions[domain] = max(entry.version, versions.get(domain, 0))
    return versions


def _warnings(model: ModelProto) -> list[str]:
    """Return a warning for each declaration in the file that is not followed as written."""
    warnings = []
    if model.ir_version > onnx.IR_VERSION:
        warnings.append(
            f"ir_version {model.ir_version} is newer than {onnx.IR_VERSION}, the newest that the package onnx "
            f"{onnx.__version__} knows: what a newer format adds is not read"
        )
    given: dict[str, list[int]] = {}
    for entry in model.opset_import:
        given.setdefault("" if entry.domain in ONNX_DOMAINS else entry.domain, []).append(entry.version)
    for domain, versions in given.items():
        if len(versions) > 1:
            listed = ", ".join(map(str, versions))
            warnings.append(
                f"the operators of domain '{domain or 'ai.onnx'}' are imported {len(versions)} times, of versions {listed}: "
                f"{max(versions)} is taken"
            )
    return [bounded(warning) for warning in warnings]


def recipe_of(model: ModelProto, file: ModelFile, overridable: Overridable = False) -> Recipe:
    """Return the Recipe of a parsed model, including a list of unsupported features. overridable: initializers to expose as inputs.

    Raise GraphError if the model breaks a rule, BindingError if a name in `overridable` is not such an initializer.
    """
    recipe = GraphImporter(model.graph, opsets(model), file, wanted=overridable).recipe()
    recipe = without_strings(recipe)
    return recipe._replace(
        metadata={entry.key: entry.value for entry in model.metadata_props},
        warnings=_warnings(model),
        plain=not any(node.qualified_op in COMPOSED for node in recipe.nodes),
    )
