"""Nested If and While nodes on the device, and If nodes whose condition the device evaluates."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from control_graphs import (
    collatz,
    count_up,
    cumulated,
    graph_of,
    hidden,
    identity,
    integer,
    less_than_limit,
    only_loop,
    truth,
)


def test_an_if_in_a_loop_is_decided_on_the_device(skipping_device: pumice.Context) -> None:
    execution = collatz().compile(skipping_device).execution()
    for start, steps in ((1, 0), (2, 1), (3, 7), (27, 111), (97, 118)):
        execution.set("x", integer(start))
        result = execution.compute(loop_timeout=15)
        assert (result["x_last"], result["steps"]) == ([1], [steps])
        assert only_loop(execution)["kind"] == "device"


def test_ifs_in_ifs_in_a_loop(skipping_device: pumice.Context) -> None:
    """x becomes x + 1, x * 2 or -x, depending on x % 4 and x < 50."""
    inner = pumice.Graph("inner")
    x = inner.input("x", "int32", [1])
    small = inner.add("Less", x, integer(50))
    (y,) = inner.if_(
        small, graph_of("Mul", [("int32", [1])], integer(2)), graph_of("Neg", [("int32", [1])]), inputs=[x]
    )
    inner.output("y", inner.add("Add", y, integer(3)))
    body = pumice.Graph("body")
    x, i = body.input("x", "int32", [1]), body.input("i", "int32", [1])
    odd = body.add("Equal", body.add("Mod", x, integer(2)), integer(1))
    (y,) = body.if_(odd, inner, graph_of("Add", [("int32", [1])], integer(1)), inputs=[x])
    body.output("x", y)
    body.output("i", body.add("Add", i, integer(1)))
    condition = pumice.Graph("condition")
    x, i = condition.input("x", "int32", [1]), condition.input("i", "int32", [1])
    condition.output(
        "more", condition.add("And", condition.add("Less", i, integer(40)), condition.add("Greater", x, integer(-60)))
    )
    graph = pumice.Graph()
    x, i = graph.while_(condition, body, carried=[graph.input("x", "int32", [1]), integer(0)])
    graph.output("x_last", x)
    graph.output("i", i)
    execution = graph.compile(skipping_device).execution()
    for start in (0, 1, 6, 7, 21, 50, 51):
        value, count = start, 0
        while count < 40 and value > -60:
            value = ((value * 2 if value < 50 else -value) + 3) if value % 2 == 1 else value + 1
            count += 1
        execution.set("x", integer(start))
        result = execution.compute(loop_timeout=15)
        assert (result["x_last"], result["i"]) == ([value], [count])


def test_an_inner_loop_runs_on_the_device_and_the_outer_one_by_the_host(context: pumice.Context) -> None:
    body = pumice.Graph("outer body")
    i, total, n = (body.input(name, "int32", [1]) for name in ("i", "total", "n"))
    (inner,) = body.while_(less_than_limit(), count_up(), carried=[integer(0)], invariant=[i], name="inner")
    body.output("i", body.add("Add", i, integer(1)))
    body.output("total", body.add("Add", total, inner))
    condition = pumice.Graph("outer more")
    i, _, n = (condition.input(name, "int32", [1]) for name in ("i", "total", "n"))
    condition.output("more", condition.add("Less", i, n))
    graph = pumice.Graph()
    n = graph.input("n", "int32", [1])
    _, total = graph.while_(condition, body, carried=[integer(0), integer(0)], invariant=[n], name="outer")
    graph.output("total", total)
    execution = graph.compile(context).execution()
    execution.set("n", integer(9))
    assert execution.compute(loop_timeout=15)["total"] == [36]
    loops = {loop["node"]: loop for loop in execution.report["loops"]}
    assert (loops["outer"]["kind"], loops["outer"]["trips"]) == ("host", 9)
    assert (loops["outer body/inner"]["kind"], loops["outer body/inner"]["trips"]) == ("kernel", 36)
    assert loops["outer body/inner"]["entries"] == 9


def nested(context: pumice.Context, *, in_branch: bool, in_condition: bool) -> pumice.Execution:
    """For i in range(n), add 1 to x (two elements) i times; with in_branch, only if i is odd."""
    kinds = (("x", "int32", [2]), ("i", "int32", [1]), ("limit", "int32", [1]))

    def counting(name: str) -> tuple[pumice.Graph, pumice.Graph]:
        condition, body = pumice.Graph(f"{name} below"), pumice.Graph(f"{name} adds")
        _, i, limit = (condition.input(*kind) for kind in kinds)
        condition.output("more", condition.add("Less", i, limit))
        x, i, _ = (body.input(*kind) for kind in kinds)
        body.output("x", body.add("Add", x, integer(1)))
        body.output("i", body.add("Add", i, integer(1)))
        return condition, body

    def add_loop(graph: pumice.Graph, x: pumice.Value, limit: pumice.Value, name: str) -> pumice.Value:
        return graph.while_(*counting(name), carried=[x], state=[integer(0)], invariant=[limit], name=name)[0]

    body = pumice.Graph("outer body")
    x, i, _ = (body.input(*kind) for kind in kinds)
    doubled = body.add("Add", x, x)
    if in_branch:
        branch, other = pumice.Graph("odd"), pumice.Graph("even")
        inner_x, inner_i = branch.input("x", "int32", [2]), branch.input("i", "int32", [1])
        branch.output("y", branch.add("Neg", add_loop(branch, inner_x, inner_i, "inner")))
        other_x, _ = other.input("x", "int32", [2]), other.input("i", "int32", [1])
        other.output("y", other.add("Sub", other_x, integer(7)))
        odd = body.add("Equal", body.add("Mod", i, integer(2)), integer(1))
        (x,) = body.if_(odd, branch, other, inputs=[doubled, i])
    else:
        x = add_loop(body, doubled, i, "inner")
    body.output("x", body.add("Sub", x, integer(3)))
    body.output("i", body.add("Add", i, integer(1)))
    condition = pumice.Graph("outer below")
    x, i, limit = (condition.input(*kind) for kind in kinds)
    if in_condition:
        zeros = condition.add("Sub", x, x)
        counted = condition.add("ReduceMax", add_loop(condition, zeros, i, "counted"), np.array([0]))
        condition.output("more", condition.add("Less", counted, limit))
    else:
        condition.output("more", condition.add("Less", i, limit))
    graph = pumice.Graph("nested")
    x, n = graph.input("x", "int32", [2]), graph.input("n", "int32", [1])
    x, i = graph.while_(condition, body, carried=[x, integer(0)], invariant=[hidden(graph, n)], name="outer")
    graph.output("x_last", x)
    graph.output("i_last", i)
    return graph.compile(context).execution()


@pytest.mark.parametrize("in_branch", [False, True])
@pytest.mark.parametrize("in_condition", [False, True])
def test_a_loop_in_a_loop_takes_no_look_of_its_own(
    skipping_device: pumice.Context, in_branch: bool, in_condition: bool
) -> None:
    """Inner loops with fewer and with more iterations than a round contains."""
    execution = nested(skipping_device, in_branch=in_branch, in_condition=in_condition)
    for n in (0, 1, 2, 9, 20):
        x, entries, trips = np.array([3, -1], "int32"), 0, 0
        execution.set("x", x)
        execution.set("n", integer(n))
        with np.errstate(over="ignore"):
            for i in range(n):
                x = x + x
                if in_branch and i % 2 == 0:
                    x = x - 7
                else:
                    x, entries, trips = x + i, entries + 1, trips + i
                    x = -x if in_branch else x
                x = x - 3
        result = execution.compute(loop_timeout=15)
        assert (result["x_last"].tolist(), result["i_last"].tolist()) == (x.tolist(), [n])
        loops = {str(loop["node"]).rpartition("/")[2]: loop for loop in execution.report["loops"]}
        assert (loops["outer"]["kind"], loops["outer"]["trips"]) == ("device", n)
        if n:
            assert (loops["inner"]["kind"], loops["inner"]["entries"], loops["inner"]["trips"]) == (
                "device",
                entries,
                trips,
            )
        if n and in_condition:
            assert (loops["counted"]["entries"], loops["counted"]["trips"]) == (n + 1, n * (n + 1) // 2)
        assert execution.report["host_syncs"] <= 3 + n


def test_an_inner_loop_that_never_ends_is_stopped_and_nothing_of_it_stays(skipping_device: pumice.Context) -> None:
    kinds = (("x", "int32", [2]), ("i", "int32", [1]), ("limit", "int32", [1]))
    inner_condition, inner_body = pumice.Graph("inner below"), pumice.Graph("inner body")
    x, _, limit = (inner_condition.input(*kind) for kind in kinds)
    inner_condition.output(
        "more", inner_condition.add("Less", inner_condition.add("ReduceMax", x, np.array([0])), limit)
    )
    x, i, _ = (inner_body.input(*kind) for kind in kinds)
    inner_body.output("x", inner_body.add("Identity", x))
    inner_body.output("i", inner_body.add("Add", i, integer(1)))
    condition, body = pumice.Graph("outer below"), pumice.Graph("outer body")
    _, i, _ = (condition.input(*kind) for kind in kinds)
    condition.output("more", condition.add("Less", i, integer(5)))
    x, i, limit = (body.input(*kind) for kind in kinds)
    x, _ = body.while_(inner_condition, inner_body, carried=[x, integer(0)], invariant=[limit], name="inner")
    body.output("x", body.add("Add", x, integer(1)))
    body.output("i", body.add("Add", i, integer(1)))
    graph = pumice.Graph("nested")
    x, limit = graph.input("x", "int32", [2]), graph.input("limit", "int32", [1])
    (x,) = graph.while_(
        condition, body, carried=[x], state=[integer(0)], invariant=[hidden(graph, limit)], name="outer"
    )
    graph.output("x_last", x)
    execution = graph.compile(skipping_device).execution()
    execution.set("x", integer(3, 4))
    for _ in range(2):
        execution.set("limit", integer(6))
        with pytest.raises(pumice.TimeoutError, match="'outer'"):
            execution.compute(loop_timeout=0.1)
        execution.set("limit", integer(0))
        assert execution.compute(loop_timeout=15)["x_last"].tolist() == [8, 9]


def test_an_if_by_an_input_takes_no_look(context: pumice.Context) -> None:
    graph = pumice.Graph()
    decides, x = graph.input("decides", "bool", [1]), graph.input("x", "int32", [1])
    graph.output("y", graph.if_(decides, graph_of("Neg", [("int32", [1])]), identity(), inputs=[x])[0])
    execution = graph.compile(context).execution()
    execution.set("x", integer(3))
    for value, expected in ((True, -3), (False, 3)):
        execution.set("decides", truth(value))
        assert execution.compute()["y"] == [expected]
        assert execution.report["host_syncs"] == 0


def test_a_short_if_is_decided_on_the_device(skipping_device: pumice.Context) -> None:
    """The condition is unknown to the host; branches have several dispatches, a nested If, outputs of two dtypes, and a node follows."""
    inner = pumice.Graph("inner")
    x, small = inner.input("x", "int32", [3]), inner.input("small", "bool", [1])
    (y,) = inner.if_(small, graph_of("Neg", [("int32", [3])]), identity("int32", [3]), inputs=[x])
    inner.output("y", inner.add("Add", inner.add("CumSum", y, np.array(0)), integer(100)))
    inner.output("flags", inner.add("Less", y, integer(0)))
    other = pumice.Graph("other")
    x, _ = other.input("x", "int32", [3]), other.input("small", "bool", [1])
    other.output("y", other.add("Abs", x))
    other.output("flags", other.add("Greater", x, integer(0)))
    graph = pumice.Graph()
    x, n = graph.input("x", "int32", [3]), hidden(graph, graph.input("n", "int32", [1]))
    y, flags = graph.if_(graph.add("Less", n, integer(10)), inner, other, inputs=[x, graph.add("Less", n, integer(5))])
    graph.output("y", graph.add("Mul", y, integer(2)))
    graph.output("flags", flags)
    execution = graph.compile(skipping_device).execution()
    given = integer(1, -2, 3)
    execution.set("x", given)
    for n in (3, 7, 12, 3, 12):
        execution.set("n", integer(n))
        result = execution.compute()
        chosen = -given if n < 5 else given
        y, flags = (np.cumsum(chosen) + 100, chosen < 0) if n < 10 else (np.abs(given), given > 0)
        assert (result["y"].tolist(), result["flags"].tolist()) == ((2 * y).tolist(), flags.tolist())
        assert execution.report["host_syncs"] == 0


def test_a_long_if_and_one_of_several_shapes_are_decided_by_the_host(context: pumice.Context) -> None:
    grown = graph_of("Concat", [("int32", [2])], integer(7), axis=0)
    for branch, expected in ((cumulated("int32", 2), [1, 42]), (grown, [1, 2, 7])):
        graph = pumice.Graph()
        x, decides = graph.input("x", "int32", [2]), graph.input("decides", "bool", [1])
        graph.output("y", graph.if_(graph.add("Not", decides), branch, identity("int32", [2]), inputs=[x])[0])
        execution = graph.compile(context).execution()
        execution.set("x", integer(1, 2))
        for value in (False, True):
            execution.set("decides", truth(value))
            assert execution.compute()["y"].tolist() == ([1, 2] if value else expected)
            assert execution.report["host_syncs"] == 1
