"""Decode attention (one query) over about 4,096 keys, in more variants than attention_decode, compared with the bandwidth of a copy and of
a read-only kernel.

Each variant is printed as soon as it is measured, followed by a table per shape in which all variants alternate. The first two shapes run
all variants, the others only the fastest. Correctness checks come last, over fewer keys. Anything that does not fit in the time limit is
reported as absent.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

import pumice

from .attention_decode import (
    CACHE,
    EMULATED,
    SPLIT_REDUCTION,
    UNCOUNTED,
    US,
    Memory,
    MmaTiling,
    Shape,
    describe_statistics,
    error_of,
    measured,
    reading,
    recorded,
)
from .rows import Row, Table
from .session import Session

MOST_SECONDS, KEPT_SECONDS = 50.0, 12.0  # total seconds; seconds reserved for the checks
REPLAYS = 50  # runs of a check, which must be bit-identical
KEPT = 6  # variants of later shapes besides the default
WARM = 0.03  # device seconds before a variant is measured alone; the joint measurement warms up longer
COPIED = 256 << 20  # bytes of the reference copy
SKIP_LAST_PREFETCH = (("SKIP_LAST_PREFETCH", "1"),)
FIRST_SHAPES = (Shape(1, 32, 32, 4096, 128), Shape(1, 32, 8, 4096, 128))
SHAPES = (
    *FIRST_SHAPES,
    Shape(1, 33, 33, 4096, 128),  # eight splits of each give two workgroups on each of 132 SMs
    Shape(1, 32, 8, 16384, 128),
    Shape(1, 32, 32, 1024, 128),
    Shape(1, 32, 8, 1024, 128),
    Shape(8, 32, 8, 4096, 128),
    Shape(1, 32, 8, 4096, 64),
)
CHECKED = (Shape(1, 8, 8, 1001, 128), Shape(2, 16, 4, 1001, 128))
ON_SOFTWARE = (Shape(1, 4, 2, 256, 32),)
TILINGS = (
    MmaTiling(4, 1, 2),  # the default
    MmaTiling(4, 1, 2, SKIP_LAST_PREFETCH),
    MmaTiling(4, 1, 8),  # more workgroups than fit at once: fast ones process more
    MmaTiling(4, 1, 2, max_splits=16),
    MmaTiling(4, 2, 2),
    MmaTiling(8, 1, 1),
    MmaTiling(8, 1, 1, SKIP_LAST_PREFETCH),
    # Workgroups of one or two subgroups.
    MmaTiling(1, 1, 8, max_splits=32),
    MmaTiling(2, 1, 4),
    # Cost of the split-K reduction, and of the number of keys.
    MmaTiling(4, 1, 2, lacks=SPLIT_REDUCTION, is_combined=True),
    MmaTiling(4, 1, 2, lacks=SPLIT_REDUCTION),
    MmaTiling(4, 1, 2, UNCOUNTED),
)
TILINGS_ON_SOFTWARE = (
    MmaTiling(2, 1, 1, EMULATED),
    MmaTiling(2, 1, 1, (*EMULATED, *SKIP_LAST_PREFETCH)),
    MmaTiling(1, 1, 2, EMULATED),
    MmaTiling(2, 1, 1, EMULATED, lacks=SPLIT_REDUCTION, is_combined=True),
)
COPY = """layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { uvec4 y[]; };
void main() { y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x]; }
"""


@dataclass
class Measuring:
    """The session, deadline and copy bandwidth of the measurements."""

    session: Session
    until: float
    copy_rate: float = 0.0  # bytes per second, read plus written
    relative: dict[MmaTiling, list[float]] = field(default_factory=dict)  # to the fastest variant of each shape so far

    @property
    def context(self) -> pumice.Context:
        return self.session.context

    @property
    def cores(self) -> int:
        return int(self.context.info.limits.get("shaderSMCount") or 132)

    def quickest(self, tilings: tuple[MmaTiling, ...]) -> tuple[MmaTiling, ...]:
        """Return the default variant, and the fastest correct ones over all shapes so far."""
        right = (
            tiling
            for tiling in tilings[1:]
            if (tiling.is_combined or not tiling.lacks) and not {*UNCOUNTED} & {*tiling.macros}
        )
        known = {tiling: self.relative[tiling] for tiling in right if tiling in self.relative}
        most = max(map(len, known.values()), default=0)
        return (
            tilings[0],
            *sorted((tiling for tiling in known if len(known[tiling]) == most), key=lambda tiling: sum(known[tiling]))[
                :KEPT
            ],
        )

    def rate(self, count: int, seconds: float) -> str:
        share = f", {count / seconds / self.copy_rate:.0%} of the copy" if self.copy_rate else ""
        return f"{count / seconds / 1e12:.3f} TB/s{share}"


@dataclass
class Timed:
    """A recorded variant for one shape."""

    tiling: MmaTiling
    partials: int
    commands: pumice.CommandList


def shown(row: Row) -> Row:
    """Print a row before its table is complete."""
    print(f"    {' '.join(cell for cell in row.cells() if cell)}", flush=True)
    return row


def failed(what: str, error: Exception) -> Row:
    traceback.print_exc()
    return shown(Row(f"  {what}", absent=f"{type(error).__name__}: {error}".splitlines()[0][:200], wrong=True))


def row_of(what: str, seconds: list[float], note: str) -> Row:
    return Row(f"  {what}", seconds[0] * US, seconds[len(seconds) // 2] * US, note=note)


def copied(on: Measuring) -> Row:
    """Measure a copy of a buffer larger than the caches."""
    software = on.session.software
    words = (1 << 20 if software else COPIED) // 16
    x, y = (pumice.empty([words, 4], "uint32", on.context) for _ in range(2))
    commands = pumice.CommandList(on.context)
    commands.dispatch(pumice.Kernel(COPY, on.context, "copy").bind(x=x, y=y, groups=words // 256))
    commands.commit(timing=True)
    (seconds,) = measured([commands], 1, software, 0.1)
    on.copy_rate = words * 32 / seconds[0] if seconds[0] else 0.0
    return shown(row_of(f"a copy of {words >> 16} MiB", seconds, on.rate(words * 32, seconds[0] or 1.0)))


def made(tiling: MmaTiling, memory: Memory, on: Measuring) -> Timed:
    partials = tiling.partials(memory.shape, on.cores)
    kernel = tiling.kernel(memory.shape, partials, on.context)
    return Timed(tiling, partials, recorded(tiling, memory, kernel, partials, on.context))


def table_of(shape: Shape, tilings: tuple[MmaTiling, ...], on: Measuring) -> Iterator[Row]:
    """Measure and print each variant alone, then yield the rows of all, measured alternately."""
    print(f"\n{shape}: first figures [us, best, median]", flush=True)
    software, count = on.session.software, shape.elements * 4
    copies = 2 if software else max(1, min(64, CACHE // count + 1))
    memory, all_timed, absent = Memory.of(shape, copies, on.context), list[Timed](), list[Row]()
    only_read = reading(memory)
    for tiling in (tiling for tiling in tilings if tiling.fits(shape)):
        if time.monotonic() > on.until:
            absent.append(Row(f"  {tiling}", absent=f"the {MOST_SECONDS:.0f} seconds of the whole are over"))
            continue
        try:
            timed = made(tiling, memory, on)
            (seconds,) = measured([timed.commands], copies, software, WARM)
            shown(row_of(str(tiling), seconds, f"{on.rate(count, seconds[0] or 1.0)}, {timed.partials} parts"))
            all_timed.append(timed)
        except Exception as error:
            absent.append(failed(str(tiling), error))
    all_seconds = measured([only_read, *(timed.commands for timed in all_timed)], copies, software, 0.1)
    floor = all_seconds.pop(0)
    yield row_of("as many bytes read, no more", floor, on.rate(count, floor[0] or 1.0))
    quickest = min((seconds[0] for seconds in all_seconds), default=1.0) or 1.0
    for timed, seconds in zip(all_timed, all_seconds, strict=True):
        on.relative.setdefault(timed.tiling, []).append(seconds[0] / quickest)
        yield row_of(str(timed.tiling), seconds, f"{on.rate(count, seconds[0] or 1.0)}, {timed.partials} parts")
    yield from absent


def checked(shapes: tuple[Shape, ...], tilings: tuple[MmaTiling, ...], on: Measuring) -> Iterator[Row]:
    """Yield each variant's error with uneven splits, and the driver's statistics of its kernel."""
    for shape in shapes:
        for tiling in tilings:
            what = f"{tiling}, {shape.shared} rows"
            if not tiling.fits(shape) or (tiling.lacks and not tiling.is_combined):
                continue
            if time.monotonic() > on.until:
                yield Row(f"  {what}", absent=f"the {MOST_SECONDS:.0f} seconds of the whole are over")
                continue
            try:
                error = error_of(tiling, shape, on.cores, on.context, 1 if on.session.software else REPLAYS)
                told = describe_statistics(tiling.kernel(shape, 1, on.context)) if shape == shapes[-1] else ""
                yield shown(Row(f"  {what}", error * 1e3, error * 1e3, wrong=not error < 4e-3, note=told))
            except Exception as error:
                yield failed(what, error)


def safely(what: str, rows: Iterator[Row]) -> list[Row]:
    """Return the rows up to an error, and a failed row with its message, so that other tables are still measured."""
    done: list[Row] = []
    try:
        for row in rows:
            done.append(row)
    except Exception as error:
        done.append(failed(f"{what}: what follows", error))
    return done


def run(session: Session) -> Iterator[Table]:
    software, begin = session.software, time.monotonic()
    tilings = TILINGS_ON_SOFTWARE if software else TILINGS
    on = Measuring(session, begin + MOST_SECONDS - KEPT_SECONDS)
    yield Table("A copy, read and written", "us", safely("the copy", (copied(on) for _ in range(1))))
    for shape in ON_SOFTWARE if software else SHAPES:
        chosen = tilings if software or shape in FIRST_SHAPES else on.quickest(tilings)
        yield Table(f"One row, {shape}", "us", safely(str(shape), table_of(shape, chosen, on)))
    on.until = begin + MOST_SECONDS
    rows = safely("the checks", checked(ON_SOFTWARE if software else CHECKED, tilings, on))
    yield Table("Errors of one row, by ways of sharing it out", "thousandths", rows)
