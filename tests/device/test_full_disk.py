"""A full disk: results are right, files are complete or unchanged, and a warning lists the ones that could not be written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pumice.demo
from pumice.base.atomic_files import write_text_atomic

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"
CALL = f"""
import numpy as np
import pumice
x = np.ones((1, 1, 8, 8), np.float32)
with pumice.Context() as context, pumice.load({str(DIGITS)!r}, context) as model:
    print(model(x).tobytes().hex())
    kernel = pumice.Kernel("layout(binding = 0) buffer X {{ float x[]; }};\\nvoid main() {{ x[0] = 3.0; }}", context=context)
    y = np.zeros(1, np.float32)
    kernel(x=y, threads=1)
    assert y[0] == 3
"""


def run(code: str, cache: Path, *before: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PUMICE_NO_CACHE"}
    command = [*before, sys.executable, "-c", code]
    return subprocess.run(
        command, env={**env, "PUMICE_CACHE_DIR": str(cache)}, capture_output=True, text=True, check=False, timeout=300
    )


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_a_limit_on_files_costs_no_result_and_is_named_once(tmp_path: Path) -> None:
    """RLIMIT_FSIZE simulates a quota; Python ignores its signal, so writes fail."""
    cache = tmp_path / "cache"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
    without = "import os\nos.environ['PUMICE_NO_CACHE'] = '1'\n"
    if run(without + limit + CALL, cache).returncode == -signal.SIGBUS:
        pytest.skip("the driver has its memory in files, which the limit concerns too")
    under = run(limit + CALL, cache)
    assert under.returncode == 0, under.stderr
    assert under.stderr.count("the cache does not store anything more") == 1
    assert str(cache) in under.stderr and "File too large" in under.stderr
    assert all(path.stat().st_size <= 512 and path.suffix != ".tmp" for path in kept(cache)), "parts of files are left"
    after = run(CALL, cache)
    assert (after.returncode, after.stderr) == (0, "")
    assert after.stdout == under.stdout
    assert kept(cache), "the next process keeps what it compiles"


def test_a_full_file_system_costs_no_result_and_is_named(tmp_path: Path) -> None:
    """A 64 KiB tmpfs, mounted for a single process."""
    unshare = shutil.which("unshare")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = f"mount -t tmpfs -o size=64k none {folder}"
    if (
        unshare is None
        or subprocess.run([unshare, "-Urm", "sh", "-c", mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system can be mounted here for one process (unshare -Urm)")
    code = f"""
from pathlib import Path
{CALL}
from pumice.base.atomic_files import write_text_atomic
path = Path({str(folder)!r}) / "report.json"
for other in Path({str(folder)!r}).rglob("*"):
    assert other.suffix != ".tmp", other
try:
    write_text_atomic(path, "x" * 100_000)
except OSError as error:
    print(error)
assert not path.exists() and not [*path.parent.glob("*.part")]
"""
    done = run(code, folder / "cache", unshare, "-Urm", "sh", "-c", f'{mount} && exec "$0" "$@"')
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the cache does not store anything more") == 1
    assert "No space left on device" in done.stderr
    first, last = done.stdout.splitlines()
    assert last == f"[Errno 28] No space left on device: '{folder / 'report.json'}'"
    assert first == run(CALL, tmp_path / "free").stdout.strip()


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_text_atomic(path, "as it was")
    code = f"""
import resource
from pumice.base.atomic_files import write_text_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
try:
    write_text_atomic({str(path)!r}, "x" * 1000)
except OSError as error:
    print(error)
"""
    done = run(code, tmp_path / "cache")
    assert done.stdout == f"[Errno 27] File too large: '{path}'\n", done.stderr
    assert path.read_text() == "as it was"
    assert [*tmp_path.glob("report*")] == [path]
