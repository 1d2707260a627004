"""The computing, plotting and model-building code of ./dev bench; and the files in docs/benchmarks."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from benchmarks import devices, plots, resnet, scale
from benchmarks.__main__ import described
from benchmarks.ray_blocks import Call, MakeBlock, TimedPredictor, call_of, seconds_to_first, steady_rate
from benchmarks.rows import Row, Table
from benchmarks.timing import Absent

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILES = sorted((DOCS / "benchmarks").glob("*.json"))
HEADER = {"device": "a device (software), the only one", "driver": "a driver 1.0", "date": "2026-11-26"}


# ---- plots


def measured() -> dict[str, Any]:
    bars = Table(
        "Times", "us", [Row("a", 3.0, 4.0, target=5.0), Row("b", 300.0, 400.0, target=5.0), Row("c", absent="no")]
    )
    lines = Table("Slopes", "1", [Row("call (ms)", median=1.0, points=[(1, 2.0), (2, 4.0), (4, 8.0)])], axis="nodes")
    empty = Table("Nothing", "us", [Row("d", absent="not here"), Row("e", median=math.nan)])
    made: dict[str, Any] = json.loads(json.dumps(described(dict(HEADER), [bars, lines, empty])))
    return made


def test_a_plot_has_a_panel_for_each_table_with_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plots.draw(measured(), tmp_path / "all.svg")
    drawn = (tmp_path / "all.svg").read_text()
    for text in (
        "Times",
        "Slopes",
        "call (ms), slope 1.00",
        "nodes",
        "a device (software), the only one",
        "2026-11-26",
        " 400",
    ):
        assert f"{text}</text>" in drawn or text in drawn, text
    assert "Nothing" not in drawn


def test_slopes_keep_their_points() -> None:
    sweep = scale.Sweep("Nodes", "nodes", [1, 2, 4], lambda size: {"call (ms)": 3.0 * size})
    sweep.measure()
    table = scale.table_of(sweep)
    assert table.axis == "nodes"
    assert table.rows[0].points == [(1, 3.0), (2, 6.0), (4, 12.0)]
    assert table.rows[0].median == pytest.approx(1.0)


# ---- several devices


def test_numbers_of_devices_double_up_to_all() -> None:
    assert [devices.counts(n) for n in (1, 2, 3, 4, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 8]]


def test_the_rate_counts_what_was_done_while_all_worked() -> None:
    """Two processes of 10 rows/s; the second starts 5 s later and ends 3 s later."""
    first = [Call(1, float(t), t + 1.0, -1.0, 10) for t in range(12)]
    second = [Call(2, float(t), t + 1.0, 4.5, 10) for t in range(5, 15)]
    assert steady_rate([*second, *first]) == pytest.approx(20.0)
    assert steady_rate(first) == pytest.approx(10.0)
    idle = [Call(3, 2.0 * t, 2.0 * t + 1, 0.0, 10) for t in range(20)]  # idle half of the time
    assert steady_rate(idle) == pytest.approx(5.0, rel=0.1)
    assert math.isnan(steady_rate(first[:2]))
    assert math.isnan(
        steady_rate([*first, *(dataclasses.replace(call, process=9, begin=50 + call.begin) for call in first)])
    )
    assert seconds_to_first([*first, *second]) == pytest.approx(2.0)


@pytest.mark.slow
def test_an_actors_results_say_when_they_were_made(tmp_path: Path, context: pumice.Context) -> None:
    shape = resnet.Shape(8, 32)
    resnet.write(tmp_path / "small.onnx", shape)
    made = MakeBlock(6, shape.side)({"id": np.zeros(1, np.int64)})
    assert made["place"].tolist() == [*range(6)]
    device = f"uuid:{context.info.uuid}"
    with TimedPredictor(str(tmp_path / "small.onnx"), batch_size=3, keep=["place"], device=device) as predictor:
        results = predictor(made)
    call = call_of(results)
    assert call.rows == 6
    assert call.made <= call.begin <= call.end
    with pumice.load(tmp_path / "small.onnx", context) as model:
        expected = model(resnet.pictures(6, shape.side))
    work = devices.Work(tmp_path / "small.onnx", "fp32", shape, 3, expected, 1.0)
    work.check(results["scores"], results["place"])
    with pytest.raises(Absent, match="scores are off by"):
        work.check(results["scores"], results["place"][::-1])


@pytest.mark.slow
def test_the_network_has_fifty_layers_and_scores_that_a_runtime_agrees_with(
    tmp_path: Path, context: pumice.Context
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    import onnx

    path = tmp_path / "small.onnx"
    resnet.write(path, resnet.Shape(8, 32))
    nodes = onnx.load(path).graph.node
    shortcuts = len(resnet.STAGES)
    assert sum(node.op_type in ("Conv", "Gemm") for node in nodes) - shortcuts == 50
    pixels = resnet.pictures(2, 32)
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
        None, {"pixels": pixels}
    )[0]
    with pumice.load(path, context) as model:
        np.testing.assert_allclose(model(pixels), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
