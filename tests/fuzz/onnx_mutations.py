"""Mutations of valid ONNX files: changes of protobuf fields, and of bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

SIZES = (0, 1, 2, 3, 7, 64, -1, -2, 1 << 15, 1 << 31, 1 << 40, (1 << 62) - 1, -(1 << 63))
INTEGERS = (*SIZES, (1 << 63) - 1, -3, 5, 13, 100)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 3.4e38, float("inf"), float("-inf"), float("nan"))
NAMES = ("", "x", "y", "w", "\u00e9\u4e2d", "a/b:0", "n" * 5000, "../x", "\0", "constant_0", "value_1")
OPERATORS = (
    *(
        "Add",
        "Mul",
        "Pow",
        "MatMul",
        "Gemm",
        "Conv",
        "ConvTranspose",
        "Relu",
        "Softmax",
        "ReduceMean",
        "Reshape",
        "Transpose",
    ),
    *(
        "Concat",
        "Slice",
        "Gather",
        "GatherND",
        "ScatterND",
        "Pad",
        "Resize",
        "Expand",
        "Tile",
        "Where",
        "Cast",
        "Shape",
        "Range",
    ),
    *(
        "NonZero",
        "TopK",
        "If",
        "Loop",
        "Scan",
        "Split",
        "MaxPool",
        "AveragePool",
        "LSTM",
        "Einsum",
        "OneHot",
        "CumSum",
        "Unsqueeze",
    ),
    *(
        "Squeeze",
        "ConstantOfShape",
        "Identity",
        "Dropout",
        "BatchNormalization",
        "LayerNormalization",
        "Attention",
        "Compress",
    ),
    *(
        "SequenceConstruct",
        "SequenceAt",
        "Optional",
        "OptionalGetElement",
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "Wobble",
    ),
)

Graph = onnx.GraphProto
Change = Callable[[random.Random, Any], None]


def graphs_of(graph: Graph) -> list[Graph]:
    """Return the graph and all of its subgraphs."""
    found = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                found += graphs_of(inner)
    return found


def names_of(graph: Graph) -> list[str]:
    names = [value.name for value in (*graph.input, *graph.initializer)]
    return [*names, *(name for node in graph.node for name in node.output)]


def any_name(chance: random.Random, graph: Graph) -> str:
    known = names_of(graph)
    return chance.choice(known) if known and chance.random() < 0.8 else chance.choice(NAMES)


# ---- nodes


def change_operator(chance: random.Random, graph: Graph) -> None:
    chance.choice(graph.node).op_type = chance.choice(OPERATORS)


def drop_node(chance: random.Random, graph: Graph) -> None:
    del graph.node[chance.randrange(len(graph.node))]


def repeat_node(chance: random.Random, graph: Graph) -> None:
    copy = graph.node.add()
    copy.CopyFrom(chance.choice(graph.node))
    if chance.random() < 0.7:
        outputs = [f"{name}.again" for name in copy.output]
        del copy.output[:]
        copy.output.extend(outputs)


def shuffle_nodes(chance: random.Random, graph: Graph) -> None:
    nodes = list(graph.node)
    chance.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def rewire(chance: random.Random, graph: Graph) -> None:
    node = chance.choice(graph.node)
    names = chance.choice([node.input, node.output])
    if not names or chance.random() < 0.2:
        names.append(any_name(chance, graph))
    elif chance.random() < 0.2:
        del names[chance.randrange(len(names))]
    else:
        names[chance.randrange(len(names))] = any_name(chance, graph)


def change_domain(chance: random.Random, graph: Graph) -> None:
    chance.choice(graph.node).domain = chance.choice(
        ["ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "\0", "pumice.functions"]
    )


def change_attribute(chance: random.Random, graph: Graph) -> None:
    node = chance.choice(graph.node)
    if not node.attribute or chance.random() < 0.15:
        kind = chance.choice([3, -5, 0.5, "text", [1, 2], [0.5], ["a"]])
        names = (
            "axis",
            "axes",
            "perm",
            "to",
            "kernel_shape",
            "pads",
            "strides",
            "dilations",
            "group",
            "mode",
            "keepdims",
            "body",
        )
        node.attribute.append(onnx.helper.make_attribute(chance.choice(names), kind))
        return
    attribute = chance.choice(node.attribute)
    kind = attribute.type
    if chance.random() < 0.15:
        node.attribute.remove(attribute)
    elif chance.random() < 0.1:
        attribute.type = chance.choice(AttributeProto.AttributeType.values())
    elif chance.random() < 0.05:
        attribute.ref_attr_name = "outer"
    elif kind == AttributeProto.INT:
        attribute.i = chance.choice(INTEGERS)
    elif kind == AttributeProto.FLOAT:
        attribute.f = chance.choice(FLOATS)
    elif kind == AttributeProto.STRING:
        attribute.s = chance.choice(
            [b"", b"linear", b"\xff\xfe", b"x" * 300, b"SAME_UPPER", b"ab,bc->ac", b"...", b"add"]
        )
    elif kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        change_list(
            chance, *((attribute.ints, INTEGERS) if kind == AttributeProto.INTS else (attribute.floats, FLOATS))
        )
    elif kind == AttributeProto.TENSOR:
        change_tensor(chance, attribute.t)
    else:
        attribute.name = chance.choice(NAMES)


def change_list(chance: random.Random, items: Any, values: Sequence[Any]) -> None:
    if not items or chance.random() < 0.2:
        items.append(chance.choice(values))
    elif chance.random() < 0.2:
        del items[chance.randrange(len(items)) :]
    else:
        items[chance.randrange(len(items))] = chance.choice(values)


# ---- values


def change_tensor(chance: random.Random, tensor: TensorProto) -> None:
    pick = chance.randrange(8)
    if pick == 0:
        change_list(chance, tensor.dims, SIZES)
    elif pick == 1:
        tensor.data_type = chance.randrange(0, 30)
    elif pick == 2:
        tensor.raw_data = tensor.raw_data[: chance.randrange(len(tensor.raw_data) + 1)]
    elif pick == 3:
        tensor.raw_data = tensor.raw_data + bytes(chance.randrange(1, 9))
    elif pick == 4:
        tensor.ClearField("raw_data")
        tensor.int64_data.append(chance.choice(INTEGERS))
    elif pick == 5:
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key = chance.choice(["location", "offset", "length", "checksum"])
        entry.value = chance.choice(["w.bin", "../w.bin", "/etc/passwd", "\0", "-1", str(1 << 70), "0"])
    elif pick == 6 and tensor.data_type == TensorProto.INT64 and tensor.raw_data:
        values = bytearray(tensor.raw_data)
        at = chance.randrange(len(values) // 8) * 8 if len(values) >= 8 else 0
        values[at : at + 8] = (chance.choice(INTEGERS) & (1 << 64) - 1).to_bytes(8, "little")
        tensor.raw_data = bytes(values)
    else:
        values = bytearray(tensor.raw_data)
        for _ in range(min(8, len(values))):
            values[chance.randrange(len(values))] = chance.choice([0, 255, 127, 128, 1])
        tensor.raw_data = bytes(values)


def change_initializer(chance: random.Random, graph: Graph) -> None:
    if chance.random() < 0.1:
        graph.initializer.add().CopyFrom(chance.choice(graph.initializer))
    elif chance.random() < 0.1:
        chance.choice(graph.initializer).name = any_name(chance, graph)
    else:
        change_tensor(chance, chance.choice(graph.initializer))


def change_value(chance: random.Random, graph: Graph) -> None:
    """Change an input, an output or the declaration of another value."""
    values = chance.choice([graph.input, graph.input, graph.output, graph.value_info])
    if not values or chance.random() < 0.15:
        values.add().name = any_name(chance, graph)
        return
    value = chance.choice(values)
    tensor = value.type.tensor_type
    pick = chance.randrange(7)
    if pick == 0:
        tensor.elem_type = chance.randrange(0, 30)
    elif pick == 1:
        tensor.ClearField("shape")
    elif pick == 2:
        values.remove(value)
    elif pick == 3:
        value.name = any_name(chance, graph)
    elif pick == 4:
        tensor.shape.dim.add().dim_value = chance.choice(SIZES)
    elif pick == 5:
        value.type.sequence_type.elem_type.tensor_type.elem_type = chance.choice([1, 7, 8])
    elif tensor.shape.dim:
        size = chance.choice(tensor.shape.dim)
        if chance.random() < 0.5:
            size.dim_param = chance.choice(["N", "M", "", "\u00e9"])
        else:
            size.dim_value = chance.choice(SIZES)


# ---- the model


def change_opset(chance: random.Random, model: onnx.ModelProto) -> None:
    if model.opset_import and chance.random() < 0.8:
        chance.choice(model.opset_import).version = chance.choice([*range(1, 30), 0, -1, 1 << 40])
    else:
        model.opset_import.append(
            onnx.helper.make_opsetid(chance.choice(["", "ai.onnx.ml", "local", "far"]), chance.randrange(30))
        )


def change_head(chance: random.Random, model: onnx.ModelProto) -> None:
    model.ir_version = chance.choice([0, 1, 3, 4, 8, 13, 99, -1, 1 << 40])
    model.graph.name = chance.choice(NAMES)


def add_function(chance: random.Random, model: onnx.ModelProto) -> None:
    """Add a function and turn a node into a call of it; it may call itself."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    node = chance.choice(nodes)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    opsets = [onnx.helper.make_opsetid(entry.domain, entry.version) for entry in model.opset_import]
    if chance.random() < 0.3:
        inner.op_type, inner.domain = "F", "local"
        opsets.append(onnx.helper.make_opsetid("local", 1))
    inputs = [name for name in node.input if name]
    model.functions.append(onnx.helper.make_function("local", "F", inputs, list(node.output), [inner], opsets))
    node.op_type, node.domain = "F", "local"
    if chance.random() < 0.8:
        model.opset_import.append(onnx.helper.make_opsetid("local", 1))


