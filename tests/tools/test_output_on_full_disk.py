"""Commands on a full disk leave no partial files and keep the previous ones."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import model, node, value
from pumice.tools.cli import main

SIZE = 1 << 18  # bytes of the disk; the output has four times as many


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small file system; if none can be mounted, a file size limit replaces it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode()) == 0:
        yield folder
        libc.umount2(os.fsencode(folder), 2)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, before[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def arguments(context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")
    monkeypatch.setenv("PUMICE_NO_CACHE", "1")
    path, x = tmp_path / "m.onnx", tmp_path / "x.npy"
    path.write_bytes(model([node("Relu")], [value("x", shape=[SIZE])]).SerializeToString())
    np.save(x, np.zeros(SIZE, np.float32))
    return ["run", str(path), "--input", str(x), "--output"]


@pytest.mark.parametrize("existed", [False, True])
def test_no_file_is_left_of_an_output_that_does_not_fit(
    arguments: list[Any], small_disk: Path, capsys: pytest.CaptureFixture[str], existed: bool
) -> None:
    target = small_disk / "y.npy"
    if existed:
        target.write_bytes(b"before")
    assert main([*arguments, str(small_disk)]) == 2
    message = capsys.readouterr().err
    assert str(target) in message and ("No space left" in message or "too large" in message), message
    assert [path.name for path in small_disk.iterdir()] == (["y.npy"] if existed else [])
    assert not existed or target.read_bytes() == b"before"


def test_an_output_with_a_long_name_is_written(context: pumice.Context, tmp_path: Path) -> None:
    for name in ("y" * 1000, "\u00e9" * 1000, "../" * 50, "\x1b[31m\n"):
        nodes = [node("Relu", ["x"], [name])]
        path, x, out = tmp_path / "m.onnx", tmp_path / "x.npy", tmp_path / "out"
        path.write_bytes(model(nodes, outputs=[name]).SerializeToString())
        np.save(x, np.full((2, 4), 3, np.float32))
        device = f"uuid:{context.info.uuid}"
        assert main(["run", str(path), "--device", device, "--input", str(x), "--output", str(out)]) == 0
        (file,) = out.iterdir()
        np.testing.assert_array_equal(np.load(file), np.full((2, 4), 3, np.float32))
        file.unlink()
