"""Support decoders with K and V combined in one cache [batch, rows, size] (optimum's GPTBigCode), as caches with one head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..importer.file.graph_recipe import ConstantRecipe, GraphRecipe, NodeRecipe, get_number_attr
from .model_folder import IoNames, ModelFolder, list_cache_names_by_layer

_COMBINED_PAST, _COMBINED_PRESENT = "past_key_values.%d.key_value", "present.%d.key_value"
_AXES = {f"pumice.axes.{'.'.join(map(str, axes))}": axes for axes in ([0, 2, 3], [0, 2], [2, 3], [0], [2], [3])}


def resolve_io_names(recipe: GraphRecipe, folder: ModelFolder) -> IoNames:
    """Return the input and output names of a folder's model, with optimum's names for combined KV caches if the model has these."""
    input_names = {value.name for value in recipe.inputs}
    if list_cache_names_by_layer(folder.names.past, input_names) or not list_cache_names_by_layer(
        (_COMBINED_PAST,), input_names
    ):
        return folder.names
    return replace(folder.names, past=(_COMBINED_PAST,), present=(_COMBINED_PRESENT,))


def add_head_axis(recipe: GraphRecipe, names: IoNames) -> GraphRecipe:
    """Return the decoder with a head axis of size 1 inserted into each rank-3 cache, at axis 1."""
    inputs = {value.name: value for value in recipe.inputs}
    pairs = zip(
        list_cache_names_by_layer(names.past, set(inputs)),
        list_cache_names_by_layer(names.present, {value.name for value in recipe.outputs}),
        strict=False,
    )
    for (past, *_), (present, *_) in pairs if len(names.past) == 1 else ():
        shape = inputs[past].shape
        if shape is not None and len(shape) == 3:
            inputs[past] = inputs[past]._replace(shape=[shape[0], 1, *shape[1:]], dimension_names=[])
            recipe = recipe._replace(nodes=_add_head_axis_to_cache(recipe.nodes, past, present))
    constants = {
        name: ConstantRecipe(name, "int64", [len(value)], np.array(value, np.int64).tobytes())
        for name, value in (("pumice.head", [1]), *_AXES.items())
    }
    return recipe._replace(inputs=[*inputs.values()], constants={**recipe.constants, **constants}, plain=False)


def _add_head_axis_to_cache(nodes: list[NodeRecipe], past: str, present: str) -> list[NodeRecipe]:
    result = []
    for node in nodes:
        if node.op == "Shape" and node.inputs[0] == past:
            result += _make_shape_without_head(node)
        elif node.op == "Concat" and node.inputs[0] == past and node.outputs[0] == present and len(node.inputs) == 2:
            new_rows, without_head = f"{present}.rows", f"{present}.joined"
            axis = 2 if node.attributes.get("axis") in (1, -2) else 0  # Concat along axis 0 is rejected later
            result.append(NodeRecipe("Unsqueeze", new_rows, [node.inputs[1], "pumice.head"], [new_rows], {}))
            result.append(node._replace(inputs=[past, new_rows], attributes={"axis": axis}))
            result.append(NodeRecipe("Squeeze", without_head, [present, "pumice.head"], [without_head], {}))
        else:
            inputs = [f"{present}.joined" if name == present else name for name in node.inputs]
            result.append(node._replace(inputs=inputs))
    return result


def _make_shape_without_head(node: NodeRecipe) -> list[NodeRecipe]:
    """Return the nodes that replace a Shape and compute its sizes without the new head axis."""
    name, full_shape = node.outputs[0], f"{node.outputs[0]}.whole"
    first = NodeRecipe("Shape", full_shape, node.inputs, [full_shape], {})
    return [first, NodeRecipe("Gather", node.name, [full_shape, _get_axes_constant(node)], [name], {})]


def _get_axes_constant(node: NodeRecipe) -> str:
    """Return the name of a constant with the axes that a Shape selects by `start` and `end`, numbered as in the rank-4 cache."""
    start, end = int(get_number_attr(node, "start", 0)), int(get_number_attr(node, "end", 3))
    return "pumice.axes." + ".".join(str((0, 2, 3)[i]) for i in range(3)[slice(start, end)])
