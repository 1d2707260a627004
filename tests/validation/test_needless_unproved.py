"""Models by chance that are right: validation proves them, or names the choice that no bound decides."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from needless_models import FAMILIES, Drawn

PRECISIONS = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
QUICK, ALL = 3, 40  # seeds of each family


def seeds() -> list[Any]:
    return [pytest.param(seed, marks=[] if seed < QUICK else [pytest.mark.slow]) for seed in range(ALL)]


def drawn(family: str, seed: int) -> Drawn:
    return FAMILIES[family](np.random.default_rng([zlib.crc32(family.encode()), seed]))


def ancestors(proto: onnx.ModelProto, output: str) -> set[str]:
    """Names of the nodes that an output follows from."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    found: set[str] = set()
    names = [output]
    while names:
        node = makers.get(names.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            names += node.input
    return found


def check_report(report: pumice.ValidationReport, one: Drawn) -> None:
    rows = [*report.rows, *report.kernels]
    assert {"nodes", "outputs"} <= {row.program for row in rows}
    left = [row for row in rows if row.verdict != "right"]
    assert all(row.verdict == "unproved" for row in left), report.summary
    assert all(any(reason in row.note for reason in one.reasons) for row in left), report.summary
    assert report.ok or one.reasons, report.summary
    for row in report.kernels:
        assert set(row.members) <= ancestors(one.proto, row.output) | {row.node}, (row.output, row.members)


def check_values(results: list[Any], one: Drawn, unit: float) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(one.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in one.proto.graph.input]
    for ours, theirs in zip(results, session.run(None, dict(zip(names, one.inputs, strict=True))), strict=True):
        assert (np.shape(ours), np.asarray(ours).dtype) == (theirs.shape, theirs.dtype)
        if theirs.dtype.kind != "f" or one.accuracy is None:
            assert one.accuracy is None or np.array_equal(ours, theirs)
            continue
        allowed = (
            one.accuracy * unit * max(float(np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))), 2.0**-3)
        )
        np.testing.assert_allclose(ours, theirs, rtol=one.accuracy * unit, atol=allowed)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_right_models_are_proved(family: str, seed: int, context: pumice.Context) -> None:
    one = drawn(family, seed)
    for precision, unit in PRECISIONS.items():
        with pumice.Model(one.proto, context, precision) as loaded:
            results = loaded(*one.inputs)
            report = pumice.validate(loaded, [one.inputs])
        check_report(report, one)
        check_values(list(results) if isinstance(results, tuple | list) else [results], one, unit)
