"""Transformers as written by exporters, with random weights: symbolic batch and sequence, shape arithmetic for every Reshape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


@dataclass
class Writer:
    """Builds a graph's nodes and weights; every method adds a few and returns the name of the last result."""

    random: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def constant(self, values: Any, dtype: str = "int64") -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.normal(0, 0.08, shape), "float32")

    def size(self, x: str, axis: int) -> str:
        """Return one axis of x's shape, as a one-element vector."""
        return self.add("Unsqueeze", self.add("Gather", self.add("Shape", x), self.constant(axis)), self.constant([0]))

    def linear(self, x: str, width_in: int, width: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(width_in, width)), self.weight(width))

    def norm(self, x: str, width: int) -> str:
        ones = self.constant(np.ones(width), "float32")
        return self.add("LayerNormalization", x, ones, self.weight(width), axis=-1, epsilon=1e-5)

    def heads(self, x: str, heads: int, width: int) -> str:
        """Reshape [batch, sequence, width] to [batch, heads, sequence, width / heads]."""
        sizes = [self.size(x, 0), self.size(x, 1), self.constant([heads]), self.constant([width // heads])]
        return self.add("Transpose", self.add("Reshape", x, self.add("Concat", *sizes, axis=0)), perm=[0, 2, 1, 3])

    def attention(self, x: str, heads: int, width: int, mask: str, past: Sequence[str] = ()) -> tuple[str, list[str]]:
        """Return the result of an attention layer, and its K and V after the past."""
        q, k, v = (self.heads(self.linear(x, width, width), heads, width) for _ in range(3))
        if past:
            k, v = (self.add("Concat", before, now, axis=2) for before, now in zip(past, (k, v), strict=True))
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.add("Div", scores, self.constant((width // heads) ** 0.5, "float32"))
        weights = self.add("Softmax", self.add("Add", scaled, mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        sizes = [self.size(mixed, 0), self.size(mixed, 1), self.constant([width])]
        merged = self.add("Reshape", mixed, self.add("Concat", *sizes, axis=0))
        return self.linear(merged, width, width), [k, v]

    def gelu(self, x: str) -> str:
        one, half, root = (self.constant(v, "float32") for v in (1.0, 0.5, 2**0.5))
        bell = self.add("Add", self.add("Erf", self.add("Div", x, root)), one)
        return self.add("Mul", self.add("Mul", x, bell), half)

    def feed_forward(self, x: str, width: int) -> str:
        return self.linear(self.gelu(self.linear(x, width, 4 * width)), 4 * width, width)

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "transformer", list(inputs), list(outputs), self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def encoder(layers: int = 12, width: int = 64, heads: int = 4, words: int = 101) -> onnx.ModelProto:
    """input_ids and attention_mask [batch, sequence], int64 -> [batch, sequence, width]. About 52 nodes per layer."""
    w = Writer(np.random.default_rng(0))
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in ("ids", "mask")
    )
    places = w.add("Range", w.constant(0), w.add("Gather", w.add("Shape", "ids"), w.constant(1)), w.constant(1))
    x = w.add("Add", w.add("Gather", w.weight(words, width), "ids"), w.add("Gather", w.weight(512, width), places))
    x = w.norm(x, width)
    kept = w.add("Cast", w.add("Unsqueeze", "mask", w.constant([1, 2])), to=TensorProto.FLOAT)
    added = w.add("Mul", w.add("Sub", w.constant(1.0, "float32"), kept), w.constant(-10000.0, "float32"))
    for _ in range(layers):
        x = w.norm(w.add("Add", x, w.attention(x, heads, width, added)[0]), width)
        x = w.norm(w.add("Add", x, w.feed_forward(x, width)), width)
    w.nodes.append(helper.make_node("Identity", [x], ["y"], "y"))
    return w.model([ids, mask], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "sequence", width])])


def decoder(layers: int = 12, width: int = 64, heads: int = 4, words: int = 101) -> onnx.ModelProto:
    """input_ids [batch, new], int64, and K and V [batch, heads, past, width / heads] of each layer -> logits [batch, new, vocab_size] and
    the extended K and V. New tokens attend to the past and to earlier new tokens."""
    w = Writer(np.random.default_rng(0))
    cache = ["batch", heads, "past", width // heads]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "new"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", words])]
    for i in range(layers):
        for part in ("key", "value"):
            inputs.append(helper.make_tensor_value_info(f"past_{part}_{i}", TensorProto.FLOAT, cache))
            outputs.append(
                helper.make_tensor_value_info(f"{part}_{i}", TensorProto.FLOAT, ["batch", heads, "all", width // heads])
            )
    new = w.add("Gather", w.add("Shape", "ids"), w.constant(1))
    past = w.add("Gather", w.add("Shape", "past_key_0"), w.constant(2))
    end = w.add("Add", past, new)
    places = w.add("Range", past, end, w.constant(1))
    table = w.weight(words, width)
    x = w.add("Add", w.add("Gather", table, "ids"), w.add("Gather", w.weight(512, width), places))
    seen = w.add("Range", w.constant(0), end, w.constant(1))
    hidden = w.add("Less", w.add("Unsqueeze", places, w.constant([1])), w.add("Unsqueeze", seen, w.constant([0])))
    mask = w.add("Where", hidden, w.constant(-10000.0, "float32"), w.constant(0.0, "float32"))
    for i in range(layers):
        before = f"past_key_{i}", f"past_value_{i}"
        mixed, kept = w.attention(w.norm(x, width), heads, width, mask, before)
        for part, value in zip(("key", "value"), kept, strict=True):
            w.nodes.append(helper.make_node("Identity", [value], [f"{part}_{i}"], f"{part}_{i}"))
        x = w.add("Add", x, mixed)
        x = w.add("Add", x, w.feed_forward(w.norm(x, width), width))
    logits = w.add("MatMul", w.norm(x, width), w.add("Transpose", table, perm=[1, 0]))
    w.nodes.append(helper.make_node("Identity", [logits], ["logits"], "logits"))
    return w.model(inputs, outputs)
