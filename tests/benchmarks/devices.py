"""ResNet-50 in batches on one, two, four, ... devices of a host: with pumice.load(devices=...) and Ray Data, and a worker's startup time.

Images are NumPy blocks of bytes. On a GPU the network has full size, in fp16 and batches of 64; on a software device, shared by two
workers, it is narrow, in fp32 and batches of 8: set LP_NUM_THREADS=1, or one lavapipe worker occupies all processors.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import logging
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import pumice

from . import resnet
from .contender import Array
from .first_use import caches, process
from .rows import Row, Table
from .session import Session
from .timing import Absent

PARTS = 8  # batches per Ray block, so that transfers overlap with work
WANTED = {2: 1.9, 4: 3.7, 8: 7.4}  # speedup over one device
WANTED_OF_SOFTWARE = {2: 1.6}
ALLOWED = 2e-2  # difference of scores relative to the largest
US = 1e6
LONGEST = 75  # time limit of a Ray run in seconds

START = """
import sys, time
marks = {"interpreter": time.monotonic()}
import numpy
marks["numpy"] = time.monotonic()
import pumice
marks["import pumice"] = time.monotonic()
predictor = pumice.BatchPredictor(sys.argv[2], precision=sys.argv[3], batch_size=int(sys.argv[4]))
predictor.model
marks["device and model"] = time.monotonic()
pixels, expected = numpy.load(sys.argv[5]), numpy.load(sys.argv[6])
marks["pictures"] = time.monotonic()
scores = predictor(pixels)
marks["call"] = end = time.monotonic()
import json
right = bool(abs(scores - expected).max() <= 2e-2 * abs(expected).max())
print(json.dumps({"end": end, "right": right, "marks": marks}))
"""


@dataclass(frozen=True)
class Work:
    """The model, the images and the expected results."""

    path: Path
    precision: str
    shape: resnet.Shape
    batch: int
    expected: Array  # scores of all images, in the rows of a block
    seconds: float  # minimum seconds of work per figure

    @property
    def rows(self) -> int:
        """The number of images per block."""
        return PARTS * self.batch

    def batches(self, dtype: str = "uint8") -> list[Array]:
        made = resnet.pictures(self.rows, self.shape.side).astype(dtype, copy=False)
        return [made[i : i + self.batch] for i in range(0, self.rows, self.batch)]

    def check(self, results: Array, places: Any) -> None:
        """Check the scores of these images. Raise Absent if they differ."""
        off = float(np.abs(results - self.expected[places]).max() / np.abs(self.expected).max())
        if not off <= ALLOWED:
            raise Absent(f"scores are off by {off:.1e}; {ALLOWED:g} is allowed")


def run(session: Session) -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as name:
        work = work_of(session, Path(name))
        targets = targets_of(session)
        what = f"ResNet-50 in {work.precision}, batches of {work.batch}, width {work.shape.width}, {session.context.info.name}"
        yield Table(f"A worker's start to its first right batch: {what}", "s", [*start_rows(session, work, Path(name))])
        single: list[float] = []
        table = Table(f"pumice.load(devices=...).map(), NumPy blocks of bytes: {what}", "us an image")
        table.rows = [*scaled(session, targets, lambda count: by_map(work, targets[:count]), single)]
        yield table
        yield Table(
            f"BatchPredictor in Ray Data, one actor a device: {what}",
            "us an image",
            [*ray_rows(session, work, targets, single)],
        )


def targets_of(session: Session) -> list[str]:
    """Return the UUIDs of the devices to use; a software device twice."""
    if session.software:
        return [f"uuid:{session.context.info.uuid}"] * 2
    return [f"uuid:{one.uuid}" for one in pumice.devices() if one.kind == session.context.info.kind]


def work_of(session: Session, folder: Path) -> Work:
    shape, precision, batch = (resnet.SMALL, "fp32", 8) if session.software else (resnet.RESNET50, "fp16", 64)
    path = folder / "resnet.onnx"
    resnet.write(path, shape)
    pixels = resnet.pictures(PARTS * batch, shape.side)
    with pumice.load(path, session.context, precision=precision) as model:
        expected = np.concatenate([*model.map(np.split(pixels, PARTS))])
    return Work(path, precision, shape, batch, expected, 3 * session.effort.budget)


# ---- worker startup


def start_rows(session: Session, work: Work, folder: Path) -> Iterator[Row]:
    """Measure processes from start to a correct batch; the first finds empty caches."""
    np.save(folder / "pixels.npy", work.batches()[0])
    np.save(folder / "expected.npy", work.expected[: work.batch])
    environment = {**caches(folder / "caches"), "PUMICE_DEVICE": f"uuid:{session.context.info.uuid}"}
    arguments = [
        str(work.path),
        work.precision,
        str(work.batch),
        str(folder / "pixels.npy"),
        str(folder / "expected.npy"),
    ]
    for label, target in {"cold caches": None, "warm caches": 2.0, "warm caches, again": 2.0}.items():
        try:
            facts = process(START, environment, *arguments)
        except Absent as reason:
            yield Row(label, absent=str(reason))
            continue
        ends = facts["marks"]
        steps = zip(ends, itertools.pairwise([facts["begin"], *ends.values()]), strict=True)
        note = ", ".join(f"{name} {b - a:.2f}" for name, (a, b) in steps)
        yield Row(label, median=facts["seconds"], target=target, note=note)


# ---- several devices


def counts(most: int) -> list[int]:
    """Return 1, 2, 4, ... and `most`."""
    return sorted({*(1 << i for i in range(most.bit_length())), most} - {0})


def scaled(session: Session, targets: Sequence[str], rate: Any, rates: list[float]) -> Iterator[Row]:
    """Yield a row for each number of devices, with the speedup over one device; images per second are appended to `rates`."""
    wanted = WANTED_OF_SOFTWARE if session.software else WANTED
    for count in counts(len(targets)):
        row = Row(f"{count} {'worker' if session.software else 'device'}{'s' if count > 1 else ''}")
        try:
            measured, note = rate(count)
        except (Absent, pumice.Error) as reason:
            row.absent = str(reason)
            yield row
            continue
        rates.append(measured)
        row.median = US / measured
        row.note = f"{measured:,.0f} images/s"
        if count > 1 and len(rates) > 1:
            row.note += f", {measured / rates[0]:.2f} times one"
            row.target = US / rates[0] / wanted[count] if count in wanted else None
        row.note += f"; {note}" if note else ""
        yield row


def by_map(work: Work, targets: Sequence[str]) -> tuple[float, str]:
    """Return the images per second of ParallelModel.map over batches, and a note."""
    batches = work.batches()
    with pumice.load(work.path, devices=list(targets), precision=work.precision, progress=False) as model:
        cases = 4 * PARTS * len(targets)
        seconds = mapped(model, work, batches, cases)  # opens and compiles, too
        seconds = mapped(model, work, batches, cases)
        cases = max(cases, round(cases * work.seconds / seconds))
        seconds = mapped(model, work, batches, cases)
        if model.lost:
            raise Absent(model.report())
    return cases * work.batch / seconds, f"{cases} batches in {seconds:.1f} s"


def mapped(model: pumice.ParallelModel, work: Work, batches: Sequence[Array], cases: int) -> float:
    begin = time.perf_counter()
    given = itertools.islice(itertools.cycle(batches), cases)
    for number, results in enumerate(model.map(given, depth=2)):
        first = number % len(batches) * work.batch
        work.check(results, slice(first, first + work.batch))
    return time.perf_counter() - begin


# ---- Ray Data


def ray_rows(session: Session, work: Work, targets: Sequence[str], single: Sequence[float]) -> Iterator[Row]:
    if importlib.util.find_spec("ray") is None:
        yield Row("Ray Data", absent="ray is not installed (pip install 'pumice[ray]')")
        return
    ray: Any = import_module("ray")
    data: Any = import_module("ray.data")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    gpus = {} if session.software else {"num_gpus": len(targets)}
    if session.software:
        os.environ["PUMICE_DEVICE"] = targets[0]
    # A count without pinning: the tasks that create blocks run alongside the actors.
    ray.init(**gpus, num_cpus=8 * len(targets), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        each = (single[0] if single else 100.0) * work.seconds / work.rows
        blocks = max(6, round(each))  # per actor
        yield from scaled(session, targets, lambda count: by_ray(data, work, count, blocks * count, bool(gpus)), [])
    finally:
        ray.shutdown()


def by_ray(data: Any, work: Work, count: int, blocks: int, on_gpus: bool) -> tuple[float, str]:
    """Return the images per second while all actors work, and a note."""
    from .ray_blocks import MakeBlock, TimedPredictor, call_of, seconds_to_first, steady_rate

    made = data.range(blocks, override_num_blocks=blocks).map_batches(
        MakeBlock(work.rows, work.shape.side),
        batch_size=None,
        num_cpus=0.5,
        compute=data.TaskPoolStrategy(4 * count if on_gpus else 1),
    )
    scored = made.map_batches(
        TimedPredictor,
        fn_constructor_args=[str(work.path)],
        fn_constructor_kwargs={"precision": work.precision, "batch_size": work.batch, "keep": ["place"]},
        batch_size=work.rows,
        num_cpus=1,
        num_gpus=1 if on_gpus else 0,
        compute=data.ActorPoolStrategy(size=count),
    )
    begin = time.perf_counter()
    calls, rows = [], 0
    with limited(LONGEST):
        for block in scored.iter_batches(batch_size=None):
            for part in parts_of(block, work.rows):
                work.check(part["scores"], part["place"])
                calls.append(call_of(part))
                rows += len(part["place"])
    seconds = time.perf_counter() - begin
    if rows != blocks * work.rows:
        raise Absent(f"{rows} rows came of {blocks * work.rows}")
    processes = len({call.process for call in calls})
    if processes != count:
        raise Absent(f"{processes} processes did the work of {count}: it was too little")
    start = seconds_to_first(calls)
    whole = f"{blocks} blocks in {seconds:.1f} s with the actors' start; first block {start:.2f} s after an actor's predictor was made"
    return steady_rate(calls), whole


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise Absent after a time limit: an engine that waits for resources waits forever."""

    def over(*_: object) -> None:
        raise Absent(f"it took over {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def parts_of(block: dict[str, Array], rows: int) -> Iterable[dict[str, Array]]:
    """Split a block that Ray has merged into the calls' batches."""
    for i in range(0, len(block["place"]), rows):
        yield {name: column[i : i + rows] for name, column in block.items()}
