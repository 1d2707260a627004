"""Operators that expand to several nodes: AffineGrid, DeformConv, BatchNormalization in training mode, TfIdfVectorizer."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_node_tests
import pumice
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]


def typed(arrays: dict[str, Array]) -> list[onnx.ValueInfoProto]:
    dtypes = {name: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    return [value(name, array.shape, dtypes[name]) for name, array in arrays.items()]


def check(context: pumice.Context, one: onnx.NodeProto, arrays: dict[str, Array], precision: str, rtol: float) -> None:
    source = model([one], typed(arrays), list(one.output), opset=22)
    with pumice.load(source, context, precision) as loaded:
        made = loaded(**arrays)
    results = [made] if len(one.output) == 1 else list(made)
    for result, wanted in zip(results, ReferenceEvaluator(source).run(None, arrays), strict=True):
        assert result.shape == wanted.shape and result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, rtol=rtol, atol=rtol * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(("batch", "sizes"), [(1, [4, 5]), (3, [2, 1]), (2, [2, 3, 4])])
def test_affine_grids(context: pumice.Context, batch: int, sizes: list[int], corners: int) -> None:
    theta = np.random.default_rng(1).standard_normal((batch, len(sizes), len(sizes) + 1)).astype("float32")
    steps = [(2 * np.arange(n) - (n - 1)) / (max(n - 1, 1) if corners else n) for n in sizes]
    places = np.stack([*np.meshgrid(*steps, indexing="ij")[::-1], np.ones(sizes)], -1)
    grid = node("AffineGrid", ["theta", "size"], ["y"], name="grid", align_corners=corners)
    shape = {"size": np.array([batch, 2, *sizes])}
    with pumice.load(model([grid], typed({"theta": theta}), ["y"], opset=20, constants=shape), context) as loaded:
        made = loaded(theta)
    np.testing.assert_allclose(made, np.einsum("bij,...j->b...i", theta, places), rtol=1e-5, atol=1e-5)


PRECISIONS = [("fp32", 1e-5), ("fp16", 5e-3), ("bf16", 5e-2)]
DEFORMED: list[dict[str, Any]] = [
    {},
    {"strides": [2, 1], "pads": [1, 0, 2, 1]},
    {"dilations": [1, 2], "offset_group": 2},
    {"group": 2, "offset_group": 4, "pads": [1, 1, 1, 1]},
]


@pytest.mark.parametrize(("precision", "rtol"), PRECISIONS)
@pytest.mark.parametrize("attributes", DEFORMED, ids=str)
def test_deformable_convolutions(
    context: pumice.Context, attributes: dict[str, Any], precision: str, rtol: float
) -> None:
    numbers = np.random.default_rng(1)
    x, w = (numbers.integers(-8, 9, shape) / 8 for shape in ((2, 4, 4, 5), (4, 4 // attributes.get("group", 1), 2, 2)))
    strides, pads, dilations = (
        attributes.get(k, v) for k, v in (("strides", [1, 1]), ("pads", [0] * 4), ("dilations", [1, 1]))
    )
    sizes = [
        (x.shape[2 + i] + pads[i] + pads[2 + i] - dilations[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in (0, 1)
    ]
    groups = attributes.get("offset_group", 1)
    offset = numbers.integers(-12, 13, (2, groups * 8, *sizes)) / 8
    mask, bias = numbers.integers(0, 9, (2, groups * 4, *sizes)) / 8, numbers.integers(-8, 9, 4) / 8
    arrays = {"x": x, "w": w, "offset": offset, "bias": bias, "mask": mask}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    check(context, node("DeformConv", list(arrays), **attributes), arrays, precision, rtol)
    del arrays["bias"], arrays["mask"]
    check(context, node("DeformConv", list(arrays), **attributes), arrays, precision, rtol)


@pytest.mark.parametrize(("precision", "rtol"), PRECISIONS)
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 7), (2, 3, 5, 6)])
def test_batch_normalization_in_training(
    context: pumice.Context, shape: tuple[int, ...], precision: str, rtol: float
) -> None:
    numbers = np.random.default_rng(2)
    arrays = {name: (numbers.random(3) + 0.5).astype(np.float32) for name in ("scale", "bias", "mean", "variance")}
    arrays = {"x": (numbers.integers(-16, 17, shape) / 8).astype(np.float32), **arrays}
    one = node("BatchNormalization", list(arrays), ["y", "m", "v"], training_mode=1, momentum=0.75, epsilon=1e-3)
    check(context, one, arrays, precision, rtol)


POOL = {"pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7], "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6]}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 0), (2, 2, 0), (2, 2, 5), (1, 2, 3)])
def test_sequences_of_a_pool(context: pumice.Context, mode: str, least: int, most: int, skips: int) -> None:
    rows = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int64)
    weights = {} if mode == "TF" else {"weights": [2.0, 1.0, 3.0, 1.0, 0.5, 0.25, 4.0]}
    one = node(
        "TfIdfVectorizer",
        mode=mode,
        min_gram_length=least,
        max_gram_length=most,
        max_skip_count=skips,
        **POOL,
        **weights,
    )
    for given in (rows, rows[1]):
        runtime = pytest.importorskip("onnxruntime")
        source = model([one], typed({"x": given}), opset=17)
        source.graph.output[0].CopyFrom(value("y", None))
        wanted = runtime.InferenceSession(source.SerializeToString()).run(None, {"x": given})[0]
        with pumice.load(source, context) as loaded:
            np.testing.assert_allclose(loaded(given), wanted)


def test_rejections(context: pumice.Context) -> None:
    texts = node("TfIdfVectorizer", mode="TF", pool_strings=["a"], ngram_counts=[0], ngram_indexes=[0],
                 min_gram_length=1, max_gram_length=1, max_skip_count=0)  # fmt: skip
    with pytest.raises(pumice.GraphError, match="expected strings, like the keys in its attributes, given numbers"):
        pumice.load(model([texts], [value("x", [3], onnx.TensorProto.INT64)]), context)
    wrong = node("TfIdfVectorizer", mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
                 **(POOL | {"ngram_indexes": [0]}))  # fmt: skip
    with pytest.raises(pumice.GraphError, match="an index of its own"):
        pumice.load(model([wrong], [value("x", [3], onnx.TensorProto.INT64)]), context)


MUTATED = (
    "ml_",
    "bernoulli",
    "dropout",
    "deform",
    "tfidf",
    "dft",
    "stft",
    "mel",
    "roi",
    "col2im",
    "tensorscatter",
    "bitcast",
)
ODD = [1, -1, 0, 2.5, "text", [1, 2], [-1], [0.5], ["a"], 10**6, float("nan")]


def mutated(source: onnx.ModelProto, choices: random.Random) -> onnx.ModelProto:
    """Return the model with one attribute or input removed, swapped or added."""
    made = onnx.ModelProto()
    made.CopyFrom(source)
    one = choices.choice(made.graph.node)
    names = [*(value.name for value in made.graph.input), ""]
    what = choices.randrange(5)
    if what == 0 and one.attribute:
        del one.attribute[choices.randrange(len(one.attribute))]
    elif what == 1 and one.attribute:
        attribute = choices.choice(one.attribute)
        attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, choices.choice(ODD)))
    elif what == 2 and one.input:
        del one.input[choices.randrange(len(one.input))]
    elif what == 3 and one.input:
        one.input[choices.randrange(len(one.input))] = choices.choice(names)
    else:
        one.input.append(choices.choice(names))
    return made


@pytest.mark.slow
def test_mutated_nodes_are_right_or_rejected(context: pumice.Context) -> None:
    tests = [test for name, test in sorted(onnx_node_tests.all_tests().items()) if any(k in name for k in MUTATED)]
    choices = random.Random(4)
    loaded = 0
    for _ in range(60):
        try:
            pumice.load(mutated(choices.choice(tests).model, choices), context).close()
        except pumice.Error:
            continue
        loaded += 1
    assert 5 < loaded < 55
