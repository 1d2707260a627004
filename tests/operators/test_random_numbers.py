"""Random numbers: the generator against the known answers of its paper, distributions, and the effect of seeds and runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
import random_reference as reference
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
STATE = np.array([1, 2, 0, 0], np.uint32)
FLOATS = {"float32": 1, "float16": 10, "float64": 11}


def made(context: pumice.Context, op: str, state: Array, *inputs: Any, **attributes: Any) -> Array:
    graph = pumice.Graph()
    given = graph.input("state", "uint32", [4])
    operands = [
        graph.input(f"x{i}", str(x.dtype), x.shape) if isinstance(x, np.ndarray) else x for i, x in enumerate(inputs)
    ]
    operands = [graph.constant(np.array(x, np.int64)) if isinstance(x, list) else x for x in operands]
    graph.output("y", graph.add(op, given, *operands, **attributes))
    arrays = {f"x{i}": x for i, x in enumerate(inputs) if isinstance(x, np.ndarray)}
    result: Array = graph.compile(context)({"state": state, **arrays})["y"]
    return result


def test_the_generator_gives_the_known_answers() -> None:
    ones, pi = (
        np.full((1, 4), 0xFFFFFFFF, np.uint32),
        np.array([[0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint32),
    )
    known = [
        (np.zeros((1, 4), np.uint32), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (ones, (0xFFFFFFFF, 0xFFFFFFFF), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (pi, (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    for counter, key, expected in known:
        assert [f"{word:08x}" for word in reference.philox(counter, key)[0]] == expected.split()


def test_the_device_gives_the_known_answers(context: pumice.Context) -> None:
    """A RandomState step stores a raw Philox block."""
    for words, key, expected in (
        ([0, 0, 0, 0], 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ):
        state = np.array([5, 6, words[1], words[2]], np.uint32)
        number = np.array([words[0]], np.uint32).view(np.int32)
        result = made(context, "pumice::RandomState", state, number, stream=words[3], key=key)
        assert [f"{word:08x}" for word in result] == expected.split()


@pytest.mark.parametrize("count", [1, 3, 4, 1001])
def test_numbers_are_the_same_bit_by_bit_everywhere(context: pumice.Context, count: int) -> None:
    state = np.array([9, 8, 7, 6], np.uint32)
    for op, numbers in (("pumice::RandomUniform", reference.uniform), ("pumice::RandomNormal", reference.normal)):
        assert np.array_equal(made(context, op, state, [count], stream=3), numbers(count, state, 3))
        assert np.array_equal(made(context, op, state, [count], key=2**40 + 5), numbers(count, state, 0, 2**40 + 5))


def kolmogorov(sample: Array, distribution: Any) -> float:
    """Return the Kolmogorov-Smirnov statistic times sqrt(n); it exceeds 1.95 once in a thousand samples."""
    ordered = np.sort(sample.astype(np.float64))
    n = len(ordered)
    at = distribution(ordered)
    return float(max(np.max(np.arange(1, n + 1) / n - at), np.max(at - np.arange(n) / n)) * math.sqrt(n))


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers_are_uniform(context: pumice.Context, dtype: str) -> None:
    y = made(context, "pumice::RandomUniform", STATE, [100, 300], low=-2.0, high=6.0, dtype=FLOATS[dtype])
    assert y.dtype == dtype and y.shape == (100, 300)
    assert y.min() >= -2 and y.max() <= 6
    assert abs(y.astype(np.float64).mean() - 2) < 4 * 8 / math.sqrt(12 * y.size)
    assert kolmogorov(y.reshape(-1), lambda v: (v + 2) / 8) < 1.95


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_are_normal(context: pumice.Context, dtype: str) -> None:
    y = made(context, "pumice::RandomNormal", STATE, [30001], mean=1.0, scale=0.5, dtype=FLOATS[dtype]).astype(
        np.float64
    )
    z = (y - 1) / 0.5
    assert abs(z.mean()) < 4 / math.sqrt(z.size) and abs(z.var() - 1) < 4 * math.sqrt(2 / z.size)
    assert abs((z**3).mean()) < 4 * math.sqrt(15 / z.size) and abs((z**4).mean() - 3) < 4 * math.sqrt(96 / z.size)
    assert kolmogorov(z, lambda v: np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in v])) < 1.95
    assert 3.8 < np.abs(z).max() < 6.7


def test_numbers_of_streams_and_runs_are_independent(context: pumice.Context) -> None:
    rows = [
        made(context, "pumice::RandomUniform", np.array([1, 2, run, 0], np.uint32), [4096], stream=stream)
        for run in range(3)
        for stream in range(3)
    ]
    correlation = np.corrcoef(np.stack(rows))
    assert np.abs(correlation - np.eye(9)).max() < 5 / math.sqrt(4096)


def test_masks_are_true_as_often_as_asked(context: pumice.Context) -> None:
    p = np.linspace(0, 1, 11, dtype=np.float32).repeat(4001)
    counts = made(context, "pumice::RandomMask", STATE, p).reshape(11, 4001).sum(1)
    expected = np.linspace(0, 1, 11) * 4001
    assert counts[0] == 0 and counts[-1] == 4001
    assert np.all(np.abs(counts - expected) <= 4 * np.sqrt(4001 / 4))
    mask = made(context, "pumice::RandomMask", STATE, np.array(0.25, np.float32), [3, 5, 1001])
    assert mask.shape == (3, 5, 1001) and abs(mask.mean() - 0.25) < 4 * math.sqrt(0.1875 / mask.size)


@pytest.mark.parametrize("classes", [1, 5, 5000])
def test_classes_are_drawn_by_their_weights(context: pumice.Context, classes: int) -> None:
    weights = np.random.default_rng(classes).random((2, classes)) ** 2
    weights[:, 1::3] = 0
    logits = np.log(np.maximum(weights, 1e-300)).astype(np.float32)
    logits[weights == 0] = -np.inf
    drawn = made(context, "pumice::Multinomial", STATE, logits + 7, sample_size=20000, dtype=7)
    assert drawn.dtype == np.int64 and drawn.shape == (2, 20000)
    for row, wanted in zip(drawn, weights / weights.sum(1, keepdims=True), strict=True):
        counts = np.bincount(row, minlength=classes)
        assert np.all(counts[wanted == 0] == 0)
        kept = wanted * 20000 > 5
        if kept.sum() < 2:
            continue
        chi = ((counts - wanted * 20000) ** 2)[kept] / (wanted * 20000)[kept]
        freedom = kept.sum() - 1
        assert chi.sum() < freedom + 4 * math.sqrt(2 * freedom)


# models


def noise(**attributes: Any) -> onnx.ModelProto:
    return model([node("RandomNormal", [], ["y"], shape=[2, 3], **attributes)], [value("unused")], opset=22)


def test_runs_differ_and_models_of_one_seed_do_not(context: pumice.Context) -> None:
    x = np.zeros((1, 4), np.float32)
    with pumice.load(noise(), context, seed=5) as one, pumice.load(noise(), context, seed=5) as other:
        assert one.seed == 5 and [v.name for v in one.inputs] == ["unused"]
        runs = [one(x) for _ in range(3)]
        assert not np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[1], runs[2])
        assert all(np.array_equal(run, other(x)) for run in runs)
        assert "random numbers by seed 5 (given)" in str(one.report())
    with pumice.load(noise(), context) as drawn, pumice.load(noise(), context) as another:
        assert drawn.seed != another.seed and not np.array_equal(drawn(x), another(x))
        assert f"random numbers by seed {drawn.seed} (drawn from the system)" in str(drawn.report())
        with pumice.load(noise(), context, seed=drawn.seed) as again:
            again(x)
            assert np.array_equal(again(x), drawn(x))


def test_a_seed_of_the_node_is_its_own(context: pumice.Context) -> None:
    x = np.zeros((1, 4), np.float32)
    with pumice.load(noise(seed=1.5), context) as one, pumice.load(noise(seed=1.5), context) as other:
        runs = [one(x), one(x)]
        assert not np.array_equal(*runs)
        assert np.array_equal(runs[0], other(x)) and np.array_equal(runs[1], other(x))
    expected = reference.normal(6, np.zeros(4, np.uint32), 0, int(np.float32(1.5).view(np.uint32)))
    assert np.array_equal(runs[0].reshape(-1), expected)


def test_a_model_without_random_numbers_has_no_seed(context: pumice.Context) -> None:
    with pumice.load(model([node("Relu")]), context, seed=3) as loaded:
        assert loaded.seed is None and "random" not in str(loaded.report())


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_of_more_than_64_bits_are_rejected(context: pumice.Context, seed: int) -> None:
    with pytest.raises(pumice.BindingError, match=r"0 to 2\*\*64 - 1"):
        pumice.load(noise(), context, seed=seed)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_dropout_in_training(context: pumice.Context, precision: str) -> None:
    constants = {"ratio": np.array(0.25, np.float32), "training": np.array(True)}
    drop = model(
        [node("Dropout", ["x", "ratio", "training"], ["y", "mask"])], outputs=["y", "mask"], constants=constants
    )
    x = np.random.default_rng(0).random((500, 4), np.float32) + 1
    with pumice.load(drop, context, precision, seed=1) as loaded:
        y, mask = loaded(x)
    assert mask.dtype == bool and abs(mask.mean() - 0.75) < 4 * math.sqrt(0.1875 / x.size)
    assert np.array_equal(y != 0, mask)
    tolerance = {"fp32": 1e-6, "fp16": 2e-3, "bf16": 2e-2}[precision]
    assert np.allclose(y, np.where(mask, x / 0.75, 0), rtol=tolerance)


def test_dropout_that_learns_at_run_time_whether_it_trains(context: pumice.Context) -> None:
    inputs = [value("x"), value("training", [], TensorProto.BOOL)]
    drop = model([node("Dropout", ["x", "", "training"], ["y", "mask"])], inputs, ["y", "mask"])
    x = np.ones((100, 4), np.float32)
    with pumice.load(drop, context, seed=1) as loaded:
        y, mask = loaded(x, np.array(False))
        assert np.array_equal(y, x) and mask.all()
        y, mask = loaded(x, np.array(True))
        assert np.array_equal(y, np.where(mask, 2, 0)) and 0.3 < mask.mean() < 0.7


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_shapes_and_types_of_others(context: pumice.Context, precision: str) -> None:
    nodes = [
        node("RandomUniformLike", ["x"], ["u"], dtype=TensorProto.FLOAT16, low=3.0, high=4.0),
        node("RandomNormalLike", ["x"], ["n"]),
        node("Bernoulli", ["x"], ["b"], dtype=TensorProto.INT32),
        node("Multinomial", ["x"], ["m"], sample_size=3),
    ]
    x = np.full((5, 4), 0.5, np.float32)
    with pumice.load(model(nodes, outputs=["u", "n", "b", "m"], opset=22), context, precision, seed=2) as loaded:
        u, n, b, m = loaded(x)
    assert u.shape == n.shape == b.shape == (5, 4) and m.shape == (5, 3)
    assert (u.dtype, n.dtype, b.dtype, m.dtype) == (np.float16, np.float32, np.int32, np.int32)
    assert u.min() >= 3 and u.max() <= 4 and set(b.reshape(-1)) <= {0, 1} and m.min() >= 0 and m.max() < 4


def test_iterations_and_branches_differ(context: pumice.Context) -> None:
    """Random numbers are drawn in a Loop, in a Scan and in both branches of an If."""
    numbers = [helper.make_node("RandomUniform", [], ["r"], shape=[3]), helper.make_node("Identity", ["go"], ["on"])]
    bool_value = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "on")]
    body = helper.make_graph(
        numbers, "body", [value("i", [], TensorProto.INT64), bool_value[0]], [bool_value[1], value("r", [3])]
    )
    inner = helper.make_graph(numbers[:1], "inner", [value("s", [1])], [value("r", [3])])
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("RandomUniform", [], [name], shape=[3])], name, [], [value(name, [3])]
        )
        for name in ("then", "else")
    }
    nodes = [
        helper.make_node("Loop", ["trips", ""], ["a"], body=body, name="first"),
        helper.make_node("Loop", ["trips", ""], ["b"], body=body, name="second"),
        helper.make_node("Scan", ["slices"], ["c"], body=inner, num_scan_inputs=1),
        helper.make_node("If", ["condition"], ["d"], **branches),
    ]
    constants = {"trips": np.array(6), "slices": np.zeros((4, 1), np.float32)}
    given = [value("condition", [], TensorProto.BOOL)]
    with pumice.load(model(nodes, given, ["a", "b", "c", "d"], constants, opset=22), context, seed=4) as loaded:
        results = [loaded(np.array(flag)) for flag in (True, False)]
    numbers_made = np.concatenate([part.reshape(-1) for run in results for part in run])
    assert len(numbers_made) == 2 * (18 + 18 + 12 + 3)
    assert len(np.unique(numbers_made)) == len(numbers_made) and numbers_made.min() >= 0 and numbers_made.max() < 1


def test_validation_compares_no_random_numbers(context: pumice.Context) -> None:
    nodes = [
        node("RandomUniformLike", ["x"], ["r"]),
        node("Dropout", ["r", "", "training"], ["d"]),
        node("Add", ["x", "d"], ["y"]),
    ]
    source = model(nodes, constants={"training": np.array(True)})
    report = pumice.validate(source, [np.ones((3, 4), np.float32)], context=context)
    assert (report.ok, report.state) == (False, "unproved")
    with pytest.raises(pumice.ValidationError, match="random numbers"):
        report.raise_if_failed()
    allowed = ["RandomUniformLike", "Dropout"]
    pumice.validate(source, [np.ones((3, 4), np.float32)], context=context, allow_unchecked=allowed).raise_if_failed()
    notes = {row.node: row.note for row in report.rows}
    assert notes[nodes[0].name] == notes[nodes[1].name] == "random numbers, which are not compared"
    assert next(row for row in report.rows if row.node == nodes[2].name).local is not None


def test_rejections(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="random numbers as int32"):
        made(context, "pumice::RandomUniform", STATE, [3], dtype=6)
    with pytest.raises(pumice.GraphError, match="a state"):
        pumice.Graph().add("pumice::RandomUniform", np.zeros(3, np.uint32), np.array([3]))
    integers = model([node("RandomUniformLike", ["x"])], [value("x", [3], TensorProto.INT32)])
    with pytest.raises(pumice.GraphError, match="attribute 'dtype'"):
        pumice.load(integers, context)
