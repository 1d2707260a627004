"""Profiles of executions of which only some have per-node timestamps: totals cover all, without the timestamp overhead."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pumice
from pumice.profiling.profile_records import DeviceSpan, Execution
from pumice.profiling.span_weights import compute_span_weights, estimate_timestamp_cost, make_rows

SCALE = """
layout(binding = 0) readonly  buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = 2 * x[i]; }
"""
NODES = (3e-6, 8e-6, 5e-6)  # seconds of three nodes with a barrier of 1 us before each but the first
BARRIER = 1e-6


def span(node: str, times: tuple[float, float, float], execution: int) -> DeviceSpan:
    return DeviceSpan(node, f"kernel of {node}", 1, *times, 100, 50, 20, (1, 1, 1), "fp32", execution)


def execution(number: int, stamp: float, fine: bool, cold: bool = False, recording: int = 1) -> Execution:
    """An execution that takes NODES and barriers; if `fine`, `stamp` more for each node but the first."""
    at, spans = 0.0, []
    for i, seconds in enumerate(NODES):
        ready = at + (BARRIER + stamp * fine if i else 0.0)
        end = ready + seconds * (100 if cold else 1) + (stamp * fine if i else 0.0)
        spans.append(span(f"n{i}", (at, ready, end), number))
        at = end
    return Execution("d", 1, 0.0, 0.0, at, cold, recording, fine, tuple(spans) if fine else ())


def device_seconds(executions: list[Execution]) -> float:
    return sum(one.seconds for one in executions)


def test_the_stamps_cost_is_taken_off() -> None:
    executions = [execution(i, 2e-6, fine=i % 4 == 0) for i in range(8)]
    assert estimate_timestamp_cost(executions) == pytest.approx(2e-6)
    rows = {row.name: row for row in make_rows(compute_span_weights(executions), "node", device_seconds(executions))}
    whole = sum(NODES) + 2 * BARRIER
    scale = device_seconds(executions) / (8 * whole)  # two of the executions did take longer
    for name, seconds in zip(("n0", "n1", "n2"), NODES, strict=True):
        assert (rows[name].spans, rows[name].measured) == (8, 2)
        assert rows[name].seconds == pytest.approx(8 * seconds * scale)
        assert (rows[name].read_bytes, rows[name].written_bytes, rows[name].flop) == (800, 400, 160)


def test_cold_executions_stand_for_themselves() -> None:
    cold = execution(0, 0.0, fine=True, cold=True)
    (row,) = [one for one in make_rows(compute_span_weights([cold]), "node", 1.0) if one.name == "n1"]
    assert row.seconds == pytest.approx(100 * NODES[1])
    executions = [cold, execution(1, 0.0, fine=True), *(execution(i, 0.0, fine=False) for i in range(2, 6))]
    assert {(one.span.execution, one.weight) for one in compute_span_weights(executions)} == {(0, 1.0), (1, 5.0)}
    rows = {row.name: row for row in make_rows(compute_span_weights(executions), "node", device_seconds(executions))}
    for name, seconds in zip(("n0", "n1", "n2"), NODES, strict=True):
        assert rows[name].seconds == pytest.approx(105 * seconds)
        assert (rows[name].spans, rows[name].measured) == (6, 2)
    assert estimate_timestamp_cost(executions) == pytest.approx(0.0, abs=1e-12)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 3)), min_size=1, max_size=40),
    st.floats(0, 5e-6),
)
def test_rows_and_barriers_add_up_to_all_executions(kinds: list[tuple[bool, bool, int]], stamp: float) -> None:
    executions = [execution(i, stamp, *kind) for i, kind in enumerate(kinds)]
    known = {one.recording for one in executions if one.fine}
    expected = sum(one.seconds for one in executions if one.recording in known)
    for by in ("node", "kernel", "dispatch"):
        rows = make_rows(compute_span_weights(executions), by, expected)
        assert sum(row.seconds + row.barrier_seconds for row in rows) == pytest.approx(expected)
        assert all(row.seconds >= 0 and row.barrier_seconds >= 0 for row in rows)
        if known:
            assert sum(row.share for row in rows) <= 1 + 1e-9


@pytest.mark.parametrize(("every", "fine"), [(None, [0, 32, 64]), (1, list(range(70))), (50, [0, 50])])
def test_executions_have_per_node_timestamps_in_rotation(
    context: pumice.Context, every: int | None, fine: list[int]
) -> None:
    commands = pumice.CommandList(context)
    scale = pumice.Kernel(SCALE, context, name="scale")
    tensors = [pumice.zeros((64,), "float32", context=context) for _ in range(3)]
    for x, y in itertools.pairwise(tensors):
        commands.dispatch(scale.bind(x=x, y=y, threads=64))
    commands.commit()
    commands.exec().wait()  # a previous run, so that no execution is cold
    for _ in range(2):  # each profile starts from zero
        with pumice.profile("node", every) as measured:
            for _ in range(70):
                commands.exec().wait()
        assert [i for i, one in enumerate(measured.executions) if one.fine] == fine
        assert all(bool(one.spans) is one.fine for one in measured.executions)
        (row,) = measured.rows()
        assert (row.spans, row.measured) == (70, len(fine))
        total = row.seconds + row.barrier_seconds
        assert total == pytest.approx(measured.device_seconds)
        assert ("stamped by node" in measured.summary()) is (len(fine) < 70)


def test_executions_in_flight_are_distinguished(context: pumice.Context) -> None:
    """Both kinds of recordings alternate while the host does not wait, and every execution has its own timestamps."""
    scale = pumice.Kernel(SCALE, context, name="scale")
    x, y = (pumice.zeros((1 << 16,), "float32", context=context) for _ in range(2))
    commands = pumice.CommandList(context)
    commands.dispatch(scale.bind(x=x, y=y, threads=1 << 16))
    commands.commit()
    with pumice.profile("node", 3) as measured:
        for _ in range(40):
            last = commands.exec()
        last.wait()
    assert len(measured.executions) == 40
    times = np.array([(one.begin, one.end) for one in measured.executions])
    assert (times[:, 1] > times[:, 0]).all()
    assert (times[1:, 0] >= times[:-1, 1] - 1e-9).all(), "executions follow one another"


def timed_and_plain(context: pumice.Context) -> tuple[pumice.CommandList, pumice.CommandList]:
    """A list with its own timestamps, and a list of two kernels without."""
    scale = pumice.Kernel(SCALE, context, name="scale")
    tensors = [pumice.zeros((1 << 16,), "float32", context=context) for _ in range(3)]
    lists = []
    for count in (1, 2):
        commands = pumice.CommandList(context)
        for x, y in itertools.islice(itertools.pairwise(tensors), count):
            commands.dispatch(scale.bind(x=x, y=y, threads=1 << 16))
        commands.commit(timing=count == 1)
        commands.exec().wait()
        lists.append(commands)
    return lists[0], lists[1]


def test_profiles_that_end_while_lists_are_executed_have_no_stamps_of_others(context: pumice.Context) -> None:
    """A thread keeps executing both lists while profiles with changing levels start and end."""
    timed, plain = timed_and_plain(context)
    done = threading.Event()

    def execute() -> None:
        while not done.is_set():
            timed.exec()
            plain.exec().wait()

    thread = threading.Thread(target=execute)
    thread.start()
    try:
        for i in range(60):
            with pumice.profile(("node", "dispatch", "execution")[i % 3], None if i % 3 == 2 else 2) as measured:
                time.sleep(0.002)
            ends = [(one.begin, one.end) for one in measured.executions]
            assert all(begin <= end for begin, end in ends)
            assert all(later >= earlier - 1e-9 for (_, earlier), (later, _) in itertools.pairwise(sorted(ends)))
            for one in measured.executions:
                inside = sum(span.seconds + span.barrier_seconds for span in one.spans)
                assert not one.fine or inside == pytest.approx(one.seconds)
    finally:
        done.set()
        thread.join()


def test_an_execution_that_is_rejected_loses_no_stamps_of_another(context: pumice.Context) -> None:
    scale = pumice.Kernel(SCALE, context, name="scale")
    x = pumice.zeros((64,), "float32", context=context)
    memory = pumice.Buffer(context, 256)
    y = pumice.Tensor(pumice.TensorDesc("float32", [64]), memory)
    commands = pumice.CommandList(context)
    commands.dispatch(scale.bind(x=x, y=y, threads=64))
    commands.commit()
    with pumice.profile("node") as measured:
        commands.exec().wait()
        memory.close()
        for _ in range(3):
            with pytest.raises(pumice.StateError, match="closed"):
                commands.exec()
    assert (len(measured.executions), measured.lost) == (1, 0)
