"""Loops that the device runs by itself: rounds behind predicates, repeats of a known number, and what skips dispatches where."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import pumice
from control_graphs import (
    count_up,
    counting_loop,
    fibonacci,
    graph_of,
    identity,
    integer,
    less_than_limit,
    loop_of,
    truth,
)


@pytest.fixture(scope="module", params=["words", "counts"])
def device(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """Dispatches are skipped by predicate words, or by group counts of zero where the device has no conditional rendering."""
    if request.param == "words":
        if not pumice_context.feature("conditionalRendering"):
            pytest.skip("the device has no conditional rendering")
        yield pumice_context
        return
    with pumice.Context(
        pumice_context.info.uuid and f"uuid:{pumice_context.info.uuid}", without=["conditionalRendering"]
    ) as context:
        yield context


def hidden(graph: pumice.Graph, value: pumice.Value) -> pumice.Value:
    """The same value as one that the host does not know."""
    return graph.add("Abs", value)


def fibonacci_loop(context: pumice.Context, size: int = 2) -> pumice.Execution:
    """Of vectors, so that it is no loop over single elements; of single elements it is one kernel."""
    graph = pumice.Graph("fibonacci")
    n = hidden(graph, graph.input("n", "int32", [1]))
    first, second = np.zeros(size, "int32"), np.ones(size, "int32")
    a, b = graph.while_(*fibonacci(size), carried=[first, second], state=[integer(0)], invariant=[n], name="loop")
    graph.output("a", a)
    graph.output("b", b)
    return graph.compile(context).execution()


def expected_fibonacci(n: int) -> tuple[int, int]:
    a, b = np.int32(0), np.int32(1)
    with np.errstate(over="ignore"):
        for _ in range(n):
            a, b = b, a + b
    return int(a), int(b)


def counted_vectors(context: pumice.Context, step: int = 1) -> pumice.Execution:
    """x doubled as often as a counter goes from start to below limit."""
    condition, body = pumice.Graph("more"), pumice.Graph("double")
    values = (("x", "float32", [3]), ("i", "int32", [1]), ("n", "int32", [1]))
    _, i, n = (condition.input(*value) for value in values)
    condition.output("more", condition.add("Less", i, n))
    x, i, _ = (body.input(*value) for value in values)
    body.output("x", body.add("Neg", x))
    body.output("i", body.add("Add", i, integer(step)))
    graph = pumice.Graph("counted")
    x, start, limit = (
        graph.input("x", "float32", [3]),
        graph.input("start", "int32", [1]),
        graph.input("limit", "int32", [1]),
    )
    x, last = graph.while_(condition, body, carried=[x, start], invariant=[limit], name="loop")
    graph.output("y", x)
    graph.output("last", last)
    execution = graph.compile(context).execution()
    execution.set("x", np.array([1, -2, 0.5], "float32"))
    return execution


def only_loop(execution: pumice.Execution) -> dict[str, object]:
    (loop,) = execution.report["loops"]
    return loop


def test_rounds_end_where_the_condition_does(device: pumice.Context) -> None:
    execution = fibonacci_loop(device)
    for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 127, 128, 129, 257, 0, 5):
        execution.set("n", integer(n))
        result = execution.compute(loop_timeout=15)
        assert (int(result["a"][0]), int(result["b"][0])) == expected_fibonacci(n), n
        loop = only_loop(execution)
        assert (loop["kind"], loop["trips"], loop["entries"]) == ("device", n, 1)


def test_the_host_looks_once_in_sixty_four_iterations(context: pumice.Context) -> None:
    execution = fibonacci_loop(context)
    execution.set("n", integer(3000))
    for _ in range(2):
        execution.compute(loop_timeout=None)
    loop = only_loop(execution)
    assert loop["trips"] == 3000
    assert loop["host_syncs"] <= 3000 / 64 + 7
    assert loop["wasted_iterations"] <= 2 * 128


def test_single_elements_go_through_one_kernel(context: pumice.Context) -> None:
    execution = fibonacci_loop(context, size=1)
    for n in (0, 1, 2, 30, 4095, 4096, 4097, 100_000, 3):
        execution.set("n", integer(n))
        result = execution.compute(loop_timeout=15)
        assert (int(result["a"][0]), int(result["b"][0])) == expected_fibonacci(n), n
        loop = only_loop(execution)
        assert (loop["kind"], loop["trips"], loop["wasted_iterations"]) == ("kernel", n, 0)


def test_a_kernel_keeps_the_bits_of_floats_and_the_truth_of_bools(context: pumice.Context) -> None:
    """The same loop over one element, by the kernel, and over three equal ones, by rounds."""

    def run(size: int) -> tuple[str, np.ndarray, np.ndarray]:
        condition, body = pumice.Graph("more"), pumice.Graph("next")
        values = (("x", "float32", [size]), ("flag", "bool", [size]), ("i", "int32", [1]))
        _, _, i = (condition.input(*value) for value in values)
        condition.output("more", condition.add("Not", condition.add("Equal", i, integer(50))))
        x, flag, i = (body.input(*value) for value in values)
        third = body.add(
            "Div", body.add("Add", body.add("Mul", x, np.array([1.1], "float32")), np.array([0.3], "float32")), x
        )
        body.output("x", body.add("Where", flag, third, body.add("Sub", x, np.array([1e-3], "float32"))))
        body.output("flag", body.add("Xor", flag, body.add("Greater", x, np.array([1.7], "float32"))))
        body.output("i", body.add("Add", i, integer(1)))
        graph = pumice.Graph()
        x, flag = graph.input("x", "float32", [size]), graph.input("flag", "bool", [size])
        x, flag = graph.while_(condition, body, carried=[x, flag], state=[integer(0)])
        graph.output("y", x)
        graph.output("flag_last", flag)
        execution = graph.compile(context).execution()
        execution.set("x", np.full(size, 3.25, "float32"))
        execution.set("flag", np.full(size, True))
        result = execution.compute(loop_timeout=15)
        return str(only_loop(execution)["kind"]), result["y"], result["flag_last"]

    (kind, y, flag), (other_kind, ys, flags) = run(1), run(3)
    assert (kind, other_kind) == ("kernel", "device")
    assert y.tobytes() * 3 == ys.tobytes()
    assert flag.tobytes() * 3 == flags.tobytes()


def test_a_million_steps_of_a_counter(context: pumice.Context) -> None:
    execution = counting_loop().compile(context).execution()
    execution.set("start", integer(0))
    execution.set("limit", integer(1_000_000))
    assert execution.compute(loop_timeout=15)["last"] == [1_000_000]
    loop = only_loop(execution)
    assert (loop["kind"], loop["trips"]) == ("kernel", 1_000_000)
    assert loop["host_syncs"] < 1_000_000 / 4096


def test_what_has_been_recorded_is_replayed(context: pumice.Context) -> None:
    execution = fibonacci_loop(context)
    buffers = []
    for _ in range(6):
        execution.set("n", integer(9))
        execution.compute()
        buffers.append(context.memory.buffers)
    assert len(set(buffers[3:])) == 1


@pytest.mark.slow
def test_a_hundred_thousand_iterations(context: pumice.Context) -> None:
    execution = fibonacci_loop(context)
    execution.set("n", integer(100_000))
    result = execution.compute(loop_timeout=None)
    assert (int(result["a"][0]), int(result["b"][0])) == expected_fibonacci(100_000)


def test_a_loop_that_never_ends_is_stopped_on_the_device(device: pumice.Context) -> None:
    graph = pumice.Graph("endless")
    x = hidden(graph, graph.input("x", "int32", [1]))
    ends = pumice.Graph("ends")
    ends.output("more", ends.add("Less", ends.add("ReduceMax", ends.input("x", "int32", [1])), integer(10)))
    (last,) = graph.while_(ends, identity(), carried=[x], name="forever")
    graph.output("last", last)
    execution = graph.compile(device).execution()
    for _ in range(2):
        execution.set("x", integer(0))
        with pytest.raises(pumice.TimeoutError, match=r"'forever'.*after \d+ iterations"):
            execution.compute(loop_timeout=0.1)
        execution.set("x", integer(11))
        assert execution.compute(loop_timeout=0.1)["last"] == [11]


def test_zero_stops_a_loop_whose_first_condition_is_true_on_the_device(device: pumice.Context) -> None:
    execution = fibonacci_loop(device)
    execution.set("n", integer(1))
    with pytest.raises(pumice.TimeoutError):
        execution.compute(loop_timeout=0)
    execution.set("n", integer(0))
    assert execution.compute(loop_timeout=0)["a"].tolist() == [0, 0]


def collatz(context: pumice.Context) -> pumice.Execution:
    even, odd = graph_of("Div", [("int32", [1])], integer(2)), pumice.Graph("odd")
    odd.output("y", odd.add("Add", odd.add("Mul", odd.input("x", "int32", [1]), integer(3)), integer(1)))
    condition, body = pumice.Graph("more"), pumice.Graph("collatz")
    x, _ = condition.input("x", "int32", [1]), condition.input("steps", "int32", [1])
    condition.output("more", condition.add("Greater", x, integer(1)))
    x, steps = body.input("x", "int32", [1]), body.input("steps", "int32", [1])
    is_even = body.add("Equal", body.add("Mod", x, integer(2)), integer(0))
    body.output("x", body.if_(is_even, even, odd, inputs=[x])[0])
    body.output("steps", body.add("Add", steps, integer(1)))
    graph = pumice.Graph()
    x, steps = graph.while_(condition, body, carried=[graph.input("x", "int32", [1]), integer(0)])
    graph.output("x_last", x)
    graph.output("steps", steps)
    return graph.compile(context).execution()


def test_an_if_in_a_loop_is_decided_on_the_device(device: pumice.Context) -> None:
    execution = collatz(device)
    for start, steps in ((1, 0), (2, 1), (3, 7), (27, 111), (97, 118)):
        execution.set("x", integer(start))
        result = execution.compute(loop_timeout=15)
        assert (result["x_last"], result["steps"]) == ([1], [steps])
        assert only_loop(execution)["kind"] == "device"


def test_ifs_in_ifs_in_a_loop(device: pumice.Context) -> None:
    """x becomes x + 1, x * 2 or -x, by x % 4 and x < 50."""
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
    execution = graph.compile(device).execution()
    for start in (0, 1, 6, 7, 21, 50, 51):
        value, count = start, 0
        while count < 40 and value > -60:
            value = ((value * 2 if value < 50 else -value) + 3) if value % 2 == 1 else value + 1
            count += 1
        execution.set("x", integer(start))
        result = execution.compute(loop_timeout=15)
        assert (result["x_last"], result["i"]) == ([value], [count])


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 300])
def test_a_counted_loop_is_repeated_without_a_look(context: pumice.Context, trips: int) -> None:
    execution = counted_vectors(context, step=3)
    execution.set("start", integer(-4))
    execution.set("limit", integer(-4 + 3 * trips - 1 if trips else -4))
    result = execution.compute(loop_timeout=15)
    assert result["last"] == [-4 + 3 * trips]
    assert result["y"].tolist() == ([-1, 2, -0.5] if trips % 2 else [1, -2, 0.5])
    loop = only_loop(execution)
    assert (loop["kind"], loop["trips"], loop["wasted_iterations"]) == ("counted", trips, 0)


def test_rounds_of_a_long_counted_loop_stay_long(context: pumice.Context) -> None:
    execution = counted_vectors(context)
    execution.set("start", integer(0))
    execution.set("limit", integer(6000))
    for _ in range(2):
        execution.compute(loop_timeout=None)
    assert only_loop(execution)["host_syncs"] <= 6000 / 64 + 7


def test_a_counter_with_a_constant_end_and_other_state(context: pumice.Context) -> None:
    condition, body = pumice.Graph("more"), pumice.Graph("double")
    _, i = condition.input("x", "float32", [3]), condition.input("i", "int32", [1])
    condition.output("more", condition.add("Less", i, integer(9)))
    x, i = body.input("x", "float32", [3]), body.input("i", "int32", [1])
    body.output("x", body.add("Add", x, x))
    body.output("i", body.add("Add", integer(2), i))
    graph = pumice.Graph()
    (x,) = graph.while_(condition, body, carried=[graph.input("x", "float32", [3])], state=[integer(0)])
    graph.output("y", x)
    execution = graph.compile(context).execution()
    execution.set("x", np.array([1, -2, 0.5], "float32"))
    assert execution.compute()["y"].tolist() == [32, -64, 16]
    assert (only_loop(execution)["kind"], only_loop(execution)["trips"]) == ("counted", 5)


def test_a_counter_that_would_overflow_is_no_counted_loop(context: pumice.Context) -> None:
    execution = counted_vectors(context, step=2**30)
    execution.set("start", integer(0))
    execution.set("limit", integer(2**31 - 1))
    with pytest.raises(pumice.TimeoutError):  # 2^30, -2^31, -2^30, 0, ..
        execution.compute(loop_timeout=0.05)
    execution.set("limit", integer(2**30))
    assert execution.compute()["last"] == [2**30]
    assert only_loop(execution)["kind"] == "counted"


def test_a_counted_loop_keeps_to_its_time(context: pumice.Context) -> None:
    execution = counted_vectors(context)
    execution.set("start", integer(0))
    execution.set("limit", integer(2**31 - 1))
    with pytest.raises(pumice.TimeoutError, match="'loop'"):
        execution.compute(loop_timeout=0.1)
    with pytest.raises(pumice.TimeoutError):
        execution.compute(timeout=0.1, loop_timeout=None)
    execution.set("limit", integer(5))
    assert execution.compute()["last"] == [5]


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
    """i, x, n: for i below n, x (two elements) gains 1 as often as i says, in a branch only where i is odd."""
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
def test_a_loop_in_a_loop_takes_no_look_of_its_own(device: pumice.Context, in_branch: bool, in_condition: bool) -> None:
    """Inner loops shorter and longer than what a round holds of them."""
    execution = nested(device, in_branch=in_branch, in_condition=in_condition)
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


def test_an_inner_loop_that_never_ends_is_stopped_and_nothing_of_it_stays(device: pumice.Context) -> None:
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
    execution = graph.compile(device).execution()
    execution.set("x", integer(3, 4))
    for _ in range(2):
        execution.set("limit", integer(6))
        with pytest.raises(pumice.TimeoutError, match="'outer'"):
            execution.compute(loop_timeout=0.1)
        execution.set("limit", integer(0))
        assert execution.compute(loop_timeout=15)["x_last"].tolist() == [8, 9]


def test_results_of_a_loop_stay_when_it_is_entered_again(context: pumice.Context) -> None:
    """Two entries of one loop in one execution: the first one's result is still needed after the second."""
    counting = loop_of(less_than_limit(), count_up(), name="counting")
    graph = pumice.Graph()
    limit = graph.input("limit", "int32", [1])
    (first,) = graph.if_(truth(True), counting, counting, inputs=[integer(0), hidden(graph, limit)])
    (second,) = graph.if_(truth(True), counting, counting, inputs=[integer(100), graph.add("Mul", first, integer(20))])
    graph.output("both", graph.add("Concat", first, second, axis=0))
    assert graph.compile(context)({"limit": integer(7)})["both"].tolist() == [7, 140]


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


