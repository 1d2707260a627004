"""Launch overhead: y = x + 1 on 1,024 floats from Python, compared with the device's own submit and wait."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

import pumice

from .peers import torch_launch
from .rows import Row, Table, timed
from .session import Session
from .timing import Absent, Sampler, Times, measure, sampler

US = 1e6
MANY = 100
RUNS = 2000  # calls per round
MODEL = "model of 1: NumPy in and out"
SLACK = 5.0  # microseconds: processor caches are colder after a longer wait; a cost per dispatch would be more
PAIRS = 300

ADD_ONE = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < 1024u) y[i] = x[i] + 1.0; }
"""


def add_one(context: pumice.Context) -> pumice.Kernel:
    return pumice.Kernel(ADD_ONE, context=context, name="add_one")


def list_of(dispatches: int, context: pumice.Context) -> pumice.CommandList:
    """Return a committed list of dispatches, each reading the previous one's output."""
    kernel = add_one(context)
    tensors = [pumice.tensor(np.zeros(1024, "float32"), context) for _ in range(2)]
    commands = pumice.CommandList(context)
    for i in range(dispatches):
        commands.dispatch(kernel.bind(x=tensors[i % 2], y=tensors[(i + 1) % 2], groups=16))
    commands.commit()
    commands.exec().wait()
    assert (np.asarray(tensors[dispatches % 2]) == dispatches).all()
    return commands


def program_of(nodes: int, context: pumice.Context) -> pumice.Program:
    graph = pumice.Graph("add_one")
    value = graph.input("x", "float32", [1024])
    one = graph.constant(np.ones(1, "float32"))
    for _ in range(nodes):
        value = graph.add("Add", value, one)
    graph.output("y", value)
    program = graph.compile(context, fuse=False)
    assert (program.call((np.zeros(1024, "float32"),))[0] == nodes).all()
    return program


def model_of_one(context: pumice.Context) -> pumice.Model:
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1024]) for name in "xy"]
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "add_one", value[:1], value[1:], [one])
    opset = [helper.make_opsetid("", 17)]
    return pumice.load(helper.make_model(graph, opset_imports=opset, ir_version=8), context=context)


def replay(commands: pumice.CommandList) -> None:
    commands.exec().wait()


def processor_time(call: Callable[[], object]) -> float:
    """Return the processor seconds of this thread, excluding a software driver's threads."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def python_cost(session: Session, times: Mapping[str, Times], count: int, commands: pumice.CommandList) -> Row:
    """Return what exec and wait cost in Python beyond their cost in C++.

    On software drivers, whose own time varies more than this, it is left out.
    """
    label = f"list of {count}: Python's own cost"
    if not session.software:
        return difference(label, times[_exec(count)], times[_own(count)])
    calls = (partial(replay, commands), partial(commands.time, 1), partial(commands.time, 0))
    # Alternate, so that all find the processor in the same state.
    ours, own, no_run = zip(*([processor_time(call) for call in calls] for _ in range(PAIRS)), strict=True)
    median = statistics.median
    return Row(
        label, median=(median(ours) - median(own) + median(no_run)) * US, note="processor time above that in C++"
    )


def torch_samplers(session: Session) -> dict[str, Sampler | Absent]:
    made: dict[str, Sampler | Absent] = {}
    for what in ("eager", "graph", "graph of 100", "NumPy"):
        try:
            made[f"torch CUDA, {what}"] = session.torch.make(torch_launch, what).sample
        except Absent as reason:
            return {**made, f"torch CUDA, {what}": reason}
    return made


def our_samplers(context: pumice.Context, lists: Mapping[int, pumice.CommandList]) -> dict[str, Sampler]:
    x = np.zeros(1024, "float32")
    samplers: dict[str, Sampler] = {}
    for count, commands in lists.items():
        samplers |= {_own(count): commands.time, _exec(count): sampler(partial(replay, commands))}
    for count in (1, MANY):
        samplers[_numpy(count)] = sampler(partial(program_of(count, context).call, (x,)))
    samplers[MODEL] = sampler(partial(model_of_one(context), x))
    kernel, tensors = add_one(context), [pumice.tensor(x, context) for _ in range(2)]
    samplers["kernel called with tensors"] = sampler(partial(kernel, x=tensors[0], y=tensors[1], groups=16))
    samplers["kernel called with NumPy arrays"] = sampler(partial(kernel, x=x, y=np.empty_like(x), groups=16))
    return samplers


def run(session: Session) -> Iterator[Table]:
    context = session.context
    lists = {count: list_of(count, context) for count in (1, MANY)}
    peers = torch_samplers(session)
    present = {label: made for label, made in peers.items() if not isinstance(made, Absent)}
    times = measure({**our_samplers(context, lists), **present}, session.effort, RUNS)

    targets = {_exec(1): 14.0, _numpy(1): 40.0} if session.h200 else {}
    rows = [timed(label, measured, US, targets.get(label)) for label, measured in times.items()]
    rows += [Row(label, absent=str(made)) for label, made in peers.items() if isinstance(made, Absent)]
    yield Table(f"Launch of y = x + 1 on 1,024 floats, {context.info.name}", "us", rows)
    yield Table("What Python adds to a launch", "us", list(overheads(session, times, lists)))


def overheads(session: Session, times: Mapping[str, Times], lists: Mapping[int, pumice.CommandList]) -> Iterator[Row]:
    for label in (_exec(1), _numpy(1), MODEL):
        row = difference(label, times[label], times[_own(1)])
        row.target = 15.0 if session.software and label == _exec(1) else None
        yield row
    one, many = (python_cost(session, times, count, commands) for count, commands in lists.items())
    many.target = max(0.0, one.median or 0.0) + SLACK
    many.note += f"; target: that of 1, and {SLACK:g}"
    yield from (one, many)


def difference(what: str, times: Times, own: Times) -> Row:
    note = "above submit and wait in C++"
    return Row(what, (times.best - own.best) * US, (times.median - own.median) * US, note=note)


def _own(count: int) -> str:
    return f"list of {count}: submit and wait in C++"


def _exec(count: int) -> str:
    return f"list of {count}: exec and wait"


def _numpy(count: int) -> str:
    return f"program of {count}: NumPy in and out"
