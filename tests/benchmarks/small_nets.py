"""Small image networks at batch 1, dominated by dispatches and barriers: the default fused program, and without fusions that save
dispatches.

Clocks are warmed up by large products first. In float32 the fastest variants of convolutions are listed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np

import pumice

from .attention_decode import safely
from .contender import Array
from .gemm_variants import program_of, sampled
from .kernels import US
from .model_cases import MODEL_CASES, ModelCase
from .models import device_times
from .rows import Row, Table
from .session import Session

SAVES = ("pooling", "softmax")  # fusions that save dispatches in these networks
WARM_SECONDS, ROUNDS, RUNS, BEST = 2.0, 4, 40, 4


def warm(session: Session) -> None:
    """Run products until the device's clocks are as on a busy device."""
    program, given = program_of(64 if session.software else 4096, "float32", True, session.context)
    products, _ = sampled(program, given)
    end = time.perf_counter() + (0 if session.software else WARM_SECONDS)
    while time.perf_counter() < end:
        products(1)


def fused_rows(case: ModelCase, precision: str, session: Session) -> Iterator[Row]:
    x, _ = case.data()
    others = [name for name in pumice.fusions() if name not in SAVES]
    ways: dict[str, bool | list[str]] = {"as it ships": True, f"without {' and '.join(SAVES)}": others}
    models = {name: pumice.load(case.path, session.context, precision, fuse=fuse) for name, fuse in ways.items()}
    warm(session)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 if session.software else ROUNDS):
        for name, model in models.items():
            seconds[name].extend(device_times(model, x, 3 if session.software else RUNS))
    for name, model in models.items():
        steps = model.program.plan([list(x.shape)])
        times = sorted(seconds[name])
        note = f"{len(steps)} dispatches, {sum(step['barrier'] for step in steps)} barriers"
        yield Row(f"  {name}", times[0] * US, times[len(times) // 2] * US, note=note)
        for step in steps:
            variant = step.get("choice", {}).get("taken") or step.get("variant") or step["kernel"]
            yield Row(f"    {step['label']}", note=f"{variant}, {step['groups']}")
    results = [np.asarray(np.concatenate([np.ravel(y) for y in listed(model(x))])) for model in models.values()]
    yield Row("  largest difference", note=f"{float(np.abs(results[0] - results[1]).max()):.3g}")


def listed(results: Array | list[Array] | tuple[Array, ...]) -> list[Array]:
    return [results] if isinstance(results, np.ndarray) else list(results)


def variant_rows(case: ModelCase, session: Session) -> Iterator[Row]:
    """Measure the fastest variants of each kind of step, with an initially empty store."""
    x, _ = case.data()
    before = os.environ.get("PUMICE_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PUMICE_CACHE_DIR"] = folder
        try:
            with pumice.load(case.path, session.context, "fp32") as model:
                found = model.tune(x, runs=10, progress=False)
        finally:
            if before is None:
                del os.environ["PUMICE_CACHE_DIR"]
            else:
                os.environ["PUMICE_CACHE_DIR"] = before
    for one in found.steps:
        own = one.seconds(one.own)
        yield Row(f"  {one.kind}", median=own and own * US, note=f"{one.own}, its own")
        timed = [(variant.seconds, variant.variant) for variant in one.variants if variant.seconds is not None]
        for seconds, name in sorted(timed)[:BEST]:
            yield Row(f"    {name}", median=seconds * US)


def run(session: Session) -> Iterator[Table]:
    cases = [case for case in MODEL_CASES if case.name in ("mnist", "superres")]
    for case in cases:
        for precision in ("fp32", "fp16"):
            title = f"{case.name}, {precision}, batch 1, on the device"
            yield Table(title, "us", safely(fused_rows(case, precision, session)))
    for case in () if session.software else cases:
        yield Table(f"{case.name}, fp32, the quickest variants", "us", safely(variant_rows(case, session)))