def nest(chance: random.Random, model: onnx.ModelProto) -> None:
    """Move all nodes into an If in an If."""
    graph = model.graph
    for _ in range(chance.choice([1, 2, 5, 30])):
        inner = onnx.helper.make_graph(graph.node, "inner", [], graph.output)
        condition = onnx.helper.make_node("Constant", [], ["nested"], value=onnx.numpy_helper.from_array(_TRUE))
        branch = onnx.helper.make_node(
            "If", ["nested"], [value.name for value in graph.output], then_branch=inner, else_branch=inner
        )
        del graph.node[:]
        graph.node.extend([condition, branch])
        if graph.ByteSize() > 1 << 16:
            return


_TRUE = np.array(True)

IN_GRAPH: tuple[tuple[Change, str], ...] = (
    (change_operator, "node"),
    (drop_node, "node"),
    (repeat_node, "node"),
    (shuffle_nodes, "node"),
    (rewire, "node"),
    (rewire, "node"),
    (change_domain, "node"),
    (change_attribute, "node"),
    (change_attribute, "node"),
    (change_attribute, "node"),
    (change_initializer, "initializer"),
    (change_initializer, "initializer"),
    (change_value, ""),
    (change_value, ""),
)
IN_MODEL: tuple[Change, ...] = (change_opset, change_head, add_function, nest)


