"""Short decoder runs, as for verifying draft tokens: milliseconds by number of tokens and by available kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .attention_decode import safely
from .rows import Row, Table
from .session import Session
from .text import MS, SHAPES, TINY, Shape, checked_run, device_of, filled, kernel_rows, seconds_of_run

COUNTS = (1, 2, 3, 4, 5, 8, 16)
FEW_LAYERS, FEW_WORDS = 4, 16384  # of the decoder for the kernel comparison
LENGTHS = (1024, 8192)  # cache lengths
BEFORE = {f"quantized GEMM of {count} normalised rows": "normalised before" for count in range(1, 17)}
MANY = {f"attention of {count} rows": "attention_mma" for count in range(2, 5)}
WAYS = {
    "as chosen": {},
    "rows normalised before products": BEFORE,
    "attention by the kernel of many rows": MANY,
    "both": BEFORE | MANY,
}


def run_rows(shape: Shape, session: Session, variants: dict[str, str], length: int, in_int8: bool) -> Iterator[Row]:
    """Measure milliseconds per run by number of tokens, alternating so that clocks are the same for all."""
    device, _ = device_of(shape, length + 64, session.context, in_int8, variants)
    rows = filled(device, length)
    runs = {count: checked_run(rows, count) for count in COUNTS}
    samples = [{count: seconds_of_run(run) for count, run in runs.items()} for _ in range(4)]
    for count, run in runs.items():
        times = sorted(turn[count] for turn in samples[1:])
        note = f"{run.commands.dispatches} dispatches"
        yield Row(f"  {count} rows", times[0] * MS, times[1] * MS, note=note)
    rows.close()
    device.program.close()


def profiled(shape: Shape, session: Session, way: str, counts: tuple[int, ...]) -> Iterator[Table]:
    """Yield a table of a run's kernels for each number of tokens."""
    length = 256 if session.software else LENGTHS[0]
    device, _ = device_of(shape, length + 64, session.context, False, WAYS[way])
    rows = filled(device, length)

    def measured(count: int) -> Iterator[Row]:
        checked_run(rows, count)
        yield from kernel_rows(rows, count)

    for count in counts:
        title = f"Rows: the kernels of a run of {count} rows, {shape.name}, {shape.layers} layers, {way}"
        yield Table(title, "us", safely(measured(count)))
    rows.close()
    device.program.close()


def run(session: Session) -> Iterator[Table]:
    whole = TINY if session.software else SHAPES[-1]
    few = TINY if session.software else replace(whole, layers=FEW_LAYERS, words=FEW_WORDS)
    lengths = (256,) if session.software else LENGTHS
    title = f"Rows: {whole.name}, {whole.layers} layers, {lengths[0]} rows of cache"
    yield Table(title, "ms", safely(run_rows(whole, session, {}, lengths[0], False)))
    yield from profiled(few, session, "as chosen", COUNTS)
    yield from profiled(few, session, "both", COUNTS[1:4])
    for length in lengths:
        for way, variants in WAYS.items():
            title = f"Rows: {few.name}, {few.layers} layers, {length} rows of cache, {way}"
            yield Table(title, "ms", safely(run_rows(few, session, variants, length, False)))
        title = f"Rows: {few.name}, {few.layers} layers, {length} rows of cache of int8"
        yield Table(title, "ms", safely(run_rows(few, session, {}, length, True)))