def test_guarded_and_unguarded_rounds_give_the_same_bits(device: pumice.Context, context: pumice.Context) -> None:
    """A body of several kinds of kernels, by the device's predicates and by the host."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((8, 8)).astype("float32") / 4
    body = pumice.Graph("body")
    x, i, n = body.input("x", "float32", [4, 8]), body.input("i", "int32", [1]), body.input("n", "int32", [1])
    y = body.add("Tanh", body.add("MatMul", x, weight))
    y = body.add("Softmax", body.add("Transpose", body.add("Transpose", y, perm=[1, 0]), perm=[1, 0]))
    body.output("x", body.add("Add", y, body.add("CumSum", x, np.array(1))))
    body.output("i", body.add("Add", i, integer(1)))
    condition = pumice.Graph("condition")
    _, i, n = (
        condition.input("x", "float32", [4, 8]),
        condition.input("i", "int32", [1]),
        condition.input("n", "int32", [1]),
    )
    condition.output("more", condition.add("Less", i, n))
    graph = pumice.Graph()
    x, n = graph.input("x", "float32", [4, 8]), graph.input("n", "int32", [1])
    (last,) = graph.while_(condition, body, carried=[x], state=[integer(0)], invariant=[hidden(graph, n)])
    (flat,) = graph.while_(condition, body, carried=[x], state=[integer(0)], invariant=[n])
    graph.output("last", last)
    graph.output("flat", flat)
    execution = graph.compile(device).execution()
    execution.set("x", rng.standard_normal((4, 8)).astype("float32") / 8)
    for trips in (1, 2, 5):
        execution.set("n", integer(trips))
        result = execution.compute(loop_timeout=15)
        assert sorted(str(loop["kind"]) for loop in execution.report["loops"]) == ["counted", "device"]
        assert result["last"].tobytes() == result["flat"].tobytes()
