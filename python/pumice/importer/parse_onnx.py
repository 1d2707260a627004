"""Parse ONNX files into Recipes. Files are untrusted: their content is checked here or by the engine's Graph."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import onnx

import pumice._pumice as _pumice

from ..base.element_types import Bytes
from ..base.errors import graph_error, truncate_middle
from .file.file_signatures import detect_file_type
from .file.graph_recipe import GraphRecipe, Overridable
from .file.model_file import ModelFile
from .file.weight_files import check_tensor_locations
from .graph_importer import GraphImporter
from .onnx_functions import expand_functions
from .onnx_values import ONNX_DOMAINS
from .rewrites.rewrite_table import UPGRADES
from .rewrites.string_to_index import convert_strings
from .translators.operator_table import TRANSLATORS

if TYPE_CHECKING:
    from onnx import ModelProto


def parse_model(file: ModelFile, with_weights: bool = False) -> ModelProto:
    """Return a file's ModelProto with functions expanded. with_weights: include the data of large tensors.

    Raise GraphError if the file is not an ONNX model.
    """
    model = file.proto if file.data is None else _parse_proto(file.data if with_weights else file.stripped_data, file)
    if model is None or not model.HasField("graph"):
        raise graph_error(
            "model", file.name, f"expected an ONNX model, given {_describe_file(file) or 'a file that holds no graph'}"
        )
    _check_utf8(model, file)
    check_tensor_locations(file)
    return expand_functions(model, _is_supported, file.name, in_place=file.proto is None)


def _is_supported(op: str, domain: str, dtype: str) -> bool:
    """Return whether the engine or the importer supports an operator for this dtype of its first input ("" matches any dtype)."""
    full_op_name = f"{domain}::{op}" if domain else op
    if dtype and full_op_name in _get_first_input_dtypes() and full_op_name not in TRANSLATORS:
        return dtype in _get_first_input_dtypes()[full_op_name]
    return _pumice.has_operator(op, domain) or full_op_name in TRANSLATORS or full_op_name in UPGRADES


@functools.cache
def _get_first_input_dtypes() -> dict[str, set[str]]:
    """Return the dtypes that each engine operator supports for its first input, keyed by operator name."""
    return {row.name: set(row.inputs[0].dtypes) for row in _pumice.operators() if row.inputs}


def _check_utf8(message: Any, file: ModelFile) -> None:
    """Raise GraphError for a string field that is not UTF-8; protobuf returns such a field as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE) or isinstance(value, str):
            continue
        for item in [value] if isinstance(value, bytes) or hasattr(value, "DESCRIPTOR") else value:
            if isinstance(item, bytes):
                raise graph_error("model", file.name, f"expected UTF-8 text as {field.full_name}, given {item[:40]!r}")
            if not isinstance(item, str):
                _check_utf8(item, file)


def _parse_proto(data: Bytes, file: ModelFile) -> ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except Exception as error:  # the exception class depends on the protobuf version
        description = _describe_file(file) or f"bytes that the ONNX format does not allow ({error})"
        raise graph_error("model", file.name, f"expected an ONNX model, given {description}") from None
    return model


def _describe_file(file: ModelFile) -> str:
    """Return a description of the file's actual type for an error message; "" if unknown."""
    return "" if file.data is None else detect_file_type(file.data)


def get_opsets(model: ModelProto) -> dict[str, int]:
    """Return domain -> opset version, the latest if a domain is listed repeatedly. ONNX's own domain is ""."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in ONNX_DOMAINS else entry.domain
        versions[domain] = max(entry.version, versions.get(domain, 0))
    return versions


def _make_import_warnings(model: ModelProto) -> list[str]:
    """Return warnings about a newer IR version and about domains with several opset imports."""
    warnings = []
    if model.ir_version > onnx.IR_VERSION:
        warnings.append(
            f"ir_version {model.ir_version} is newer than {onnx.IR_VERSION}, the newest that the package onnx "
            f"{onnx.__version__} knows: additions of a newer format are not read"
        )
    versions_by_domain: dict[str, list[int]] = {}
    for entry in model.opset_import:
        versions_by_domain.setdefault("" if entry.domain in ONNX_DOMAINS else entry.domain, []).append(entry.version)
    for domain, versions in versions_by_domain.items():
        if len(versions) > 1:
            version_list = ", ".join(map(str, versions))
            warnings.append(
                f"the operators of domain '{domain or 'ai.onnx'}' are imported {len(versions)} times, with versions {version_list}: "
                f"{max(versions)} is used"
            )
    return [truncate_middle(warning) for warning in warnings]


def make_recipe(model: ModelProto, file: ModelFile, overridable: Overridable = False) -> GraphRecipe:
    """Convert a parsed model to a GraphRecipe, in which unsupported features are listed. overridable: initializers to expose as inputs.

    Raise GraphError if the model is invalid, BindingError if a name in `overridable` is not an initializer that is also an input.
    """
    recipe = GraphImporter(model.graph, get_opsets(model), file, overridable_request=overridable).import_graph()
    recipe = convert_strings(recipe)
    return recipe._replace(
        metadata={entry.key: entry.value for entry in model.metadata_props},
        warnings=_make_import_warnings(model),
        plain=not any(node.qualified_op in TRANSLATORS for node in recipe.nodes),
    )
