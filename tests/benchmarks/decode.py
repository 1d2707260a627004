"""Greedy decoding by a model of GPT-2's shape with caches, tokens and lengths on the device: host cost per step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import pumice

from . import on_device
from .contender import Array
from .rows import Row, Table, timed
from .session import Session
from .timing import Times

MS = 1e3
STEPS, FIRST_STEPS = 64, 2  # the first steps may create pipelines
GOAL = 2.0  # host milliseconds


@dataclass(frozen=True)
class Decoder:
    """One sequence; `places`: KV cache capacity."""

    layers: int
    width: int
    heads: int
    words: int
    places: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.layers} layers of {self.width}, {self.heads} heads, {self.words} words, {self.places} places, {self.dtype}"

    @property
    def cache(self) -> list[int]:
        return [1, self.heads, self.places, self.width // self.heads]


GPT2 = Decoder(12, 768, 12, 50257, 1024, "float16")
ON_SOFTWARE = Decoder(12, 128, 4, 1009, 128, "float32")


class Writer:
    def __init__(self, shape: Decoder) -> None:
        self.graph = pumice.Graph(str(shape))
        self.shape = shape
        self.random = np.random.default_rng(0)

    def weight(self, *sizes: int) -> Array:
        block = self.random.normal(0, 0.05, min(int(np.prod(sizes)), 1 << 20))
        return np.resize(block, sizes).astype(self.shape.dtype)

    def linear(self, x: pumice.Value, width: int, made: int) -> pumice.Value:
        return self.graph.add("Add", self.graph.add("MatMul", x, self.weight(width, made)), self.weight(made))

    def norm(self, x: pumice.Value) -> pumice.Value:
        width = self.shape.width
        return self.graph.add("LayerNormalization", x, np.ones(width, self.shape.dtype), self.weight(width))

    def layer(self, i: int, x: pumice.Value, length: pumice.Value, grown: pumice.Value) -> pumice.Value:
        """Add a layer; its caches are inputs, and outputs with the new row written."""
        shape, graph = self.shape, self.graph
        parts = graph.add("Split", self.linear(self.norm(x), shape.width, 3 * shape.width), outputs=3, axis=2)
        sizes = np.array([1, shape.heads, 1, shape.width // shape.heads])
        q, k, v = (graph.add("Reshape", part, sizes) for part in parts)
        made = []
        for name, row in (("key", k), ("value", v)):
            cache = graph.input(f"{name}_{i}", shape.dtype, shape.cache)
            made.append(graph.add("TensorScatter", cache, row, length))
            graph.output(f"new_{name}_{i}", made[-1])
        mixed = graph.add("Attention", q, *made, None, None, None, grown)
        x = graph.add(
            "Add", x, self.linear(graph.add("Reshape", mixed, np.array([1, 1, shape.width])), shape.width, shape.width)
        )
        inner = graph.add("Gelu", self.linear(self.norm(x), shape.width, 4 * shape.width), approximate="tanh")
        return graph.add("Add", x, self.linear(inner, 4 * shape.width, shape.width))

    def step(self) -> pumice.Graph:
        """Return a graph from a token and the previous length to the next token, all tokens and the new length."""
        shape, graph = self.shape, self.graph
        token = graph.input("token", "int64", [1, 1])
        length = graph.input("length", "int64", [1])
        tokens = graph.input("tokens", "int64", [1, shape.places, 1])
        grown = graph.add("Add", length, np.array([1]))
        table = self.weight(shape.words, shape.width)
        place = graph.add(
            "Gather", self.weight(shape.places, shape.width), graph.add("Reshape", length, np.array([1, 1]))
        )
        x = graph.add("Add", graph.add("Gather", table, token), place)
        for i in range(shape.layers):
            x = self.layer(i, x, length, grown)
        logits = graph.add("MatMul", self.norm(x), np.ascontiguousarray(table.T))
        following = graph.add("ArgMax", logits, axis=2, keepdims=0)
        graph.output("next", following)
        graph.output("grown", grown)
        graph.output(
            "new_tokens",
            graph.add("TensorScatter", tokens, graph.add("Reshape", following, np.array([1, 1, 1])), length),
        )
        return graph


class Loop:
    """The step recorded once on device tensors; every execution generates a token."""

    def __init__(self, shape: Decoder, context: pumice.Context) -> None:
        program = Writer(shape).step().compile(context, precision="fp16" if shape.dtype == "float16" else "fp32")
        sizes = {value.name: [int(size) for size in value.shape] for value in program.inputs}
        compiled = program.compiled([*sizes.values()])
        self.tensors = {
            value.name: pumice.tensor(np.zeros(sizes[value.name], value.dtype), context) for value in program.inputs
        }
        outputs = {f"new_{name}": tensor for name, tensor in self.tensors.items()}  # each cache is written in place
        outputs |= {"next": pumice.empty([1, 1], "int64", context), "grown": pumice.empty([1], "int64", context)}
        bound = {value.name: outputs[value.name] for value in program.outputs}
        self.commands = pumice.CommandList(context)
        on_device.dispatch(self.commands, program, compiled, {**self.tensors, **bound})
        self.commands.copy(outputs["next"], self.tensors["token"])
        self.commands.copy(outputs["grown"], self.tensors["length"])
        self.commands.commit(timing=True)

    def tokens(self) -> list[int]:
        made: list[int] = self.tensors["tokens"].numpy()[0, :, 0].tolist()
        return made[: int(self.tensors["length"].numpy()[0])]


def rows(session: Session) -> Iterator[Row]:
    shape = ON_SOFTWARE if session.software else GPT2
    loop = Loop(shape, session.context)
    host: list[float] = []
    device: list[float] = []
    whole: list[float] = []
    for step in range(FIRST_STEPS + STEPS):
        if step == FIRST_STEPS:
            made = session.context.pipelines_created
        begin = time.perf_counter()
        submission = loop.commands.exec()
        submitted = time.perf_counter()
        submission.wait()
        end = time.perf_counter()
        if step >= FIRST_STEPS:
            host.append(submitted - begin)
            device.append(submission.device_seconds or 0.0)
            whole.append(end - begin)
    row = timed(f"a step of {shape}: the host", Times([host]), MS, GOAL)
    row.note = f"{loop.commands.dispatches} dispatches, {session.context.pipelines_created - made} new pipelines"
    row.wrong = len(loop.tokens()) != FIRST_STEPS + STEPS
    yield row
    yield timed("  on the device", Times([device]), MS)
    yield timed("  from its submission to its token", Times([whole]), MS)


def run(session: Session) -> Iterator[Table]:
    yield Table("Greedy decoding with the caches on the device", "ms", list(rows(session)))
