"""If and While: iterations, state, branches, shapes that change, and all combinations of nesting."""

from __future__ import annotations

import time

import numpy as np
import pytest

import pumice
from control_graphs import (
    collatz,
    count_up,
    counting_loop,
    cumulated,
    fibonacci,
    graph_of,
    identity,
    integer,
    less_than_limit,
    loop_of,
    truth,
)


def choice(
    then: pumice.Graph, orelse: pumice.Graph, dtype: str = "int32", shape: tuple[int | None, ...] = (1,)
) -> pumice.Graph:
    """Return a graph with inputs (decides, x), which runs one of two graphs on x."""
    graph = pumice.Graph("choice")
    decides, x = graph.input("decides", "bool", [1]), graph.input("x", dtype, shape)
    for j, result in enumerate(graph.if_(decides, then, orelse, inputs=[x], name="if")):
        graph.output(f"y{j}", result)
    return graph


# If


def test_an_if_runs_the_branch_of_its_condition(context: pumice.Context) -> None:
    program = choice(graph_of("Neg", [("int32", [1])]), graph_of("Add", [("int32", [1])], integer(10))).compile(context)
    assert program({"decides": truth(True), "x": integer(4)})["y0"] == [-4]
    assert program({"decides": truth(False), "x": integer(4)})["y0"] == [14]


def test_an_if_without_inputs_gives_what_its_branches_hold(context: pumice.Context) -> None:
    graph = pumice.Graph()
    decides = graph.input("decides", "bool", [1])
    branches = []
    for value in (3.5, -2.0):
        branch = pumice.Graph(f"gives {value}")
        branch.output("y", branch.add("Identity", branch.constant(np.array([value, 1], "float32"))))
        branches.append(branch)
    (result,) = graph.if_(decides, *branches)
    assert result.shape == (2,)
    graph.output("y", result)
    program = graph.compile(context)
    assert program({"decides": truth(True)})["y"].tolist() == [3.5, 1]
    assert program({"decides": truth(False)})["y"].tolist() == [-2, 1]


@pytest.mark.parametrize("value", [True, False])
def test_a_constant_is_a_condition_and_an_operand(context: pumice.Context, value: bool) -> None:
    graph = pumice.Graph()
    branches = graph_of("Neg", [("int32", [3])]), graph_of("Abs", [("int32", [3])])
    (result,) = graph.if_(truth(value), *branches, inputs=[integer(1, -2, 3)])
    graph.output("y", result)
    program = graph.compile(context)
    assert program({})["y"].tolist() == ([-1, 2, -3] if value else [1, 2, 3])
    ops = {row["op"] for row in program.report()}
    assert ops == {"If", "Neg" if value else "Abs"}  # the other branch is not compiled


def test_a_condition_from_a_comparison_of_floats(context: pumice.Context) -> None:
    graph = pumice.Graph()
    a, b = graph.input("a", "float32", [1]), graph.input("b", "float32", [1])
    (larger,) = graph.if_(graph.add("Less", a, b), identity("float32"), graph_of("Neg", [("float32", [1])]), inputs=[b])
    graph.output("y", graph.add("Mul", larger, np.array([2], "float32")))
    program = graph.compile(context)
    for given_a, given_b in ((1.5, 1.5000001), (1.5, 1.5), (np.nan, 1), (-np.inf, 0)):
        y = program({"a": np.array([given_a], "float32"), "b": np.array([given_b], "float32")})["y"]
        assert y == [2 * np.float32(given_b) * (1 if np.float32(given_a) < np.float32(given_b) else -1)]


def test_branches_give_different_shapes_at_run_time(context: pumice.Context) -> None:
    grown = graph_of("Concat", [("int32", [None])], integer(7, 8), axis=0)
    graph = choice(grown, identity("int32", (None,)), shape=(None,))
    graph.output("double", doubled(graph))
    program = graph.compile(context)
    for x in ([1], [1, 2, 3]):
        yes = program({"decides": truth(True), "x": integer(*x)})
        no = program({"decides": truth(False), "x": integer(*x)})
        assert (yes["y0"].tolist(), no["y0"].tolist()) == ([*x, 7, 8], x)
        assert (yes["double"].tolist(), no["double"].tolist()) == ([2 * v for v in [*x, 7, 8]], [2 * v for v in x])


