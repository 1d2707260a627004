"""Evaluates a single node with ONNX Runtime, or with onnx's reference if ONNX Runtime lacks it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TypeProto, helper
from onnx.reference import ReferenceEvaluator

from random_nodes.normalized import NORMALIZED, normalized

Array = np.ndarray[Any, Any]
Data = Any  # an array, or a list of arrays for a sequence
IR_VERSION = 10

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.intra_op_num_threads = OPTIONS.inter_op_num_threads = 1
OPTIONS.log_severity_level = 4


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_error = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array, given: dict[str, Any]) -> Array:
    if given.get("approximate") == b"tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _error(x / math.sqrt(2)))


def _shrink(x: Array, given: dict[str, Any]) -> Array:
    edge, bias = given.get("lambd", 0.5), given.get("bias", 0.0)
    return np.where(x < -edge, x + bias, np.where(x > edge, x - bias, 0.0))


# Functions in float64; both oracles compute them in float32.
DOUBLES: dict[str, Callable[[Array, dict[str, Any]], Array]] = {
    "Erf": lambda x, given: _error(x),
    "Gelu": _gelu,
    "Shrink": _shrink,
    "HardSwish": lambda x, given: x * np.clip(x / 6 + 0.5, 0, 1),
    "Celu": lambda x, given: (
        np.maximum(x, 0) + np.minimum(0, given.get("alpha", 1.0) * np.expm1(x / given.get("alpha", 1.0)))
    ),
    "Swish": lambda x, given: x / (1 + np.exp(-given.get("alpha", 1.0) * x)),
    "Mish": lambda x, given: x * np.tanh(np.log1p(np.exp(x))),
}
# ONNX Runtime resizes axes other than the last ones incorrectly, and computes DFT angles in float32.
REFERENCE_FIRST = frozenset({"Resize", "DFT", "STFT"})

# On empty tensors, ONNX Runtime crashes in the first of these (in TopK and DFT up to version 1.30), hangs in a
# convolution, and leaves a matmul's result uninitialised.
WRONG_OF_NOTHING = frozenset(
    {"Einsum", "LSTM", "GRU", "RNN", "Unique", "TopK", "DFT", "Conv", "ConvTranspose", "ConvInteger", "MatMul", "Gemm"}
)


class RefusedError(Exception):
    """Raised if every oracle rejects the node, with the reason."""


# Operators with windows, and the input index of the filters; 0 for none.
WINDOWED = {
    "Conv": 1,
    "ConvInteger": 1,
    "QLinearConv": 3,
    "MaxPool": 0,
    "AveragePool": 0,
    "LpPool": 0,
}
POOLED = frozenset({"MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"})


def window_refusal(node: NodeProto, shapes: Sequence[tuple[int, ...]]) -> str:
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    filters = WINDOWED[node.op_type]
    kernel = list(given.get("kernel_shape", ()))
    if filters:
        names = [name for name in dict.fromkeys(node.input) if name]
        kernel = list(shapes[names.index(node.input[filters])][2:])
    sizes = shapes[0][2:]
    mode = given.get("auto_pad", b"NOTSET")
    if mode not in (b"NOTSET", b"VALID") or len(kernel) != len(sizes):
        return ""
    pads = given.get("pads", [0] * (2 * len(sizes)))
    for k, size in enumerate(sizes):
        extent = (kernel[k] - 1) * given.get("dilations", [1] * len(sizes))[k] + 1
        room = size + pads[k] + pads[k + len(sizes)] - extent
        if given.get("ceil_mode", 0) and mode == b"NOTSET":
            # One window may extend past the end if it starts inside the input or the leading padding.
            stride = given.get("strides", [1] * len(sizes))[k]
            last = -(-room // stride)
            room = last - int(last * stride >= size + pads[k])
        if room < 0:
            return "a window larger than its padded axis"
    return ""


def diagonal_refusal(node: NodeProto, shapes: Sequence[tuple[int, ...]]) -> str:
    """Reject diagonals where NumPy, used by onnx's reference, broadcasts an axis of 1 to one of 0."""
    equation = next(one.s.decode() for one in node.attribute if one.name == "equation")
    given = dict(zip(dict.fromkeys(node.input), shapes, strict=True))  # repeated operands have one shape
    for name, term in zip(node.input, equation.replace(" ", "").split("->")[0].split(","), strict=True):
        shape = given[name]
        front, _, back = term.partition("...")
        pairs = {*zip(front, shape, strict=False), *zip(back[::-1], shape[::-1], strict=False)}
        if len(pairs) > len({letter for letter, _ in pairs}):
            return f"axes of several sizes for one letter of {term}"
    return ""


