"""Single operators on the device: memory-bound ones compared with a copy, matrix products, each next to PyTorch's CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import pumice
from cases import Case, values_in
from cases.timed import PRODUCTS, PRODUCTS_ON_SOFTWARE, TRANSFORMERS, Product, product, streamed

from . import on_device, peers
from .contender import Array
from .kernels import MANY, US, copy_sampler
from .rows import Row, Table, sampled, timed
from .session import Session
from .timing import Sampler, Times, measure

MANY_ON_SOFTWARE = 1 << 24  # bytes of a large tensor
SHARE = 0.8  # minimum fraction of the copy's bandwidth


@dataclass(frozen=True)
class Timed:
    """How to time a product of the case table, and its target on the H200."""

    teraflops: float | None = None
    microseconds: float | None = None
    copies: int = 1  # copies of B read in turn, so that it is read from memory, not from a cache

    def seconds(self, work: float) -> float | None:
        if self.teraflops:
            return 1e-12 * work / self.teraflops
        return self.microseconds * 1e-6 if self.microseconds else None


HALVES = "float16"
TIMED: dict[Product, Timed] = {
    ("MatMul", 1024, 1024, 1024, HALVES, False): Timed(teraflops=130, copies=8),
    ("MatMul", 2048, 2048, 2048, HALVES, False): Timed(copies=4),
    ("MatMul", 4096, 4096, 4096, HALVES, False): Timed(teraflops=290),
    ("Gemm", 4096, 4096, 4096, HALVES, False): Timed(teraflops=290 / 1.05),
    ("MatMul", 4095, 4095, 4095, HALVES, False): Timed(teraflops=290 * 0.8),
    ("MatMul", 1, 4096, 4096, HALVES, False): Timed(microseconds=12, copies=16),
    ("MatMul", 16, 4096, 4096, HALVES, False): Timed(microseconds=16, copies=16),
    ("MatMul", 64, 4096, 4096, HALVES, False): Timed(copies=16),
    **{("MatMul", *shape, HALVES, False): Timed(copies=8) for shape in TRANSFORMERS},
    ("MatMulInteger", 4096, 4096, 4096, "int8", False): Timed(teraflops=450),
    ("MatMulInteger", 4096, 4096, 4096, "int8", True): Timed(teraflops=250),
    ("MatMul", 2048, 2048, 2048, "float32", False): Timed(teraflops=40),
    ("MatMul", 4096, 4096, 4096, "float32", False): Timed(teraflops=40),
}


def random_array(shape: Sequence[int], dtype: str) -> Array:
    random = np.random.default_rng(0)
    if np.dtype(dtype).itemsize == 1 and dtype != "bool":
        return np.resize(random.integers(0, 100, 1 << 16).astype(dtype), shape)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return np.resize(random.integers(1, 128, 1 << 16).astype(dtype) / np.dtype(dtype).type(64), shape)


def replayed(context: pumice.Context, programs: Sequence[tuple[pumice.Program, Mapping[str, Array]]]) -> Sampler:
    """Return a sampler of device seconds per program, run in sequence: all write one result, so none overlap."""
    commands = pumice.CommandList(context)
    result: pumice.Tensor | None = None
    for program, given in programs:
        compiled = program.compiled([list(array.shape) for array in given.values()])
        tensors = {name: pumice.tensor(array, context) for name, array in given.items()}
        if result is None:
            (first,) = program.call(tuple(given.values()))
            result = pumice.empty(first.shape, str(first.dtype), context)
        on_device.dispatch(commands, program, compiled, {**tensors, "y": result})
    return on_device.sampler(commands, len(programs))


def program_of(case: Case, context: pumice.Context, relu: bool = False) -> tuple[pumice.Program, dict[str, Array]]:
    """Return a graph of the case's node, optionally followed by Relu, and its inputs by name."""
    graph = pumice.Graph(str(case))
    given = [one for one in case.inputs if one is not None]
    arrays = [one.written if one.written is not None else random_array(one.shape, one.dtype) for one in given]
    values, by_name = values_in(graph, case, arrays)
    made = graph.add(case.op, *values, **case.attributes)
    graph.output("y", graph.add("Relu", made) if relu else made)
    halves = any(one.dtype == HALVES for one in given)
    return graph.compile(context, precision="fp16" if halves else "fp32"), by_name


