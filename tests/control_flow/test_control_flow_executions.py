"""program.execution(): state, user inputs and outputs, events and fences, timing, bursts, reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import pumice
from control_graphs import counting_loop, graph_of, identity, integer, truth
from process import output_of


def adding(context: pumice.Context) -> pumice.Program:
    """Compile x + y -> sum, without control flow."""
    graph = pumice.Graph("adding")
    graph.output("sum", graph.add("Add", graph.input("x", "int32", [None]), graph.input("y", "int32", [None])))
    return graph.compile(context)


def endless(context: pumice.Context) -> pumice.Program:
    graph = pumice.Graph("endless")
    x = graph.input("x", "int32", [1])
    (last,) = graph.while_(graph_of("Less", [("int32", [1])], integer(10)), identity(), carried=[x], name="forever")
    graph.output("last", last)
    return graph.compile(context)


def counted(context: pumice.Context, limit: int) -> pumice.Execution:
    execution = counting_loop().compile(context).execution()
    execution.set("start", integer(0))
    execution.set("limit", integer(limit))
    return execution


def growing(context: pumice.Context) -> pumice.Execution:
    """Return an execution that doubles the length of x until it has n elements."""
    condition, body = pumice.Graph("short"), pumice.Graph("grow")
    x, n = condition.input("x", "int32", [None]), condition.input("n", "int32", [1])
    condition.output("more", condition.add("Less", condition.add("Cast", condition.add("Shape", x), to=6), n))
    x = body.input("x", "int32", [None])
    body.input("n", "int32", [1])
    body.output("x", body.add("Concat", x, x, axis=0))
    graph = pumice.Graph("growing")
    x, n = graph.input("x", "int32", [None]), graph.input("n", "int32", [1])
    graph.output("y", graph.while_(condition, body, carried=[x], invariant=[n])[0])
    execution = graph.compile(context).execution()
    execution.set("x", integer(1, 2))
    return execution


@pytest.mark.parametrize("make", [lambda context: counted(context, 3), lambda context: adding(context).execution()])
def test_nothing_is_known_before_it_has_completed(
    context: pumice.Context, make: Callable[[pumice.Context], pumice.Execution]
) -> None:
    execution = make(context)
    assert execution.state == "preparation"
    for read in (
        lambda: execution.outputs,
        lambda: execution.report,
        lambda: execution.output_shape(execution.program.outputs[0].name),
        lambda: execution.timing,
    ):
        with pytest.raises(pumice.StateError):
            read()


def test_an_execution_is_used_again(context: pumice.Context) -> None:
    execution = counted(context, 3)
    assert execution.compute()["last"] == [3]
    assert execution.state == "completed"
    execution.set("limit", integer(7))
    assert execution.state == "preparation"
    assert execution.compute()["last"] == [7]
    assert execution.outputs["last"] == [7]
    assert execution.compute()["last"] == [7]


def test_inputs_are_checked_by_name(context: pumice.Context) -> None:
    execution = adding(context).execution()
    with pytest.raises(pumice.BindingError, match="'z'") as caught:
        execution.set("z", integer(1))
    assert caught.value.rule == "K4"
    with pytest.raises(pumice.BindingError, match="int32") as caught:
        execution.set("x", np.zeros(1, "float32"))
    assert caught.value.rule == "K5"
    execution.set("x", integer(1))
    with pytest.raises(pumice.BindingError, match="'y'") as caught:
        execution.compute()
    assert caught.value.rule == "K3"
    execution.set("y", np.arange(8, dtype="int32")[::2])
    execution.set("x", integer(1, 1, 1, 1))
    assert execution.compute()["sum"].tolist() == [1, 3, 5, 7]


def test_inputs_are_read_when_it_computes(context: pumice.Context) -> None:
    execution, x = adding(context).execution(), integer(1, 2)
    execution.set("x", x)
    execution.set("y", integer(0, 0))
    x[:] = 5
    assert execution.compute()["sum"].tolist() == [5, 5]


def test_outputs_go_to_the_callers_arrays(context: pumice.Context) -> None:
    for execution, name, expected in ((counted(context, 3), "last", [3]), (adding(context).execution(), "sum", [4])):
        if name == "sum":
            execution.set("x", integer(1))
            execution.set("y", integer(3))
        exact, larger = np.zeros(1, "int32"), np.full((2, 3), -1, "int32")
        execution.set_output(name, exact)
        assert np.shares_memory(execution.compute()[name], exact)
        assert exact.tolist() == expected
        execution.set_output(name, larger)
        result = execution.compute()[name]
        assert result.tolist() == expected
        assert larger.ravel().tolist() == [*expected, -1, -1, -1, -1, -1]
        assert np.shares_memory(result, larger)
        execution.set_output(name, None)
        assert not np.shares_memory(execution.compute()[name], larger)


def test_an_array_that_is_too_small_gets_the_true_shape(context: pumice.Context) -> None:
    execution = growing(context)
    execution.set("n", integer(16))
    execution.set_output("y", np.zeros(5, "int32"))
    with pytest.raises(pumice.OutputSizeError, match="64 bytes needed, given 20") as caught:
        execution.compute()
    assert (caught.value.output, caught.value.shape) == ("y", (16,))
    assert execution.output_shape("y") == (16,)
    with pytest.raises(pumice.StateError):
        _ = execution.outputs
    large = np.zeros(execution.output_shape("y"), "int32")
    execution.set_output("y", large)
    execution.compute()
    assert large.tolist() == [1, 2] * 8


def test_an_array_that_is_too_small_through_an_if(context: pumice.Context) -> None:
    graph = pumice.Graph()
    decides, x = graph.input("decides", "bool", [1]), graph.input("x", "int32", [2])
    grown = graph_of("Concat", [("int32", [2])], integer(7, 8), axis=0)
    graph.output("y", graph.if_(decides, grown, identity("int32", [2]), inputs=[x])[0])
    execution = graph.compile(context).execution()
    execution.set("x", integer(1, 2))
    execution.set_output("y", np.zeros(3, "int32"))
    execution.set("decides", truth(True))
    with pytest.raises(pumice.OutputSizeError) as caught:
        execution.compute()
    assert caught.value.shape == (4,)
    execution.set("decides", truth(False))
    assert execution.compute()["y"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "wrong", [np.zeros(1, "float32"), np.zeros((4, 4), "int32")[:, 0], np.broadcast_to(np.int32(0), (4,))]
)
def test_arrays_that_cannot_be_written_to_are_rejected(context: pumice.Context, wrong: np.ndarray) -> None:
    with pytest.raises(pumice.BindingError, match="'last'") as caught:
        counted(context, 3).set_output("last", wrong)
    assert caught.value.rule == "K5"


def test_a_loop_timeout_leaves_the_execution_usable(context: pumice.Context) -> None:
    execution = endless(context).execution()
    execution.set("x", integer(0))
    for _ in range(2):
        with pytest.raises(pumice.TimeoutError, match="forever") as caught:
            execution.compute(loop_timeout=0.05)
        assert caught.value.transient
        assert execution.state == "completed"
        with pytest.raises(pumice.StateError):
            execution.output_shape("last")
    execution.set("x", integer(12))
    assert execution.compute()["last"] == [12]


def test_a_time_that_is_over_before_it_begins_is_not_transient(context: pumice.Context) -> None:
    with pytest.raises(pumice.TimeoutError) as caught:
        counted(context, 3).compute(timeout=0)
    assert not caught.value.transient


def test_start_returns_at_once_and_the_event_ends_it(context: pumice.Context) -> None:
    execution = endless(context).execution()
    execution.set("x", integer(0))
    begin = time.perf_counter()
    event = execution.start(loop_timeout=0.3)
    assert time.perf_counter() - begin < 0.2
    assert not event.done
    assert execution.state == "computation"
    for call in (
        lambda: execution.set("x", integer(1)),
        execution.compute,
        execution.start,
        lambda: execution.set_output("last", None),
    ):
        with pytest.raises(pumice.StateError):
            call()
    with pytest.raises(pumice.TimeoutError, match="still running"):
        event.wait(timeout=0.01)
    with pytest.raises(pumice.TimeoutError, match="forever"):
        event.wait()
    assert event.done
    assert execution.state == "completed"
    execution.set("x", integer(10))
    execution.start().wait()
    assert execution.outputs["last"] == [10]


def test_an_execution_starts_when_those_it_waits_for_have_ended(context: pumice.Context) -> None:
    """The second execution reads the array that the first one writes."""
    first, second = counted(context, 200), adding(context).execution()
    passed = integer(0)
    first.set_output("last", passed)
    second.set("x", passed)
    second.set("y", integer(1))
    second.set_output("sum", np.zeros(1, "int32"))
    one = first.start()
    two = second.start(wait_for=[one, one])
    two.wait()
    assert one.done
    assert second.outputs["sum"] == [201]


def test_an_error_reaches_everything_that_waits(context: pumice.Context) -> None:
    first, second, third = endless(context).execution(), counted(context, 3), counted(context, 4)
    first.set("x", integer(0))
    one = first.start(loop_timeout=0.1)
    two = second.start(wait_for=[one])
    three = third.start(wait_for=[two])
    with pytest.raises(pumice.TimeoutError, match="forever"):
        three.wait()
    with pytest.raises(pumice.TimeoutError, match="forever"):
        two.wait()
    with pytest.raises(pumice.TimeoutError, match="forever"):
        third.start(wait_for=[two])  # waiting for a failed execution raises immediately
    assert third.compute()["last"] == [4]


def test_a_duration_counts_from_the_last_event(context: pumice.Context) -> None:
    slow, last = endless(context).execution(), endless(context).execution()
    slow.set("x", integer(0))
    last.set("x", integer(10))
    waited = counted(context, 300)
    event = waited.start(loop_timeout=15)
    last.start(wait_for=[event], duration=5).wait()
    begin = time.perf_counter()
    with pytest.raises(pumice.TimeoutError):
        slow.start(duration=0.1, loop_timeout=None).wait()
    assert time.perf_counter() - begin < 1.5
    with pytest.raises(pumice.TimeoutError):
        slow.start(timeout=0.1, duration=10, loop_timeout=None).wait()


def test_a_fenced_execution_knows_its_outputs_sizes(context: pumice.Context) -> None:
    execution = growing(context)
    execution.set("n", integer(8))
    with pytest.raises(pumice.BindingError, match=r"'y'.*known shape.*int32\[\?\]") as caught:
        execution.start()
    assert caught.value.rule == "K10"
    execution.set_output("y", np.zeros(8, "int32"))
    execution.start().wait()
    assert execution.outputs["y"].tolist() == [1, 2] * 4


def test_timing_is_measured_where_it_was_asked_for(context: pumice.Context) -> None:
    program = counting_loop().compile(context)
    plain, measured = program.execution(), program.execution(measure=True)
    for execution in (plain, measured):
        execution.set("start", integer(0))
        execution.set("limit", integer(5))
    plain.compute()
    with pytest.raises(pumice.StateError, match="measure"):
        _ = plain.timing
    measured.start(wait_for=[counted(context, 50).start()]).wait()
    timing = measured.timing
    assert 0 < timing["on_device"] <= timing["in_driver_after_fence"] <= timing["in_driver"]
    assert 0 < timing["on_device_after_fence"] <= timing["in_driver_after_fence"]
    straight = adding(context).execution(measure=True)
    straight.set("x", integer(1))
    straight.set("y", integer(1))
    straight.compute()
    assert 0 < straight.timing["on_device"] <= straight.timing["in_driver"]


def test_a_burst_runs_one_execution_at_a_time(context: pumice.Context) -> None:
    program = endless(context)
    burst, first, second = program.burst(), program.execution(), program.execution()
    first.set("x", integer(0))
    second.set("x", integer(20))
    failed: list[Exception] = []

    def work() -> None:
        try:
            burst.compute(first, loop_timeout=0.5)
        except pumice.TimeoutError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while first.state != "computation":
        time.sleep(0.001)
    with pytest.raises(pumice.StateError, match="burst"):
        burst.compute(second)
    thread.join()
    assert len(failed) == 1
    assert burst.compute(second)["last"] == [20]
    with pytest.raises(pumice.BindingError, match="burst's program"):
        burst.compute(counted(context, 1))


def test_the_report_counts_trips_and_waits(context: pumice.Context) -> None:
    execution = counted(context, 5)
    execution.compute()
    (loop,) = execution.report["loops"]
    assert (loop["node"], loop["entries"], loop["trips"]) == ("loop", 1, 5)
    assert execution.report["host_syncs"] >= loop["host_syncs"] >= 1
    execution.set("limit", integer(0))
    execution.compute()
    (loop,) = execution.report["loops"]
    assert (loop["entries"], loop["trips"]) == (1, 0)


def test_eight_executions_at_once(context: pumice.Context) -> None:
    program = counting_loop().compile(context)
    executions = [program.execution() for _ in range(8)]
    for i, execution in enumerate(executions):
        execution.set("start", integer(i))
        execution.set("limit", integer(40))
    events = [execution.start(loop_timeout=15) for execution in executions]
    for event in events:
        event.wait()
    assert [int(execution.outputs["last"][0]) for execution in executions] == [40] * 8


def test_an_event_keeps_its_execution_and_a_dropped_execution_ends(context: pumice.Context) -> None:
    program = endless(context)

    def started(value: int) -> pumice.Event:
        execution = program.execution()
        execution.set("x", integer(value))
        return execution.start(loop_timeout=None)

    started(10).wait()
    begin = time.perf_counter()
    started(0)
    assert time.perf_counter() - begin < 2


def test_the_interpreter_ends_with_a_loop_under_way() -> None:
    program = """
import numpy as np, pumice
condition, body, graph = pumice.Graph(), pumice.Graph(), pumice.Graph()
condition.output("y", condition.add("Less", condition.input("x", "int32", [1]), np.array([9], "int32")))
body.output("y", body.add("Identity", body.input("x", "int32", [1])))
graph.output("y", graph.while_(condition, body, carried=[graph.input("x", "int32", [1])])[0])
execution = graph.compile(pumice.Context()).execution()
execution.set("x", np.array([0], "int32"))
event = execution.start(loop_timeout=None)
print(event.done)
"""
    assert output_of("-c", program).split() == ["False"]