def doubled(graph: pumice.Graph) -> pumice.Value:
    y = graph.outputs["y0"]
    return graph.add("Add", y, y)


def test_branches_of_different_rank(context: pumice.Context) -> None:
    graph = choice(graph_of("Reshape", [("int32", [4])], np.array([2, 2])), identity("int32", (4,)), shape=(4,))
    program = graph.compile(context)
    assert program.outputs[0].shape is None
    x = np.arange(4, dtype="int32")
    assert program({"decides": truth(True), "x": x})["y0"].tolist() == [[0, 1], [2, 3]]
    assert program({"decides": truth(False), "x": x})["y0"].tolist() == [0, 1, 2, 3]


def test_an_if_pays_only_for_the_branch_taken(context: pumice.Context) -> None:
    program = choice(cumulated("float32", 64), identity("float32", (64,)), "float32", (64,)).compile(context)
    x = np.zeros(64, "float32")
    program({"decides": truth(True), "x": x}), program({"decides": truth(False), "x": x})
    execution = program.execution()
    execution.set("x", x)
    submissions = []
    for value in (True, False):
        execution.set("decides", truth(value))
        execution.compute()
        submissions.append(execution.report["dispatches"])
    assert submissions[0] - submissions[1] >= 39


# While


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 63, 64, 65])
def test_a_loop_runs_as_often_as_its_condition_says(context: pumice.Context, trips: int) -> None:
    program = counting_loop().compile(context)
    assert program({"start": integer(5), "limit": integer(5 + trips)})["last"] == [5 + trips]


def test_no_iteration_gives_what_was_given(context: pumice.Context) -> None:
    program = counting_loop(step=3).compile(context)
    assert program({"start": integer(9), "limit": integer(5)})["last"] == [9]
    assert program({"start": integer(0), "limit": integer(4)})["last"] == [6]


@pytest.mark.parametrize("n", [0, 1, 2, 7, 30])
def test_a_body_may_permute_its_state(context: pumice.Context, n: int) -> None:
    graph = pumice.Graph()
    limit = graph.input("n", "int32", [1])
    a, b = graph.while_(*fibonacci(), carried=[integer(0), integer(1)], state=[integer(0)], invariant=[limit])
    graph.output("a", a)
    graph.output("b", b)
    result = graph.compile(context)({"n": integer(n)})
    x, y = 0, 1
    for _ in range(n):
        x, y = y, x + y
    assert (result["a"], result["b"]) == ([x], [y])


def test_a_rotation_of_three_values_of_several_types(context: pumice.Context) -> None:
    """Only the condition reads the counter, which is a state without an output."""
    kinds = [("float32", [2]), ("float32", [2]), ("bool", [3]), ("int32", [1])]
    condition, body = pumice.Graph("more"), pumice.Graph("rotate")
    inner = [condition.input(f"x{i}", *kind) for i, kind in enumerate(kinds)]
    condition.output("more", condition.add("Less", inner[3], integer(5)))
    p, q, flags, counter = (body.input(f"x{i}", *kind) for i, kind in enumerate(kinds))
    body.output("p", body.add("Identity", q))
    body.output("q", body.add("Identity", p))
    body.output("flags", body.add("Not", flags))
    body.output("counter", body.add("Add", counter, integer(1)))
    graph = pumice.Graph()
    given = [graph.input("p", "float32", [2]), graph.input("q", "float32", [2]), graph.input("flags", "bool", [3])]
    for name, value in zip("pqf", graph.while_(condition, body, carried=given, state=[integer(0)]), strict=True):
        graph.output(name + "_last", value)
    p, q, flags = np.array([1, np.nan], "float32"), np.array([-0.0, 3], "float32"), np.array([True, False, True])
    result = graph.compile(context)({"p": p, "q": q, "flags": flags})
    assert (result["p_last"].tobytes(), result["q_last"].tobytes()) == (q.tobytes(), p.tobytes())
    assert result["f_last"].tolist() == [False, True, False]


