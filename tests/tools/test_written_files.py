"""Files written by pumice: through one function that follows no symlink and replaces a file only when all is written."""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pumice.base.atomic_files import open_atomic, write_text_atomic
from pumice.tools.cli import main

ROOT = Path(__file__).resolve().parents[2]
# Modules that open files for writing themselves, with the reason.
OWN_WRITERS = {
    "base/atomic_files.py": "the function",
    "bench.py": "into a new temporary folder",
    "plugin/process_isolation.py": "into a new temporary folder",
    "tools/compile_check/jobs.py": "into a new temporary folder, which is read by the parent process",
    "torch/graphs.py": "into a new temporary folder",
    "validation/report/subgraph.py": "into a new temporary folder, which is renamed",
}
WRITING = {
    "write_text",
    "write_bytes",
    "touch",
    "savez",
    "savez_compressed",
    "tofile",
    "to_file",
    "copyfile",
    "savefig",
}


IN_PLACE = ("np.save(file, ", "np.save(SimpleNamespace(write=file.write), ")  # into a file opened by replaced()


def writes(call: ast.Call) -> bool:
    """Return whether a call may write to a file by its name."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    texts = [item.value for item in [*call.args, *(k.value for k in call.keywords)] if isinstance(item, ast.Constant)]
    if name == "open" and "O_CREAT" not in ast.unparse(call):
        return any(
            isinstance(text, str) and re.fullmatch(r"[rwax]?b?t?\+?b?", text) and {*text} & {*"wax+"} for text in texts
        )
    if name == "save":
        return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in (
            "np",
            "onnx",
            "onnx_program",
        )
    return name in WRITING or "O_CREAT" in ast.unparse(call)


def writers(text: str) -> Iterator[int]:
    """Return the lines of such calls, except np.save() as in IN_PLACE."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and writes(node) and not ast.unparse(node).startswith(IN_PLACE):
            yield node.lineno


def test_no_other_module_writes_files() -> None:
    package = ROOT / "python" / "pumice"
    found = {str(path.relative_to(package)): [*writers(path.read_text())] for path in package.rglob("*.py")}
    assert {name for name, lines in found.items() if lines} == {*OWN_WRITERS}, found


def test_calls_that_write_are_found() -> None:
    text = "open(p, 'w')\nopen(p, mode='ab')\nPath(p).write_text(t)\nnp.save(p, a)\nos.open(p, os.O_CREAT)\nopen(p)\nopen(p, 'rb')"
    assert [*writers(text)] == [1, 2, 3, 4, 5]


def test_the_engine_writes_only_entries_of_the_cache() -> None:
    pattern = re.compile(r"\bofstream\b|\bfstream\b(?!>)|O_CREAT|fopen\([^;]*\"[wa]|\bcreat\(|mkstemp|tmpnam")
    paths = [path for folder in ("cpp", "src") for path in (ROOT / folder).rglob("*") if path.suffix in {".cpp", ".h"}]
    found = [path.relative_to(ROOT).as_posix() for path in paths if pattern.search(path.read_text())]
    # The log of pipelines is opened in a temporary folder of `pumice compile-check`.
    assert sorted(found) == ["cpp/core/files/cache_file.cpp", "cpp/device/pipeline_log.cpp"]


# ---- replaced()


def test_a_link_at_the_name_is_replaced(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "report.json"
    precious.write_text("precious")
    for target in (precious, tmp_path / "absent", tmp_path):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        write_text_atomic(link, "report")
        assert not link.is_symlink() and link.read_text() == "report"
    assert precious.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "report.json"]


def test_the_temporary_name_cannot_be_guessed_and_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for _ in range(5):
        with open_atomic(tmp_path / "a") as file:
            (part,) = tmp_path.glob("*.part")
            file.write(b"1")
        seen.add(part.name)
    assert len(seen) == 5
    precious = tmp_path / "precious"
    precious.write_text("precious")
    monkeypatch.setattr(os, "urandom", bytes)  # makes the temporary name predictable
    (tmp_path / f"a.{bytes(8).hex()}.part").symlink_to(precious)
    with pytest.raises(FileExistsError):
        write_text_atomic(tmp_path / "a", "2")
    assert precious.read_text() == "precious" and (tmp_path / "a").read_text() == "1"


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text_atomic(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_an_exception_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    write_text_atomic(tmp_path / "a", "before")
    with pytest.raises(KeyError), open_atomic(tmp_path / "a") as file:
        file.write(b"half")
        raise KeyError
    assert (tmp_path / "a").read_text() == "before"
    assert [*tmp_path.iterdir()] == [tmp_path / "a"]


@pytest.mark.parametrize("name", ["folder", "absent/a"])
def test_errors_name_the_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as caught:
        write_text_atomic(tmp_path / name, "")
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / name), None)
    assert [*tmp_path.iterdir()] == [tmp_path / "folder"]


def test_devices_and_pipes_are_written_not_replaced(tmp_path: Path) -> None:
    """If run as root, a rename would replace /dev/null by a regular file."""
    null = os.stat("/dev/null")
    write_text_atomic("/dev/null", "text")
    assert os.stat("/dev/null").st_rdev == null.st_rdev
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_text_atomic(pipe, "through the pipe")
        assert reader.communicate()[0] == b"through the pipe"
    code = "from pumice.base.atomic_files import write_text_atomic\nprint('first', flush=True)\nwrite_text_atomic('/dev/stdout', 'second')"
    with open(tmp_path / "output", "wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "output").read_bytes() == b"first\nsecond"
    assert Path("/dev/stdout").is_symlink()


# ---- commands


def test_results_of_run_follow_no_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pumice.demo

    model = os.path.join(pumice.demo.DATA, "digits.onnx")
    inputs = tmp_path / "x.npy"
    np.save(inputs, np.zeros((1, 1, 8, 8), np.float32))
    assert main(["run", model, "--input", str(inputs), "--output", str(tmp_path / "out")]) == 0
    (result,) = (tmp_path / "out").iterdir()
    expected = np.load(result)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    result.unlink()
    result.symlink_to(precious)
    assert main(["run", model, "--input", str(inputs), "--output", str(tmp_path / "out")]) == 0
    assert precious.read_text() == "precious"
    np.testing.assert_array_equal(np.load(result), expected)
