"""The four pretrained models against their stored results, each with its own tolerances."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice

Array = np.ndarray[Any, Any]
PRECISIONS = ("fp32", "fp16", "bf16")


class Expected(NamedTuple):
    """A stored result: file suffix, output name, maximum error in fp32 and in fp16."""

    suffix: str
    output: str
    fp32: float
    fp16: float

    def allowed(self, precision: str) -> float:
        """Return the tolerance; bfloat16 has three bits of mantissa less than float16."""
        return {"fp32": self.fp32, "fp16": self.fp16, "bf16": 8 * self.fp16}[precision]


CLASSIFIED = [Expected("output", "probabilities", 1e-5, 5e-3), Expected("logits", "logits", 2e-4, 0.2)]
CASES: dict[str, tuple[str, list[Expected]]] = {
    "mnist_image1": (
        "mnist",
        [Expected("output", "probabilities", 1e-5, 5e-4), Expected("logits", "logits", 1e-4, 5e-2)],
    ),
    "DefaultImage": ("squeezenet", CLASSIFIED),
    "dog2": ("squeezenet", CLASSIFIED),
    "chihuahua": ("squeezenet", CLASSIFIED),
    "zebra": ("squeezenet", CLASSIFIED),
    "DefaultImage_128": ("candy", [Expected("output", "styled", 1e-2, 1.5)]),
    "dog2_64": ("superres", [Expected("output", "luma_x3", 1e-5, 2.5e-3)]),
    "dog2_224": ("superres", [Expected("output", "luma_x3", 1e-5, 2.5e-3)]),
}
MEAN_ALLOWED = {"DefaultImage_128": {"fp32": 1e-3, "fp16": 0.13, "bf16": 1.04}}

_loaded: dict[tuple[str, str], pumice.Model] = {}


def loaded(folder: Path, name: str, context: pumice.Context, precision: str) -> pumice.Model:
    """Load a model once per precision for all tests, so that its kernels are compiled once."""
    key = (name, precision)
    if key not in _loaded or _loaded[key].context is not context:
        _loaded[key] = pumice.load(folder / name / f"{name}.onnx", context, precision)
    return _loaded[key]


def stored(folder: Path, case: str, suffix: str) -> Array:
    result: Array = np.load(folder / CASES[case][0] / "expected" / f"{case}.{suffix}.npy")
    return result


def by_name(model: pumice.Model, results: Any) -> dict[str, Array]:
    return results._asdict() if len(model.outputs) > 1 else {model.outputs[0].name: results}


def check(case: str, results: dict[str, Array], folder: Path, precision: str, row: int = 0) -> None:
    for expected in CASES[case][1]:
        right = stored(folder, case, expected.suffix)
        actual = results[expected.output][row : row + 1]
        assert actual.dtype == np.float32
        assert actual.shape == right.shape
        errors = np.abs(actual.astype(np.float64) - right)
        assert errors.max() <= expected.allowed(precision), (expected.output, errors.max())
        if case in MEAN_ALLOWED:
            assert errors.mean() <= MEAN_ALLOWED[case][precision]
        if expected.output == "probabilities":
            assert actual.argmax() == right.argmax()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", CASES)
def test_the_stored_result(shared_models: Path, context: pumice.Context, case: str, precision: str) -> None:
    model = loaded(shared_models, CASES[case][0], context, precision)
    check(case, by_name(model, model(stored(shared_models, case, "input"))), shared_models, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["mnist", "squeezenet", "candy", "superres"])
def test_a_batch_of_four(shared_models: Path, context: pumice.Context, name: str, precision: str) -> None:
    """Uses different images if several have the same size, so that swapped rows are detected."""
    cases = [case for case, (model, _) in CASES.items() if model == name and not case.endswith("_224")]
    cases = (cases * 4)[:4]
    inputs = np.concatenate([stored(shared_models, case, "input") for case in cases])
    model = loaded(shared_models, name, context, precision)
    results = by_name(model, model(inputs))
    for row, case in enumerate(cases):
        check(case, results, shared_models, precision, row)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("name", "size"), [("candy", (72, 44)), ("superres", (37, 51))])
def test_another_image_size(
    shared_models: Path, context: pumice.Context, name: str, size: tuple[int, int], precision: str
) -> None:
    """Compares with onnx's reference on a non-square crop of the stored image."""
    onnx_reference = pytest.importorskip("onnx.reference")
    case = "DefaultImage_128" if name == "candy" else "dog2_64"
    picture = np.ascontiguousarray(stored(shared_models, case, "input")[:, :, : size[0], : size[1]])
    model = loaded(shared_models, name, context, precision)
    actual = model(picture)
    evaluator = onnx_reference.ReferenceEvaluator(str(shared_models / name / f"{name}.onnx"))
    (right,) = evaluator.run(None, {model.inputs[0].name: picture})
    assert actual.shape == right.shape
    allowed = CASES[case][1][0].allowed(precision)
    assert np.abs(actual - right).max() <= allowed


