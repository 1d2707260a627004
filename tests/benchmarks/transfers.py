"""Transfers to and from the device, pageable and pinned, compared with PyTorch; and models with large arrays, NumPy to NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

import pumice

from . import peers
from .contender import Array, Contender, Local
from .model_cases import MODEL_CASES, ModelCase
from .models import MS, device_times
from .rows import Row, Table, sampled
from .session import Session
from .timing import Absent, Sampler, measure, sampler

GB = 1e9
SIZES = (1, 16, 64, 256)  # MB of 2**20 bytes
WAYS = ("upload", "download")
LEAST = {"pageable": 20 * GB, "pinned": 45 * GB}  # bytes per second on an H200, from 64 MB on
MOST_MS = {"squeezenet": 2.6, "superres": 9.0}  # on an H200, a call at batch 64
MAPPED = 8  # cases per map
RUNS = 50


def run(session: Session) -> Iterator[Table]:
    for way in WAYS:
        yield Table(f"{way.capitalize()} of one array, {session.context.info.name}", "ms", array_rows(session, way))
    for case in MODEL_CASES:
        if case.name in MOST_MS:
            yield model_table(session, case)


# ---- arrays


def array_rows(session: Session, way: str) -> list[Row]:
    rows: dict[str, Row] = {}
    samplers: dict[str, Sampler] = {}
    count: dict[str, int] = {}
    for size in SIZES:
        for kind in LEAST:
            for label, make in (
                (f"{size} MB {kind}", partial(ours, session.context, size << 20, way, kind)),
                (f"{size} MB {kind}, torch", partial(theirs, session, size << 20, way, kind)),
            ):
                rows[label], count[label] = Row(label), size << 20
                if made := sampled(make, rows[label]):
                    samplers[label] = made
        if session.h200 and size >= 64:
            for kind, rate in LEAST.items():
                rows[f"{size} MB {kind}"].target = (size << 20) / rate * MS
    for label, times in measure(samplers, session.effort, RUNS).items():
        row = rows[label]
        row.absent = times.absent
        if not times.absent:
            row.best, row.median = times.best * MS, times.median * MS
            row.note = f"{count[label] / times.best / GB:.1f} GB/s"
    return list(rows.values())


def ours(context: pumice.Context, count: int, way: str, kind: str) -> Sampler:
    given = np.random.default_rng(0).integers(0, 256, count, "uint8")
    tensor = pumice.tensor(given, context)
    host = given.copy() if kind == "pageable" else pumice.empty_host(count, "uint8", context)
    host[:] = given
    call: Callable[[], object] = partial(tensor.upload, host)
    if way == "download":
        call = tensor.numpy if kind == "pageable" else partial(tensor.numpy, out=host)
    call()
    if not (tensor.numpy() == given).all() or not (host == given).all():
        raise pumice.Error(f"wrong bytes after a {way}")
    return sampler(call)


def theirs(session: Session, count: int, way: str, kind: str) -> Sampler:
    return session.torch.make(peers.torch_transfer, count, way, kind).sample


# ---- models


def batch_of(x: Array, session: Session) -> Array:
    return np.repeat(x, 2 if session.software else 64, axis=0)


def model_table(session: Session, case: ModelCase) -> Table:
    table = Table(f"{case.name} fp16, NumPy to NumPy, {session.context.info.name}", "ms")
    try:
        x = batch_of(case.data()[0], session)
    except Absent as reason:
        table.rows.append(Row(case.name, absent=str(reason)))
        return table
    model = pumice.load(case.path, context=session.context, precision="fp16")
    expected = model(x)
    results = (expected,) if len(model.outputs) == 1 else tuple(expected)
    table.title += f", {x.nbytes / 1e6:.1f} MB in, {sum(y.nbytes for y in results) / 1e6:.1f} MB out"
    given = {output.name: np.empty_like(y) for output, y in zip(model.outputs, results, strict=True)}
    pinned = pumice.empty_host(x.shape, x.dtype, session.context)
    pinned[...] = x
    pinned_out = {name: pumice.empty_host(y.shape, y.dtype, session.context) for name, y in given.items()}
    contenders: dict[str, Contender] = {
        "a call": Local(lambda: first(model(x)), partial(device_times, model, x)),
        "a call into given arrays": Local(lambda: first(model(x, out=given))),
        "a call, pinned arrays": Local(lambda: first(model(pinned, out=pinned_out))),
    }
    rows = {label: Row(label) for label in (*contenders, "a case of map")}
    for label, contender in contenders.items():
        rows[label].wrong = not np.array_equal(contender.call(), results[0])
    samplers = {label: contender.sample for label, contender in contenders.items()}
    samplers["a case of map"] = partial(mapped, model, x)
    for label, times in measure(samplers, session.effort, RUNS).items():
        rows[label].best, rows[label].median = times.best * MS, times.median * MS
    rows["a call"].device = min(contenders["a call"].device(10)) * MS
    if session.h200:
        rows["a call"].target = MOST_MS[case.name]
    table.rows = list(rows.values())
    return table


def first(results: Array | Sequence[Array]) -> Array:
    return results if isinstance(results, np.ndarray) else results[0]


def mapped(model: pumice.Model, x: Array, runs: int) -> Sequence[float]:
    """Return the seconds per case of each of `runs` maps."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        for _result in model.map([x] * MAPPED):
            pass
        seconds.append((time.perf_counter() - begin) / MAPPED)
    return seconds
