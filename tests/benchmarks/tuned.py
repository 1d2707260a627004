"""The gain of `pumice tune` on this device: the time of a model's dispatches with default and with measured choices.

Each model has its own, initially empty store. A tuned model must be as accurate as an untuned one.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np

import pumice

from .contender import Array
from .model_cases import ModelCase
from .rows import Row, Table
from .session import Session
from .timing import Absent

US = 1e6
LINES = 6  # steps shown per model, largest gain first


def rows(session: Session, case: ModelCase, precision: str, x: Array, expected: Array) -> Iterator[Row]:
    begin = time.perf_counter()
    with pumice.load(case.path, session.context, precision) as model:
        found = model.tune(x, runs=session.effort.runs or 10, progress=False)
    seconds = time.perf_counter() - begin
    with pumice.load(case.path, session.context, precision) as model:
        results = model(x)
        result = np.asarray(results if len(model.outputs) == 1 else results[0])
        named = sum("measured: " in row["note"] for row in model.report())
        known = model.tune(x, runs=1, progress=False).measured
    difference, allowed = case.difference(result, expected), case.allowed.get(precision)
    wrong = known > 0 or (allowed is not None and difference > allowed)
    changed = sum(one.chosen != one.own for one in found.steps)
    note = f"{changed} of {len(found.steps)} kinds of steps, {named} nodes; {found.measured} variants in {seconds:.1f} s, {known} later"
    yield Row(f"{precision}: the engine's own", median=found.before * US)
    yield Row(f"{precision}: tuned", median=found.after * US, note=f"{note}; off by {difference:.2g}", wrong=wrong)
    for one in sorted(found.steps, key=lambda one: -one.gain)[:LINES]:
        rejected = sum(variant.seconds is None for variant in one.variants)
        said = f"{one.chosen} for {one.own}" if one.chosen != one.own else f"{one.own}, its own"
        after = one.seconds(one.chosen)
        note = f"{said}; x {one.gain:.2f}, {len(one.variants)} variants, {rejected} rejected"
        yield Row(f"  {one.kind}", median=after and after * US, note=note)
        yield from (Row(f"    {v.variant}", absent=v.rejected) for v in one.variants if v.seconds is None)


def run(session: Session) -> Iterator[Table]:
    for case in session.cases():
        table = Table(f"{case.name} tuned, {session.context.info.name}", "us")
        try:
            x, expected = case.data()
        except Absent as reason:
            table.rows.append(Row("absent", absent=str(reason)))
            yield table
            continue
        was = os.environ.get("PUMICE_CACHE_DIR")
        for precision in ("fp32", "fp16"):
            with tempfile.TemporaryDirectory() as cache:
                os.environ["PUMICE_CACHE_DIR"] = cache
                try:
                    table.rows += rows(session, case, precision, x, expected)
                except pumice.Error as error:
                    table.rows.append(Row(precision, absent=str(error), wrong=True))
                finally:
                    os.environ.pop("PUMICE_CACHE_DIR", None)
                    if was is not None:
                        os.environ["PUMICE_CACHE_DIR"] = was
        yield table
