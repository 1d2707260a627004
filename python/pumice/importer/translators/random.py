"""Translate ONNX random operators to nodes that read a random state, which changes with every run of a model.

The state is uint32[4]: a 64-bit key and the 64-bit run number. Random numbers are a function of the state, the node's stream
number and the element index. A node with the attribute `seed` uses it as its key and has no stream number: two such nodes
with equal seeds generate equal numbers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import binding_error, graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import RANDOM_STATE, NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

STREAM = "pumice.stream"  # attribute with a node's stream number
INT32, FLOAT = 6, 1  # TensorProto.DataType
_DTYPE_CODES = {"float32": 1, "float16": 10, "float64": 11, "bfloat16": 16}


class RandomState:
    """Generates the random state of each run of a model: a key and the run number, counted from 0. Thread-safe."""

    def __init__(self, seed: int | None) -> None:
        if seed is not None and not 0 <= seed < 2**64:
            raise binding_error("K5", "seed", "a number from 0 to 2**64 - 1", str(seed))
        self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.origin = "drawn from the system" if seed is None else "given"
        self._runs = itertools.count()

    def next(self) -> Array:
        """Return the state of the next run, uint32[4]."""
        return np.array([self.seed, next(self._runs)], "<u8").view("<u4")

    def __str__(self) -> str:
        return f"random numbers by seed {self.seed} ({self.origin})"


def _get_stream_attributes(node: NodeRecipe) -> dict[str, Any]:
    """Return the attributes that select a node's random numbers: its stream number, or its own key if it has a `seed`.

    Raise GraphError if `seed` is not a number."""
    seed = node.attributes.get("seed")
    if seed is None:
        return {"stream": node.attributes.get(STREAM, 0)}
    if not isinstance(seed, int | float):
        raise graph_error("node", node.name, f"attribute 'seed': expected a number, given {seed!r}")
    return {"key": int(np.float32(seed).view(np.uint32))}


def _get_inputs_and_state(builder: GraphBuilder, node: NodeRecipe, count: int) -> tuple[list[Value], Value]:
    """Return the node's inputs in the file, and the random state, which the importer appended. count: expected number of inputs."""
    return builder.require_tensors(node._replace(inputs=node.inputs[:-1]), count, count), builder.require_tensor(
        RANDOM_STATE
    )


def _get_dtype_code(node: NodeRecipe, like: Value) -> Any:
    """Return the ONNX type number of the output: the attribute `dtype`, else the input's float dtype. Raise GraphError without either."""
    number = node.attributes.get("dtype", _DTYPE_CODES.get(like.dtype))
    if number is None:
        raise graph_error("node", node.name, f"attribute 'dtype': expected for an input of {like.dtype}, given none")
    return number


def _make_random_translator(op: str, parameters: tuple[str, ...]) -> Callable[[GraphBuilder, NodeRecipe], None]:
    def translate(builder: GraphBuilder, node: NodeRecipe) -> None:
        like_inputs, state = _get_inputs_and_state(builder, node, int(node.op.endswith("Like")))
        attributes = _get_stream_attributes(node) | {
            key: node.attributes[key] for key in parameters if key in node.attributes
        }
        shape: Value | Array
        if like_inputs:
            shape = builder.add_helper(node, "Shape", like_inputs[0])
            dtype = _get_dtype_code(node, like_inputs[0])
        else:
            sizes = node.attributes.get("shape")
            if not isinstance(sizes, list):
                raise graph_error("node", node.name, f"attribute 'shape': expected integers, given {sizes!r}")
            shape = np.array(sizes, np.int64)
            dtype = node.attributes.get("dtype", FLOAT)
        output = node.outputs[0]
        random_values = builder.add_helper(node, op, state, shape, output=output, dtype=dtype, **attributes)
        builder.set_values([output], (random_values,))

    return translate


