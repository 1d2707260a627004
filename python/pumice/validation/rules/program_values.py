"""Bounded tensors from a program's constants, inputs and stored tensors, and attributes of its nodes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.element_types import Array
from .bounded_tensor import (
    BoundedTensor,
    Value,
    compute_storage_distance,
    widen_known_errors,
)
from .float_types import FloatType, ProgramTypes, dtype_name, is_float

if TYPE_CHECKING:
    from onnx import NodeProto


def parse_attributes(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as Python values: tensors as arrays, strings as str."""
    attributes_by_name: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [item.decode(errors="replace") for item in value]
        attributes_by_name[attribute.name] = value
    return attributes_by_name


# Storage type -> the types that it represents exactly.
_EXACTLY_REPRESENTABLE_TYPES = {
    "float32": ("float16", "bfloat16", "float32"),
    "float16": ("float16",),
    "bfloat16": ("bfloat16",),
}


def _compute_storage_distance(array: Array, exact_value: Array, storage: FloatType) -> Array | None:
    """Return each value's distance to the nearest number of the type; None if the type represents all values."""
    return (
        None
        if dtype_name(array.dtype) in _EXACTLY_REPRESENTABLE_TYPES.get(storage.name, ())
        else compute_storage_distance(exact_value, storage)
    )


def make_bounded_constant(array: Array, types: ProgramTypes) -> BoundedTensor:
    """Return a constant whose bound covers rounding it to storage and leaving it exact (V5).

    Kernels read some constants in float32, and GEMM operands in the storage type. A node with a constant beyond float16
    computes in float32. Constants beyond bfloat16 saturate.
    """
    if not is_float(array.dtype):
        return BoundedTensor(array, None, array.dtype, constant=True)
    exact_value = np.asarray(array, np.float64)
    storage = types.get_constant_type(array.dtype)
    if types.constant_rounding == "rounded":
        return BoundedTensor(storage.store_constant(exact_value), None, array.dtype, stored=True, constant=True)
    if types.constant_rounding == "scaled":
        return BoundedTensor(exact_value, np.abs(exact_value) * storage.unit + storage.step, array.dtype, stored=True)
    return BoundedTensor(
        exact_value, _compute_storage_distance(array, exact_value, storage), array.dtype, stored=True, constant=True
    )


def make_scaled_constant(value: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Return a constant whose bound covers multiplying it by another constant before it is rounded to storage."""
    storage = types.get_storage_type(value.dtype)
    if not value.is_float or storage.unit <= 2.0**-24:
        return value
    return BoundedTensor(value.value, np.abs(value.value) * storage.unit + storage.step, value.dtype, stored=True)


def read_constant_node(node: NodeProto) -> Array:
    """Return the value of a Constant node."""
    (attribute,) = node.attribute
    value = parse_attributes(node)[attribute.name]
    if attribute.name == "sparse_value":
        values, indices = numpy_helper.to_array(value.values), numpy_helper.to_array(value.indices)
        dense = np.zeros(list(value.dims), values.dtype)
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
        dense.reshape(-1)[flat] = values
        return dense
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    is_string = attribute.name in ("value_string", "value_strings")
    return np.asarray(value, object if is_string else kinds.get(attribute.name))


def make_bounded_input(array: Any, types: ProgramTypes) -> Value:
    """Return a model input with the error of rounding it to storage."""
    if isinstance(array, list | tuple):
        return [make_bounded_input(item, types) for item in array]
    if array is None:
        return None
    array = np.asarray(array)
    if not is_float(array.dtype):
        return BoundedTensor(strings_to_objects(array))
    exact_value = np.asarray(array, np.float64)
    storage = types.get_storage_type(array.dtype)
    error = _compute_storage_distance(array, exact_value, storage)
    if error is not None and types.independent_errors:
        error = widen_known_errors(error, exact_value, storage)
    return BoundedTensor(exact_value, error, array.dtype, stored=True)


def make_bounded_device_tensor(array: Array, types: ProgramTypes) -> BoundedTensor:
    """Return a device tensor with its read-back error: reading a float32 tensor back in 16 bits rounds it once."""
    if not is_float(array.dtype):
        return BoundedTensor(array, None, array.dtype)
    storage, read = types.get_storage_type(array.dtype), types.get_read_back_type(array.dtype)
    value = np.asarray(array, np.float64)
    if read.unit < storage.unit or (read == storage and not read.is_16_bit):
        # The program keeps some tensors in float32, and some kernels round what they read.
        return BoundedTensor(value, _compute_storage_distance(array, value, storage), array.dtype, stored=True)
    error = np.abs(value) * read.unit + read.step
    return BoundedTensor(
        value, np.where(np.isinf(value), np.inf, np.where(np.isnan(value), 0.0, error)), array.dtype, stored=True
    )


def strings_to_objects(value: Any) -> Array:
    """Return an array; strings become objects."""
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UT" else array


def run_onnx_reference(node: NodeProto, arrays: list[Any], opsets: Mapping[str, int]) -> list[Any]:
    """Run a node in onnx.reference. Raise whatever onnx.reference raises."""
    from onnx.reference import ReferenceEvaluator

    names = [name for name, array in zip(node.input, arrays, strict=False) if name and array is not None]
    feeds = {name: array for name, array in zip(node.input, arrays, strict=False) if name and array is not None}
    single_node = onnx.NodeProto()
    single_node.CopyFrom(node)
    inputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([single_node], "one", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports)).run(None, feeds)
    result_iterator = iter(results)
    return [next(result_iterator) if name else None for name in node.output]
