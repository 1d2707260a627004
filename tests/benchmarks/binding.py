"""The cost of binding a table of 20 tensors with all checks; replay has no such cost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import pumice

from .rows import Table, timed
from .session import Session
from .timing import measure, sampler

US = 1e6
PAIRS = 10
RUNS = 5000


def table_of(
    context: pumice.Context,
) -> tuple[pumice.BindingTable, list[pumice.Tensor], list[pumice.Tensor]]:
    """Return a graph with ten inputs and ten outputs, bound, run and checked."""
    graph = pumice.Graph("ten")
    for i in range(PAIRS):
        graph.output(f"y{i}", graph.add("Relu", graph.input(f"x{i}", "float32", [4, 64, 8, 8])))
    compiled = graph.compile_operator(context)
    x = np.linspace(-1, 1, 4 * 64 * 8 * 8, dtype="float32").reshape(4, 64, 8, 8)
    inputs = [pumice.tensor(x, context) for _ in range(PAIRS)]
    outputs = [pumice.tensor(x, context) for _ in range(PAIRS)]
    table, initializer = pumice.BindingTable(compiled), pumice.Initializer(context, [compiled])
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)
    commands = pumice.CommandList(context)
    commands.dispatch(initializer, pumice.BindingTable(initializer))
    commands.dispatch(compiled, table)
    commands.commit()
    commands.exec().wait()
    assert all((y.numpy() == np.maximum(x, 0)).all() for y in outputs)
    return table, inputs, outputs


def bind(table: pumice.BindingTable, inputs: list[object], outputs: list[object]) -> None:
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)


def run(session: Session) -> Iterator[Table]:
    table, inputs, outputs = table_of(session.context)
    ranges = [[pumice.BufferRange(one.buffer) for one in tensors] for tensors in (inputs, outputs)]
    names = {f"x{i}": one for i, one in enumerate(inputs)} | {f"y{i}": one for i, one in enumerate(outputs)}
    targets = {"in C++": 5.0, "lists of ranges": 30.0, "lists of Tensors": 30.0, "by name": None}
    samplers = {
        "in C++": partial(table.time_bindings, inputs, outputs),
        "lists of ranges": sampler(partial(bind, table, *ranges)),
        "lists of Tensors": sampler(partial(bind, table, inputs, outputs)),
        "by name": sampler(partial(table.bind, **names)),
    }
    times = measure(samplers, session.effort, RUNS)
    rows = [timed(label, measured, US, targets[label]) for label, measured in times.items()]
    yield Table("Binding a table of 20 tensors with all checks", "us", rows)