CANDY_720 = {  # row, column: B, G, R
    (0, 0): (80.159, 89.130, 111.714),
    (100, 200): (104.369, 194.856, 236.201),
    (360, 360): (223.500, 143.314, 136.801),
    (500, 123): (82.979, 159.621, 229.902),
    (719, 719): (109.353, 120.974, 138.035),
}


@pytest.mark.slow
def test_candy_at_720_is_right(shared_models: Path, context: pumice.Context) -> None:
    """Candy's normalisations sum over 518,400 elements, beyond the loop count limit of some drivers."""
    image = pytest.importorskip("PIL.Image")
    from pumice.device.image_loading import load_image

    picture = load_image(shared_models / "candy/images/DefaultImage.jpg", mode="BGR", size=720, resample="nearest")
    styled = loaded(shared_models, "candy", context, "fp32")(picture)
    for (row, column), expected in CANDY_720.items():
        np.testing.assert_allclose(styled[0, :, row, column], expected, atol=1e-2)
    np.testing.assert_allclose(styled.mean(axis=(0, 2, 3)), [114.034, 135.389, 173.312], atol=5e-3)
    np.testing.assert_allclose(styled.std(axis=(0, 2, 3)), [71.076, 76.670, 64.480], atol=5e-3)
    finished = np.clip(styled[0, ::-1], 0, 255).transpose(1, 2, 0).astype(np.uint8)
    with image.open(shared_models / "candy/expected/DefaultImage_720.png") as right:
        difference = np.abs(finished.astype(int) - np.asarray(right.convert("RGB")))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.005


@pytest.mark.parametrize("name", ["mnist", "squeezenet", "superres"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_node_is_right(shared_models: Path, context: pumice.Context, name: str, precision: str) -> None:
    case = next(case for case, (model, _) in CASES.items() if model == name)
    report = pumice.validate(loaded(shared_models, name, context, precision), [(stored(shared_models, case, "input"),)])
    assert not report.unchecked
    report.raise_if_failed()


def test_every_node_of_candy_is_right(shared_models: Path, context: pumice.Context, pumice_precision: str) -> None:
    picture = np.ascontiguousarray(stored(shared_models, "DefaultImage_128", "input")[:, :, :64, :48])
    pumice.validate(loaded(shared_models, "candy", context, pumice_precision), [(picture,)]).raise_if_failed()


def test_squeezenet_takes_at_most_20_pipelines_on_a_software_device(shared_models: Path) -> None:
    """A software driver takes 16 to 90 ms to compile each pipeline."""
    if all(device.kind != "software" for device in pumice.devices()):
        pytest.skip("no software device")
    with pumice.Context("software") as own:
        model = pumice.load(shared_models / "squeezenet" / "squeezenet.onnx", own)
        model(stored(shared_models, "zebra", "input"))
        assert 0 < own.pipelines_created <= 20
