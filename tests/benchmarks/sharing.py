"""Memory shared with CUDA: the cost of a kernel call ordered with torch's stream, and the read and write bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pumice

from .launch import add_one
from .peers import cuda_torch
from .rows import Row, Table, timed
from .session import Session
from .timing import Absent, measure

US, GB = 1e6, 1e9
MOST_US = 25.0  # per call, host and GPU
BATCH = 64  # calls between two waits, so that no queue fills up
RUNS = 1024
BYTES = 1 << 30
PCIE = 64e9  # bytes per second, the limit of a copy to the host and back (PCI Express 5.0, 16 lanes)

ADD_VECTORS = """
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) writeonly buffer Y { vec4 y[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < x.length()) y[i] = x[i] + 1.0; }
"""


def run(session: Session) -> Iterator[Table]:
    name = session.context.info.name
    try:
        torch, calls = cuda_torch(), made_calls(session.context)
    except (Absent, ModuleNotFoundError, pumice.UnsupportedError) as reason:
        yield Table(f"Memory shared with CUDA, {name}", "us", [Row("y = x + 1 on 1,024 floats", absent=str(reason))])
        return
    for title, whole in (("the host's time", False), ("until the GPU is done", True)):
        samplers = {label: partial(sampled, torch, call, whole) for label, call in calls.items()}
        times = measure(samplers, session.effort, RUNS)
        rows = [timed(label, one, US, None if "torch" in label else MOST_US) for label, one in times.items()]
        yield Table(f"A call on memory shared with CUDA, {title}, {name}", "us", rows)
    yield Table(f"y = x + 1 on 2**30 bytes, {name}", "GB/s", list(rates(torch, session.context)))


def both(count: int, context: pumice.Context) -> tuple[pumice.Tensor, Any]:
    from torch import from_dlpack

    tensor = pumice.empty(count, "float32", context, share="cuda")
    return tensor, from_dlpack(tensor)


def made_calls(context: pumice.Context) -> dict[str, Callable[[], object]]:
    """Return the ways to call a kernel on shared memory, by label. Raise UnsupportedError."""
    from pumice.torch import ordered, wrap

    kernel = add_one(context)
    (x, x_view), (y, _) = both(1024, context), both(1024, context)
    x_view.fill_(1)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=x, y=y, groups=16))
    commands.commit()
    operator = wrap(kernel, "pumice_benchmarks::add_one", ["x"], {"y": "x"})
    order = ordered(context=context)

    def listed() -> None:
        with order:
            commands.exec()

    def called() -> None:
        with ordered(context=context):
            kernel(x=x, y=y, groups=16)

    def alternating() -> None:
        x_view.add_(1)
        listed()

    def nothing() -> None:
        with order:
            pass

    def torch_alone() -> None:
        x_view.add_(1)

    return {
        "an order without a submission": nothing,
        "a committed list": listed,
        "a kernel called with tensors": called,
        "an operator of wrap": lambda: operator(x_view),
        "x.add_(1) by torch, then a committed list": alternating,
        "x.add_(1) by torch alone": torch_alone,
    }


def sampled(torch: Any, call: Callable[[], object], whole: bool, runs: int) -> list[float]:
    """Return seconds per call, averaged over a batch: host only, or until the GPU is done."""
    clock, seconds = time.perf_counter, []
    for _ in range(max(1, runs // BATCH)):
        torch.cuda.synchronize()
        begin = clock()
        for _ in range(BATCH):
            call()
        if whole:
            torch.cuda.synchronize()
        seconds += [(clock() - begin) / BATCH] * BATCH
    return seconds


def rates(torch: Any, context: pumice.Context) -> Iterator[Row]:
    """Measure the bandwidth of a kernel on shared memory, compared with torch in its own memory; a copy through the host is slower."""
    from pumice.torch import ordered

    kernel = pumice.Kernel(ADD_VECTORS, context=context)
    (x, x_view), (y, y_view) = both(BYTES // 4, context), both(BYTES // 4, context)
    x_view.fill_(1)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=x, y=y, threads=BYTES // 16))
    commands.commit()
    own = torch.empty(BYTES // 4, device="cuda").fill_(1)
    result = torch.empty_like(own)

    def ours() -> None:
        with ordered(context=context):
            commands.exec()

    for label, call in (
        ("a kernel of pumice on shared memory, ordered", ours),
        ("torch.add on shared memory", lambda: torch.add(x_view, 1, out=y_view)),
        ("torch.add on torch's own memory", lambda: torch.add(own, 1, out=result)),
    ):
        best = min(sampled(torch, call, True, 4 * BATCH))
        rate = 2 * BYTES / best
        yield Row(label, best=rate / GB, note=f"{rate / PCIE:.1f} times what PCI Express 5.0 carries")
    if not (y_view == 2).all().item():
        yield Row("the result", wrong=True)
