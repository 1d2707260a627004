"""The measured models, each with an input and its expected result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pumice

from .contender import Array
from .timing import Absent

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
DIGITS = Path(pumice.__file__).parent / "data" / "digits"


@dataclass(frozen=True)
class ModelCase:
    name: str
    path: Path
    load: Callable[[], tuple[Array, Array]]  # input and expected first output
    allowed: Mapping[str, float]  # largest difference at a precision
    truncated: bool = False  # the expected output is an image: clipped and truncated to integers
    long_on_software: bool = False

    def data(self) -> tuple[Array, Array]:
        """Return the input and the expected output. Raise Absent if the model is missing."""
        if not self.path.is_file():
            raise Absent(f"no {self.path.parent.name}/{self.path.name} in ../shared/models")
        return self.load()

    def difference(self, result: Array, expected: Array) -> float:
        result = result.reshape(expected.shape).astype("float64")
        if self.truncated:
            return float(np.abs(result.clip(0, 255) - expected - 0.5).max() - 0.5)
        return float(np.abs(result - expected).max())


def _digit() -> tuple[Array, Array]:
    from onnx.reference import ReferenceEvaluator

    image = np.load(DIGITS / "holdback.npz")["images"][:1, None].astype("float32") / 16
    results: Any = ReferenceEvaluator(str(DIGITS / "digits.onnx")).run(None, {"image": image})
    return image, results[0]


def _stored(name: str) -> Callable[[], tuple[Array, Array]]:
    return lambda: (np.load(MODELS / f"{name}.input.npy"), np.load(MODELS / f"{name}.output.npy"))


def _candy_720() -> tuple[Array, Array]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise Absent("Pillow is not installed") from None
    with Image.open(MODELS / "candy/images/DefaultImage.jpg") as picture:
        fitted = ImageOps.fit(picture.convert("RGB"), (720, 720), Image.Resampling.NEAREST)
    with Image.open(MODELS / "candy/expected/DefaultImage_720.png") as picture:
        expected = picture.convert("RGB")
    blue_first = [np.asarray(image, "float32").transpose(2, 0, 1)[None, ::-1].copy() for image in (fitted, expected)]
    return blue_first[0], blue_first[1]


MODEL_CASES = (
    ModelCase("digits", DIGITS / "digits.onnx", _digit, {"fp32": 1e-5, "fp16": 5e-3}),
    ModelCase(
        "mnist", MODELS / "mnist/mnist.onnx", _stored("mnist/expected/mnist_image1"), {"fp32": 1e-5, "fp16": 5e-4}
    ),
    ModelCase(
        "squeezenet",
        MODELS / "squeezenet/squeezenet.onnx",
        _stored("squeezenet/expected/dog2"),
        {"fp32": 1e-5, "fp16": 5e-3},
    ),
    ModelCase(
        "superres",
        MODELS / "superres/superres.onnx",
        _stored("superres/expected/dog2_224"),
        {"fp32": 1e-5, "fp16": 2.5e-3},
    ),
    ModelCase(
        "candy", MODELS / "candy/candy.onnx", _stored("candy/expected/DefaultImage_128"), {"fp32": 1e-2, "fp16": 1.5}
    ),
    ModelCase(
        "candy720",
        MODELS / "candy/candy.onnx",
        _candy_720,
        {"fp32": 5e-2, "fp16": 6.0},  # PyTorch in fp16: 4.4; ONNX Runtime in fp32: 0.02
        truncated=True,
        long_on_software=True,
    ),
)
