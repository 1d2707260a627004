"""Loop and execution timeouts, many executions at once, and malicious graphs."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

import pumice
from control_graphs import count_up, counting_loop, graph_of, identity, integer, less_than_limit, truth
from threads import in_threads

ENDLESS = {"start": integer(0), "limit": integer(2**31 - 1)}


@pytest.fixture(scope="module")
def endless() -> pumice.Graph:
    """Return a loop whose body never makes its condition false."""
    graph = pumice.Graph("endless")
    x = graph.input("x", "int32", [1])
    (last,) = graph.while_(graph_of("Less", [("int32", [1])], integer(10)), identity(), carried=[x], name="forever")
    graph.output("last", last)
    return graph


def test_a_loop_that_never_ends_is_stopped_and_the_program_stays_usable(
    context: pumice.Context, endless: pumice.Graph
) -> None:
    program = endless.compile(context)
    for _ in range(2):
        begin = time.perf_counter()
        with pytest.raises(pumice.TimeoutError, match=r"'forever'.*longer than 0\.2 s") as caught:
            program({"x": integer(0)}, loop_timeout=0.2)
        assert caught.value.transient
        assert 0.2 <= time.perf_counter() - begin < 1.5
        assert program({"x": integer(11)}, loop_timeout=0.2)["last"] == [11]


def test_the_default_is_two_seconds(context: pumice.Context, endless: pumice.Graph) -> None:
    begin = time.perf_counter()
    with pytest.raises(TimeoutError):
        endless.compile(context)({"x": integer(0)})
    assert 2 <= time.perf_counter() - begin < 4


def test_zero_stops_a_loop_whose_first_condition_is_true(context: pumice.Context) -> None:
    program = counting_loop().compile(context)
    assert program({"start": integer(4), "limit": integer(4)}, loop_timeout=0)["last"] == [4]
    with pytest.raises(pumice.TimeoutError):
        program({"start": integer(3), "limit": integer(4)}, loop_timeout=0)


def test_more_than_the_largest_is_clamped_and_none_lifts_it(
    context: pumice.Context, caplog: pytest.LogCaptureFixture
) -> None:
    program = counting_loop().compile(context)
    given = {"start": integer(0), "limit": integer(4)}
    with caplog.at_level(logging.WARNING, "pumice"):
        assert program(given, loop_timeout=60)["last"] == [4]
    assert "clamped to 15" in caplog.text
    caplog.clear()
    assert program(given, loop_timeout=None)["last"] == [4]
    assert program(given, loop_timeout=15)["last"] == [4]
    assert not caplog.text


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_what_is_no_time_is_rejected(context: pumice.Context, seconds: float) -> None:
    with pytest.raises(pumice.BindingError, match="loop_timeout"):
        counting_loop().compile(context)({"start": integer(0), "limit": integer(4)}, loop_timeout=seconds)


def test_an_inner_loop_has_a_limit_of_its_own_each_time(context: pumice.Context) -> None:
    """Ten inner loops of about 20 ms each: the limit of 0.1 s applies to each of them, not to their total."""
    body = pumice.Graph("body")
    i, spins = body.input("i", "int32", [1]), body.input("spins", "int32", [1])
    (spun,) = body.while_(less_than_limit(), count_up(), carried=[integer(0)], invariant=[spins], name="inner")
    one = body.add("Sign", spun)
    body.output("i", body.add("Add", i, one))
    condition = pumice.Graph("condition")
    i, _ = condition.input("i", "int32", [1]), condition.input("spins", "int32", [1])
    condition.output("more", condition.add("Less", i, integer(10)))
    graph = pumice.Graph()
    spins = graph.input("spins", "int32", [1])
    (last,) = graph.while_(condition, body, carried=[integer(0)], invariant=[spins], name="outer")
    graph.output("last", last)
    program = graph.compile(context)
    program({"spins": integer(1)})
    with pytest.raises(pumice.TimeoutError, match="'body/inner'"):
        program({"spins": integer(2**31 - 1)}, loop_timeout=0.1)
    assert program({"spins": integer(2)}, loop_timeout=1)["last"] == [10]


def test_an_execution_has_a_limit_too(context: pumice.Context, endless: pumice.Graph) -> None:
    program = endless.compile(context)
    begin = time.perf_counter()
    with pytest.raises(pumice.TimeoutError):
        program({"x": integer(0)}, timeout=0.2, loop_timeout=None)
    assert time.perf_counter() - begin < 1.5
    assert program({"x": integer(10)}, timeout=5)["last"] == [10]


def test_eight_threads_run_one_program(context: pumice.Context) -> None:
    program = counting_loop().compile(context)

    def work(i: int) -> list[int]:
        return [
            int(program({"start": integer(0), "limit": integer(trips)}, loop_timeout=15)["last"][0])
            for trips in (i, 20 + i)
        ]

    assert in_threads(work, range(8)) == [[i, 20 + i] for i in range(8)]


def test_thousands_of_nested_levels(context: pumice.Context) -> None:
    """Building, running and freeing them must not recurse."""
    levels = 2000
    graph = identity()
    for level in range(levels):
        outer = pumice.Graph(f"level {level}")
        x = outer.input("x", "int32", [1])
        (y,) = outer.if_(truth(True), graph, graph, inputs=[x])
        outer.output("y", y)
        graph = outer
    assert graph.compile(context)({"x": integer(5)})["y"] == [5]


def test_a_long_chain_of_graphs_is_dropped_without_recursion() -> None:
    graph = identity()
    for _ in range(50_000):
        outer = pumice.Graph()
        outer.output("y", outer.if_(truth(True), graph, graph, inputs=[outer.input("x", "int32", [1])])[0])
        graph = outer
    del graph, outer


def test_a_graph_that_is_shared_at_every_level_is_compiled_once(context: pumice.Context) -> None:
    """Expanded, it would have 2^60 nodes; a single path has 60."""
    graph = identity()
    for _ in range(60):
        outer = pumice.Graph()
        first, x = outer.input("first", "bool", [1]), outer.input("x", "int32", [1])
        inner = graph
        if len(inner.inputs) == 1:
            (y,) = outer.if_(first, inner, inner, inputs=[x])
        else:
            (y,) = outer.if_(first, inner, inner, inputs=[first, x])
        outer.output("y", y)
        graph = outer
    assert graph.compile(context)({"first": truth(True), "x": integer(3)})["y"] == [3]


def test_many_nodes_in_a_row(context: pumice.Context) -> None:
    graph = pumice.Graph()
    value = graph.input("x", "int32", [1])
    branch, other = graph_of("Add", [("int32", [1])], integer(1)), identity()
    for _ in range(300):
        (value,) = graph.if_(truth(True), branch, other, inputs=[value])
    graph.output("y", value)
    assert graph.compile(context)({"x": integer(0)})["y"] == [300]


def test_large_constants_at_the_border(context: pumice.Context) -> None:
    large = np.arange(1 << 20, dtype="int32")
    graph = pumice.Graph()
    decides = graph.input("decides", "bool", [1])
    (y,) = graph.if_(decides, graph_of("Neg", [("int32", large.shape)]), identity("int32", large.shape), inputs=[large])
    graph.output("y", y)
    program = graph.compile(context)
    np.testing.assert_array_equal(program({"decides": truth(True)})["y"], -large)
    np.testing.assert_array_equal(program({"decides": truth(False)})["y"], large)


def test_a_closed_program_is_rejected_and_frees_its_memory(context: pumice.Context) -> None:
    program = counting_loop().compile(context)
    program(ENDLESS | {"limit": integer(3)})
    with program:
        pass
    with pytest.raises(pumice.StateError, match="closed"):
        program(ENDLESS)
