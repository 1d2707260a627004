"""Rewrite the batched Scan of opset 8 as a Scan over the batch whose body is a Scan of the latest opset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import array_from_bytes
from ...base.errors import graph_error
from ..file.graph_recipe import Attribute, ConstantRecipe, GraphRecipe, InputRecipe, NodeRecipe, get_ints_attr

if TYPE_CHECKING:
    from .rewrite_helpers import Nodes, RewriteScope


class _BatchItemBuilder:
    """Collects the nodes of the outer Scan's body, which scans one batch item, with unique value names."""

    def __init__(self, node: NodeRecipe, scope: RewriteScope) -> None:
        self.node = node
        self.scope = scope
        self.nodes: Nodes = []
        self.constants: dict[str, ConstantRecipe] = {}

    def make_name(self, role: str) -> str:
        return self.scope.make_name(self.node, role)

    def add_constant(self, value: int) -> str:
        name = self.make_name(f"constant {value}")
        self.constants[name] = ConstantRecipe(name, "int64", [1], np.array([value], np.int64).tobytes())
        return name

    def add(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        name = self.make_name(op)
        self.nodes.append(NodeRecipe(op, name, list(inputs), [name], attributes))
        return name


def rewrite_batched_scan(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite a Scan of opset 8 as a Scan over the batch.

    Its first input contains the sequence length of each batch item. Steps past this length are not run, and their results are
    zero. Lengths are clamped to 0 .. number of steps. Raise GraphError if constant lengths are outside this range.
    """
    body, num_slices = node.attributes.get("body"), node.attributes.get("num_scan_inputs")
    lengths, node_inputs = next(iter(node.inputs), ""), node.inputs[1:]
    if (
        not isinstance(body, GraphRecipe)
        or not isinstance(num_slices, int)
        or len(body.inputs) != len(node_inputs)
        or "" in node_inputs
    ):
        expected = "a body that takes all inputs but the first, and 'num_scan_inputs'"
        raise graph_error("node", node.name, f"expected {expected}, given {node.inputs} and {num_slices!r}")
    num_states = len(node_inputs) - num_slices
    directions = get_ints_attr(node, "directions") or [0] * num_slices
    if (
        not 1 <= num_slices <= len(node_inputs)
        or len(directions) != num_slices
        or len(node.outputs) > len(body.outputs)
    ):
        raise graph_error(
            "node", node.name, f"expected directions of {num_slices} inputs, and no more results than the body"
        )
    _check_lengths(node, scope, node_inputs[num_states])
    item_builder = _BatchItemBuilder(node, scope)
    item_inputs = [item_builder.make_name(f"image of {name}") for name in node_inputs]
    inputs = [InputRecipe(name, value.dtype, None, []) for name, value in zip(item_inputs, body.inputs, strict=True)]
    scan_inputs = item_inputs[num_states:]
    if lengths:
        length = item_builder.make_name("length")
        inputs.append(InputRecipe(length, "int64", [], []))
        zero, int_one, last = item_builder.add_constant(0), item_builder.add_constant(1), item_builder.add_constant(-1)
        size = item_builder.add("Gather", item_builder.add("Shape", scan_inputs[0]), zero)
        count = item_builder.add("Min", item_builder.add("Max", item_builder.add("Reshape", length, last), zero), size)
        # Run at least one step, because only a run determines the shapes of the results.
        steps = item_builder.add("Max", count, int_one)
        scan_inputs = [item_builder.add("Slice", name, zero, steps, zero) for name in scan_inputs]
    results = [item_builder.make_name(f"result {i}") for i in range(len(node.outputs))]
    attributes: dict[str, Attribute] = {
        "body": body,
        "num_scan_inputs": num_slices,
        "scan_input_directions": directions,
    }
    item_builder.nodes.append(
        NodeRecipe("Scan", f"{node.name}/image", [*item_inputs[:num_states], *scan_inputs], results, attributes)
    )
    if lengths:
        pads = item_builder.add("Concat", zero, item_builder.add("Sub", size, count), axis=0)
        valid_results = [item_builder.add("Slice", name, zero, count, zero) for name in results[num_states:]]
        padded = [item_builder.add("Pad", name, pads, "", zero) for name in valid_results]
        has_steps = item_builder.add("Squeeze", item_builder.add("Greater", count, zero))
        final_states = [
            item_builder.add("Where", has_steps, *pair) for pair in zip(results[:num_states], item_inputs, strict=False)
        ]
        results = [*final_states, *padded]
    outputs = [InputRecipe(name, value.dtype, None, []) for name, value in zip(results, body.outputs, strict=False)]
    item_body = GraphRecipe(
        f"{node.name}.image", inputs, item_builder.constants, item_builder.nodes, outputs, [], body.captured
    )
    all_inputs = [*node_inputs, lengths] if lengths else node_inputs
    return [node._replace(inputs=all_inputs, attributes={"body": item_body, "num_scan_inputs": len(all_inputs)})]


def _check_lengths(node: NodeRecipe, scope: RewriteScope, scan_inputs: str) -> None:
    """Raise GraphError if constant lengths are out of range. scan_inputs: name of the first scan input."""
    constant, first_scan_input = scope.constants.get(node.inputs[0]), scope.constants.get(scan_inputs)
    if constant is None:
        return
    lengths = array_from_bytes(constant.raw, constant.dtype, constant.shape)
    max_length = first_scan_input.shape[1] if first_scan_input is not None and len(first_scan_input.shape) > 1 else None
    if (lengths < 0).any() or (max_length is not None and (lengths > max_length).any()):
        expected = "non-negative lengths" if max_length is None else f"lengths of 0 to {max_length}"
        raise graph_error(
            "node", node.name, f"input '{node.inputs[0]}': expected {expected}, given {lengths.reshape(-1).tolist()}"
        )
