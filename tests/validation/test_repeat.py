"""Repeated runs: differing bits are reported with their node, rate and shape, and with a remedy."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import numpy as np
import onnx
import pytest

import pumice
from diagnosis_runner import RESTLESS, replaced, run
from fault_models import SAMPLES
from onnx_models import gemm, model, node, value
from pumice.base.host_arrays import bitwise_equal
from pumice.tools.cli import main
from pumice.validation.checker.model_validation import ModelValidation
from pumice.validation.checker.options import ValidationOptions
from pumice.validation.reference.tensor_sources import DeviceTensors
from pumice.validation.report.repeat_results import (
    FRESH_CONTEXT,
    SAME_RECORDING,
    UNDER_LOAD,
    Repeatability,
    ResultTally,
    find_pattern,
)
from pumice.validation.search import repeatability
from pumice.validation.search.repeatability import RepeatedRuns
from schema_check import faults

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def restless(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Repeat a model whose normalisation flips a bit in each run, in all its programs or only in the fused one."""
    folders = {name: str(replaced(tmp_path_factory.mktemp("shaders"), *RESTLESS[name])) for name in RESTLESS}
    task = {"action": "repeat", "sample": "layer norm", "repeat": 20}
    names = ["norm", "fused norm", "allowed"]
    given = [{**task, "folder": folders[name]} for name in RESTLESS]
    return dict(zip(names, run([*given, {**given[0], "allowed": True}]), strict=True))


@pytest.fixture(autouse=True)
def lavapipe(context: pumice.Context) -> None:
    if "llvmpipe" not in context.info.name:
        pytest.skip("the kernels that are changed are those that lavapipe runs")


def test_a_bit_that_turns_is_found_at_its_node(restless: dict[str, dict[str, Any]]) -> None:
    found = restless["norm"]
    (one,) = found["repeats"]
    assert (found["verdict"], found["ok"], found["raised"]) == ("unproved", False, "norm")
    assert all(row["verdict"] == "right" for row in found["rows"])  # each result is within its bound
    assert one["node"] == "norm"
    assert one["runs"] == {SAME_RECORDING: 20, FRESH_CONTEXT: 5, UNDER_LOAD: 4}
    assert one["differing"][SAME_RECORDING] == 10
    (finding,) = [finding for finding in found["findings"] if finding["kind"] == "not deterministic"]
    assert finding["node"] == "norm"
    assert "10 of 20 on one recorded list" in finding["text"]
    assert "not deterministic" in found["repr"]


def test_the_shape_of_the_difference_is_reported(restless: dict[str, dict[str, Any]]) -> None:
    pattern = restless["norm"]["repeats"][0]["pattern"]
    assert (pattern["kind"], pattern["elements"], pattern["box"]) == ("block", 16, [[7, 8], [0, 16]])
    assert (pattern["first"], pattern["extent_aligned"]) == (7 * 37, 16)
    assert restless["fused norm"]["repeats"][0]["pattern"]["kind"] == "rows"


def test_what_does_not_help_is_reported(restless: dict[str, dict[str, Any]]) -> None:
    tried = restless["norm"]["repeats"][0]["tried"]
    assert set(tried) >= {"fuse=False", "deterministic=True", "node 'norm' alone, with waits around it"}
    assert set(tried.values()) == {"10 of 20 runs differ"}


def test_a_difference_of_the_fused_program_alone_goes_away_without_fusion(restless: dict[str, dict[str, Any]]) -> None:
    (one,) = restless["fused norm"]["repeats"]
    assert one["node"] == ""
    assert one["tried"]["fuse=False"] == "the same bits in 20 runs"
    assert one["tried"]["deterministic=True"] == "10 of 20 runs differ"
    (finding,) = [one for one in restless["fused norm"]["findings"] if one["kind"] == "not deterministic"]
    assert finding["node"] == "y"
    assert "the fused program alone" in finding["text"]


def test_a_difference_that_is_allowed_is_reported_and_passes(restless: dict[str, dict[str, Any]]) -> None:
    found = restless["allowed"]
    assert (found["ok"], found["verdict"], found["raised"], found["deterministic"]) == (True, "right", "", False)
    assert [one["kind"] for one in found["findings"]] == ["not deterministic"]


