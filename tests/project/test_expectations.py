"""The files of tests/expectations, and what `./dev compile-check` makes of results that differ from them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import compile_targets
import expectation_files
from drivers import AbsentError
from expectation_files import Expectations, Figures

DEVICE = {"name": "Device", "kind": "discrete", "driver": "driver 1.0"}
SHADERS = Path(__file__).resolve().parents[2] / "shaders"


def make_kernel(key: str, **fields: Any) -> dict[str, Any]:
    kernel = {"kernel": "gemv.comp", "storage": "fp16", "constants": "ROWS=2", "key": key, "used": True}
    figures = {"registers": 40, "spills": 0, "shared_bytes": 512, "occupancy": None, "code_bytes": 900}
    return {**kernel, "compile_seconds": 0.1, "local_size": [64, 1, 1], **figures, **fields}


def make_record(*kernels: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "job", "passed": True, "device": DEVICE, "error": "", "failures": [], "kernels": kernels, **fields}


def test_a_variant_has_the_extremes_of_its_pipelines() -> None:
    first, second = make_kernel("a", occupancy=8), make_kernel("b", registers=56, occupancy=5, code_bytes=None)
    records = [make_record(first, second), make_record(first, make_kernel("c", used=False, spills=9))]
    assert expectation_files.collect(records) == {"gemv.comp fp16 64x1x1 ROWS=2": Figures(2, 56, 0, 512, 5, 900)}


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    figures = expectation_files.collect([make_record(make_kernel("a"), make_kernel("b", constants=""))])
    written = Expectations("Device: (1), driver 1.0", "2026-11-30", figures)
    expectation_files.write(tmp_path / "target.txt", written)
    assert expectation_files.read(tmp_path / "target.txt") == written


def test_differences_are_named() -> None:
    old = {"kept": Figures(1, 2, 0, 4, 5, 6), "gone": Figures(1, 2, 0, 4, 5, 6), "slower": Figures(1, 2, 0, 4, 5, 6)}
    new = {"kept": old["kept"], "new": Figures(1, 2, 3, 4, None, 6), "slower": Figures(1, 2, 0, 4, None, 7)}
    assert expectation_files.compare(old, new) == [
        "not in use any more: gone",
        "not expected: new: pipelines 1, registers 2, spills 3, shared_bytes 4, occupancy -, code_bytes 6",
        "changed: slower: occupancy 5 -> -, code_bytes 6 -> 7",
    ]


def check(
    found: Sequence[dict[str, Any]] | AbsentError, monkeypatch: pytest.MonkeyPatch, folder: Path, device: str
) -> bool:
    """Compare records with the file of a target that has one kernel without spills."""

    def run(*_: object) -> Sequence[dict[str, Any]]:
        if isinstance(found, AbsentError):
            raise found
        return found

    monkeypatch.setattr(expectation_files, "FOLDER", folder)
    monkeypatch.setattr(compile_targets, "run_target", run)
    target = compile_targets.TARGETS[0]
    expected = Expectations(device, "2026-11-30", expectation_files.collect([make_record(make_kernel("a"))]))
    expectation_files.write(folder / f"{target.name}.txt", expected)
    return compile_targets.check_target(target, argparse.Namespace(expected=True, write=False))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (make_record(make_kernel("a", registers=41)), "registers 40 -> 41"),
        (make_record(make_kernel("a", spills=1)), "spills 0 -> 1"),
        (make_record(make_kernel("a", constants="ROWS=4")), "not expected: gemv.comp fp16 64x1x1 ROWS=4"),
        (make_record(make_kernel("a"), error="wrong shape"), "1 with errors"),
    ],
)
def test_other_results_of_the_same_driver_fail(
    record: dict[str, Any],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not check([record], monkeypatch, tmp_path, "Device, driver 1.0")
    assert text in capsys.readouterr().out


def test_equal_results_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert check([make_record(make_kernel("a"))], monkeypatch, tmp_path, "Device, driver 1.0")


def test_another_driver_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check([make_record(make_kernel("a", spills=1))], monkeypatch, tmp_path, "Device, driver 0.9")
    assert "not compared: radv-polaris10.txt is of Device, driver 0.9" in capsys.readouterr().out


def test_a_target_without_packages_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(AbsentError("no package"), monkeypatch, tmp_path, "Device, driver 1.0")
    assert "absent: no package" in capsys.readouterr().out


@pytest.mark.parametrize("target", [target.name for target in compile_targets.TARGETS])
def test_each_target_has_a_file_without_spills(target: str) -> None:
    kept = expectation_files.read(expectation_files.FOLDER / f"{target}.txt")
    assert len(kept.variants) > 300
    assert not kept.spilling
    kernels = {variant.split()[0] for variant in kept.variants}
    assert {name for name in kernels if name.endswith(".comp")} <= {path.name for path in SHADERS.glob("*.comp")}
