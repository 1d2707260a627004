"""Generates inputs for validation from the model's declared types and the first nodes that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...importer.file.model_file import ModelFile
from ...importer.parse_onnx import parse_model
from ...model.input_sources import GeneratedInputs, Shapes, generate_random_inputs, generate_random_values
from ...model.model import Model
from ...model.model_values import ModelValue

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_MAX_STEPS = 32  # maximum number of tensors to follow from an input
_IMAGE_CHANNELS = (1, 3)
# Operators that forward the values of their first input unchanged.
_SHAPE_OPERATORS = (
    "Cast",
    "Expand",
    "Flatten",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
# Operators that may come between an image input and the first convolution.
_SCALING_OPERATORS = (
    "Add",
    "BatchNormalization",
    "Clip",
    "Div",
    "InstanceNormalization",
    "Mul",
    "Pad",
    "Resize",
    "Sub",
    "Upsample",
)
_RECURRENT_OPERATORS = ("GRU", "LSTM", "RNN")
_CONV_OPERATORS = ("Conv", "ConvInteger", "QLinearConv")
_FEATURE_OPERATORS = (
    "Attention",
    "Einsum",
    "Gemm",
    "LayerNormalization",
    "MatMul",
    "MultiHeadAttention",
    "RMSNormalization",
    *_RECURRENT_OPERATORS,
)
_QUANTIZED_OPERATORS = ("ConvInteger", "DequantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul")
# Maps an operator to the indices of inputs that are sizes or counts.
_SIZE_INPUTS = {
    ("Expand", 1),
    ("Reshape", 1),
    ("ConstantOfShape", 0),
    ("TopK", 1),
    ("Tile", 1),
    ("Loop", 0),
    ("Range", 1),
}
# For com.microsoft's EmbedLayerNormalization: maps the index of an ids input to that of its embedding table.
_EMBEDDING_TABLES = {0: 2, 1: 4, 8: 3}


class _InputUse(NamedTuple):
    """A node that uses a model input, the input's index at that node, and whether image scaling comes before it."""

    node: NodeProto
    position: int
    is_scaled: bool

    @property
    def op_and_position(self) -> tuple[str, int]:
        return self.node.op_type, self.position


class _InputUses:
    """Finds the nodes of a graph that use its inputs."""

    def __init__(self, graph: GraphProto) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    self.shapes[node.output[0]] = tuple(attribute.t.dims)
        self.readers: dict[str, list[tuple[NodeProto, int]]] = {}
        for node in graph.node:
            for position, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, position))

    def find_uses(self, name: str) -> list[_InputUse]:
        """Return the first nodes that use the values of an input instead of only forwarding them."""
        uses: list[_InputUse] = []
        seen: set[tuple[str, bool]] = set()
        pending = [(name, False)]
        while pending:
            tensor = pending.pop(0)
            if tensor in seen or len(seen) > _MAX_STEPS:
                continue
            seen.add(tensor)
            for node, position in self.readers.get(tensor[0], ()):
                uses.append(_InputUse(node, position, tensor[1]))
                if node.output and position == 0 and node.op_type in (*_SHAPE_OPERATORS, *_SCALING_OPERATORS):
                    pending.append((node.output[0], tensor[1] or node.op_type in _SCALING_OPERATORS))
        return uses

    def find_embedding_table(self, use: _InputUse) -> tuple[str, int] | None:
        """Return the name of the embedding table that these ids index, and its number of rows."""
        node, (op, position) = use.node, use.op_and_position
        axis, source = 0, 0
        if op == "EmbedLayerNormalization" and position in _EMBEDDING_TABLES:
            source = _EMBEDDING_TABLES[position]
        elif (op == "Gather" and position == 1) or (op == "GatherElements" and position == 1):
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        else:
            return None
        name = node.input[source] if source < len(node.input) else ""
        shape = self.shapes.get(name)
        return (name, shape[axis]) if shape and -len(shape) <= axis < len(shape) and shape[axis] > 0 else None

    def count_channels(self, use: _InputUse) -> int:
        """Return the number of input channels of a convolution; 0 if unknown."""
        node = use.node
        weight = {"QLinearConv": 3}.get(node.op_type, 1)
        shape = self.shapes.get(node.input[weight]) if len(node.input) > weight else None
        groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
        return shape[1] * groups if shape and len(shape) > 1 else 0


def generate_inputs(model: Model, sizes: Mapping[str, int] | None = None) -> GeneratedInputs:
    """Return inputs by name, and a sentence about each that says how it was generated. All calls return the same inputs.

    Token ids are valid indices of their table, images are in 0..1 (0..255 for bytes), masks are ones, positions count
    up, and lengths are valid. Inputs of GEMMs and normalisations are normally distributed; others are in 0..1.
    sizes: values of open dimensions, by dimension name, or by input and axis as in "x[1]". Raise InputError if a name
    in `sizes` is unknown or no inputs can be generated.
    """
    input_uses = _InputUses(parse_model(ModelFile(model.source, model.folder)).graph)

    def draw(value: ModelValue, shapes: Shapes, random: np.random.Generator) -> tuple[Array, str]:
        uses = input_uses.find_uses(value.name)
        if value.dtype.kind in "biu":
            return _generate_integers(value, shapes, random, input_uses, uses)
        return _generate_floats(value, shapes, random, input_uses, uses)

    return generate_random_inputs(model, sizes or {}, draw)