def error_of_case(node: NodeProto, data: Sequence[Data]) -> str:
    """Return why ONNX forbids operands that both oracles accept; empty if it does not."""
    shapes = [() if isinstance(one, list) else one.shape for one in data]
    if node.op_type == "PRelu" and len(data) > 1:
        x, slope = shapes[:2]
        padded = (1,) * (len(x) - len(slope)) + slope
        if len(slope) > len(x) or any(b not in (1, a) for a, b in zip(x, padded, strict=True)):
            return "a slope that does not broadcast to x in one direction"
    if node.op_type in ("GroupNormalization", "InstanceNormalization", "BatchNormalization"):
        channels = (
            [len(shape) == 1 and shape[0] == shapes[0][1] for shape in shapes[1:]] if len(shapes[0]) > 1 else [False]
        )
        if not all(channels):
            return "a value for each channel is expected"
    if node.op_type == "Compress" and len(data) > 1:
        if len(shapes[1]) != 1:
            return "a condition that is no list"
        axis = next((a.i for a in node.attribute if a.name == "axis"), None)
        whole = int(np.prod(shapes[0], dtype=int))
        known = axis is None or -len(shapes[0]) <= axis < len(shapes[0])
        if known and shapes[1][0] > (whole if axis is None else shapes[0][axis]):
            return "a condition longer than its axis"
    if node.op_type == "DepthToSpace" and len(shapes[0]) == 4:
        size = next(a.i for a in node.attribute if a.name == "blocksize")
        if shapes[0][1] % (size * size):
            return "channels that are no whole blocks"
    if node.op_type in ("DFT", "STFT") and shapes[0][-1:] == (2,):
        given = {one.name: one.i for one in node.attribute}
        if given.get("onesided", int(node.op_type == "STFT")) and not given.get("inverse", 0):
            return "one side of the spectrum of complex numbers"
    if node.op_type in POOLED and 0 in shapes[0][1:] and shapes[0][0] != 0:
        return "an axis of nothing to pool"
    if node.op_type in WINDOWED:
        return window_refusal(node, shapes)
    if node.op_type == "Einsum":
        return diagonal_refusal(node, shapes)
    return ""


def type_of(data: Data) -> TypeProto:
    if isinstance(data, list):
        return helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(data[0].dtype), None)
        )
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(data.dtype), [None] * data.ndim)


def model_of(node: NodeProto, names: Sequence[str], data: Sequence[Data], opset: int) -> onnx.ModelProto:
    given = [helper.make_value_info(name, type_of(one)) for name, one in zip(names, data, strict=True)]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "one", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


