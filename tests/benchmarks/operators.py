"""Single operators on the device: memory-bound ones beside a copy, matrix products, each next to PyTorch's CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pumice

from . import on_device, peers
from .contender import Array
from .kernels import MANY, US, copy_sampler
from .rows import Row, Table, sampled, timed
from .session import Session
from .timing import Sampler, Times, measure

MANY_ON_SOFTWARE = 1 << 24  # bytes of a large tensor
SHARE = 0.8  # of the copy's bandwidth


@dataclass(frozen=True)
class Streamed:
    """A memory-bound row. Shapes are multiples of the large tensor's side: `n` stands for it."""

    op: str
    note: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    torch: str  # PyTorch's expression over a, b, c, ..
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, Array] = field(default_factory=dict)  # by position among the operator's inputs
    reads: int = 1  # of the inputs, where they are too long to be held

    def __str__(self) -> str:
        return f"{self.op}, {self.note}" if self.note else self.op


def _tall(size: int, dtype: str, columns: int) -> tuple[tuple[int, ...], str]:
    return (size // np.dtype(dtype).itemsize // columns, columns), dtype


def streamed(size: int) -> Iterator[Streamed]:
    """The largest tensor of each has `size` bytes."""
    for dtype, columns in (("float32", 4096), ("float16", 4096)):
        large = _tall(size, dtype, columns)
        rows = large[0][0]
        row, ones = ((columns,), dtype), np.ones(columns, dtype)
        for op, torch in (
            ("Relu", "torch.relu(a)"),
            ("Gelu", "F.gelu(a)"),
            ("Tanh", "torch.tanh(a)"),
            ("Sigmoid", "torch.sigmoid(a)"),
            ("Exp", "torch.exp(a)"),
            ("Sqrt", "torch.sqrt(a)"),
            ("Neg", "torch.neg(a)"),
        ):
            yield Streamed(op, dtype, (large,), torch)
        for op, torch in (("Add", "a + b"), ("Mul", "a * b"), ("Div", "a / b"), ("Max", "torch.maximum(a, b)")):
            yield Streamed(op, dtype, (large, large), torch)
        yield Streamed("Add", f"{dtype}, a row to all", (large, row), "a + b")
        yield Streamed("Greater", dtype, (large, large), "a > b")
        yield Streamed("Where", dtype, ((large[0], "bool"), large, large), "torch.where(a, b, c)")
        yield Streamed("Cast", f"{dtype} to int32", (large,), "a.to(torch.int32)", {"to": 6})
        for op, torch in (("ReduceSum", "a.sum({})"), ("ReduceMax", "a.amax({})"), ("ReduceMean", "a.mean({})")):
            for what, axis in (("rows", -1), ("columns", 0)):
                yield Streamed(
                    op, f"{dtype}, {what}", (large,), torch.format(axis), {"keepdims": 0}, {1: np.array([axis])}
                )
        yield Streamed("ReduceSum", f"{dtype}, all", (large,), "a.sum()", {"keepdims": 0})
        for what, axis in (("rows", -1), ("columns", 0)):
            yield Streamed(
                "ArgMax", f"{dtype}, {what}", (large,), f"a.argmax({axis})", {"axis": axis % 2, "keepdims": 0}
            )
        yield Streamed("Softmax", f"{dtype}, rows", (large,), "F.softmax(a, -1)")
        yield Streamed("Softmax", f"{dtype}, columns, read twice", (large,), "F.softmax(a, 0)", {"axis": 0}, reads=2)
        yield Streamed("LogSoftmax", f"{dtype}, rows", (large,), "F.log_softmax(a, -1)")
        yield Streamed(
            "LayerNormalization", dtype, (large,), f"F.layer_norm(a, ({columns},))", {}, {1: ones, 2: 0 * ones}
        )
        yield Streamed("RMSNormalization", dtype, (large,), f"F.rms_norm(a, ({columns},))", {}, {1: ones})
        planes = ((rows // 64, 64, 64, 64), dtype)
        channel = np.ones(64, dtype)
        statistics = {1: channel, 2: 0 * channel}
        yield Streamed("InstanceNormalization", dtype, (planes,), "F.instance_norm(a)", {}, statistics)
        yield Streamed(
            "BatchNormalization",
            dtype,
            (planes,),
            "F.batch_norm(a, torch.zeros(64, dtype=a.dtype, device='cuda'), torch.ones(64, dtype=a.dtype, device='cuda'))",
            {},
            {**statistics, 3: 0 * channel, 4: channel},
        )
        yield Streamed(
            "GroupNormalization", f"{dtype}, 8 groups", (planes,), "F.group_norm(a, 8)", {"num_groups": 8}, statistics
        )
        yield Streamed("Transpose", f"{dtype}, matrix", (large,), "a.t().contiguous()")
        yield Streamed(
            "Transpose",
            f"{dtype}, NCHW to NHWC",
            (planes,),
            "a.permute(0, 2, 3, 1).contiguous()",
            {"perm": [0, 2, 3, 1]},
        )
        half = ((rows // 2, columns), dtype)
        yield Streamed("Concat", f"{dtype}, rows", (half, half), "torch.cat([a, b])", {"axis": 0})
        yield Streamed("Concat", f"{dtype}, columns", (half, half), "torch.cat([a, b], 1)", {"axis": 1})
        yield Streamed(
            "Slice",
            f"{dtype}, half of each row",
            (large,),
            f"a[:, {columns // 2}:].contiguous()",
            {},
            {1: np.array([columns // 2]), 2: np.array([columns]), 3: np.array([1])},
        )
        yield Streamed("Tile", f"{dtype}, read twice", (half,), "a.repeat(2, 1)", {}, {1: np.array([2, 1])}, reads=2)
        yield Streamed("Pad", dtype, (large,), "F.pad(a, (8, 8))", {}, {1: np.array([0, 8, 0, 8])})
        yield Streamed(
            "Gather",
            f"{dtype}, rows",
            (large,),
            f"a[torch.arange({rows - 1}, -1, -1, device='cuda')]",
            {},
            {1: np.arange(rows - 1, -1, -1)},
        )
        yield Streamed(
            "Expand", dtype, (row,), f"a.expand({rows}, -1).contiguous()", {}, {1: np.array([rows, columns])}
        )
        yield Streamed("DepthToSpace", dtype, (planes,), "F.pixel_shuffle(a, 2)", {"blocksize": 2, "mode": "CRD"})


@dataclass(frozen=True)
class Product:
    """A matrix product of `dtype` with sums of float32, or of int32."""

    m: int
    n: int
    k: int
    dtype: str
    op: str = "MatMul"
    teraflops: float | None = None  # targets on the H200
    microseconds: float | None = None
    given: bool = False  # B at the call; else it is constant
    copies: int = 1  # of B, in turn, so that it comes from memory and not from a cache

    def __str__(self) -> str:
        more = f", {self.copies} of B" if self.copies > 1 else ", B given at the call" if self.given else ""
        return f"{self.op} {self.m}x{self.n}x{self.k} {self.dtype}{more}"

    @property
    def seconds(self) -> float | None:
        if self.teraflops:
            return 2e-12 * self.m * self.n * self.k / self.teraflops
        return self.microseconds * 1e-6 if self.microseconds else None


PRODUCTS = (
    Product(1024, 1024, 1024, "float16", teraflops=130, copies=8),
    Product(2048, 2048, 2048, "float16", copies=4),
    Product(4096, 4096, 4096, "float16", teraflops=290),
    Product(4096, 4096, 4096, "float16", "bias and Relu", teraflops=290 / 1.05),
    Product(4095, 4095, 4095, "float16", teraflops=290 * 0.8),
    Product(1, 4096, 4096, "float16", microseconds=12, copies=16),
    Product(16, 4096, 4096, "float16", microseconds=16, copies=16),
    Product(64, 4096, 4096, "float16", copies=16),
    Product(1024, 1024, 1024, "int8", "MatMulInteger"),
    Product(2048, 2048, 2048, "int8", "MatMulInteger"),
    Product(4096, 4096, 4096, "int8", "MatMulInteger", teraflops=450),
    Product(4096, 4096, 4096, "uint8", "MatMulInteger"),
    Product(4096, 4096, 4096, "int8", "MatMulInteger", teraflops=250, given=True),
    Product(1024, 1024, 1024, "float32"),
    Product(2048, 2048, 2048, "float32", teraflops=40),
    Product(4096, 4096, 4096, "float32", teraflops=40),
)
PRODUCTS_ON_SOFTWARE = (
    Product(256, 256, 256, "float32"),
    Product(512, 512, 512, "float32"),
    Product(512, 512, 512, "float16"),
    Product(1, 1024, 1024, "float32"),
)


def random_array(shape: Sequence[int], dtype: str) -> Array:
    random = np.random.default_rng(0)
    if np.dtype(dtype).itemsize == 1 and dtype != "bool":
        return np.resize(random.integers(0, 100, 1 << 16).astype(dtype), shape)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return np.resize(random.integers(1, 128, 1 << 16).astype(dtype) / np.dtype(dtype).type(64), shape)


def replayed(context: pumice.Context, programs: Sequence[tuple[pumice.Program, Mapping[str, Array]]]) -> Sampler:
    """Seconds on the device of one after the other, divided by their number: all write one result, so none overlaps the next."""
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


def program_of(case: Streamed, context: pumice.Context) -> tuple[pumice.Program, dict[str, Array]]:
    graph = pumice.Graph(str(case))
    given: dict[str, Array] = {}
    values = []
    rest = iter(case.inputs)
    for position in range(len(case.inputs) + len(case.constants)):
        if position in case.constants:
            values.append(graph.constant(case.constants[position]))
            continue
        shape, dtype = next(rest)
        name = f"i{position}"
        given[name] = random_array(shape, dtype)
        values.append(graph.input(name, dtype, list(shape)))
    graph.output("y", graph.add(case.op, *values, **case.attributes))
    halves = any(dtype == "float16" for _, dtype in case.inputs)
    return graph.compile(context, precision="fp16" if halves else "fp32"), given


def bytes_of(program: pumice.Program, given: Mapping[str, Array]) -> int:
    """Read and written."""
    return sum(array.nbytes for array in (*given.values(), *program.call(tuple(given.values()))))


def compare(
    session: Session, ours: Callable[[], Sampler], theirs: Callable[[], Sampler], runs: int = 30
) -> list[Times]:
    """Ours and PyTorch's in turn."""
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
    for case in streamed(size):
        program, given = program_of(case, session.context)
        moved = bytes_of(program, given) + (case.reads - 1) * sum(array.nbytes for array in given.values())
        shapes = [(list(shape), dtype) for shape, dtype in case.inputs]
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


def product_programs(case: Product, context: pumice.Context) -> list[tuple[pumice.Program, dict[str, Array]]]:
    a = random_array((case.m, case.k), case.dtype)
    programs = []
    for _ in range(case.copies):
        graph = pumice.Graph(str(case))
        x = graph.input("a", case.dtype, list(a.shape))
        weights, given = random_array((case.k, case.n), case.dtype), {"a": a}
        if case.given:
            b, given["b"] = graph.input("b", case.dtype, list(weights.shape)), weights
        else:
            b = graph.constant(weights)
        if case.op.startswith("MatMul"):
            y = graph.add(case.op, x, b)
        else:
            y = graph.add("Relu", graph.add("Gemm", x, b, graph.constant(random_array((case.n,), case.dtype))))
        graph.output("y", y)
        programs.append((graph.compile(context, precision="fp16" if case.dtype == "float16" else "fp32"), given))
    return programs


def product_table(session: Session) -> Table:
    table = Table(f"Matrix products, {session.context.info.name}", "us")
    for case in PRODUCTS_ON_SOFTWARE if session.software else PRODUCTS:
        shapes = [([case.m, case.k], case.dtype), *[([case.k, case.n], case.dtype)] * case.copies]
        expression = {
            "MatMul": ", ".join("a @ " + chr(98 + i) for i in range(case.copies)),
            "MatMulInteger": "torch._int_mm(a, b)",
        }.get(case.op, "F.relu(a @ b + 1)")
        mine, theirs = compare(
            session,
            lambda case=case: replayed(session.context, product_programs(case, session.context)),  # type: ignore[misc]
            lambda expression=expression, shapes=shapes: (
                session.torch.make(  # type: ignore[misc]
                    peers.torch_operator, expression, shapes
                ).device
            ),
        )
        row = timed(str(case), mine, US)
        if not mine.absent:
            work = 2e-12 * case.m * case.n * case.k
            row.note = f"{work / mine.median:,.4g} TFLOP/s; {torch_note(theirs)}"
            if case.copies > 1 and not theirs.absent:
                row.note = f"{work / mine.median:,.4g} TFLOP/s; torch {theirs.median * US / case.copies:,.4g}"
            row.target = case.seconds * US if session.h200 and case.seconds else None
        table.rows.append(row)
    return table


def run(session: Session) -> Iterator[Table]:
    yield streamed_table(session)
    yield product_table(session)