def shapes_of(case: Case) -> list[tuple[list[int], str]]:
    """Return shapes and dtypes of the inputs of PyTorch's expression."""
    return [(list(one.shape), one.dtype) for one in case.inputs if one is not None and not one.constant]


def bytes_of(program: pumice.Program, given: Mapping[str, Array]) -> int:
    """Return the bytes read and written."""
    return sum(array.nbytes for array in (*given.values(), *program.call(tuple(given.values()))))


def compare(
    session: Session, ours: Callable[[], Sampler], theirs: Callable[[], Sampler], runs: int = 30
) -> list[Times]:
    """Measure ours and PyTorch's alternately."""
    made = [Row(""), Row("")]
    samplers = {str(i): one for i, make in enumerate((ours, theirs)) if (one := sampled(make, made[i]))}
    times = measure(samplers, session.effort, runs)
    return [times.get(str(i), Times(absent=made[i].absent)) for i in range(2)]


def torch_note(times: Times) -> str:
    return f"torch: {times.absent}" if times.absent else f"torch {times.median * US:,.4g}"


def streamed_table(session: Session) -> Table:
    size = MANY_ON_SOFTWARE if session.software else MANY
    copied = measure({"": copy_sampler(session.context, size)}, session.effort, 50)[""]
    speed = 2 * size / copied.median
    table = Table(f"Operators whose largest tensor has {size >> 20} MiB, {session.context.info.name}", "us")
    table.rows.append(timed("copy", copied, US))
    table.rows[0].note = f"{speed / 1e9:,.0f} GB/s"
    for case in streamed(size, ("float32", HALVES), columns=4096, side=64):
        program, given = program_of(case, session.context)
        moved = bytes_of(program, given) + (case.reads - 1) * sum(array.nbytes for array in given.values())
        shapes = shapes_of(case)
        mine, theirs = compare(
            session,
            lambda program=program, given=given: replayed(session.context, [(program, given)]),  # type: ignore[misc]
            lambda case=case, shapes=shapes: session.torch.make(peers.torch_operator, case.torch, shapes).device,  # type: ignore[misc]
        )
        row = timed(str(case), mine, US)
        if not mine.absent:
            row.note = f"{moved / mine.median / 1e9:,.0f} GB/s, {moved / mine.median / speed:.0%} of the copy; {torch_note(theirs)}"
            row.target = moved / (SHARE * speed) * US if session.h200 else None
        table.rows.append(row)
    return table


def product_table(session: Session) -> Table:
    table = Table(f"Matrix products, {session.context.info.name}", "us")
    for one in PRODUCTS_ON_SOFTWARE if session.software else PRODUCTS:
        how, (op, m, n, k, dtype, _) = TIMED.get(one, Timed()), one
        case = product(*one, copies=how.copies)
        programs = [program_of(case, session.context, relu=op == "Gemm") for _ in range(how.copies)]
        shapes = [([m, k], dtype), *[([k, n], dtype)] * how.copies]
        mine, theirs = compare(
            session,
            lambda programs=programs: replayed(session.context, programs),  # type: ignore[misc]
            lambda case=case, shapes=shapes: session.torch.make(peers.torch_operator, case.torch, shapes).device,  # type: ignore[misc]
        )
        row = timed(f"{case}{f', {how.copies} of B' if how.copies > 1 else ''}", mine, US)
        if not mine.absent:
            work = 2.0 * m * n * k
            row.note = f"{1e-12 * work / mine.median:,.4g} TFLOP/s; {torch_note(theirs)}"
            if how.copies > 1 and not theirs.absent:
                row.note = f"{1e-12 * work / mine.median:,.4g} TFLOP/s; torch {theirs.median * US / how.copies:,.4g}"
            target = how.seconds(work)
            row.target = target * US if session.h200 and target else None
        table.rows.append(row)
    return table


def run(session: Session) -> Iterator[Table]:
    yield streamed_table(session)
    yield product_table(session)
