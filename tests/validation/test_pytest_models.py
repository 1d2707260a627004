"""Folders of models with stored data as tests, and golden baselines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import pumice
from onnx_models import gemm, model, node, value
from plugin_project import VALIDATE, PluginProject, X, expected_of_gemm, write_data_set
from pumice.validation.checker.stored_output_comparison import compare_stored_outputs


def gemm_project(project: PluginProject) -> None:
    """Create a folder with a model and an ONNX data set, and one with an .npz file."""
    project.model("models/first/model.onnx")
    write_data_set(project.path / "models/first/test_data_set_0", {"x": X}, expected_of_gemm())
    project.model("models/second/other.onnx")
    np.savez(project.path / "models/second/any.npz", x=X, sum=expected_of_gemm()["sum"])


def changed(amount: float) -> dict[str, Any]:
    """Return the stored outputs, with one element changed."""
    made = expected_of_gemm()
    made["sum"][1, 2] += np.float32(amount)
    return made


# ---- collection


def test_every_model_is_a_test_in_every_cell(plugin_project: PluginProject) -> None:
    gemm_project(plugin_project)
    plugin_project.write("test_it.py", "def test_plain():\n    pass\n")
    result = plugin_project.run("-v", "--pumice-models=models", "--pumice-precision=fp32,fp16")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(
        [
            "models/first/model.onnx::validate*fp32* PASSED*",
            "models/second/other.onnx::validate*fp32* PASSED*",
            "models/first/model.onnx::validate*fp16* PASSED*",
            "default-fp16: 2 passed; validations: 2 right",
        ]
    )


@pytest.mark.slow
def test_models_are_tests_in_processes_of_their_own_and_by_folder(plugin_project: PluginProject) -> None:
    gemm_project(plugin_project)
    plugin_project.write("test_it.py", "def test_plain():\n    pass\n")
    plugin_project.run("--pumice-models=models", "--pumice-isolate").assert_outcomes(passed=3)
    plugin_project.run("--pumice-models=models", "models/first").assert_outcomes(passed=2)
    plugin_project.run("--pumice-models=models/first").assert_outcomes(passed=2)
    plugin_project.run().assert_outcomes(passed=1)


def test_folders_outside_of_the_project_are_collected(plugin_project: PluginProject, tmp_path: Path) -> None:
    gemm_project(plugin_project)
    folder = plugin_project.path / "models"
    folder.rename(tmp_path / "elsewhere")
    plugin_project.write("test_it.py", "def test_plain():\n    pass\n")
    plugin_project.run(f"--pumice-models={tmp_path / 'elsewhere'}").assert_outcomes(passed=3)


@pytest.mark.slow
def test_the_configuration_names_folders(plugin_project: PluginProject) -> None:
    gemm_project(plugin_project)
    plugin_project.write("tests/test_it.py", "def test_plain():\n    pass\n")
    plugin_project.pytester.makeini("[pytest]\npumice_models = models\ntestpaths = tests\n")
    plugin_project.run().assert_outcomes(passed=3)
    plugin_project.run("tests/test_it.py").assert_outcomes(passed=1)
    plugin_project.run("models/first").assert_outcomes(passed=1)


def test_what_is_no_folder_is_rejected(plugin_project: PluginProject) -> None:
    result = plugin_project.run("--pumice-models=missing")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "expected a folder, given" in result.stderr.str()


def test_a_model_without_data_is_skipped_in_words(plugin_project: PluginProject) -> None:
    plugin_project.model("models/model.onnx")
    result = plugin_project.run("--pumice-models=models", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no test_data_set_* and no .npz next to it*"])


@pytest.mark.slow
def test_archives_are_of_the_model_whose_name_they_begin_with(plugin_project: PluginProject) -> None:
    for name in ("a", "b"):
        plugin_project.model(f"models/{name}.onnx")
        np.savez(plugin_project.path / f"models/{name}.one.npz", x=X, **expected_of_gemm())
    plugin_project.run("--pumice-models=models").assert_outcomes(passed=2)
    np.savez(plugin_project.path / "models/b.two.npz", x=X, **changed(0.5))
    result = plugin_project.run("--pumice-models=models")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*StoredResultError: b.two.npz: output 'sum': *"])


def test_the_page_gives_the_reason_of_a_stored_result(plugin_project: PluginProject) -> None:
    plugin_project.model("models/a.onnx")
    np.savez(plugin_project.path / "models/a.one.npz", x=X, **changed(0.5))
    result = plugin_project.run("--pumice-models=models", "--pumice-report=page.html")
    result.assert_outcomes(failed=1)
    page = (plugin_project.path / "page.html").read_text()
    assert re.search(r"a\.one\.npz: output .{1,8}sum.{1,8}: [^<]* is stored at \[1, 2\], the reference has", page)


def test_names_in_the_files_come_before_their_order(plugin_project: PluginProject) -> None:
    proto = model([node("Sub", ["a", "b"])], [value("a"), value("b")])
    plugin_project.model("models/model.onnx", proto)
    folder = plugin_project.path / "models"
    write_data_set(folder / "test_data_set_0", {"b": X, "a": 2 * X}, {"y": X})
    write_data_set(folder / "test_data_set_1", {"": 3 * X, " ": X}, {"": 2 * X})
    plugin_project.run("--pumice-models=models").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "test_data_set_0/input_0.pb").write_bytes(b"\xff\xff"), "expected a tensor of ONNX"),
        (lambda folder: np.savez(folder / "one.npz", z=X), "no input or output 'z'; the model has the inputs x"),
        (lambda folder: (folder / "one.npz").write_bytes(b"nothing"), "one.npz'"),
        (
            lambda folder: (folder / "test_data_set_0/input_1.pb").write_bytes(b""),
            "the model has 1 inputs, counted from 0",
        ),
        (lambda folder: (folder / "model.onnx").write_bytes(b"nothing"), "GraphError"),
        (lambda folder: np.savez(folder / "one.npz", y=X), "input 'x'"),
    ],
)
def test_data_that_cannot_be_read_fails_by_its_name(plugin_project: PluginProject, damage: Any, message: str) -> None:
    plugin_project.model("models/model.onnx")
    write_data_set(plugin_project.path / "models/test_data_set_0", {"x": X}, expected_of_gemm())
    damage(plugin_project.path / "models")
    result = plugin_project.run("--pumice-models=models")
    result.assert_outcomes(failed=1)
    assert message in result.stdout.str()


@pytest.mark.slow
def test_what_no_rule_covers_has_to_be_allowed(plugin_project: PluginProject) -> None:
    proto = model([node("RandomNormalLike", ["x"], ["n"]), node("Neg", ["x"])], outputs=["y", "n"])
    plugin_project.model("models/model.onnx", proto)
    np.savez(plugin_project.path / "models/one.npz", x=X, y=-X, n=X)
    result = plugin_project.run("--pumice-models=models")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*random numbers, which are not compared*"])
    for names in ("RandomNormalLike", "all"):
        plugin_project.run("--pumice-models=models", f"--pumice-allow-unchecked={names}").assert_outcomes(passed=1)


@pytest.mark.slow
def test_outputs_above_the_accuracy_limit_have_to_be_allowed(plugin_project: PluginProject) -> None:
    plugin_project.model("models/model.onnx", model([node("Exp", ["x"])]))
    np.savez(plugin_project.path / "models/one.npz", x=X)
    options = ("--pumice-models=models", "--pumice-precision=fp16", "--pumice-accuracy=1e-9")
    result = plugin_project.run(*options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 ill-conditioned*"])
    for names in ("y", "all"):
        plugin_project.run(*options, f"--pumice-allow-ill-conditioned={names}").assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_pretrained_models_give_what_was_stored_of_them(plugin_project: PluginProject, shared_models: Path) -> None:
    for name, picture, output in (("mnist", "mnist_image1", "probabilities"), ("superres", "dog2_64", "luma_x3")):
        folder = plugin_project.path / "models" / name
        folder.mkdir(parents=True)
        (folder / "model.onnx").symlink_to(shared_models / name / f"{name}.onnx")
        arrays = [np.load(shared_models / name / "expected" / f"{picture}.{one}.npy") for one in ("input", "output")]
        write_data_set(folder / "test_data_set_0", {"": arrays[0]}, {output: arrays[1]})
    result = plugin_project.run("--pumice-models=models", "--pumice-precision=fp32,fp16")
    result.assert_outcomes(passed=4)


# ---- stored results


def test_a_stored_result_is_within_the_bound_and_one_rounding(context: pumice.Context) -> None:
    with pumice.load(gemm(), context) as loaded:
        rows = compare_stored_outputs(loaded, {"x": X}, expected_of_gemm())
        assert [(row.output, row.verdict) for row in rows] == [("y", "right"), ("sum", "right")]
        (half,) = compare_stored_outputs(loaded, {"x": X}, {"sum": expected_of_gemm()["sum"].astype("float16")})
        assert half.verdict == "wrong" and half.deviation and half.deviation.kind == "wrong shape or dtype"
        allowed = rows[1].deviation.allowed if rows[1].deviation else 0.0
        for share, verdict in ((0.4, "right"), (2.5, "wrong")):
            (row,) = compare_stored_outputs(loaded, {"x": X}, {"sum": changed(share * allowed)["sum"]})
            assert row.verdict == verdict
        assert 0 < allowed < 1e-5


def test_a_rejection_reports_all_three_values(context: pumice.Context) -> None:
    with pumice.load(gemm(), context) as loaded:
        (row,) = compare_stored_outputs(loaded, {"x": X}, {"sum": changed(0.5)["sum"]})
        assert "is stored at [1, 2], the reference has" in str(row)
        assert "apart by 0.5, allowed" in str(row)
        assert f"the device has {row.device}" in str(row)
        assert row.device == pytest.approx(expected_of_gemm()["sum"][1, 2])
        (shape,) = compare_stored_outputs(loaded, {"x": X}, {"sum": expected_of_gemm()["sum"][:1]})
        assert str(shape) == "output 'sum': float32[1, 3] is stored, the model produces float32[2, 3]"
        assert row.as_dict()["verdict"] == "wrong"


def test_integers_are_equal_to_the_stored_ones(context: pumice.Context) -> None:
    proto = model([node("ArgMax", ["x"], axis=1, keepdims=0)])
    with pumice.load(proto, context) as loaded:
        best = X.argmax(axis=1)
        assert [row.verdict for row in compare_stored_outputs(loaded, {"x": X}, {"y": best})] == ["right"]
        assert [row.verdict for row in compare_stored_outputs(loaded, {"x": X}, {"y": best - 1})] == ["wrong"]


# ---- baselines


CALM = "--pumice-factors=time=1000"  # ignore times: the test machine may be busy


def baseline_file(project: PluginProject) -> Path:
    (path,) = (project.path / "golden").rglob("*.json")
    return path


def rewrite(path: Path, **changes: Any) -> None:
    """Change numbers of the only baseline in a file."""
    data = json.loads(path.read_text())
    ((_, entry),) = data["drivers"].items()
    if "error" in changes:
        entry["outputs"]["y"]["ratio"] = changes.pop("error")
    entry.update(changes)
    path.write_text(json.dumps(data))


@pytest.fixture
def golden(plugin_project: PluginProject) -> PluginProject:
    """Return a project with a test whose baseline has been written."""
    plugin_project.model()
    plugin_project.write("test_it.py", VALIDATE)
    result = plugin_project.run("--pumice-baseline=golden", "--pumice-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 baselines written to *golden"])
    return plugin_project


@pytest.mark.slow
def test_a_baseline_has_device_driver_errors_dispatches_and_time(
    golden: PluginProject, context: pumice.Context
) -> None:
    data = json.loads(baseline_file(golden).read_text())
    info = context.info
    ((driver, entry),) = data["drivers"].items()
    assert driver == f"{info.driver} {info.driver_info}".strip()
    assert (entry["device"], entry["precision"], entry["dispatches"]) == (info.name, "fp32", 2)
    assert set(entry["outputs"]) == {"y", "sum"}
    for output in entry["outputs"].values():
        assert 0 <= output["error"] <= output["bound"]
        assert output["ratio"] == pytest.approx(output["error"] / output["bound"])
    assert entry["time_ratio"] == pytest.approx(entry["seconds"] / entry["reference_seconds"])
    golden.run("--pumice-baseline=golden", CALM).assert_outcomes(passed=1)
    golden.pytester.makeini("[pytest]\npumice_baseline = golden\n")
    golden.run("--pumice-isolate", CALM).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error": 1e-9}, "error of output 'y': * of its bound, 1e-09 in the baseline, at most 2 times*"),
        ({"dispatches": 1}, "dispatches: 2, 1 in the baseline*"),
        ({"time_ratio": 1e-6}, "time: * times the reference kernel's, 1e-06 in the baseline, at most 2 times*"),
    ],
)
def test_a_regression_fails_with_both_numbers(golden: PluginProject, changes: dict[str, Any], message: str) -> None:
    rewrite(baseline_file(golden), **changes)
    result = golden.run("--pumice-baseline=golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{message}"])
    factors = "error=1e12,dispatches=2,time=1e12"
    golden.run("--pumice-baseline=golden", f"--pumice-factors={factors}").assert_outcomes(passed=1)


@pytest.mark.slow
def test_changed_external_weights_fail(plugin_project: PluginProject) -> None:
    """The change is too small to exceed a bound; the SHA-256 of the model's files detects it."""
    plugin_project.write("test_it.py", VALIDATE)
    proto = gemm()
    convert_model_to_external_data(proto, location="weights.bin", size_threshold=0)
    plugin_project.model("gemm.onnx", proto)
    plugin_project.run("--pumice-baseline=golden", "--pumice-update").assert_outcomes(passed=1)
    weights = np.fromfile(plugin_project.path / "weights.bin", "uint8")
    weights[0] ^= 1
    weights.tofile(plugin_project.path / "weights.bin")
    result = plugin_project.run("--pumice-baseline=golden", CALM)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*model: its files have the SHA-256 *"])