def _generate_integers(
    value: ModelValue, shapes: Shapes, random: np.random.Generator, input_uses: _InputUses, uses: list[_InputUse]
) -> tuple[Array, str]:
    """Generate integers or booleans. Return them and a sentence about how they were generated."""
    shape, name = shapes[value.name], value.name.lower()
    ones = np.ones(shape, value.dtype)
    tables = [(found, use.node.op_type) for use in uses if (found := input_uses.find_embedding_table(use))]
    if "mask" in name:
        return ones, "a mask of ones, by its name"
    if tables:
        (table, rows), op = min(tables, key=lambda table_and_op: table_and_op[0][1])
        where = f"the {rows} rows of '{table}', which {op} reads"
        if "pos" in name and shape:
            counted = np.broadcast_to(np.arange(shape[-1]) % rows, shape)
            return counted.astype(value.dtype), f"positions counting from 0, within {where}"
        return random.integers(0, rows, shape).astype(value.dtype), f"ids within {where}"
    if length := _find_sequence_length(value, shapes, uses):
        return ones * value.dtype.type(length[0]), f"lengths of {length[0]}, {length[1]}"
    if _is_mask(uses):
        return ones, "a mask of ones, by the nodes that read it"
    if value.dtype == np.uint8 and _is_image(shape, input_uses, uses):
        return random.integers(0, 256, shape).astype(value.dtype), "an image of bytes from 0 to 255"
    if (
        value.dtype.itemsize == 1
        and value.dtype.kind in "iu"
        and any(use.node.op_type in _QUANTIZED_OPERATORS for use in uses)
    ):
        ends = np.iinfo(value.dtype)
        return random.integers(ends.min, ends.max, shape, endpoint=True).astype(value.dtype), "all numbers of the type"
    if count := next((use for use in uses if use.op_and_position in _SIZE_INPUTS), None):
        return ones, f"ones, as {count.node.op_type} reads a size or a count"
    if any(use.op_and_position in (("If", 0), ("Loop", 1)) for use in uses):
        return ones, "true, for it is a condition"
    return generate_random_values(value, shapes, random)


def _generate_floats(
    value: ModelValue, shapes: Shapes, random: np.random.Generator, input_uses: _InputUses, uses: list[_InputUse]
) -> tuple[Array, str]:
    """Generate floats or complex numbers. Return them and a sentence about how they were generated."""
    shape = shapes[value.name]
    ops = {use.node.op_type for use in uses}
    if "mask" in value.name.lower():
        if "Add" in ops and not ops & {"Mul", "Sub"}:
            return np.zeros(shape, value.dtype), "a mask of zeros, for it is added"
        return np.ones(shape, value.dtype), "a mask of ones, by its name"
    if _is_image(shape, input_uses, uses):
        return random.random(shape).astype(value.dtype), "an image of numbers from 0 to 1"
    reader = next(
        (use.node.op_type for use in uses if use.node.op_type in _FEATURE_OPERATORS and not use.is_scaled), ""
    )
    if reader and value.dtype.kind == "f":
        return random.standard_normal(shape).astype(value.dtype), f"normal numbers, for {reader} reads them"
    return generate_random_values(value, shapes, random)


def _is_image(shape: tuple[int, ...], input_uses: _InputUses, uses: list[_InputUse]) -> bool:
    convolutions = [use for use in uses if use.node.op_type in _CONV_OPERATORS and use.position == 0]
    counts = [input_uses.count_channels(use) for use in convolutions]
    if any(counts):
        return len(shape) in (3, 4) and any(count in _IMAGE_CHANNELS for count in counts)
    return bool(convolutions) and len(shape) == 4 and (shape[1] in _IMAGE_CHANNELS or shape[-1] in _IMAGE_CHANNELS)


def _find_sequence_length(value: ModelValue, shapes: Shapes, uses: list[_InputUse]) -> tuple[int, str] | None:
    """Return the size of the axis that this tensor of sequence lengths refers to, and why; None for other inputs."""
    for use in uses:
        op, position = use.op_and_position
        source = use.node.input[0] if use.node.input else ""
        if (
            (op in _RECURRENT_OPERATORS and position == 4) or (op == "ReverseSequence" and position == 1)
        ) and shapes.get(source):
            axis = next((other_name.i for other_name in use.node.attribute if other_name.name == "time_axis"), 0)
            return shapes[source][axis], f"the whole of '{source}', for {op} reads them"
    name = value.name.lower()
    if "length" in name or "seq_len" in name or name.endswith(("_len", "_lens")):
        others = [
            (other_name, shape) for other_name, shape in shapes.items() if other_name != value.name and len(shape) > 1
        ]
        if others and len(shapes[value.name]) <= 1:
            source, shape = others[0]
            return shape[1], f"the second axis of '{source}', by the name"
    return None


def _is_mask(uses: list[_InputUse]) -> bool:
    """Return whether the input is used as a mask: it is subtracted from 1 or selects between two values."""
    return any(
        use.op_and_position in (("Where", 0), ("Equal", 0), ("Sub", 1), ("And", 0), ("And", 1), ("Not", 0))
        for use in uses
    )
