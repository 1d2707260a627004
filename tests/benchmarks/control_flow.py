"""Loops and branches compared with flat recordings: time per iteration, host polls, cost of a branch not taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import pumice

from . import peers
from .rows import Row, Table, sampled, timed
from .session import Session
from .timing import measure, sampler

US, MS = 1e6, 1e3
SIZE = 16
TRIPS = 10_000
FLAT = 100  # iterations recorded sequentially
STEPS = 1_000_000
LENGTH = 100  # dispatches of the branch
LONG, LONG_ON_SOFTWARE = 1 << 18, 1 << 8  # rows of 64 that keep a dispatch busy for more than 20 microseconds
LOOKS = 64  # iterations that the host may poll at once

Declared = tuple[tuple[str, str, list[int]], ...]
X: Declared = (("x", "float32", [SIZE, SIZE]),)
COUNTED: Declared = (("i", "int32", [1]), ("n", "int32", [1]))


def ten(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    """Add ten operators that become ten dispatches."""
    for _ in range(5):
        x = graph.add("Softmax", graph.add("CumSum", x, np.array(0)))
    return x


def bodies(declared: Declared) -> tuple[pumice.Graph, pumice.Graph]:
    """Return condition and body that count to n, given the declarations before the counter."""
    condition, body = pumice.Graph("below"), pumice.Graph("body")
    *_, i, n = (condition.input(*value) for value in (*declared, *COUNTED))
    condition.output("more", condition.add("Less", i, n))
    *values, i, _ = (body.input(*value) for value in (*declared, *COUNTED))
    for value in values:
        body.output("x_next", ten(body, value))
    body.output("i_next", body.add("Add", i, np.ones(1, "int32")))
    return condition, body


def loop_of(declared: Declared, *, known: bool, context: pumice.Context, trips: int) -> pumice.Execution:
    """Return an execution of a loop. known: the host knows n."""
    graph = pumice.Graph("loop")
    values = [graph.input(*value) for value in declared]
    n = graph.input("n", "int32", [1])
    limit = n if known else graph.add("Abs", n)
    carried = [*values, graph.constant(np.zeros(1, "int32"))]
    for j, last in enumerate(graph.while_(*bodies(declared), carried=carried, invariant=[limit])):
        graph.output(f"last{j}", last)
    execution = graph.compile(context).execution()
    for value in declared:
        execution.set(value[0], np.ones((SIZE, SIZE), "float32"))
    execution.set("n", np.array([trips], "int32"))
    results = execution.compute(loop_timeout=None)
    assert results[f"last{len(declared)}"] == [trips]
    return execution


def flat_of(context: pumice.Context) -> pumice.Execution:
    graph = pumice.Graph("flat")
    x = graph.input(*X[0])
    for _ in range(FLAT):
        x = ten(graph, x)
    graph.output("y", x)
    execution = graph.compile(context, fuse=False).execution()
    execution.set("x", np.ones((SIZE, SIZE), "float32"))
    return execution


def branch_of(context: pumice.Context, rows: int) -> pumice.Execution:
    """Return a branch of many dispatches on `rows` rows, taken if a device-computed condition is true."""
    branch, other = pumice.Graph("long"), pumice.Graph("short")
    x = branch.add("Expand", branch.input("x", "float32", [64]), np.array([rows, 64]))
    for _ in range(LENGTH):
        x = branch.add("Softmax", x)
    branch.output("y", branch.add("ReduceMean", x, np.array([0]), keepdims=0))
    other.output("y", other.add("Identity", other.input("x", "float32", [64])))
    graph = pumice.Graph("choice")
    decides, x = graph.input("decides", "bool", [1]), graph.input("x", "float32", [64])
    graph.output("y", graph.if_(graph.add("Not", decides), branch, other, inputs=[x])[0])
    execution = graph.compile(context).execution()
    execution.set("x", np.zeros(64, "float32"))
    return execution


def chosen(execution: pumice.Execution, *, taken: bool) -> None:
    execution.set("decides", np.array([not taken]))
    execution.compute()


def per_iteration(session: Session) -> Iterator[Row]:
    """Measure one iteration of a loop whose body has ten operators."""
    context = session.context
    loops = {
        "WHILE, the device decides": loop_of(X, known=False, context=context, trips=TRIPS),
        "WHILE, counted": loop_of(X, known=True, context=context, trips=TRIPS),
    }
    flat = "the body recorded flat"
    run = {label: sampler(partial(one.compute, loop_timeout=None)) for label, one in loops.items()}
    times = measure({flat: sampler(flat_of(context).compute), **run}, session.effort)
    yield timed(flat, times[flat], US / FLAT)
    yield from torch_rows(session)
    for label, one in loops.items():
        row = timed(label, times[label], US / TRIPS, times[flat].median * US / FLAT * 1.5)
        (loop,) = one.report["loops"]
        row.note = f"{loop['host_syncs']} looks of the host, {loop['wasted_iterations']} iterations wasted; target: 1.5 times flat"
        yield row


def torch_rows(session: Session) -> Iterator[Row]:
    """Measure PyTorch on CUDA, which has no loop on the device."""
    if session.software:
        return
    for what in ("eager", "a graph an iteration", "flat"):
        label = f"PyTorch, {'a CUDA graph of the flat body' if what == 'flat' else what}"
        row = Row(label)
        if peer := sampled(lambda what=what: session.torch.make(peers.torch_loop, what, SIZE, FLAT).sample, row):  # type: ignore[misc]
            row = timed(label, measure({label: peer}, session.effort, 20)[label], US / FLAT)
        yield row


def looks(session: Session) -> Iterator[Row]:
    execution = loop_of(X, known=False, context=session.context, trips=TRIPS)
    execution.compute(loop_timeout=None)  # rounds have grown by now
    (loop,) = execution.report["loops"]
    yield Row(f"WHILE of {TRIPS:,} iterations", median=float(loop["host_syncs"]), target=TRIPS / LOOKS + LOOKS / 8)


def totals(session: Session) -> Iterator[Row]:
    steps = loop_of((), known=False, context=session.context, trips=STEPS)
    scalar = f"counter loop of {STEPS:,} steps"
    times = measure({scalar: sampler(partial(steps.compute, loop_timeout=None))}, session.effort)
    yield timed(scalar, times[scalar], MS, 100.0)
    for what, rows, share in (("trivial", 1, 25), ("long", LONG_ON_SOFTWARE if session.software else LONG, 5)):
        branch = branch_of(session.context, rows)
        taken, skipped = f"IF, {LENGTH} {what} dispatches taken", "  not taken"
        times = measure(
            {
                taken: sampler(partial(chosen, branch, taken=True)),
                skipped: sampler(partial(chosen, branch, taken=False)),
            },
            session.effort,
            20,
        )
        yield timed(taken, times[taken], MS)
        row = timed(skipped, times[skipped], MS, times[taken].median * MS * share / 100)
        row.note = f"{times[skipped].median / times[taken].median:.1%} of it taken; target: {share}%"
        yield row


def run(session: Session) -> Iterator[Table]:
    yield Table("An iteration of ten operators", "us", list(per_iteration(session)))
    yield Table("Looks of the host", "times", list(looks(session)))
    yield Table("Scalar loop and branch", "ms", list(totals(session)))