def test_values_grow_from_one_iteration_to_the_next(context: pumice.Context) -> None:
    condition, body = pumice.Graph("short"), pumice.Graph("grow")
    x, n = condition.input("x", "int32", [None]), condition.input("n", "int32", [1])
    length = condition.add("Cast", condition.add("Shape", x), to=6)
    condition.output("more", condition.add("Less", length, n))
    x, n = body.input("x", "int32", [None]), body.input("n", "int32", [1])
    last = body.add("Slice", x, np.array([-1]), np.array([2**31]), np.array([0]))
    body.output("x", body.add("Concat", x, body.add("Mul", last, integer(2)), axis=0))
    graph = pumice.Graph()
    x, n = graph.input("x", "int32", [None]), graph.input("n", "int32", [1])
    (grown,) = graph.while_(condition, body, carried=[x], invariant=[n])
    graph.output("grown", grown)
    graph.output("sum", graph.add("ReduceSum", grown, np.array([0])))  # a node after the loop
    program = graph.compile(context)
    for length in (1, 2, 9, 23):
        result = program({"x": integer(1), "n": integer(length)})
        assert result["grown"].tolist() == [2**i for i in range(length)]
        assert result["sum"] == [2**length - 1]


def test_a_loop_that_declares_no_sizes_takes_what_it_is_given(context: pumice.Context) -> None:
    condition, body = pumice.Graph("below"), pumice.Graph("double")
    x = condition.input("x", "float32", [None])
    condition.output("more", condition.add("Less", condition.add("ReduceMax", x), np.array([100], "float32")))
    x = body.input("x", "float32", None)
    body.output("x", body.add("Add", x, x))
    graph = pumice.Graph()
    (last,) = graph.while_(condition, body, carried=[graph.input("x", "float32", None)])
    graph.output("y", last)
    program = graph.compile(context)
    for length in (1, 6, 4):
        x = np.arange(1, 1 + length, dtype="float32")
        expected = x
        while expected.max() < 100:
            expected = expected + expected
        np.testing.assert_array_equal(program({"x": x})["y"], expected)
    with pytest.raises(pumice.GraphError, match="below"):
        program({"x": np.ones((2, 2), "float32")})


def test_a_declared_size_holds_at_run_time(context: pumice.Context) -> None:
    body = graph_of("Add", [("int32", [None])], integer(1))
    ends = graph_of("Less", [("int32", [1])], integer(3))
    graph = pumice.Graph()
    (last,) = graph.while_(ends, body, carried=[graph.input("x", "int32", [None])], name="loop")
    graph.output("y", last)
    program = graph.compile(context)
    assert program({"x": integer(0)})["y"] == [3]
    with pytest.raises(pumice.GraphError, match=r"'loop'.*expected int32\[1\], given int32\[2\]"):
        program({"x": integer(0, 0)})
    assert program({"x": integer(1)})["y"] == [3]


# Nested


def test_an_if_in_a_loop(context: pumice.Context) -> None:
    """The Collatz sequence: halve or triple."""
    program = collatz().compile(context)
    for start, expected in ((1, 0), (6, 8), (27, 111)):
        assert program({"x": integer(start)})["steps"] == [expected]


def test_a_loop_in_a_branch(context: pumice.Context) -> None:
    graph = pumice.Graph()
    decides, x, limit = (
        graph.input("decides", "bool", [1]),
        graph.input("x", "int32", [1]),
        graph.input("limit", "int32", [1]),
    )
    branches = loop_of(less_than_limit(), count_up(3)), loop_of(less_than_limit(), count_up(5))
    (last,) = graph.if_(decides, *branches, inputs=[x, limit])
    graph.output("last", last)
    program = graph.compile(context)
    for value, expected in ((True, 12), (False, 10)):
        assert program({"decides": truth(value), "x": integer(0), "limit": integer(10)})["last"] == [expected]


