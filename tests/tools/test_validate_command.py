"""`pumice validate`: cases from folders, several devices and precisions, tolerances, and output files."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import pumice
from onnx_models import gemm, model, node, value
from pumice.tools import validate_command
from pumice.tools.cli import main
from report_records import HOSTILE

DIGITS = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def device(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the device under test."""
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model with input x [N, 4], in a temporary folder."""
    onnx.save(gemm(), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    assert main(["validate", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.err if status == 2 else captured.out


def rows_of(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)


def save_proto(folder: Path, array: Any, name: str = "input_0.pb") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(numpy_helper.from_array(array).SerializeToString())


# ---- data


def test_cases_of_test_data_sets(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    for i in (0, 2, 10):
        save_proto(tmp_path / "sets" / f"test_data_set_{i}", rows_of(i + 1))
    record = json.loads(run(capsys, small, "--data", tmp_path / "sets", "--json"))
    assert (record["cases"], record["ok"], record["generated"]) == (3, True, {})
    assert record["data"] == ["test_data_set_0", "test_data_set_2", "test_data_set_10"]
    record = json.loads(run(capsys, small, "--data", tmp_path / "sets" / "test_data_set_2", "--json"))
    assert record["data"] == ["test_data_set_2"]
    assert record["rows"][0]["shape"] == [3, 3]


def test_cases_of_npz_files(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    for i in (1, 2):
        np.savez(tmp_path / f"case{i}.npz", x=rows_of(i))
    record = json.loads(run(capsys, small, "--data", tmp_path, "--json"))
    assert (record["cases"], record["data"]) == (2, ["case1.npz", "case2.npz"])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_stored_outputs_are_checked(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path, precision: str
) -> None:
    """Each is checked by the bounds of the device's own outputs, in a separate row."""
    sets = tmp_path / "sets"
    with pumice.Model(small) as loaded:
        name = loaded.outputs[0].name
        results = [loaded(rows_of(i + 1)) for i in range(2)]
    stored = [result[0] if isinstance(result, tuple) else result for result in results]
    for i, array in enumerate(stored):
        save_proto(sets / f"test_data_set_{i}", rows_of(i + 1))
        save_proto(sets / f"test_data_set_{i}", array, "output_0.pb")
    line = (small, "--data", sets, "--json", "-p", precision)
    record = json.loads(run(capsys, *line))
    rows = [row for row in record["rows"] if row["program"] == "stored"]
    assert [(row["op"], row["case"], row["verdict"]) for row in rows] == [
        ("stored output", 0, "right"),
        ("stored output", 1, "right"),
    ]
    spoilt = stored[1].copy()
    spoilt[1, 2] += 0.1
    save_proto(sets / "test_data_set_1", spoilt, "output_0.pb")
    record = json.loads(run(capsys, *line, status=1))
    (wrong,) = [row for row in record["rows"] if row["verdict"] == "wrong"]
    assert (wrong["program"], wrong["node"], wrong["case"], wrong["index"]) == ("stored", name, 1, [1, 2])
    (finding,) = [item for item in record["findings"] if item["kind"] == "stored output"]
    assert finding["text"].startswith(f"test_data_set_1: output '{name}': ")
    assert f"stored output '{name}', case 1" in run(capsys, small, "--data", sets, "-p", precision, status=1)
    assert json.loads(run(capsys, *line, "--tolerance", f"{name}=0.2"))["ok"]
    kept = json.loads(run(capsys, *line, "--mode", "isolated"))
    assert not [row for row in kept["rows"] if row["program"] == "stored"]
    for option, path in (("--html", tmp_path / "report.html"), ("--junit", tmp_path / "report.xml")):
        run(capsys, small, "--data", sets, option, path, status=1)
        assert "stored output" in path.read_text()


