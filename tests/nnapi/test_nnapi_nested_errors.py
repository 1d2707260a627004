"""Errors inside IF and WHILE graphs name the path to the operation: nodes and their subgraphs."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pumice

SIZE = 2
FED = np.array([1.5, -2.0], "float32")
VALUES = {"c": ("bool", [1]), "i": ("int32", [1]), "x": ("float32", [None])}


def graph_with(name: str, order: str) -> tuple[pumice.Graph, dict[str, pumice.Value]]:
    """Return a graph with the three values as inputs, in this order."""
    graph = pumice.Graph(name)
    return graph, {one: graph.input(one, *VALUES[one]) for one in order}


class Nested:
    """A graph with one addition nested `depth` levels deep; `size` is the size of the addend, `path` the expected path."""

    def __init__(self, seed: int, depth: int, size: int) -> None:
        self.random = random.Random(seed)
        self.depth, self.size = depth, size
        self.taken = self.random.random() < 0.5
        self.parts: list[str] = []
        self.place = f"bad {seed}"
        self.graph, given = graph_with(f"main {seed}", "cix")
        self.graph.output("y", self.inside(self.graph, given, 0))

    @property
    def path(self) -> str:
        return f"in '{self.graph.name}' / " + " / ".join(self.parts)

    def inside(self, graph: pumice.Graph, given: dict[str, pumice.Value], level: int) -> pumice.Value:
        """Return the result of the graph at this level, computed from its x."""
        if level == self.depth:
            return graph.add("nnapi::ADD", given["x"], np.ones(self.size, "float32"), 0, name=self.place)
        kind = self.random.choice(["if", "condition", "body"])
        node = f"node {level} {self.random.randrange(1000)}"
        name = f"graph {level + 1} {self.random.randrange(1000)}" if self.random.random() < 0.8 else ""
        if kind == "if":
            return self.choice(graph, given, node, name, level)
        return self.loop(graph, given, node, name, level, kind)

    def note(self, level: int, part: str, name: str) -> None:
        self.parts.insert(level, part + (f" '{name}'" if name else ""))

    def choice(
        self, graph: pumice.Graph, given: dict[str, pumice.Value], node: str, name: str, level: int
    ) -> pumice.Value:
        self.note(level, f"If '{node}', {'then' if self.taken else 'else'}", name)
        faulty, inner = graph_with(name, "cix")
        faulty.output("y", self.inside(faulty, inner, level + 1))
        other, harmless = graph_with("other", "cix")
        other.output("y", other.add("nnapi::MUL", harmless["x"], harmless["x"], 0))
        branches = (faulty, other) if self.taken else (other, faulty)
        made = graph.add("nnapi::IF", given["c"], *branches, *(given[one] for one in "cix"), name=node)
        assert isinstance(made, pumice.Value)
        return made

    def loop(
        self, graph: pumice.Graph, given: dict[str, pumice.Value], node: str, name: str, level: int, role: str
    ) -> pumice.Value:
        self.note(level, f"While '{node}', {role}", name)
        condition, tested = graph_with(name if role == "condition" else "condition", "xic")
        body, inner = graph_with(name if role == "body" else "body", "xic")
        more = condition.add("nnapi::LESS", tested["i"], [1])
        if role == "condition":
            made = self.inside(condition, tested, level + 1)
            total = condition.add("nnapi::RESHAPE", condition.add("nnapi::REDUCE_SUM", made, [0], True), [1])
            more = condition.add("nnapi::LOGICAL_AND", more, condition.add("nnapi::LESS", total, [1e30]))
            following = body.add("nnapi::MUL", inner["x"], inner["x"], 0)
        else:
            following = self.inside(body, inner, level + 1)
        condition.output("more", more)
        body.output("x", following)
        body.output("i", body.add("nnapi::ADD", inner["i"], [1], 0))
        made = graph.add("nnapi::WHILE", condition, body, *(given[one] for one in "xic"), name=node)
        assert isinstance(made, pumice.Value)
        return made

    def run(self, context: pumice.Context) -> None:
        fed = {"c": np.array([self.taken]), "i": np.zeros(1, "int32"), "x": FED}
        self.graph.compile(context)(fed)


@pytest.mark.parametrize("seed", range(24))
def test_an_error_at_run_time_names_the_path_to_its_operation(context: pumice.Context, seed: int) -> None:
    depth = 1 + seed % 4
    nested = Nested(seed, depth, SIZE + 1)
    with pytest.raises(pumice.GraphError) as found:
        nested.run(context)
    assert f"{nested.path}: '{nested.place}'" in str(found.value)
    assert found.value.node == nested.place
    Nested(seed, depth, SIZE).run(context)  # the same graphs without the defect


def outer_of(inner: pumice.Graph, size: int | None) -> pumice.Graph:
    """A graph that runs `inner`, a graph of one input, in the branch of an IF."""
    graph = pumice.Graph("outer")
    c, x = graph.input("c", "bool", [1]), graph.input("x", "float32", [size])
    graph.output("y", graph.add("nnapi::IF", c, inner, doubling(), x, name="choice"))
    return graph


def doubling() -> pumice.Graph:
    graph = pumice.Graph("double")
    x = graph.input("x", "float32", [None])
    graph.output("y", graph.add("nnapi::ADD", x, x, 0))
    return graph


def test_an_error_when_a_node_is_added_names_the_branch_and_its_operation() -> None:
    inner = pumice.Graph("inner")
    x = inner.input("x", "float32", [None])
    inner.output("y", inner.add("nnapi::ADD", x, [1.0, 2.0, 3.0], 0, name="sum"))
    with pytest.raises(pumice.GraphError, match=r"\[B2\.3\] in 'outer': 'choice': then 'inner' cannot run .*'sum'"):
        outer_of(inner, SIZE)


def test_an_error_of_an_operation_names_the_graph_that_it_was_added_to() -> None:
    inner = pumice.Graph("inner")
    x = inner.input("x", "float32", [3])
    with pytest.raises(pumice.GraphError, match="in 'inner': 'sum': ") as found:
        inner.add("nnapi::ADD", x, [1.0, 2.0], 0, name="sum")
    assert found.value.node == "sum"
    with pytest.raises(pumice.UnsupportedError, match="in 'inner': "):
        inner.add("nnapi::NO_SUCH", x)


def test_a_constant_rejected_at_compile_time_names_the_path_to_its_node(context: pumice.Context) -> None:
    """1e30 overflows fp16; an IF in a branch starts with it."""
    inner = pumice.Graph("inner")
    x = inner.input("x", "float32", [None])
    huge = inner.constant(np.array([1e30, 0], "float32"))
    decides = inner.add("nnapi::LESS", inner.add("nnapi::REDUCE_SUM", x, [0], True), [0.0])
    inner.output("y", inner.add("nnapi::IF", decides, doubling(), doubling(), huge, name="deep"))
    graph = outer_of(inner, None)
    with pytest.raises(pumice.UnsupportedError, match=r"in 'outer' / If 'choice', then 'inner': node 'inner/deep'"):
        graph.compile(context, precision="fp16")


def endless() -> pumice.Graph:
    """A graph with one input that runs an infinite loop named "forever"."""
    graph, condition, body = pumice.Graph("inner"), pumice.Graph("always"), pumice.Graph("step")
    x, tested, held = (one.input("x", "float32", [2]) for one in (graph, condition, body))
    total = condition.add("nnapi::RESHAPE", condition.add("nnapi::REDUCE_SUM", tested, [0], True), [1])
    condition.output("more", condition.add("nnapi::LESS", total, [float("inf")]))
    body.output("x", body.add("nnapi::MUL", held, [0.5, 0.5], 0))
    graph.output("y", graph.add("nnapi::WHILE", condition, body, x, name="forever"))
    return graph


def test_a_loop_timeout_names_the_path_to_the_loop(context: pumice.Context) -> None:
    program = outer_of(endless(), SIZE).compile(context)
    with pytest.raises(
        pumice.TimeoutError, match=r"^in 'outer' / If 'choice', then 'inner': loop '.*forever'"
    ) as found:
        program({"c": np.array([True]), "x": FED}, loop_timeout=0.01)
    assert found.value.transient
    np.testing.assert_array_equal(program({"c": np.array([False]), "x": FED})["y"], 2 * FED)


def test_out_of_memory_in_a_branch_names_the_path_to_it(context: pumice.Context) -> None:
    """32 GiB of float64, the maximum tensor size."""
    if context.info.memory_bytes > 2**35:
        pytest.skip(
            f"the device has {context.info.memory_bytes >> 30} GiB, needs less than 32 GiB to run out of memory"
        )
    inner = pumice.Graph("inner")
    x = inner.input("x", "float32", [None])
    many = inner.add("Expand", inner.add("Cast", x, to=11), np.array([2**31 - 1, 2]))
    inner.output("y", inner.add("Cast", inner.add("ReduceSum", many, np.array([0]), keepdims=0), to=1))
    with pytest.raises(pumice.OutOfMemoryError, match=r"^in 'outer' / If 'choice', then 'inner': .*bytes"):
        outer_of(inner, None).compile(context)({"c": np.array([True]), "x": FED})


def test_a_graph_in_the_wrong_state_names_its_outer_graph() -> None:
    empty = pumice.Graph("inner")
    empty.input("x", "float32", [SIZE])
    with pytest.raises(
        pumice.StateError, match=r"^\[B2\.11\] in 'outer': 'choice': then 'inner' cannot be finished"
    ) as found:
        outer_of(empty, SIZE)
    assert found.value.rule == "B2.11"
