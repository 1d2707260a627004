"""The on-disk tuning store: reuse by later processes, concurrent writers, damaged and foreign files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from process import output_of
from pumice.device import tuning_exchange, tuning_store
from pumice.tools.cli import main

# Prints how many of eight variants were measured, and the best.
PROGRAM = """
import json, sys
import numpy as np
import pumice
text = "layout(binding = 0) buffer Y { float y[]; };\\nvoid main() { y[gl_GlobalInvocationID.x] = float(VALUE % 2); }"
kernel = pumice.Kernel(text, macros={"VALUE": 0}, name="parity")
arguments = {"y": np.zeros(64, "float32"), "threads": 64}
found = kernel.tune({"VALUE": range(8)}, arguments, check=lambda y: np.ones_like(y), runs=int(sys.argv[1]))
print(json.dumps([found.measured, len(found.rejected), found.best["VALUE"]]))
"""


pytestmark = pytest.mark.usefixtures("empty_store")


def tuned(context: pumice.Context, values: Any = (1, 2, 3)) -> Any:
    text = (
        "layout(binding = 0) buffer Y { float y[]; };\nvoid main() { y[gl_GlobalInvocationID.x] = float(VALUE % 2); }"
    )
    kernel = pumice.Kernel(text, context, macros={"VALUE": 0}, name="parity")
    arguments = {"y": np.zeros(64, "float32"), "threads": 64}
    return kernel.tune({"VALUE": values}, arguments, check=lambda y: np.ones_like(y), runs=1)


def files(store: Path) -> list[Path]:
    return sorted(store.glob("*/*.tuning"))


def test_a_later_process_measures_nothing(empty_store: Path) -> None:
    first = json.loads(output_of("-c", PROGRAM, "2"))
    assert first[:2] == [8, 4]
    kept = {path: path.read_bytes() for path in files(empty_store)}
    assert len(kept) == 8
    assert json.loads(output_of("-c", PROGRAM, "2")) == [0, 4, first[2]]
    assert {path: path.read_bytes() for path in files(empty_store)} == kept


def test_a_later_process_imports_little(empty_store: Path) -> None:
    """If all variants are known, the modules that measure and write files are not imported."""
    program = PROGRAM.replace("found = ", "before = {*sys.modules}\nfound = ")
    program = program[: program.index("print(")] + "found.kernel\nprint(*sorted({*sys.modules} - before))\n"
    assert "pumice.device.variant_benchmark" in output_of("-c", program, "2").split()
    assert not {*output_of("-c", program, "2").split()} & {
        "pumice.device.variant_benchmark",
        "pumice.base.atomic_files",
        "rich",
    }


def test_two_processes_at_once_lose_nothing(empty_store: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in running:
        said, complained = process.communicate(timeout=300)
        assert (process.returncode, complained) == (0, "")
        assert json.loads(said)[1] == 4
    assert len(files(empty_store)) == 8
    assert sorted(record.config["VALUE"] for record in tuning_store.iterate_records()) == [*range(8)]
    assert not list(empty_store.rglob("*.tmp"))
    assert json.loads(output_of("-c", PROGRAM, "3"))[0] == 0


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign", "folder", "swapped", "no_record"])
def test_a_file_that_is_not_whole_is_measured_anew(context: pumice.Context, empty_store: Path, damage: str) -> None:
    tuned(context)
    victim, other, _ = files(empty_store)
    whole = victim.read_bytes()
    beside = empty_store / "notes.txt"
    beside.write_text("somebody else's")
    if damage == "folder":
        victim.unlink()
        victim.mkdir()
    elif damage == "no_record":
        pumice._pumice.write_cache_entry("tuning", f"{victim.parent.name}/{victim.stem}", b'{"seconds": 1e-9}')
    else:
        flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
        victim.write_bytes(
            {
                "truncated": whole[:-5],
                "flipped": flipped,
                "empty": b"",
                "foreign": b"#!/bin/sh\n",
                "swapped": other.read_bytes(),  # intact, but of another variant
            }[damage]
        )
    assert len(list(tuning_store.iterate_records())) == 2
    assert tuned(context).measured == 1
    assert tuned(context).measured == (damage == "folder"), "a folder in its place cannot be replaced"
    assert beside.read_text() == "somebody else's"


def test_what_another_driver_measured_is_not_read(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("format_driver_version", "get_device_model_name"):
        with monkeypatch.context() as patched:
            patched.setattr(f"pumice.device.tuning.{name}", lambda info: "another")
            assert tuned(context).measured == 3
            assert tuned(context).measured == 0
    assert tuned(context).measured == 3
    assert {one.driver for one in tuning_exchange.group_records()} == {
        "another",
        tuning_store.format_driver_version(context.info),
    }


def test_a_record_cannot_pretend_to_be_of_this_driver(context: pumice.Context, empty_store: Path) -> None:
    tuned(context)
    (first, *_) = tuning_store.iterate_records()
    forged = first._replace(driver="another")
    pumice._pumice.write_cache_entry("tuning", first.entry_name, json.dumps(forged._asdict()).encode())
    assert tuned(context).measured == 1


@pytest.mark.parametrize("kind", ["off", "readonly"])
def test_without_a_store_everything_is_measured(
    context: pumice.Context, empty_store: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    exported = empty_store.parent.parent / "exported.json"
    tuned(context)
    assert pumice.export_tuning(exported) == 3
    if kind == "off":
        monkeypatch.setenv("PUMICE_NO_CACHE", "1")
    else:
        (empty_store.parent.parent / "file").write_text("no folder")
        monkeypatch.setenv("PUMICE_CACHE_DIR", str(empty_store.parent.parent / "file"))
    assert [tuned(context).measured for _ in range(2)] == [3, 3]
    assert tuning_exchange.group_records() == []
    with pytest.raises(pumice.Error, match="there is no cache to store records in"):
        pumice.import_tuning(exported)


def test_a_store_is_exported_and_imported(
    context: pumice.Context, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = tuned(context).best
    assert pumice.export_tuning(tmp_path / "exported.json") == 3
    assert pumice.import_tuning(tmp_path / "exported.json") == 0, "the store has all of it"
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "another"))
    assert pumice.import_tuning(tmp_path / "exported.json") == 3
    found = tuned(context)
    assert (found.measured, found.best) == (0, best)
    newer = json.loads((tmp_path / "exported.json").read_text())
    for record in newer["records"]:
        record["measured"] += 1
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    assert pumice.import_tuning(os.fspath(tmp_path / "newer.json")) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", 0),
        ("seconds", float("nan")),
        ("seconds", "fast"),
        ("seconds", True),
        ("rejected", 3),
        ("config", []),
        ("calls", [1]),
        ("measured", None),
        ("wobble", 1),
    ],
)
def test_a_file_with_a_record_that_is_none_is_rejected_whole(
    context: pumice.Context, empty_store: Path, tmp_path: Path, field: str, value: Any
) -> None:
    tuned(context)
    pumice.export_tuning(tmp_path / "exported.json")
    given = json.loads((tmp_path / "exported.json").read_text())
    given["records"][-1][field] = value
    (tmp_path / "exported.json").write_text(json.dumps(given))
    for path in files(empty_store):
        path.unlink()
    with pytest.raises(pumice.Error, match="record 2: expected a variant as export_tuning writes it"):
        pumice.import_tuning(tmp_path / "exported.json")
    assert not files(empty_store)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "pumice tuning 9", "records": []}', "[" * 100_000])
def test_other_files_are_not_imported(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(pumice.Error, match=r"other\.json: expected a file of export_tuning"):
        pumice.import_tuning(tmp_path / "other.json")


def test_the_commands_show_and_move_a_store(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def output(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    assert output("tuning") == "tuning:  none\n"
    best = tuned(context).best["VALUE"]
    for command in ("info", "tuning"):
        shown = output(command)
        assert "tuning:  3 variants" in shown
        assert f"parity (y: float32[64/64]) on {context.info.name}" in shown  # the rest may be shortened
        assert f"VALUE={best}: " in shown
        assert "(3 variants, 1 rejected)" in shown
    (group,) = json.loads(output("info", "--json"))["tuning"]
    assert (group["kernel"], group["best"], group["rejected"]) == ("parity", {"VALUE": best}, 1)
    file = str(tmp_path / "moved.json")
    assert "3 variants written" in output("tuning", "--export", file)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "another"))
    record = json.loads(output("tuning", "--import", file, "--json"))
    assert (record["imported"], record["exported"]) == (3, None)
    assert record["kernels"] == [group]
    assert "0 variants imported" in output("tuning", "--import", file)
    assert main(["tuning", "--import", str(tmp_path / "missing.json")]) == 2