class OneNode:
    """`names`: the node's inputs and the captures of its bodies, each once."""

    def __init__(self, node: NodeProto, names: Sequence[str], data: Sequence[Data], opset: int) -> None:
        self.node, self.names, self.opset = node, list(names), opset
        self.model = model_of(node, names, data, opset)
        self.dtypes: list[Any] | None = None
        self.session: onnxruntime.InferenceSession | None = None
        self.reference: ReferenceEvaluator | None = None
        self.refusal = ""
        if not self.own(data):
            try:
                self.session = onnxruntime.InferenceSession(
                    self.model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
                )
            except Exception as error:
                self.refusal = f"{type(error).__name__}: {error}"

    def __call__(self, data: Sequence[Data]) -> list[Data]:
        """Return the named outputs. Raise RefusedError if no oracle accepts the node."""
        if why := error_of_case(self.node, data):
            raise RefusedError(why)
        if self.own(data):
            given = {one.name: helper.get_attribute_value(one) for one in self.node.attribute}
            with np.errstate(all="ignore"):
                return [np.asarray(DOUBLES[self.node.op_type](data[0], given))]
        first = self.by_reference if self.session is None or self.reference_first(data) else self.by_runtime
        results = first(data)
        if self.node.op_type in NORMALIZED:
            return [normalized(self.node, dict(zip(self.names, data, strict=True)), self.opset)]
        return results

    def reference_first(self, data: Sequence[Data]) -> bool:
        if self.by_torch() and self.session is not None:
            return 1 not in np.shape(self.by_runtime(data)[0])[2:]
        return self.node.op_type in REFERENCE_FIRST

    def by_torch(self) -> bool:
        """Return whether it is a Resize with pytorch_half_pixel, which onnx's reference computes wrongly for output size 1."""
        modes = [one.s for one in self.node.attribute if one.name == "coordinate_transformation_mode"]
        return self.node.op_type == "Resize" and modes == [b"pytorch_half_pixel"]

    def by_other(self, data: Sequence[Data]) -> list[Data]:
        """Return the results of the other oracle. Raise RefusedError if it rejects the node."""
        if why := error_of_case(self.node, data):
            raise RefusedError(why)
        return self.by_runtime(data) if self.reference_first(data) else self.by_reference(data)

    def by_runtime(self, data: Sequence[Data]) -> list[Data]:
        if self.session is None:
            raise RefusedError(self.refusal)
        if self.node.op_type in WRONG_OF_NOTHING and any(not np.size(one) for one in data if not isinstance(one, list)):
            return self.by_reference(data)
        try:
            return list(self.session.run(None, dict(zip(self.names, data, strict=True))))
        except Exception as error:
            raise RefusedError(f"{type(error).__name__}: {error}") from error

    def own(self, data: Sequence[Data]) -> bool:
        return self.node.op_type in DOUBLES and data[0].dtype == np.float64

    def by_reference(self, data: Sequence[Data]) -> list[Data]:
        """Return the results of onnx's Python executor; low-precision floats are computed in float32 and rounded at the end."""
        if self.node.op_type == "Loop" and not self.node.input[1]:
            raise RefusedError("onnx's reference takes a condition left out for a false one")
        wide = [widened(one) for one in data]
        narrow = next((one.dtype for one in data if not isinstance(one, list) and one.dtype == np.float16), None)
        try:
            wide = [np.asarray(one) if not isinstance(one, list) else one for one in wide]
            if self.reference is None:
                self.reference = ReferenceEvaluator(self.model)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results = self.reference.run(None, dict(zip(self.names, wide, strict=True)))
        except Exception as error:
            raise RefusedError(f"{self.refusal}; reference: {type(error).__name__}: {error}") from error
        results = [np.asarray(one) if not isinstance(one, list) else one for one in results]
        if self.session is None and self.by_torch() and 1 in np.shape(results[0])[2:]:
            raise RefusedError(f"{self.refusal}; reference: another place in one element")
        if narrow is not None:
            if self.types() is None:
                raise RefusedError(f"{self.refusal}; its result's type is not known")
            results = [
                one.astype(t) if not isinstance(one, list) and t == np.float16 else one
                for one, t in zip(results, self.types() or [], strict=True)
            ]
        return results

    def types(self) -> list[Any] | None:
        """Return the element types of the outputs by inference; None if it cannot tell."""
        if self.dtypes is None:
            given = {one.name: one.type for one in self.model.graph.input}
            try:
                schema = onnx.defs.get_schema(self.node.op_type, self.opset, "")
                found = onnx.shape_inference.infer_node_outputs(
                    schema, self.node, given, opset_imports=self.model.opset_import
                )
                self.dtypes = [
                    helper.tensor_dtype_to_np_dtype(found[name].tensor_type.elem_type)
                    for name in self.node.output
                    if name
                ]
            except Exception:
                return None
        return self.dtypes


def widened(data: Data) -> Data:
    if isinstance(data, list):
        return [widened(one) for one in data]
    return data.astype(np.float32) if data.dtype == np.float16 else data


def epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0


def same(one: Data, other: Data) -> bool:
    """Return whether both are equal, with equal shape and type; NaN equals NaN, and -0 equals 0."""
    if isinstance(one, list) or isinstance(other, list):
        return (
            isinstance(one, list)
            and isinstance(other, list)
            and len(one) == len(other)
            and all(same(a, b) for a, b in zip(one, other, strict=True))
        )
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def describe(got: Data, expected: Data) -> str:
    """Describe the first position where two values differ."""
    if isinstance(got, list) or isinstance(expected, list):
        return f"{got} instead of {expected}"[:300]
    if got.dtype != expected.dtype:
        return f"{got.dtype} instead of {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {list(got.shape)} instead of {list(expected.shape)}"
    with np.errstate(all="ignore"):
        if got.dtype.kind == "f":
            off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
            off = np.where(np.isnan(got) != np.isnan(expected), np.inf, np.nan_to_num(off, nan=0.0))
        else:
            off = (got != expected).astype(np.float64)
    at = np.unravel_index(int(np.argmax(off)), off.shape)
    count = int((off > 0).sum())
    return f"[{', '.join(map(str, at))}]: {got[at]!r} instead of {expected[at]!r} ({count} of {got.size} differ)"
