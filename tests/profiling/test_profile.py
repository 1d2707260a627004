"""Profiles: times of everything that runs in the block add up, belong to the right nodes, and reach the output formats."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from lesser_devices import MIN_LIMITS, lesser
from pumice.profiling.profile_records import parse_executions

DIGITS = Path(pumice.__file__).parent / "data" / "digits"
NODES = {"conv1", "conv2", "fc1", "logits"}  # nodes with kernels of their own
SCALE = """
layout(binding = 0) readonly  buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = 2 * x[i]; }
"""


@pytest.fixture
def model(context: pumice.Context) -> Iterator[pumice.Model]:
    with pumice.load(DIGITS / "digits.onnx", context) as loaded:
        loaded.warm_up(IMAGES)
        yield loaded


IMAGES = np.load(DIGITS / "holdback.npz")["images"][:8, None].astype("float32") / 16


def profiled(model: pumice.Model, level: str = "node", runs: int = 2, every: int | None = None) -> pumice.Profile:
    with pumice.profile(level, every) as measured:
        for _ in range(runs):
            model(IMAGES)
    return measured


@pytest.mark.parametrize("level", ["execution", "node", "dispatch"])
def test_the_spans_of_an_execution_are_all_of_it(model: pumice.Model, level: str) -> None:
    expected = model(IMAGES)
    with pumice.profile(level) as measured:
        assert np.array_equal(model(IMAGES), expected), "a profile changes no result"
        model(IMAGES)
    assert len(measured.executions) == 2
    for one in measured.executions:
        if not one.fine:
            assert level == "node"
            assert not one.spans
            continue
        inside = sum(span.seconds + span.barrier_seconds for span in one.spans)
        assert inside == pytest.approx(one.seconds, rel=1e-6)
        assert one.begin >= one.submitted
        assert all(span.before <= span.ready <= span.end for span in one.spans)
    assert measured.device_seconds == pytest.approx(sum(one.seconds for one in measured.executions))
    assert measured.device_seconds + measured.gap_seconds <= measured.seconds


def test_rows_are_the_models_nodes(model: pumice.Model) -> None:
    measured = profiled(model)
    rows = {row.name: row for row in measured.rows() if row.name in NODES}
    assert set(rows) == NODES
    assert all((row.spans, row.measured) == (2, 1) for row in rows.values())
    # 8 images, 16 channels of 8 x 8, K = 9; then 32 channels with K = 144; a multiplication and an addition each
    assert rows["conv1"].flop == 2 * (2 * 8 * 16 * 64 * 9)
    assert rows["conv2"].flop == 2 * (2 * 8 * 32 * 64 * 144)
    assert rows["conv1"].read_bytes >= 2 * IMAGES.nbytes
    assert sum(row.share for row in measured.rows()) <= 1 + 1e-9
    assert {row.kernel for row in measured.rows("kernel")} == {row.name for row in measured.rows("kernel")}


def test_operations_of_a_node_are_counted_once_at_every_level(model: pumice.Model) -> None:
    counts = {sum(span.flop for span in profiled(model, level, 1).spans) for level in ("execution", "node", "dispatch")}
    assert len(counts) == 1


def test_kernels_and_lists_are_profiled(context: pumice.Context) -> None:
    scale = pumice.Kernel(SCALE, context, name="scale")
    x = np.arange(64, dtype="float32")
    y = np.empty_like(x)
    commands = pumice.CommandList(context)
    tensors = [pumice.empty((64,), "float32", context=context) for _ in range(2)]
    commands.dispatch(scale.bind(x=tensors[0], y=tensors[1], threads=64))
    commands.commit(timing=True)
    with pumice.profile() as measured, measured.span("mine"):
        scale(x=x, y=y, threads=64)
        commands.exec().wait()
    assert np.array_equal(y, 2 * x)
    assert sum("scale" in row.kernel for row in measured.rows()) >= 1
    kinds = {(one.kind, one.name) for one in measured.host}
    assert {("kernel", "scale"), ("user", "mine")} <= kinds
    assert len(measured.executions) == 2


def test_loops_are_profiled(context: pumice.Context) -> None:
    body, condition, graph = (pumice.Graph(name) for name in ("body", "condition", "main"))
    carried = body.input("x", "float32", (8,))
    body.output("y", body.add("Add", carried, carried))
    last = condition.input("x", "float32", (8,))
    total = condition.add("ReduceSum", last, keepdims=1)
    condition.output("go", condition.add("Less", total, condition.constant(np.array([1000], "float32"))))
    x = graph.input("x", "float32", (8,))
    graph.output("y", graph.while_(condition, body, carried=[x])[0])
    program = graph.compile(context)
    given = np.ones(8, "float32")
    expected = program({"x": given})["y"]
    with pumice.profile() as measured:
        assert np.array_equal(program({"x": given})["y"], expected)
    assert measured.device_seconds > 0
    assert expected[0] == 128


def test_one_profile_at_a_time_measures(model: pumice.Model) -> None:
    with pumice.profile() as measured:
        with pytest.raises(pumice.StateError, match="only one can measure at a time"), pumice.profile():
            pass
        with pytest.raises(pumice.StateError, match="only after its block has ended"):
            measured.rows()
        model(IMAGES)
    assert measured.executions
    with pytest.raises(pumice.StateError, match="a Profile covers one block"), measured:
        pass
    with pumice.profile() as empty:
        pass
    assert empty.executions == ()
    assert "0 executions" in empty.table()
    with pytest.raises(pumice.Error, match="level: expected one of execution, node, dispatch, given 'fine'"):
        pumice.profile("fine")
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(pumice.Error, match="every: expected a positive integer or None, given"):
            pumice.profile(every=wrong)  # type: ignore[arg-type]
    with pytest.raises(pumice.Error, match="every: expected None at the level 'execution'"):
        pumice.profile("execution", 2)
    with pytest.raises(pumice.Error, match="by: expected one of"):
        empty.rows("op")


def test_a_context_may_be_closed_in_the_block(context: pumice.Context) -> None:
    with pumice.profile() as measured, pumice.Context(f"uuid:{context.info.uuid}") as own:
        x = np.ones(8, "float32")
        pumice.Kernel(SCALE, own)(x=x, y=np.empty_like(x), threads=8)
    assert len(measured.executions) + measured.lost == 1
    assert ("have no stamps" in measured.summary()) == (measured.lost > 0)


def test_more_executions_than_are_kept_are_read_meanwhile(context: pumice.Context) -> None:
    """Each call with tensors creates a recording; the profile does not keep all of them alive."""
    count = 100
    scale = pumice.Kernel(SCALE, context)
    x, y = (pumice.zeros((8,), "float32", context=context) for _ in range(2))
    with pumice.profile("execution") as measured:
        for _ in range(count):
            scale(x=x, y=y, threads=8)
    assert len(measured.executions) == count
    assert measured.lost == 0


def test_kernels_that_check_bounds_are_profiled(context: pumice.Context) -> None:
    scale = pumice.Kernel(SCALE, context, debug=True)
    x = np.ones(8, "float32")
    with pumice.profile() as measured:
        scale(x=x, y=np.empty_like(x), threads=8)
        with pytest.raises(pumice.OutOfBoundsError):
            scale(x=x, y=np.empty_like(x), threads=9)
    assert len(measured.executions) >= 2


def test_threads_are_profiled(context: pumice.Context) -> None:
    with pumice.load(DIGITS / "digits.onnx", context) as model:
        expected = model(IMAGES)
        with pumice.profile() as measured, ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: model(IMAGES), range(16)))
    assert all(np.array_equal(one, expected) for one in results)
    assert len(measured.executions) == 16
    assert len({one.thread for one in measured.host if one.kind == "model"}) > 1


def test_an_error_in_the_block_ends_the_profile(model: pumice.Model) -> None:
    with pytest.raises(ZeroDivisionError), pumice.profile():
        raise ZeroDivisionError
    assert profiled(model).executions


def test_a_trace_is_what_the_format_says(model: pumice.Model, tmp_path: Path) -> None:
    """Checks the Trace Event Format: complete events have a name, a category, ids, a start and a duration in us."""
    measured = profiled(model)
    measured.save_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    complete = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    named = {one["pid"]: one["args"]["name"] for one in trace["traceEvents"] if one["ph"] == "M"}
    assert named[1] == "host"
    assert {one["pid"] for one in complete} == set(named)
    for one in complete:
        assert isinstance(one["name"], str)
        assert one["ts"] >= 0
        assert one["dur"] >= 0
        assert one["ts"] + one["dur"] <= measured.seconds * 1e6 * 1.01 + 1000
    assert len(complete) == len(measured.host) + len(measured.executions) + len(measured.spans) + sum(
        span.ready > span.before for span in measured.spans
    )
    # Events of one track are nested or disjoint: Perfetto rejects others.
    for track in {(one["pid"], one["tid"]) for one in complete if one["pid"] > 1}:
        own = sorted((one["ts"], one["ts"] + one["dur"]) for one in complete if (one["pid"], one["tid"]) == track)
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in itertools.pairwise(own))


def test_a_page_needs_nothing_else(model: pumice.Model, tmp_path: Path) -> None:
    measured = profiled(model)
    measured.save_html(tmp_path / "page.html", "<digits>")
    page = (tmp_path / "page.html").read_text()
    assert "default-src &#x27;none&#x27;" in page
    assert "&lt;digits&gt;" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert all(name in page for name in NODES)
    shown = measured._repr_html_()
    assert "<table>" in shown


def test_json_has_everything(model: pumice.Model, tmp_path: Path) -> None:
    measured = profiled(model)
    measured.save_json(tmp_path / "profile.json")
    record = json.loads((tmp_path / "profile.json").read_text())
    assert record["device_seconds"] == measured.device_seconds
    assert len(record["executions"]) == 2
    assert {span["node"] for span in record["executions"][0]["spans"]} >= NODES


def test_two_profiles_are_compared(model: pumice.Model) -> None:
    before, after = profiled(model), profiled(model, runs=4)
    compared = before.compare(after)
    assert {one.name for one in compared.changes} >= NODES
    assert compared.ratio is not None
    assert compared.ratio > 0
    itself = before.compare(before)
    assert itself.ratio == 1
    assert all(one.ratio in (1, None) for one in itself.changes)
    assert json.loads(json.dumps(itself.as_dict()))["ratio"] == 1
    assert "1.000" in repr(itself)


def test_pictures_are_drawn_or_rejected(model: pumice.Model) -> None:
    measured = profiled(model)
    with pytest.raises(pumice.Error, match="kind: expected one of timeline, roofline, kernels, memory, given 'pie'"):
        measured.plot("pie")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for kind in ("timeline", "roofline", "kernels"):
        assert measured.plot(kind).get_xlabel()


def run(begin: float, submitted: int, spans: list[tuple[Any, ...]]) -> dict[str, Any]:
    one = {"kernel": "k", "storage": "fp32", "groups": [1, 1, 1], "read_bytes": 4, "written_bytes": 4}
    dispatches = [{**one, "node": "a", "flop": 10}, {**one, "node": "a", "flop": 10}, {**one, "node": "b", "flop": 3}]
    about = {"device": "d", "context": 1, "id": 1, "cold": False, "submitted": submitted, "dispatches": dispatches}
    return {**about, "fine": True, "recording": 1, "begin": begin, "end": spans[-1][-1], "spans": spans}


def test_the_devices_clock_is_put_behind_submissions() -> None:
    spans = [(0, 0, 5.0, 5.0, 6.0), (1, 1, 6.0, 7.0, 9.0), (2, 2, 9.0, 9.0, 10.0)]
    first, second = parse_executions([run(5.0, 1000, spans), run(50.0, 1030, [(0, 2, 50.0, 50.0, 60.0)])], 900)
    assert (first.begin, second.begin) == pytest.approx((100e-9, 145e-9))
    assert [span.flop for span in first.spans] == [0, 10, 3], "the longer span of node a has its operations"
    assert second.spans[0].flop == 13
    assert first.spans[1].barrier_seconds == pytest.approx(1e-9)


def test_peaks_are_measured_once(context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path))
    measured = pumice.calibrate(context)
    assert measured.bytes_per_second > 0
    assert all(speed > 0 for speed in measured.flop_per_second.values())
    if not list(tmp_path.rglob("*.calibration")):
        pytest.skip("there is no cache in this environment")
    assert pumice.calibrate(context) == measured
    (entry,) = tmp_path.rglob("*.calibration")
    entry.write_bytes(b"not one of ours")
    again = pumice.calibrate(context)
    assert again.seconds_since_epoch > measured.seconds_since_epoch
    assert pumice.calibrate(context, again=True).seconds_since_epoch > again.seconds_since_epoch


def test_peaks_are_measured_within_the_limits_of_small_devices(context: pumice.Context) -> None:
    with lesser(context, MIN_LIMITS, ["shaderFloat16"]) as small:
        measured = pumice.calibrate(small, again=True)
    assert measured.bytes_per_second > 0
    assert list(measured.flop_per_second) == ["fp32"]
