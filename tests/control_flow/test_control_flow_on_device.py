"""Loops driven by the device: predicated rounds, counted repeats, and the mechanisms that skip dispatches."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from control_graphs import (
    count_up,
    counting_loop,
    fibonacci,
    hidden,
    identity,
    integer,
    less_than_limit,
    loop_of,
    only_loop,
    truth,
)


def fibonacci_loop(context: pumice.Context, size: int = 2) -> pumice.Execution:
    """Return a loop over vectors, because a loop over single elements becomes one kernel."""
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
    """Double x once per step of a counter from `start` to below `limit`."""
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


def test_rounds_end_where_the_condition_does(skipping_device: pumice.Context) -> None:
    execution = fibonacci_loop(skipping_device)
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
    """A loop over one element runs as a single kernel, the same loop over three equal elements in rounds."""

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


def test_a_loop_that_never_ends_is_stopped_on_the_device(skipping_device: pumice.Context) -> None:
    graph = pumice.Graph("endless")
    x = hidden(graph, graph.input("x", "int32", [1]))
    ends = pumice.Graph("ends")
    ends.output("more", ends.add("Less", ends.add("ReduceMax", ends.input("x", "int32", [1])), integer(10)))
    (last,) = graph.while_(ends, identity(), carried=[x], name="forever")
    graph.output("last", last)
    execution = graph.compile(skipping_device).execution()
    for _ in range(2):
        execution.set("x", integer(0))
        with pytest.raises(pumice.TimeoutError, match=r"'forever'.*after \d+ iterations"):
            execution.compute(loop_timeout=0.1)
        execution.set("x", integer(11))
        assert execution.compute(loop_timeout=0.1)["last"] == [11]


def test_zero_stops_a_loop_whose_first_condition_is_true_on_the_device(skipping_device: pumice.Context) -> None:
    execution = fibonacci_loop(skipping_device)
    execution.set("n", integer(1))
    with pytest.raises(pumice.TimeoutError):
        execution.compute(loop_timeout=0)
    execution.set("n", integer(0))
    assert execution.compute(loop_timeout=0)["a"].tolist() == [0, 0]


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


def test_results_of_a_loop_stay_when_it_is_entered_again(context: pumice.Context) -> None:
    """One loop runs twice in an execution, and the first result is still needed after the second run."""
    counting = loop_of(less_than_limit(), count_up(), name="counting")
    graph = pumice.Graph()
    limit = graph.input("limit", "int32", [1])
    (first,) = graph.if_(truth(True), counting, counting, inputs=[integer(0), hidden(graph, limit)])
    (second,) = graph.if_(truth(True), counting, counting, inputs=[integer(100), graph.add("Mul", first, integer(20))])
    graph.output("both", graph.add("Concat", first, second, axis=0))
    assert graph.compile(context)({"limit": integer(7)})["both"].tolist() == [7, 140]


def test_guarded_and_unguarded_rounds_give_the_same_bits(
    skipping_device: pumice.Context, context: pumice.Context
) -> None:
    """A body with several kinds of kernels, predicated by the device and driven by the host."""
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
    execution = graph.compile(skipping_device).execution()
    execution.set("x", rng.standard_normal((4, 8)).astype("float32") / 8)
    for trips in (1, 2, 5):
        execution.set("n", integer(trips))
        result = execution.compute(loop_timeout=15)
        assert sorted(str(loop["kind"]) for loop in execution.report["loops"]) == ["counted", "device"]
        assert result["last"].tobytes() == result["flat"].tobytes()
