"""`pumice selftest`: passes on a right device, and names the node of a fault; a failing area does not stop the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from faults import FAULTS
from process import NO_DRIVER, python
from pumice._pumice import lose_device_after
from pumice.base.element_types import PRECISIONS
from pumice.tools.cli import main
from pumice.tools.selftest.areas import AREAS, AreaFunction
from pumice.tools.selftest.command import run_selftest
from pumice.tools.selftest.models import build_model
from pumice.tools.selftest.operator_table import OPERATOR_AREAS
from pumice.tools.selftest.results import AreaResult, CaseResult, describe_difference
from pumice.validation.validate import validate

SHADERS = Path(__file__).resolve().parents[2] / "shaders"


@pytest.fixture(autouse=True)
def device(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the device under test."""
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["selftest", *arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def run_with(areas: Mapping[str, AreaFunction], json_path: str | None = None) -> int:
    """Run the command with other areas."""
    return run_selftest(argparse.Namespace(device=None, areas=None, json=json_path), areas)


def pass_area(context: pumice.Context, result: AreaResult) -> None:
    """Compute on the device, so that a lost device is noticed."""
    array = np.arange(5, dtype=np.float32)
    result.compare("sum", (pumice.tensor(array, context) + 1).numpy(), array + 1)


# ---- a right device


def test_areas_without_models_pass(capsys: pytest.CaptureFixture[str], context: pumice.Context) -> None:
    text = run(capsys, "--areas", "replay,driver,transfers,control-flow")
    lines = text.splitlines()
    assert context.info.name in lines[0]
    # Lines of notes begin with spaces.
    areas = [line.split()[:2] for line in lines[1:] if line and not line.startswith((" ", "All areas"))]
    assert areas == [[name, "ok"] for name in ("driver", "transfers", "control-flow", "replay")]
    assert all(quirk.name in lines[1] for quirk in context.driver_quirks)
    assert lines[-1].startswith("All areas are ok")


def test_the_record_has_every_case(capsys: pytest.CaptureFixture[str], tmp_path: Path, context: pumice.Context) -> None:
    path = tmp_path / "record.json"
    text = run(capsys, "--areas", "pooling", "--device", f"uuid:{context.info.uuid}", "--json", str(path))
    assert "pooling        ok" in text
    record = json.loads(path.read_text())
    assert (record["schema"], record["ok"]) == (1, True)
    assert record["versions"]["pumice"] == pumice.__version__
    assert (record["device"]["uuid"], record["device"]["driver"]) == (context.info.uuid, context.info.driver)
    assert "PUMICE_DEVICE" in record["variables"]
    (area,) = record["areas"]
    names = [case.name for case in OPERATOR_AREAS["pooling"][1]]
    assert [(case["precision"], case["name"]) for case in area["cases"]] == [(p, n) for p in PRECISIONS for n in names]
    assert all(case["error"] <= case["allowed"] for case in area["cases"])
    assert area["counts"] == {"right": 3 * len(names), "wrong": 0, "unproved": 0, "skipped": 0}


def test_the_record_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(run(capsys, "--areas", "driver", "--json"))
    assert [area["verdict"] for area in record["areas"]] == ["ok"]


@pytest.mark.slow
def test_all_areas_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = run(capsys, "--json", str(tmp_path / "record.json"))
    assert text.count(" ok ") >= len(AREAS), text
    cases = [case for area in json.loads((tmp_path / "record.json").read_text())["areas"] for case in area["cases"]]
    assert sum(case["precision"] != "" for case in cases) >= 300


# ---- the table of cases


@pytest.mark.parametrize("area", OPERATOR_AREAS)
def test_cases_have_unique_names_and_fixed_inputs(area: str) -> None:
    opset, cases = OPERATOR_AREAS[area]
    model, inputs = build_model(area, opset, cases)
    assert len({case.name for case in cases}) == len(cases)
    again = build_model(area, opset, cases)[1]
    assert model.graph.node and all(np.array_equal(inputs[name], again[name], equal_nan=True) for name in inputs)


# ---- wrong results


def test_a_faulty_shader_fails_the_area_and_names_the_node(tmp_path: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == "exp2 for exp")
    faulty = (SHADERS / fault.path).read_text().replace(fault.old, fault.new)
    (tmp_path / fault.path).write_text(faulty)
    arguments = ("-m", "pumice", "selftest", "--areas", "driver,normalisation", "--json", str(tmp_path / "record.json"))
    done = python(*arguments, PUMICE_SHADERS=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "normalisation  FAILED" in done.stdout and "driver         ok" in done.stdout
    assert "'Softmax last axis' at fp32 wrong: " in done.stdout and ", allowed " in done.stdout
    assert "1 of 2 areas FAILED: normalisation." in done.stdout
    area = json.loads((tmp_path / "record.json").read_text())["areas"][1]
    wrong = {case["name"] for case in area["cases"] if case["verdict"] == "wrong"}
    assert "Softmax middle axis" in wrong and "LayerNormalization" not in wrong


def test_a_fault_of_plans_fails_the_replay() -> None:
    done = python("-m", "pumice", "selftest", "--areas", "replay", PUMICE_FAULT="push")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "replay         FAILED" in done.stdout and "8 in flight' wrong: " in done.stdout


def test_an_exception_fails_only_its_area(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(context: pumice.Context, result: AreaResult) -> None:
        pass_area(context, result)
        raise ValueError("no such thing")

    assert run_with({"first": fail, "second": pass_area}) == 1
    text = capsys.readouterr().out
    assert "first          FAILED   1 of 1 right" in text and "error: ValueError: no such thing" in text
    assert "second         ok" in text


def test_a_lost_device_fails_only_its_area(capsys: pytest.CaptureFixture[str]) -> None:
    def lose(context: pumice.Context, result: AreaResult) -> None:
        lose_device_after(context, 0)
        pass_area(context, result)

    assert run_with({"first": lose, "second": pass_area}) == 1
    text = capsys.readouterr().out
    assert "first          FAILED" in text and "VK_ERROR_DEVICE_LOST" in text
    assert "second         ok" in text


def test_what_the_device_lacks_is_skipped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command passes, but not if nothing was checked."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        if options["precision"] in refused:
            raise pumice.UnsupportedError("not supported: no such feature")
        return validate(*arguments, **options)

    monkeypatch.setattr("pumice.tools.selftest.operator_area.validate", refuse)
    refused = ["bf16"]
    text = run(capsys, "--areas", "recurrent")
    assert "recurrent      ok       6 of 9 right, 3 skipped" in text
    assert "bf16 skipped: not supported: no such feature" in text
    refused = list(PRECISIONS)
    text = run(capsys, "--areas", "recurrent", "--json", str(tmp_path / "record.json"), status=1)
    assert "recurrent      skipped" in text and "Nothing was checked" in text
    assert json.loads((tmp_path / "record.json").read_text())["ok"] is False


def test_only_cases_that_the_device_refuses_are_skipped() -> None:
    """With 4 storage buffers, BatchNormalization and most control flow are refused; both areas check the rest."""
    done = python(
        *("-m", "pumice", "selftest", "--areas", "normalisation,control-flow"),
        PUMICE_LIMITS="maxPerStageDescriptorStorageBuffers=4",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "normalisation  ok       30 of 33 right, 3 skipped" in done.stdout
    assert (
        "fp32 skipped 1 of 11 cases: not supported: kernel 'batch_norm_factors.comp' has 5 storage buffers"
        in done.stdout
    )
    assert "control-flow   ok       2 of 7 right, 5 skipped" in done.stdout


def test_differences_are_described() -> None:
    x = np.array([[1, 2], [3, np.nan]], np.float32)
    assert describe_difference(x, x.copy()) == ""
    assert describe_difference(x.T, x) == "2 of 4 elements differ, first 3.0 instead of 2.0 at [0, 1]"
    assert describe_difference(x, x.astype(np.float64)) == "float32[2, 2] instead of float64[2, 2]"
    assert describe_difference(-np.zeros(()), np.zeros(())) == "1 of 1 elements differ, first -0.0 instead of 0.0"
    assert describe_difference(np.zeros(0), np.zeros(0)) == ""


def test_long_lists_of_wrong_cases_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(context: pumice.Context, result: AreaResult) -> None:
        result.cases += [CaseResult(f"case {i}", "wrong", "fp16", "\x1b[31m", np.inf, 0.5) for i in range(40)]

    assert run_with({"first": fail}, "-") == 1
    (area,) = json.loads(capsys.readouterr().out)["areas"]
    assert (len(area["cases"]), area["cases"][0]["error"]) == (40, None)
    assert run_with({"first": fail}) == 1
    text = capsys.readouterr().out
    assert "\x1b" not in text and "'case 11' at fp16 wrong" in text and "and 28 more cases" in text


# ---- exit statuses


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--areas", "driver,no"), "expected driver, transfers, "),
        (("--areas", "driver,driver"), "each once"),
        (("--device", "no such device"), "no Vulkan device matches"),
        (("--json", "no/such/folder/record.json"), "expected a file in an existing folder"),
    ],
)
def test_wrong_use_is_rejected(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    assert main(["selftest", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err


def test_no_driver_is_wrong_use() -> None:
    done = python("-m", "pumice", "selftest", **NO_DRIVER, PUMICE_DEVICE="")
    assert (done.returncode, done.stdout) == (2, "") and "no Vulkan driver" in done.stderr


def test_an_interruption_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No record is written, and the context is closed."""
    contexts: list[pumice.Context] = []

    def interrupt(context: pumice.Context, result: AreaResult) -> None:
        contexts.append(context)
        raise KeyboardInterrupt

    monkeypatch.setattr("pumice.tools.selftest.areas.AREAS", {"first": pass_area, "second": interrupt})
    assert main(["selftest", "--json", str(tmp_path / "record.json")]) == 130
    assert "first          ok" in capsys.readouterr().out
    assert contexts[0].closed and not list(tmp_path.iterdir())