def test_data_that_does_not_fit_is_rejected(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    empty, wrong, many, missing = (tmp_path / name for name in ("empty", "wrong", "many", "missing"))
    for folder in (empty, wrong, missing / "test_data_set_0"):
        folder.mkdir(parents=True)
    np.savez(wrong / "a.npz", ghost=np.zeros(3))
    save_proto(many / "test_data_set_0", rows_of(1), "input_1.pb")
    cases = [
        (("--data", empty), "expected folders test_data_set_*, files input_*.pb or .npz files, found none"),
        (("--data", wrong), "no input or output 'ghost'; the model has the inputs x"),
        (("--data", many), "the model has 1 inputs, counted from 0"),
        (("--data", missing), "expected every input of the model; x is missing"),
        (("--data", tmp_path / "nowhere"), "No such file"),
        (("--data", empty, "--dim", "N=3"), "--data gives the inputs"),
        (("--data", empty, "-i", "x.npy"), "--data gives the inputs"),
    ]
    for arguments, text in cases:
        assert text in run(capsys, small, *arguments, status=2), arguments


# ---- generated inputs


def test_what_was_generated_is_reported(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    text = run(capsys, small)
    assert "input 'x' generated: normal numbers, for Gemm reads them" in text
    assert "sizes made up: N = 1" in text
    record = json.loads(run(capsys, small, "--json"))
    assert record["generated"] == {"x": "normal numbers, for Gemm reads them"}
    assert record["made_up"] == {"N": 1}


def test_hostile_names_do_the_terminal_no_harm(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.onnx"
    named = [node("Mul", [HOSTILE, HOSTILE], ["y\x1b[2J"], name=HOSTILE)]
    onnx.save(model(named, [value(HOSTILE, [f"N{HOSTILE}", 4])], ["y\x1b[2J"]), hostile)
    for arguments, status in (
        (("--tolerance", f"{HOSTILE}=0"), 1),
        (("-i", "\x1b[2Jx.npy"), 2),
        (("--allow-unchecked", HOSTILE), 0),
    ):
        files = ("--html", tmp_path / "r.html", "--junit", tmp_path / "r.xml")
        assert main(["validate", *map(str, (hostile, *arguments, *files))]) == status
        captured = capsys.readouterr()
        for text in (captured.out, captured.err):
            assert not any(ord(c) < 32 and c != "\n" for c in text)
            assert "\u202e" not in text and "n" * 4000 not in text
    assert "\\x1b[31m" in ElementTree.parse(tmp_path / "r.xml").getroot()[0][1].get("name", "")


# ---- devices and precisions


def test_all_devices_and_several_precisions(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    out = run(capsys, small, "--device", "all", "--precision", "fp32,fp16", "--json", "--html", page)
    records = json.loads(out)
    names = [device.name for device in pumice.devices()]
    assert [(record["device"]["name"], record["precision"]) for record in records] == [
        (name, precision) for name in names for precision in ("fp32", "fp16")
    ]
    assert "Devices and precisions" in page.read_text()


def test_a_device_that_cannot_run_the_model_leaves_the_others_alone(
    capsys: pytest.CaptureFixture[str], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = validate_command.load_model

    def refusing(arguments: Any) -> Any:
        if arguments.precision == "fp16":
            raise pumice.UnsupportedError("no such\x1b[31m unit")
        return load(arguments)

    monkeypatch.setattr(validate_command, "load_model", refusing)
    records = json.loads(run(capsys, small, "-p", "fp16,fp32", "--json", status=1))
    assert [record["verdict"] for record in records] == ["unproved", "right"]
    assert records[0]["findings"][0]["text"] == "no such\x1b[31m unit"
    assert main(["validate", str(small), "-p", "fp16,fp32"]) == 1
    assert "no such\\x1b[31m unit" in capsys.readouterr().err
    assert "no such" in run(capsys, small, "-p", "fp16", status=2)  # an error if it is the only precision


# ---- options


def test_tolerances_and_what_may_be_unproved(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    record = json.loads(run(capsys, small, "--tolerance", "gemm.sum=1e-20", "--json", status=1))
    assert record["first_divergence"] == "gemm.sum"
    assert record["options"]["tolerances"] == {"gemm.sum": 1e-20}
    noise = tmp_path / "noise.onnx"
    onnx.save(model([node("RandomUniformLike", ["x"], ["r"]), node("Add", ["x", "r"])], [value("x", [2, 4])]), noise)
    run(capsys, noise, status=1)
    for names in (["*"], ["RandomUniformLike", "y"]):
        run(capsys, noise, *(argument for name in names for argument in ("--allow-unchecked", name)))
    run(capsys, small, "--precision", "fp16", "--accuracy", "1e-9", status=1)
    for names in (["*"], ["sum"]):
        allowed = (item for name in names for item in ("--allow-ill-conditioned", name))
        run(capsys, small, "--precision", "fp16", "--accuracy", "1e-9", *allowed)
    record = json.loads(run(capsys, small, "--mode", "isolated", "--json"))
    assert {row["program"] for row in record["rows"]} == {"nodes", "kernels"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--accuracy", "y=x"), "expected X or OUTPUT=X"),
        (("--accuracy", "1", "--accuracy", "y=1"), "given both"),
        (("--accuracy", "ghost=1"), "given 'ghost'"),
        (("--allow-ill-conditioned", "ghost"), "given 'ghost'"),
        (("--tolerance", "gemm.sum"), "expected NODE=X"),
        (("--tolerance", "gemm.sum=-1"), "expected NODE=X"),
        (("--tolerance", "gemm.sum=1", "--tolerance", "gemm.sum=2"), "given twice"),
        (("--tolerance", "ghost=1"), "given 'ghost'"),
        (("--allow-unchecked", "ghost"), "'ghost'"),
        (("--mode", "backwards"), "given 'backwards'"),
        (("--precision", "fp32,fp32"), "each once"),
        (("--precision", "fp12"), "given 'fp12'"),
    ],
)
def test_wrong_options_are_rejected(
    capsys: pytest.CaptureFixture[str], small: Path, arguments: tuple[str, ...], text: str
) -> None:
    try:
        status = main(["validate", str(small), *arguments])
    except SystemExit as ended:
        status = int(str(ended.code))
    assert (status, text in capsys.readouterr().err) == (2, True)


# ---- files


def test_files_of_every_kind(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    page, xml, record = (tmp_path / name for name in ("r.html", "r.xml", "r.json"))
    text = run(capsys, small, "--html", page, "--junit", xml, "--json", record)
    assert "right: 4 of 4 tensors proved right" in text
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert len(list(ElementTree.parse(xml).iter("testcase"))) == 6
    assert json.loads(record.read_text())["model"] == "small"


def test_a_file_that_cannot_be_written_is_known_before_the_work(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untouched(*_: Any) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(validate_command, "load_model", untouched)
    before = small.read_bytes()
    for option, path in (("--html", tmp_path / "nowhere" / "r.html"), ("--junit", tmp_path), ("--json", small)):
        assert str(path) in run(capsys, small, option, path, status=2)
    same = tmp_path / "same"
    assert "a separate file" in run(capsys, small, "--html", same, "--junit", same, status=2)
    assert small.read_bytes() == before


def test_an_interruption_leaves_no_file(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pumice.validation.checker.model_validation

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pumice.validation.checker.model_validation.ModelValidation, "run", interrupted)
    files = [argument for name in ("html", "junit", "json") for argument in (f"--{name}", str(tmp_path / f"r.{name}"))]
    assert main(["validate", str(small), *files]) == 130
    assert os.listdir(tmp_path) == ["small.onnx"]


# ---- modes of checking


def test_a_wrong_result_is_searched_for_and_a_reference_named(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    record = json.loads(run(capsys, small, "--bisect", "--json"))
    assert record["verdict"] == "right"
    record = json.loads(run(capsys, small, "--reference", "onnx", "--json"))
    assert (record["verdict"], record["reference"]) == ("right", "onnx")
    assert "it cannot be combined with --mode isolated" in run(
        capsys, small, "--bisect", "--mode", "isolated", status=2
    )
    assert "no Vulkan device matches 'oracle'" in run(capsys, small, "--reference", "oracle", status=2)
