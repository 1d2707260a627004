"""Launch overhead: y = x + 1 on 1,024 floats, from Python, against the device's own submit and wait and against peers."""

from __future__ import annotations

import numpy as np

import pumice

from .timing import Times, measure, table, us

ADD_ONE = """
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < 1024u) y[i] = x[i] + 1.0; }
"""


def list_of(context: pumice.Context, dispatches: int) -> pumice.CommandList:
    """A committed list of that many dispatches, each reading what the one before wrote."""
    kernel = pumice.Kernel(ADD_ONE, context=context, name="add_one")
    tensors = [pumice.tensor(np.zeros(1024, "float32"), context) for _ in range(2)]
    commands = pumice.CommandList(context)
    for i in range(dispatches):
        commands.dispatch(kernel.bind(x=tensors[i % 2], y=tensors[(i + 1) % 2], groups=16))
    commands.commit()
    return commands


def program_of(context: pumice.Context, nodes: int) -> pumice.Program:
    graph = pumice.Graph("add_one")
    value = graph.input("x", "float32", [1024])
    one = graph.constant(np.ones(1, "float32"))
    for _ in range(nodes):
        value = graph.add("Add", value, one)
    graph.output("y", value)
    return graph.compile(context, fuse=False)


def torch_rows() -> list[list[object]]:
    try:
        import torch
    except ImportError:
        return [["torch", "absent"]]
    if not torch.cuda.is_available():
        return [["torch CUDA", "absent"]]
    x = torch.zeros(1024, device="cuda")
    y = torch.empty_like(x)

    def eager() -> None:
        torch.add(x, 1.0, out=y)
        torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(x, 1.0, out=y)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    host = np.zeros(1024, "float32")
    rows: list[list[object]] = []
    for label, call in (
        ("torch CUDA, eager and wait", eager),
        ("torch CUDA graph, replay and wait", replay),
        ("torch CUDA, NumPy in and out", lambda: (torch.from_numpy(host).cuda() + 1.0).cpu().numpy()),
    ):
        times = measure(call, runs=3000)
        rows.append([label, us(times.best), us(times.median), us(times.p99)])
    return rows


def main(context: pumice.Context) -> None:
    rows: list[list[object]] = []

    def add(label: str, times: Times, divide: int = 1) -> None:
        rows.append([label, *(us(t / divide) for t in (times.best, times.median, times.p99))])

    for count in (1, 100):
        commands = list_of(context, count)
        commands.time(100)
        add(f"{count} dispatch(es): the device's own submit and wait (C++)", Times(tuple(commands.time(2000))))
        add(f"{count} dispatch(es): exec and wait from Python", measure(lambda c=commands: c.exec().wait(), runs=2000))
    x = np.zeros(1024, "float32")
    for nodes in (1, 100):
        program = program_of(context, nodes)
        add(f"program of {nodes} node(s), NumPy in and out", measure(lambda p=program: p.call((x,)), runs=2000))
    rows += torch_rows()
    table(f"Launch of y = x + 1 on 1,024 floats, {context.info.name} (us)", ["what", "best", "median", "p99"], rows)