def test_a_loop_in_a_loop_and_in_a_condition(context: pumice.Context) -> None:
    """total += count of j below i, for i below n; the outer condition also runs a loop up to i before it compares."""
    condition, body = pumice.Graph("outer more"), pumice.Graph("outer body")
    names = ("i", "total", "n")
    i, _, n = (condition.input(name, "int32", [1]) for name in names)
    (counted,) = condition.while_(
        less_than_limit(), count_up(), carried=[integer(0)], invariant=[i], name="in condition"
    )
    condition.output("more", condition.add("Less", counted, n))
    i, total, _ = (body.input(name, "int32", [1]) for name in names)
    (inner,) = body.while_(less_than_limit(), count_up(), carried=[integer(0)], invariant=[i], name="in body")
    body.output("i", body.add("Add", i, integer(1)))
    body.output("total", body.add("Add", total, inner))
    graph = pumice.Graph()
    n = graph.input("n", "int32", [1])
    i, total = graph.while_(condition, body, carried=[integer(0), integer(0)], invariant=[n])
    graph.output("i", i)
    graph.output("total", total)
    program = graph.compile(context)
    for count in (0, 1, 6):
        result = program({"n": integer(count)})
        assert (result["i"], result["total"]) == ([count], [count * (count - 1) // 2])


def test_an_if_in_an_if_with_one_graph_in_several_places(context: pumice.Context) -> None:
    negate, keep = graph_of("Neg", [("int32", [1])]), identity()
    inner = pumice.Graph("inner")
    second, x = inner.input("second", "bool", [1]), inner.input("x", "int32", [1])
    inner.output("y", inner.if_(second, negate, keep, inputs=[x])[0])
    other = pumice.Graph("other")
    second, x = other.input("second", "bool", [1]), other.input("x", "int32", [1])
    (y,) = other.if_(second, keep, negate, inputs=[x])
    other.output("y", other.add("Mul", y, integer(10)))
    graph = pumice.Graph()
    first, second, x = (
        graph.input("first", "bool", [1]),
        graph.input("second", "bool", [1]),
        graph.input("x", "int32", [1]),
    )
    graph.output("y", graph.if_(first, inner, other, inputs=[second, x])[0])
    program = graph.compile(context)
    for a in (True, False):
        for b in (True, False):
            expected = (-3 if b else 3) if a else (30 if b else -30)
            assert program({"first": truth(a), "second": truth(b), "x": integer(3)})["y"] == [expected]


# Programs that contain control flow


def test_nodes_before_between_and_after(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "int32", [1])
    (a,) = graph.while_(less_than_limit(), count_up(), carried=[graph.add("Neg", x)], invariant=[integer(3)])
    b = graph.add("Mul", a, integer(2))
    (c,) = graph.if_(graph.add("Greater", b, x), identity(), graph_of("Neg", [("int32", [1])]), inputs=[b])
    graph.output("a", a)
    graph.output("c", graph.add("Add", c, x))
    result = graph.compile(context)({"x": integer(4)})
    assert (result["a"], result["c"]) == ([3], [10])


def test_inputs_and_constants_pass_through_the_outermost_graph(context: pumice.Context) -> None:
    graph = counting_loop()
    other = pumice.Graph()
    start, limit = other.input("start", "int32", [1]), other.input("limit", "int32", [1])
    (last,) = other.while_(less_than_limit(), count_up(), carried=[start], invariant=[limit])
    other.output("last", last)
    other.output("limit_again", limit)
    other.output("seven", other.constant(integer(7, 7)))
    result = other.compile(context)({"start": integer(1), "limit": integer(4)})
    assert (result["last"], result["limit_again"], result["seven"].tolist()) == ([4], [4], [7, 7])
    assert len(graph) == 1


def test_a_loop_that_nobody_reads_is_not_run(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "int32", [1])
    endless = graph_of("Less", [("int32", [1])], integer(2**31 - 1))
    graph.while_(endless, identity(), carried=[x])
    graph.output("y", graph.add("Neg", x))
    assert graph.compile(context)({"x": integer(1)}, loop_timeout=0.0)["y"] == [-1]


def uncached_chain(graph: pumice.Graph, value: pumice.Value) -> pumice.Value:
    """Apply functions to `value` in random order, so that their kernels are in no cache."""
    random = np.random.default_rng()
    for k in range(24):
        function = random.choice(["Sin", "Tanh", "Erf", "Atan", "Cos", "Sigmoid", "Asinh"])
        value = graph.add(function, graph.add("Mul", value, np.array(k + 1.5, "float32")))
        value = graph.add("Softmax", value) if k % 3 == 0 else value
    return value


def test_the_limit_of_a_loop_is_not_for_the_compilation_of_its_body(context: pumice.Context) -> None:
    """The state grows, so the host drives the loop, and each of its two iterations compiles uncached kernels."""
    condition, body = pumice.Graph("short"), pumice.Graph("grow")
    state = condition.input("x", "float32", [None])
    length = condition.add("Shape", state)
    condition.output("more", condition.add("Less", length, condition.constant(np.array([3]))))
    state = body.input("x", "float32", [None])
    value = uncached_chain(body, state)
    body.output("x", body.add("Concat", state, body.add("ReduceMax", value, keepdims=1), axis=0))
    graph = pumice.Graph()
    (last,) = graph.while_(condition, body, carried=[graph.input("x", "float32", [None])])
    graph.output("last", last)
    program = graph.compile(context)
    begin = time.perf_counter()
    assert len(program({"x": np.ones(1, "float32")}, loop_timeout=0.5)["last"]) == 3
    if time.perf_counter() - begin < 0.5:
        pytest.skip("this driver compiles the body too quickly to see which time counts")


def test_the_limit_of_a_loop_is_not_for_the_first_run_of_its_kernels(context: pumice.Context) -> None:
    """The sizes are fixed, so the device drives the loop. Some drivers compile a kernel at its first dispatch."""
    condition, body = pumice.Graph("small"), pumice.Graph("grow")
    count = condition.add("Cast", condition.input("n", "int32", [1]), to=1)
    least = condition.add("ReduceMin", condition.add("Abs", condition.input("x", "float32", [64])), keepdims=1)
    fraction = condition.add("Min", least, np.array(0.5, "float32"))  # so that the host cannot compute the trip count
    condition.output("more", condition.add("Less", condition.add("Add", count, fraction), np.array(3, "float32")))
    count, value = body.input("n", "int32", [1]), body.input("x", "float32", [64])
    value = uncached_chain(body, value)
    body.output("n", body.add("Add", count, body.constant(integer(1))))
    body.output("x", value)
    graph = pumice.Graph()
    last, _ = graph.while_(condition, body, carried=[graph.input("n", "int32", [1]), graph.input("x", "float32", [64])])
    graph.output("n", last)
    program = graph.compile(context)
    given = {"n": integer(0), "x": np.ones(64, "float32")}
    begin = time.perf_counter()
    assert program(given, loop_timeout=0.1)["n"] == [3]
    if time.perf_counter() - begin < 0.1:
        pytest.skip("this driver compiles too quickly to see which time counts")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_floats_carried_at_every_precision(context: pumice.Context, precision: str) -> None:
    condition, body = pumice.Graph("below"), pumice.Graph("halve")
    i, _ = condition.input("i", "int32", [1]), condition.input("x", "float32", [8])
    condition.output("more", condition.add("Less", i, integer(4)))
    i, x = body.input("i", "int32", [1]), body.input("x", "float32", [8])
    body.output("i", body.add("Add", i, integer(1)))
    body.output("x", body.add("Mul", x, np.full(8, 0.5, "float32")))
    graph = pumice.Graph()
    x = graph.input("x", "float32", [8])
    i, last = graph.while_(condition, body, carried=[integer(0), x])
    graph.output("i", i)
    graph.output("x_last", last)
    given = np.arange(8, dtype="float32")
    result = graph.compile(context, precision=precision)({"x": given})
    assert (result["i"], result["x_last"].dtype) == ([4], np.float32)
    np.testing.assert_array_equal(result["x_last"], given / 16)  # exact in float16


def test_a_report_names_the_nodes_of_every_graph(context: pumice.Context) -> None:
    rows = {row["node"]: row for row in counting_loop().compile(context).report()}
    assert rows["loop"]["op"] == "While"
    assert "below" in str(rows["loop"]["note"])
    assert {rows["below/Less_0"]["op"], rows["count/Add_0"]["op"]} == {"Less", "Add"}


def test_what_is_of_one_list_of_dispatches_is_rejected_by_name(context: pumice.Context) -> None:
    program = counting_loop().compile(context)
    for call in (program.arena, program.plan, program.compiled):
        with pytest.raises(pumice.UnsupportedError, match="node 'loop': While"):
            call([(1,), (1,)])
    with pytest.raises(pumice.UnsupportedError, match="node 'loop': While"):
        program.profile((integer(0), integer(1)))


def test_keep_all_gives_what_every_node_of_the_outermost_graph_makes(context: pumice.Context) -> None:
    graph = pumice.Graph()
    start, limit = graph.input("start", "int32", [1]), graph.input("limit", "int32", [1])
    first = graph.add("Neg", start, output_names=["first"])
    (last,) = graph.while_(less_than_limit(), count_up(), carried=[first], invariant=[limit], output_names=["last"])
    graph.output("double", graph.add("Add", last, last))
    program = graph.compile(context, keep_all=True)
    result = program({"start": integer(3), "limit": integer(4)})
    assert (result["first"], result["last"], result["double"]) == ([-3], [4], [8])