def _translate_multinomial(builder: GraphBuilder, node: NodeRecipe) -> None:
    (x,), state = _get_inputs_and_state(builder, node, 1)
    attributes = {key: node.attributes[key] for key in ("dtype", "sample_size") if key in node.attributes}
    output = node.outputs[0]
    random_values = builder.add_helper(
        node, "pumice::Multinomial", state, x, output=output, **attributes, **_get_stream_attributes(node)
    )
    builder.set_values([output], (random_values,))


def _translate_bernoulli(builder: GraphBuilder, node: NodeRecipe) -> None:
    (x,), state = _get_inputs_and_state(builder, node, 1)
    probability = builder.add_helper(node, "Cast", x, to=FLOAT) if x.dtype == "float64" else x
    mask = builder.add_helper(node, "pumice::RandomMask", state, probability, **_get_stream_attributes(node))
    output = node.outputs[0]
    builder.set_values([output], (builder.add_helper(node, "Cast", mask, output=output, to=_get_dtype_code(node, x)),))


def _get_training_mode(builder: GraphBuilder, name: str) -> bool | Value:
    """Return whether a Dropout is in training mode; a bool tensor if known only at run time."""
    if not name:
        return False
    array = builder.get_constant_array(name)
    return builder.require_tensor(name) if array is None else bool(array.reshape(-1)[0])


def _translate_dropout(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate Dropout. Training zeroes dropped elements and scales the rest by 1 / (1 - ratio); inference copies the input."""
    if not node.inputs or not node.inputs[0]:
        raise graph_error("node", node.name, "expected an input of Dropout, given none")
    training = _get_training_mode(builder, node.inputs[2] if len(node.inputs) > 2 else "")
    add_helper = builder.add_helper
    x = builder.require_tensor(node.inputs[0])
    if training is False:
        builder.add_single_node(node._replace(inputs=node.inputs[:1], outputs=node.outputs[:1], attributes={}))
        if len(node.outputs) > 1:
            shape = add_helper(node, "Shape", x)
            mask = add_helper(node, "ConstantOfShape", shape, output=node.outputs[1], value=np.array([True]))
            builder.set_values(node.outputs[1:], (mask,))
        return
    ratio: Value | Array = builder.require_tensor(node.inputs[1]) if node.inputs[1] else np.array(0.5, np.float32)
    if not isinstance(ratio, np.ndarray):
        ratio = add_helper(node, "Cast", ratio, to=FLOAT)
    shape = add_helper(node, "Shape", x)
    dropped = add_helper(
        node, "pumice::RandomMask", builder.require_tensor(RANDOM_STATE), ratio, shape, **_get_stream_attributes(node)
    )
    float_one = np.array(1, np.float32)
    scale = add_helper(node, "Reciprocal", add_helper(node, "Sub", float_one, ratio))
    if not isinstance(training, bool):
        dropped = add_helper(node, "And", dropped, training)
        scale = add_helper(node, "Where", training, scale, float_one)
    scaled = add_helper(node, "Mul", x, add_helper(node, "CastLike", scale, x))
    zero = add_helper(node, "CastLike", np.array(0, np.float32), x)
    results = [add_helper(node, "Where", dropped, zero, scaled, output=node.outputs[0])]
    if len(node.outputs) > 1:
        results.append(add_helper(node, "Not", dropped, output=node.outputs[1]))
    builder.set_values(node.outputs, tuple(results))


def make_iteration_random_state(builder: GraphBuilder, node: NodeRecipe, state: Value, number: Value) -> Value:
    """Return the random state of a loop iteration. number: the iteration number."""
    return builder.add_helper(node, "pumice::RandomState", state, number, stream=node.attributes.get(STREAM, 0))


RANDOM_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "Bernoulli": _translate_bernoulli,
    "Dropout": _translate_dropout,
    "Multinomial": _translate_multinomial,
    **dict.fromkeys(
        ("RandomUniform", "RandomUniformLike"), _make_random_translator("pumice::RandomUniform", ("low", "high"))
    ),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike"), _make_random_translator("pumice::RandomNormal", ("mean", "scale"))
    ),
}
