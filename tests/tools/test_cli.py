"""The command line: its output, files and exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import pumice
from onnx_models import gemm, model, node, value
from process import NO_DRIVER, python
from pumice.tools.cli import main

DATA = Path(pumice.__file__).parent / "data" / "digits"
DIGITS = str(DATA / "digits.onnx")


@pytest.fixture(autouse=True)
def device(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the commands use the device under test."""
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")


@pytest.fixture
def images(tmp_path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Three held-out digits, also written to images.npy."""
    held_back = np.load(DATA / "holdback.npz")["images"][:3]
    array: np.ndarray[Any, np.dtype[np.float32]] = (held_back[:, None] / 16).astype(np.float32)
    np.save(tmp_path / "images.npy", array)
    return array


def output(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def expect_error(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the error message of a command that exits with status 2 and prints nothing on stdout."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as stopped:  # from argparse
        assert stopped.code == 2
        return capsys.readouterr().err
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert captured.err.startswith("pumice: error: ")
    assert "Traceback" not in captured.err
    return captured.err


def two_inputs(folder: Path) -> Path:
    proto = model([node("Add", ["a", "b"], ["total"])], [value("a"), value("b")], ["total"])
    onnx.save(proto, folder / "two.onnx")
    return folder / "two.onnx"


# ---- info


def test_info_names_the_devices_and_the_one_that_is_taken(
    capsys: pytest.CaptureFixture[str], context: pumice.Context
) -> None:
    text = output(capsys, "info")
    for info in pumice.devices():
        assert info.name in text
        assert info.uuid in text
    assert "(default)" in text
    assert ("SOFTWARE DRIVER: not a GPU" in text) == any(d.kind == "software" for d in pumice.devices())


def test_info_says_how_each_precision_runs_and_what_is_lacking(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "info")
    for device in pumice.devices():
        for support in pumice.precision_support(device):
            assert f"{support.precision}      stored as {support.storage}" in text
            assert all(what in text for what in support.lacks)
            assert support.matrices == (not support.lacks and support.precision != "fp32")


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_policy_gives_precisions_by_node(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, images: np.ndarray[Any, Any], command: str
) -> None:
    """Only conv1 is in fp32; a name that matches no node is an error."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"default": "fp16", "conv1": "fp32"}))
    arguments = (command, DIGITS, "--input", f"image={tmp_path}/images.npy", "--policy", policy)
    assert json.loads(output(capsys, *arguments, "--json"))["precision"].startswith("fp16")
    policy.write_text(json.dumps({"default": "fp16", "conv9": "fp32"}))
    assert "'conv9'" in expect_error(capsys, *arguments)


def test_a_masked_feature_is_what_a_precision_lacks(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}", without=["storageBuffer16BitAccess"]) as narrow:
        by_name = {support.precision: support for support in pumice.precision_support(narrow.info)}
    assert (by_name["fp32"].storage, by_name["fp32"].lacks) == ("fp32", [])
    assert by_name["fp16"].storage == "fp16_packed" and by_name["bf16"].storage == "bf16_packed"
    assert all("storageBuffer16BitAccess" in by_name[name].lacks for name in ("fp16", "bf16"))


def test_info_as_json(capsys: pytest.CaptureFixture[str], context: pumice.Context) -> None:
    record = json.loads(output(capsys, "info", "--json"))
    assert record["version"] == pumice.__version__
    assert record["default"] == context.info.uuid
    (device,) = [d for d in record["devices"] if d["uuid"] == context.info.uuid]
    assert device["limits"]["maxStorageBufferRange"] == context.info.limits["maxStorageBufferRange"]
    assert device["features"] == pumice.devices()[device["index"]].features
    assert record["versions"]["pumice"] == pumice.__version__
    assert record["versions"]["packages"]["numpy"] == np.__version__


def test_versions_are_shown(capsys: pytest.CaptureFixture[str], context: pumice.Context) -> None:
    pumice.show_versions()
    text = capsys.readouterr().out
    assert np.__version__ in text
    assert pumice.__version__ in text
    assert context.info.name in text
    assert str(Path.home()) not in text


def test_the_peaks_of_a_device_are_measured(capsys: pytest.CaptureFixture[str], context: pumice.Context) -> None:
    assert "GB/s" in output(capsys, "calibrate")
    record = json.loads(output(capsys, "calibrate", "--json", "--device", f"uuid:{context.info.uuid}"))
    assert record["uuid"] == context.info.uuid
    assert record["bytes_per_second"] > 0


def test_bench_profiles_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"conv2 +3 ", output(capsys, "bench", DIGITS, "--runs", 3, "--profile"))
    record = json.loads(output(capsys, "bench", DIGITS, "--runs", 3, "--profile", "--json"))
    assert len(record["profile"]["executions"]) == 3


