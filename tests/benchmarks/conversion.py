"""Convert ONNX models to ncnn and PyTorch with pnnx; results are cached in build/peers."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .contender import Array
from .timing import Absent

KEPT = Path(__file__).resolve().parents[2] / "build" / "peers"
FILES = ("model.ncnn.param", "model.ncnn.bin", "model.pnnx.bin", "model_pnnx.py")


def converted(model: Path, shape: tuple[int, ...]) -> Path:
    """Return the folder with FILES. Raise Absent."""
    folder = KEPT / f"{model.stem}-{'x'.join(map(str, shape))}-{hashlib.sha256(model.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        _convert(model, shape, folder)
    return folder


def convert(model: Path, inputs: Sequence[Array], wanted: Sequence[str]) -> None:
    """Convert an ONNX file or a traced module named "model" to the wanted FILES next to it. Raise Absent."""
    found = importlib.util.find_spec("pnnx")  # importing it would import torch
    if found is None or found.origin is None:
        raise Absent("pnnx, which converts the model, is not installed")
    shapes = ",".join(f"[{','.join(map(str, x.shape))}]{x.dtype.kind}{8 * x.dtype.itemsize}" for x in inputs)
    command = [str(Path(found.origin).with_name("pnnx")), model.name, f"inputshape={shapes}", "fp16=0"]
    done = subprocess.run(command, cwd=model.parent, capture_output=True, text=True, check=False)
    missing = [name for name in wanted if not model.with_name(name).is_file()]
    if done.returncode or missing:
        raise Absent(
            f"pnnx does not convert it (exit status {done.returncode}, no {', '.join(missing) or 'file missing'})"
        )


def _convert(model: Path, shape: tuple[int, ...], target: Path) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        copy = Path(folder) / "model.onnx"
        shutil.copyfile(model, copy)
        convert(copy, [np.empty(shape, "float32")], FILES)
        result = Path(folder) / "result"
        result.mkdir()
        for name in FILES:
            shutil.move(copy.with_name(name), result / name)
        result.rename(target)
