"""ONNX models as ncnn and PyTorch models, by pnnx; kept in build/peers, so that another run needs no pnnx."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from .timing import Absent

KEPT = Path(__file__).resolve().parents[2] / "build" / "peers"
FILES = ("model.ncnn.param", "model.ncnn.bin", "model.pnnx.bin", "model_pnnx.py")


def converted(model: Path, shape: tuple[int, ...]) -> Path:
    """The folder with FILES. Raises Absent."""
    folder = KEPT / f"{model.stem}-{'x'.join(map(str, shape))}-{hashlib.sha256(model.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        _convert(model, shape, folder)
    return folder


def _convert(model: Path, shape: tuple[int, ...], target: Path) -> None:
    found = importlib.util.find_spec("pnnx")  # importing it would import torch
    if found is None or found.origin is None:
        raise Absent("pnnx, which converts the model, is not installed")
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        sizes = ",".join(map(str, shape))
        copy = Path(folder) / "model.onnx"
        shutil.copyfile(model, copy)
        command = [str(Path(found.origin).with_name("pnnx")), copy.name, f"inputshape=[{sizes}]", "fp16=0"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        missing = [name for name in FILES if not (Path(folder) / name).is_file()]
        if done.returncode or missing:
            raise Absent(
                f"pnnx does not convert it (exit status {done.returncode}, no {', '.join(missing) or 'file missing'})"
            )
        result = Path(folder) / "result"
        result.mkdir()
        for name in FILES:
            shutil.move(copy.with_name(name), result / name)
        result.rename(target)