# ---- run


def test_run_writes_and_summarises_the_outputs(
    capsys: pytest.CaptureFixture[str], images: np.ndarray[Any, Any], tmp_path: Path, context: pumice.Context
) -> None:
    text = output(capsys, "run", DIGITS, "--input", f"image={tmp_path}/images.npy", "--output", tmp_path / "results")
    written = np.load(tmp_path / "results" / "probabilities.npy")
    with pumice.load(DIGITS, context) as loaded:
        np.testing.assert_array_equal(written, loaded(images))
    assert "probabilities: float32[3, 10]" in text
    assert context.info.name in text
    assert text.count("\n  ") == 3  # the top classes of each row


def test_run_as_json(capsys: pytest.CaptureFixture[str], images: np.ndarray[Any, Any], tmp_path: Path) -> None:
    arguments = ("--input", f"image={tmp_path}/images.npy", "--precision", "fp16", "--json", "-o", tmp_path)
    record = json.loads(output(capsys, "run", DIGITS, *arguments))
    assert record["precision"] == "fp16"
    (result,) = record["outputs"]
    assert (result["name"], result["dtype"], result["shape"]) == ("probabilities", "float32", [3, 10])
    assert result["mean"] == pytest.approx(0.1, abs=1e-3)
    assert np.load(result["file"]).shape == (3, 10)


def test_a_model_of_random_numbers_runs_by_a_seed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    noise = model([node("RandomNormalLike", ["x"])], [value("x", [2, 3])])
    onnx.save(noise, tmp_path / "noise.onnx")
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    arguments = ("run", tmp_path / "noise.onnx", "-i", tmp_path / "x.npy", "--seed", 7)
    text = output(capsys, *arguments)
    assert "random numbers by seed 7 (given)" in text and output(capsys, *arguments) == text
    assert json.loads(output(capsys, *arguments, "--json"))["seed"] == 7
    bench = json.loads(output(capsys, "bench", tmp_path / "noise.onnx", "--runs", 2, "--json"))
    assert bench["seed"] > 0


def test_run_takes_every_kind_of_file(
    capsys: pytest.CaptureFixture[str], images: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "one.npz", anything=images)
    np.savez(tmp_path / "several.npz", image=images, other=np.zeros(3))
    (tmp_path / "tensor.pb").write_bytes(numpy_helper.from_array(images).SerializeToString())
    expected = output(capsys, "run", DIGITS, "--input", tmp_path / "images.npy")
    for file in ("one.npz", "several.npz", "tensor.pb"):
        assert output(capsys, "run", DIGITS, "--input", f"image={tmp_path / file}") == expected


def test_run_takes_all_inputs_from_one_archive(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 2, np.float32)
    np.savez(tmp_path / "both.npz", a=a, b=b)
    text = output(capsys, "run", two_inputs(tmp_path), "--input", tmp_path / "both.npz")
    assert "min 3.0, max 3.0" in text


def test_run_on_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    for digit in range(10):
        text = output(
            capsys,
            "run",
            DIGITS,
            "-i",
            DATA / f"sample_{digit}.png",
            "--image-resample",
            "box",
            "--image-scale",
            "1/255",
        )
        assert text.splitlines()[-1].strip().startswith(f"{digit} ")


MNIST = "--image-mode=L --image-size=28 --image-invert=auto --image-scale=1/max"
SQUEEZENET = "--image-scale=1/max --image-mean=0.485,0.456,0.406 --image-std=0.229,0.224,0.225"
PICTURES: dict[str, tuple[str, str, str, str, float]] = {
    # expected result: (model, image, options, output, allowed)
    "mnist_image1": ("mnist", "mnist_image1.png", MNIST, "probabilities", 1e-5),
    "zebra": ("squeezenet", "zebra.jpg", SQUEEZENET, "probabilities", 1e-5),
    "DefaultImage_128": ("candy", "DefaultImage.jpg", "--image-mode=BGR --image-size=128x128", "styled", 1e-2),
    "dog2_64": ("superres", "dog2.jpg", "--image-mode=Y --image-size=64 --image-scale=1/255", "luma_x3", 1e-5),
}


