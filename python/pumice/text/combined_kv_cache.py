"""Treat decoders with keys and values in one cache tensor [batch, rows, size] (optimum's GPTBigCode) as having one head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..importer.file.recipe import ConstantRecipe, NodeRecipe, Recipe, number
from .model_folder import Folder, Names, layer_names

_PAST, _PRESENT = "past_key_values.%d.key_value", "present.%d.key_value"
_AXES = {f"pumice.axes.{'.'.join(map(str, one))}": one for one in ([0, 2, 3], [0, 2], [2, 3], [0], [2], [3])}


def names_of(recipe: Recipe, folder: Folder) -> Names:
    """Return the folder's names, or optimum's names for combined KV caches if the model has inputs with these names."""
    known = {value.name for value in recipe.inputs}
    if layer_names(folder.names.past, known) or not layer_names((_PAST,), known):
        return folder.names
    return replace(folder.names, past=(_PAST,), present=(_PRESENT,))


def with_heads(recipe: Recipe, names: Names) -> Recipe:
    """Return the decoder with a head axis of size 1 inserted at axis 1 of each rank-3 cache."""
    inputs = {value.name: value for value in recipe.inputs}
    pairs = zip(
        layer_names(names.past, set(inputs)),
        layer_names(names.present, {value.name for value in recipe.outputs}),
        strict=False,
    )
    for (past, *_), (present, *_) in pairs if len(names.past) == 1 else ():
        shape = inputs[past].shape
        if shape is not None and len(shape) == 3:
            inputs[past] = inputs[past]._replace(shape=[shape[0], 1, *shape[1:]], dimension_names=[])
            recipe = recipe._replace(nodes=_with_head(recipe.nodes, past, present))
    constants = {
        name: ConstantRecipe(name, "int64", [len(value)], np.array(value, np.int64).tobytes())
        for name, value in (("pumice.head", [1]), *_AXES.items())
    }
    return recipe._replace(inputs=[*inputs.values()], constants={**recipe.constants, **constants}, plain=False)


def _with_head(nodes: list[NodeRecipe], past: str, present: str) -> list[NodeRecipe]:
    made = []
    for node in nodes:
        if node.op == "Shape" and node.inputs[0] == past:
            made += _shape(node)
        elif node.op == "Concat" and node.inputs[0] == past and node.outputs[0] == present and len(node.inputs) == 2:
            rows, joined = f"{present}.rows", f"{present}.joined"
            axis = 2 if node.attributes.get("axis") in (1, -2) else 0  # a Concat on axis 0 is rejected later
            made.append(NodeRecipe("Unsqueeze", rows, [node.inputs[1], "pumice.head"], [rows], {}))
            made.append(node._replace(inputs=[past, rows], attributes={"axis": axis}))
            made.append(NodeRecipe("Squeeze", joined, [present, "pumice.head"], [joined], {}))
        else:
            inputs = [f"{present}.joined" if name == present else name for name in node.inputs]
            made.append(node._replace(inputs=inputs))
    return made


def _shape(node: NodeRecipe) -> list[NodeRecipe]:
    """Return the nodes that replace a Shape and produce the sizes without the new head axis."""
    name, whole = node.outputs[0], f"{node.outputs[0]}.whole"
    first = NodeRecipe("Shape", whole, node.inputs, [whole], {})
    return [first, NodeRecipe("Gather", node.name, [whole, _axes(node)], [name], {})]


def _axes(node: NodeRecipe) -> str:
    """Return the name of the constant with the axes whose sizes a Shape returns."""
    start, end = int(number(node, "start", 0)), int(number(node, "end", 3))
    return "pumice.axes." + ".".join(str((0, 2, 3)[i]) for i in range(3)[slice(start, end)])