def test_records_of_repeats_are_as_the_schema_says(restless: dict[str, dict[str, Any]]) -> None:
    schema = json.loads((Path(pumice.__file__).parent / "validation" / "report" / "report.schema.json").read_text())
    for found in restless.values():
        record = {key: one for key, one in found.items() if key not in ("raised", "repr", "junit")}
        assert list(faults(record, schema, schema)) == []


def test_junit_has_a_case_for_each_output_that_is_repeated(restless: dict[str, dict[str, Any]]) -> None:
    for name, outcome in (("norm", "failure"), ("allowed", "skipped")):
        suite = fromstring(restless[name]["junit"])[0]
        (case,) = [one for one in suite.iter("testcase") if one.get("classname", "").endswith(".repeats")]
        assert (case.get("name"), [one.tag for one in case]) == ("y", ["properties", outcome])
        assert suite.get("failures") == ("1" if outcome == "failure" else "0")
        assert suite.get("tests") == str(len(list(suite.iter("testcase"))))


def test_the_same_bits_are_reported_too(context: pumice.Context) -> None:
    report = pumice.validate(gemm().SerializeToString(), [(X,), (X[:1],)], repeat=8, context=context)
    assert report.ok
    assert report.deterministic
    assert [(one.output, one.runs) for one in report.repeats] == [
        (name, {SAME_RECORDING: 8, FRESH_CONTEXT: 2, UNDER_LOAD: 2}) for name in ("y", "sum")
    ]
    assert "12 runs of the same bits" in report.summary
    assert pumice.validate(gemm().SerializeToString(), [X], context=context).deterministic is None