@pytest.mark.parametrize("case", PICTURES)
def test_run_on_a_pretrained_models_own_picture(
    capsys: pytest.CaptureFixture[str], shared_models: Path, tmp_path: Path, case: str
) -> None:
    pytest.importorskip("PIL")
    name, picture, options, result, allowed = PICTURES[case]
    folder = shared_models / name
    arguments = ("-i", folder / "images" / picture, "--image-resample=nearest", *options.split(), "-o", tmp_path)
    output(capsys, "run", folder / f"{name}.onnx", *arguments)
    expected = np.load(folder / "expected" / f"{case}.output.npy")
    assert np.abs(np.load(tmp_path / f"{result}.npy") - expected).max() <= allowed


def test_run_prints_the_names_of_classes(capsys: pytest.CaptureFixture[str], shared_models: Path) -> None:
    folder = shared_models / "squeezenet"
    picture, labels = folder / "expected" / "dog2.input.npy", folder / "imagenet_categories.txt"
    text = output(capsys, "run", folder / "squeezenet.onnx", "-i", picture, "--labels", labels)
    assert re.search(r"probabilities: .*\n +Labrador retriever 0\.919", text)


def test_names_of_outputs_are_safe_as_names_of_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    proto = model(
        [node("Relu", ["x"], ["../up/y:0"]), node("Tanh", ["x"], ["_up_y_0"])], outputs=["../up/y:0", "_up_y_0"]
    )
    onnx.save(proto, tmp_path / "odd.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    output(capsys, "run", tmp_path / "odd.onnx", "-i", tmp_path / "x.npy", "-o", tmp_path / "out")
    assert len([*(tmp_path / "out").iterdir()]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"odd.onnx", "x.npy", "out"}


# ---- bench


def test_bench_generates_inputs_and_measures(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "bench", DIGITS, "--runs", 5, "--dim", "N=2")
    assert "image: float32[2, 1, 8, 8]" in text
    assert re.search(r"5 calls: min \d+\.\d+, median \d+\.\d+, p99 \d+\.\d+", text)


def test_bench_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output(capsys, "bench", DIGITS, "--runs", 20, "--json"))
    times = record["timing"]
    assert 0 < times["min_seconds"] <= times["median_seconds"] <= times["p99_seconds"]
    assert times["runs"] == 20
    assert times["device_seconds"] > 0


def test_bench_of_first_results_in_fresh_processes(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output(capsys, "bench", DIGITS, "--runs", 1, "--cold", "--json"))["first_result"]
    for kind in ("cold", "warm"):
        assert record[kind]["total_seconds"] == pytest.approx(sum(record[kind]["phase_seconds"].values()))
        assert all(seconds >= 0 for seconds in record[kind]["phase_seconds"].values())
    assert record["cold"]["onnx"]
    assert not record["warm"]["onnx"]


# ---- validate


def test_validate_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "validate", DIGITS)
    for name in ("conv1", "relu2", "pool", "fc1", "probabilities", "right: 11 of 11 tensors proved right"):
        assert name in text


def test_validate_as_json(capsys: pytest.CaptureFixture[str], images: np.ndarray[Any, Any], tmp_path: Path) -> None:
    record = json.loads(
        output(capsys, "validate", DIGITS, "-i", tmp_path / "images.npy", "--precision", "fp16", "--json")
    )
    assert record["ok"]
    assert len([row for row in record["rows"] if row["program"] != "kernels"]) == 11
    assert record["rows"][0]["shape"] == [3, 16, 8, 8]


def test_validate_exits_with_1_and_names_the_first_divergence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pumice.validation.checker import model_validation

    monkeypatch.setattr(
        model_validation.ValidationOptions, "get_tolerance", lambda *_: 1e-12
    )  # no result is that accurate
    text = output(capsys, "validate", DIGITS, status=1)
    assert "first node 'conv1' (Conv)" in text
    assert json.loads(output(capsys, "validate", DIGITS, "--json", status=1))["first_divergence"] == "conv1"


