"""Rewrite the batched Scan of opset 8 as a Scan over the batch, whose body is a Scan in its current form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import array_of
from ...base.errors import graph_error
from ..file.recipe import Attribute, ConstantRecipe, InputRecipe, NodeRecipe, Recipe, integers

if TYPE_CHECKING:
    from .rewrite_helpers import Nodes, Scope


class _Image:
    """Builds the nodes that scan one batch item, with unique value names."""

    def __init__(self, node: NodeRecipe, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.nodes: Nodes = []
        self.constants: dict[str, ConstantRecipe] = {}

    def fresh(self, role: str) -> str:
        return self.scope.fresh(self.node, role)

    def constant(self, value: int) -> str:
        name = self.fresh(f"constant {value}")
        self.constants[name] = ConstantRecipe(name, "int64", [1], np.array([value], np.int64).tobytes())
        return name

    def add(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        name = self.fresh(op)
        self.nodes.append(NodeRecipe(op, name, list(inputs), [name], attributes))
        return name


def unbatched_scan(node: NodeRecipe, scope: Scope) -> Nodes:
    """Return the node as a Scan over the batch.

    The first input holds the sequence length of each batch item: later steps are not read, and their results are zero.
    Lengths are clamped to 0 .. number of steps. Raise GraphError if constant lengths are outside this range.
    """
    body, slices = node.attributes.get("body"), node.attributes.get("num_scan_inputs")
    lengths, given = next(iter(node.inputs), ""), node.inputs[1:]
    if not isinstance(body, Recipe) or not isinstance(slices, int) or len(body.inputs) != len(given) or "" in given:
        expected = "a body that takes all inputs but the first, and 'num_scan_inputs'"
        raise graph_error("node", node.name, f"expected {expected}, given {node.inputs} and {slices!r}")
    states = len(given) - slices
    directions = integers(node, "directions") or [0] * slices
    if not 1 <= slices <= len(given) or len(directions) != slices or len(node.outputs) > len(body.outputs):
        raise graph_error(
            "node", node.name, f"expected directions of {slices} inputs, and no more results than the body"
        )
    _check_lengths(node, scope, given[states])
    image = _Image(node, scope)
    taken = [image.fresh(f"image of {name}") for name in given]
    inputs = [InputRecipe(name, value.dtype, None, []) for name, value in zip(taken, body.inputs, strict=True)]
    rows = taken[states:]
    if lengths:
        length = image.fresh("length")
        inputs.append(InputRecipe(length, "int64", [], []))
        zero, one, last = image.constant(0), image.constant(1), image.constant(-1)
        size = image.add("Gather", image.add("Shape", rows[0]), zero)
        count = image.add("Min", image.add("Max", image.add("Reshape", length, last), zero), size)
        # Run at least one step, because the scan itself determines the shapes of the results.
        steps = image.add("Max", count, one)
        rows = [image.add("Slice", name, zero, steps, zero) for name in rows]
    results = [image.fresh(f"result {i}") for i in range(len(node.outputs))]
    attributes: dict[str, Attribute] = {"body": body, "num_scan_inputs": slices, "scan_input_directions": directions}
    image.nodes.append(NodeRecipe("Scan", f"{node.name}/image", [*taken[:states], *rows], results, attributes))
    if lengths:
        pads = image.add("Concat", zero, image.add("Sub", size, count), axis=0)
        made = [image.add("Slice", name, zero, count, zero) for name in results[states:]]
        padded = [image.add("Pad", name, pads, "", zero) for name in made]
        moved = image.add("Squeeze", image.add("Greater", count, zero))
        kept = [image.add("Where", moved, *pair) for pair in zip(results[:states], taken, strict=False)]
        results = [*kept, *padded]
    outputs = [InputRecipe(name, value.dtype, None, []) for name, value in zip(results, body.outputs, strict=False)]
    whole = Recipe(f"{node.name}.image", inputs, image.constants, image.nodes, outputs, [], body.captured)
    every = [*given, lengths] if lengths else given
    return [node._replace(inputs=every, attributes={"body": whole, "num_scan_inputs": len(every)})]


def _check_lengths(node: NodeRecipe, scope: Scope, rows: str) -> None:
    """Raise GraphError if constant lengths are out of range. rows: name of the first scan input."""
    constant, cut = scope.constants.get(node.inputs[0]), scope.constants.get(rows)
    if constant is None:
        return
    lengths = array_of(constant.raw, constant.dtype, constant.shape)
    most = cut.shape[1] if cut is not None and len(cut.shape) > 1 else None
    if (lengths < 0).any() or (most is not None and (lengths > most).any()):
        expected = "lengths of at least 0" if most is None else f"lengths of 0 to {most}"
        raise graph_error(
            "node", node.name, f"input '{node.inputs[0]}': expected {expected}, given {lengths.reshape(-1).tolist()}"
        )