def test_a_value_that_is_wrong_in_some_runs_alone_is_wrong(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of all runs are checked, not only the first run's."""
    real = repeatability.make_replay

    def spoiled(program: pumice.Program, inputs: Any) -> Any:
        once, calls = real(program, inputs), iter(range(1000))

        def call() -> Any:
            results = dict(once())
            if next(calls) == 3 and "sum" in results:
                results["sum"] = results["sum"] + np.float32(1)
            return results

        return call

    monkeypatch.setattr(repeatability, "make_replay", spoiled)
    report = pumice.validate(gemm().SerializeToString(), [X], repeat=6, context=context)
    assert report.state == "wrong"
    assert [row.output for row in report.rows if row.verdict == "wrong"] == ["sum"]
    one = next(one for one in report.repeats if one.output == "sum")
    assert (one.differing[SAME_RECORDING], one.deterministic, one.results) == (1, False, 2)
    assert next(one for one in report.repeats if one.output == "y").deterministic


def test_runs_are_repeated_where_outputs_are_not_checked(context: pumice.Context) -> None:
    report = pumice.validate(gemm().SerializeToString(), [X], repeat=4, context=context, mode="isolated")
    assert [one.runs[SAME_RECORDING] for one in report.repeats] == [4, 4]


def test_a_difference_of_the_other_context_alone_is_reported_so(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:

    real = repeatability.make_replay

    def elsewhere(program: pumice.Program, inputs: Any) -> Any:
        once = real(program, inputs)
        if program.context is context:
            return once
        return lambda: {name: np.nextafter(array, np.float32(9)) for name, array in once().items()}

    monkeypatch.setattr(repeatability, "make_replay", elsewhere)
    report = pumice.validate(
        gemm().SerializeToString(), [X], repeat=8, context=context, tolerances={"y": 1e-5, "sum": 1e-5}
    )
    one = report.repeats[0]
    assert (report.state, one.node) == ("unproved", "gemm.sum")
    assert one.differing == {SAME_RECORDING: 0, FRESH_CONTEXT: 2, UNDER_LOAD: 1}
    assert one.tried["deterministic=True"] == "the same bits in 8 runs, which may be chance"


def test_random_numbers_are_the_same_in_every_run(context: pumice.Context) -> None:
    """The counters of the random generator are inputs of the program, which repeated runs share."""
    draw = model([node("RandomNormalLike", ["x"], ["y"], name="draw")], [value("x", [2, 4])])
    report = pumice.validate(draw.SerializeToString(), [X], repeat=4, context=context, allow_unchecked=True)
    assert report.deterministic


def test_a_hundred_runs_cost_at_most_three_hundred_calls(context: pumice.Context) -> None:
    """Excludes loading the model on the second context. CPU time is measured, because other processes affect wall time."""
    sample = SAMPLES["recurrent"]()
    with pumice.load(sample.proto.SerializeToString(), context) as loaded:
        inputs = dict(zip((one.name for one in loaded.program.inputs), loaded.arguments(*sample.inputs), strict=True))
        proof = ModelValidation(loaded, ValidationOptions({}, frozenset(), "both", repeat=100))
        repeats = RepeatedRuns(proof)
        repeats.run(inputs, 0)
        calls = min(seconds(lambda: [loaded(*sample.inputs) for _ in range(100)]) for _ in range(3))
        repeated = min(seconds(lambda: repeats.run(inputs, 0)) for _ in range(3))
        assert repeats.results()[0].deterministic
        repeats.close()
        proof.close()
    assert repeated < 3 * calls


def test_nobody_waits_for_a_load_that_is_not_wanted_any_more(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt is raised before the second load finishes; the thread frees what it has loaded."""
    begun, wanted, freed = threading.Event(), threading.Event(), threading.Event()
    shipped, closed = DeviceTensors.compile_optimized, repeatability._close_program

    def slowly(self: DeviceTensors, other: pumice.Context) -> pumice.Program:
        begun.set()
        assert wanted.wait(60)
        return shipped(self, other)

    def telling(first: pumice.Context, loaded: Any) -> None:
        closed(first, loaded)
        freed.set()

    def interrupted(*_: Any) -> None:
        assert begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(DeviceTensors, "compile_optimized", slowly)
    monkeypatch.setattr(repeatability, "_close_program", telling)
    monkeypatch.setattr(ModelValidation, "run", interrupted)
    one = model([node("Relu", ["x"], ["y"], name="one")], [value("x", [2, 4])])
    with pytest.raises(KeyboardInterrupt):
        pumice.validate(one.SerializeToString(), [X], repeat=2, context=context)
    assert not freed.is_set()
    wanted.set()
    assert freed.wait(60)


def seconds(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="threads do not run at once")
def test_sums_in_any_order_differ_and_are_the_same_in_order() -> None:
    """Caused by threads of the software driver that add floats to the same elements; the shaders have no fault."""
    task = {"action": "repeat", "folder": "", "sample": "scattered", "repeat": 20}
    (found,) = run([task], LP_NUM_THREADS="4")
    (one,) = found["repeats"]
    assert one["node"] == "scatter"
    assert one["tried"]["deterministic=True"].startswith("the same bits in 20 runs")
    assert all(row["verdict"] == "right" for row in found["rows"])


def test_the_command_repeats_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(gemm(), str(tmp_path / "model.onnx"))
    given = ["validate", str(tmp_path / "model.onnx"), "--dim", "N=2"]
    assert main(given) == 0
    assert "the same bits" not in capsys.readouterr().out
    assert main([*given, "--repeat", "8"]) == 0
    assert "12 runs of the same bits" in " ".join(capsys.readouterr().out.split())
    assert main([*given, "--repeat", "8", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [one["runs"][SAME_RECORDING] for one in record["repeats"]] == [8, 8]
    with pytest.raises(SystemExit):
        main([*given, "--repeat", "1"])
    assert "expected a number of runs of at least 2, given '1'" in capsys.readouterr().err


# ---- bits and shapes


def test_bits_are_compared() -> None:
    nan = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert bitwise_equal(nan[:1], nan[:1].copy())
    assert not bitwise_equal(nan[:1], nan[1:])
    assert not bitwise_equal(np.float32([0.0]), np.float32([-0.0]))
    assert not bitwise_equal(np.zeros(2, np.float32), np.zeros(2, np.int32))
    assert bitwise_equal(np.zeros((0, 3)), np.zeros((0, 3)))
    assert bitwise_equal(np.array(1.0), np.array(1.0))


@pytest.mark.parametrize("count", [1, 4096, 4097, 8192, 8193, 100_000])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.complex64])
def test_one_bit_in_many_bytes_is_a_difference(count: int, dtype: Any) -> None:
    one = np.zeros(count, dtype)
    for array in (one, np.zeros((2, count), dtype)[:, ::2][1], np.zeros((count, 3), dtype).T):
        other = array.copy()
        assert bitwise_equal(array, other)
        for place in (0, other.nbytes // 2, other.nbytes - 1):
            changed = np.ascontiguousarray(other).copy()
            changed.reshape(-1).view(np.uint8)[place] ^= 128
            assert not bitwise_equal(array, changed)
    assert not bitwise_equal(one, one[:-1])
    assert not bitwise_equal(one, one.reshape(1, -1))


@pytest.mark.parametrize(
    ("places", "kind", "first_aligned", "extent_aligned"),
    [
        (np.s_[5, 3], "element", 1, 1),
        (np.s_[4:6, :], "rows", 128, 128),
        (np.s_[:, 32:48], "columns", 32, 16),
        (np.s_[2:4, 16:32], "block", 16, 16),
        (np.s_[::5, ::7], "scattered", 128, 32),
        (np.s_[:, :], "all", 128, 128),
    ],
)
def test_shapes_of_differences(places: Any, kind: str, first_aligned: int, extent_aligned: int) -> None:
    mask = np.zeros((12, 64), bool)
    mask[places] = True
    found = find_pattern(mask)
    assert (found.kind, found.elements) == (kind, mask.sum())
    assert (found.first_aligned, found.extent_aligned) == (first_aligned, extent_aligned)
    assert str(found.elements) in str(found)


def test_a_single_number_has_a_shape_too() -> None:
    assert find_pattern(np.array(True)).kind == "all"
    assert find_pattern(np.array([False, True, False])).box == ((1, 2),)


def test_more_results_than_are_kept_still_count() -> None:
    tally = ResultTally()
    for number in range(20):
        tally.add(SAME_RECORDING, np.array([number]))
    assert (len(tally.kinds), tally.count_runs(), tally.count_differing()) == (
        8,
        {SAME_RECORDING: 20},
        {SAME_RECORDING: 19},
    )
    few = ResultTally(2)
    for number in (0, 1, 2, 2, 0):
        few.add(SAME_RECORDING, np.array([number]))
    assert (len(few.kinds), few.differs, few.count_differing()) == (2, True, {SAME_RECORDING: 3})


def test_a_change_of_shape_is_a_difference() -> None:
    tally = ResultTally()
    for size in (3, 3, 4):
        tally.add(FRESH_CONTEXT, np.zeros(size))
    assert (tally.count_differing(), tally.find_pattern().kind) == ({FRESH_CONTEXT: 1}, "all")


@pytest.mark.parametrize("given", [1, -2, True, 2.0, "3"])
def test_a_wrong_number_of_runs_is_rejected(given: Any) -> None:
    with pytest.raises(pumice.Error, match="repeat: expected 0 or at least 2 runs"):
        pumice.validate(gemm().SerializeToString(), [X], repeat=given)


def test_what_cannot_be_repeated_is_rejected(context: pumice.Context) -> None:
    for options in ({"candidate": lambda inputs: {}}, {"mode": "bisect", "context": context}):
        with pytest.raises(pumice.Error, match="repeat: runs of whole programs are repeated"):
            pumice.validate(gemm().SerializeToString(), [X], repeat=2, **options)


def test_a_record_without_differences_says_so() -> None:
    one = Repeatability("y", 0, {SAME_RECORDING: 4}, {}, 1, "", None, {})
    assert str(one) == "output 'y' has the same bits in 4 runs"
    assert one.rate == 0


def test_files_of_faulty_shaders_are_made(tmp_path: Path) -> None:
    for name, texts in RESTLESS.items():
        assert (replaced(tmp_path / name, *texts) / texts[0]).exists()