def test_what_cannot_be_proved_is_no_success(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    noise = tmp_path / "noise.onnx"
    onnx.save(model([node("RandomUniformLike", ["x"], ["r"]), node("Add", ["x", "r"])], [value("x", [2, 4])]), noise)
    text = output(capsys, "validate", noise, status=1)
    assert "unproved: 'r': random numbers, which are not compared" in " ".join(text.split())
    record = json.loads(output(capsys, "validate", noise, "--json", status=1))
    assert (record["ok"], record["verdict"], record["first_divergence"]) == (False, "unproved", None)
    assert {row["output"]: row["verdict"] for row in record["rows"] if row["op"] != "output"} == {
        "r": "unproved",
        "y": "right",
    }


def text_model(path: Path) -> Path:
    """A model that adds a table of 64 positions to a sequence, one axis of which has a symbolic name."""
    nodes = [
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Slice", ["positions", "zero", "length", "zero"], ["table"]),
        node("Add", ["x", "table"], ["sum"]),
        node("Add", ["sum", "more"]),
    ]
    constants = {"positions": np.ones((64, 4), np.float32), "zero": np.array([0])}
    inputs = [value("x", ["batch", "sequence", 4]), value("more", [None, None, 1])]
    onnx.save(model(nodes, inputs, constants=constants), path / "text.onnx")
    return path / "text.onnx"


@pytest.mark.parametrize("command", ["validate", "bench"])
def test_sizes_that_nobody_gave_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    path = text_model(tmp_path)
    runs = ("--runs", 1) if command == "bench" else ()
    made_up = {"batch": 1, "sequence": 224, "more[0]": 1, "more[1]": 224}
    text = expect_error(capsys, command, path, *runs)
    assert (
        "sizes made up: batch = 1, sequence = 224, more[0] = 1, more[1] = 224 (--dim sequence=16 gives another)" in text
    )
    assert "64" in text
    arguments = (command, path, *runs, "--dim", "sequence=16", "--dim", "more[1]=16")
    assert "sizes made up: batch = 1, more[0] = 1 (--dim batch=16 gives another)" in output(capsys, *arguments)
    record = json.loads(output(capsys, *arguments, "--json"))
    assert record["made_up"] == {name: made_up[name] for name in ("batch", "more[0]")}
    text = output(capsys, *arguments, "--dim", "batch=2", "--dim", "more[0]=2")
    assert "made up" not in text


def test_a_size_of_a_batch_is_reported_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sizes made up: N = 1 (--dim N=16 gives another)" in output(capsys, "validate", DIGITS)
    assert json.loads(output(capsys, "validate", DIGITS, "--dim", "N=2", "--json"))["made_up"] == {}


# ---- usage errors


def test_wrong_use_is_one_clear_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((1, 1, 8, 9), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((1, 1, 8, 8)))
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "pair.npz", a=np.zeros(1), b=np.zeros(1))
    for name in ("text.npy", "text.npz", "text.pb", "text.png", "text.onnx"):
        (tmp_path / name).write_text("no such thing")
    two = two_inputs(tmp_path)
    onnx.save(model([node("Wobble")]), tmp_path / "wobble.onnx")
    run = ("run", DIGITS, "--input")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("run", tmp_path / "absent.onnx", "-i", "x.npy"), r"absent\.onnx: No such file"),
        (("run", tmp_path, "-i", "x.npy"), "directory"),
        (("run", tmp_path / "text.onnx", "-i", "x.npy"), r"model 'text\.onnx': expected an ONNX model"),
        (("run", tmp_path / "wobble.onnx", "-i", "x.npy"), "Wobble"),
        (("run", DIGITS), "--input NAME=FILE"),
        ((*run, tmp_path / "absent.npy"), r"absent\.npy: No such file"),
        ((*run, f"picture={tmp_path}/wide.npy"), "no input 'picture'; the model has image"),
        ((*run, tmp_path / "wide.npy"), r"input 'image': expected shape \[N, 1, 8, 8\]; given shape \[1, 1, 8, 9\]"),
        ((*run, tmp_path / "double.npy"), r'given float64 \(\.astype\("float32"\)'),
        ((*run, tmp_path / "object.npy"), "expected NumPy arrays"),
        ((*run, tmp_path / "pair.npz"), "expected an array 'image' or a single one, given a, b"),
        *(((*run, tmp_path / f"text.{kind}"), f"text.{kind}': expected") for kind in ("npy", "npz", "pb", "png")),
        ((*run, tmp_path / "wide.npy", "-i", tmp_path / "wide.npy"), "'image' is given twice"),
        (("run", two, "--input", tmp_path / "wide.npy"), "expected NAME=FILE with one of a, b"),
        (("run", two, "--input", f"a={tmp_path}/wide.npy"), r"missing: b: float32\[N, 4\]"),
        (("run", two, "--input", tmp_path / "text.npz"), "expected NumPy arrays"),
        (("bench", DIGITS, "--dim", "M=3"), "no dimension 'M'; the inputs have N"),
        (("bench", DIGITS, "--dim", "N=3", "--dim", "N=4"), "dimension 'N' is given twice"),
        (("bench", DIGITS, "-i", tmp_path / "wide.npy", "--dim", "N=3"), "--dim is for generated inputs"),
        (("validate", DIGITS, "--image-size", "8"), "image options .size., but no input is given"),
        (
            (*run, tmp_path / "wide.npy", "--image-scale", "1/255"),
            "image options .scale., but none of the inputs",
        ),
        (("validate", DIGITS, "--device", "no such device"), "no Vulkan device matches 'no such device'"),
        ((*run, tmp_path / "wide.npy", "--labels", tmp_path / "none.txt"), r"none\.txt: No such file"),
        (("bench", DIGITS, "--runs", 0), "a positive number"),
        (("bench", DIGITS, "--dim", "N"), "expected NAME=SIZE"),
        ((*run, "x.png", "--image-size", "3by4"), "expected N, HEIGHTxWIDTH or keep"),
        ((*run, "x.png", "--image-mean", "a,b"), "expected comma-separated numbers"),
        (("run", DIGITS, "--precision", "fp8"), "invalid choice"),
        (("run", DIGITS, "--policy", "fp16"), "ends in .json"),
        (("bench", DIGITS, "--policy", "p.json", "--precision", "fp16"), "it cannot be combined with --precision"),
        (("bench", DIGITS, "--policy", "p.json", "--precision", "fp32"), "it cannot be combined with --precision"),
        (("validate", DIGITS, "--policy", "p.json", "--precision", "fp32"), "it cannot be combined with --precision"),
        (("validate", DIGITS, "--policy", "p.json", "--precision", "fp16"), "it cannot be combined with --precision"),
        (("paint", DIGITS), "invalid choice"),
        ((), "required"),
    ]
    for arguments, text in cases:
        assert re.search(text, expect_error(capsys, *arguments)), (arguments, text)