@pytest.mark.slow
def test_other_bits_within_the_bound_are_listed(golden: PluginProject) -> None:
    path = baseline_file(golden)
    ((_, entry),) = json.loads(path.read_text())["drivers"].items()
    rewrite(path, outputs_sha256={**entry["outputs_sha256"], "sum": "0" * 64})
    result = golden.run("--pumice-baseline=golden", CALM)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*output 'sum' has other bits than the baseline, within its bound*"])
    rewrite(path, inputs_sha256=["0" * 64])
    result = golden.run("--pumice-baseline=golden", CALM)
    result.stdout.fnmatch_lines(["*the inputs are not those of the baseline*"])


@pytest.mark.slow
def test_cells_and_drivers_have_baselines_of_their_own(golden: PluginProject) -> None:
    path = baseline_file(golden)
    result = golden.run("--pumice-baseline=golden", "--pumice-precision=fp32,fp16", CALM)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["no baseline: test_it.py::test_model*fp16*--pumice-update writes it"])
    data = json.loads(path.read_text())
    ((_, entry),) = data["drivers"].items()
    data["drivers"] = {"other 1": {**entry, "driver": "other", "dispatches": 1}}
    path.write_text(json.dumps(data))
    result = golden.run("--pumice-baseline=golden")
    result.stdout.fnmatch_lines(["no baseline: *"])
    data["drivers"] = {"old": {**entry, "driver_version": "0.1", "dispatches": 1}}
    path.write_text(json.dumps(data))
    result = golden.run("--pumice-baseline=golden")
    result.stdout.fnmatch_lines([f"*worse than the baseline of {entry['driver']} 0.1*"])
    golden.run("--pumice-baseline=golden", "--pumice-update").assert_outcomes(passed=1)
    assert next(iter(json.loads(path.read_text())["drivers"])) == "old"


def test_what_is_wrong_becomes_no_baseline(plugin_project: PluginProject) -> None:
    plugin_project.model()
    plugin_project.write("test_it.py", VALIDATE.replace("[(X,)]", "[(X,)], tolerances={'y': 0.0, 'sum': 0.0}"))
    result = plugin_project.run("--pumice-baseline=golden", "--pumice-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["0 baselines written*"])
    assert not (plugin_project.path / "golden").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pumice-update"], "--pumice-baseline DIR or the value pumice_baseline"),
        (["--pumice-factors=speed=2"], "expected error, dispatches, time, given 'speed'"),
        (["--pumice-factors=time=0.5"], "expected a factor of at least 1"),
        (["--pumice-factors=time=fast"], "time: expected a number"),
    ],
)
def test_baselines_that_cannot_be_are_rejected(
    plugin_project: PluginProject, arguments: list[str], message: str
) -> None:
    result = plugin_project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


@pytest.mark.slow
def test_a_damaged_baseline_fails(golden: PluginProject) -> None:
    baseline_file(golden).write_text("[]")
    result = golden.run("--pumice-baseline=golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*expected a file of schema 2*"])