def mutated(chance: random.Random, seeds: Sequence[onnx.ModelProto]) -> bytes:
    """Return a seed with one to three changed fields, or in a fifth of the cases with changed bytes."""
    model = onnx.ModelProto.FromString(chance.choice(seeds).SerializeToString())
    if chance.random() < 0.2:
        return mutated_bytes(chance, model.SerializeToString(), chance.choice(seeds).SerializeToString())
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if chance.random() < 0.1 and model.graph.node:
            chance.choice(IN_MODEL)(chance, model)
            continue
        graph = chance.choice(graphs_of(model.graph))
        change, needs = chance.choice(IN_GRAPH)
        if not needs or getattr(graph, needs):
            change(chance, graph)
    return model.SerializeToString()


def mutated_bytes(chance: random.Random, data: bytes, other: bytes) -> bytes:
    pick = chance.randrange(4)
    changed = bytearray(data)
    if pick == 0:
        return data[: chance.randrange(len(data))]
    if pick == 1:
        at, begin = chance.randrange(len(data)), chance.randrange(len(other))
        changed[at : at + chance.randrange(64)] = other[begin : begin + chance.randrange(64)]
        return bytes(changed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(changed))
        changed[at] = changed[at] ^ 1 << chance.randrange(8) if pick == 2 else chance.randrange(256)
    return bytes(changed)