# ---- the process


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "pumice", *arguments, **environment)


def test_the_command_runs_as_a_module() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pumice {pumice.__version__}\n", "")
    done = command("run", "absent.onnx", "-i", "x.npy")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pumice: error: absent.onnx: No such file or directory\n"


def test_without_a_device_info_says_why() -> None:
    bare = {**NO_DRIVER, "PUMICE_DEVICE": ""}
    done = command("info", "--json", **bare)
    assert json.loads(done.stdout)["devices"] == []
    assert "no Vulkan driver" in command("info", **bare).stdout
    done = command("validate", DIGITS, **bare)
    assert done.returncode == 2
    assert "no Vulkan driver" in done.stderr


def test_a_reader_that_stops_is_no_error() -> None:
    piped = f"{sys.executable} -m pumice info --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_results_of_the_command_are_those_of_the_model(context: pumice.Context, tmp_path: Path) -> None:
    onnx.save(gemm(), tmp_path / "gemm.onnx")
    x = np.random.default_rng(4).standard_normal((3, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    assert main(["run", str(tmp_path / "gemm.onnx"), "-i", f"x={tmp_path}/x.npy", "-o", str(tmp_path)]) == 0
    with pumice.load(tmp_path / "gemm.onnx", context) as loaded:
        np.testing.assert_array_equal(np.load(tmp_path / "sum.npy"), loaded(x)["sum"])
