"""Bounds from the model's inputs onwards, with correlated errors: right results pass and faults are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from corpus import store
from corpus.case import arrays
from onnx_models import model, node, value
from pumice.validation.checker.live_values import LiveValues
from pumice.validation.checker.stored_output_comparison import compare_stored_outputs
from pumice.validation.reference.reference_model import ReferenceModel
from pumice.validation.report.deviation import Deviation, compare_tensor
from pumice.validation.rules.bounded_tensor import BoundedTensor, OperatorCall, find_rule
from pumice.validation.rules.float_types import ProgramTypes
from pumice.validation.rules.program_values import make_bounded_input
from validation.test_no_false_alarms import names

Array = np.ndarray[Any, Any]
HALF = np.float16
BLOCKS = 24


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("mode", ["chained", "bisect"])
@pytest.mark.parametrize("name", list(names()))
def test_nothing_right_is_called_wrong_from_the_inputs_on(
    name: str, mode: str, precision: str, context: pumice.Context
) -> None:
    if name == "script_newton":
        pytest.skip("its loop ends at a precision that 16 bits do not have: test_endless_loops")
    stored = store.load(name)
    cases = [arrays(stored.inputs, sizes) for sizes in stored.sizes]
    report = pumice.validate(stored.model, cases, context=context, precision=precision, mode=mode)
    assert report.first_divergence is None, report.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "mode"),
    [
        ("fp16", "chained"),
        ("bf16", "chained"),
        ("fp16", "bisect"),
        ("bf16", "bisect"),
    ],
)
def test_layers_with_few_channels_are_right(
    shared_models: Path, precision: str, mode: str, context: pumice.Context
) -> None:
    """SqueezeNet expands 16 channels to 128 and squeezes them to 16 again, so one rounding error is summed many times."""
    noise = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    path = shared_models / "squeezenet" / "squeezenet.onnx"
    report = pumice.validate(path, [(noise,)], context=context, precision=precision, mode=mode)
    assert report.ok, report.summary


@pytest.mark.parametrize("positions", [False, True], ids=["one precision", "with positions in float32"])
def test_rare_sums_of_rounded_inputs_are_right(positions: bool, context: pumice.Context) -> None:
    """Sums near 0 of which only the rounding errors of the inputs remain, over 4 standard deviations of these errors."""
    x = np.random.default_rng(2).standard_normal((1 << 18, 64)).astype(np.float32)
    x -= x.mean(1, keepdims=True)
    errors = x.astype(HALF).astype(np.float64) - x
    x = x[np.abs(errors.sum(1)) > 4.2 * np.sqrt(np.square(errors).sum(1))]
    assert len(x) > 2
    nodes, outputs = [node("MatMul", ["x", "ones"], ["y"])], ["y"]
    if positions:  # then inputs are rounded where they are read
        nodes.append(node("Cast", ["x"], ["steps"], to=onnx.TensorProto.INT32))
        outputs.append("steps")
    made = model(nodes, [value("x", ("N", 64))], outputs, {"ones": np.ones((64, 4), np.float32)})
    report = pumice.validate(made, [(x,)], context=context, precision="fp16", mode="chained")
    assert report.first_divergence is None, report.summary  # ill-conditioned, since nothing but errors remains


# ---- an fp16 runtime in NumPy


def narrow_and_wide() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of x [64, 4] with blocks that expand 4 -> 64 -> 4 and apply a random rotation."""
    random = np.random.default_rng(1)
    nodes, weights, last = [], {}, "x"
    for i in range(BLOCKS):
        wide = random.choice([-1.0, 1.0], (4, 64)) * random.uniform(0.5, 1.5, (4, 64))
        turned, _ = np.linalg.qr(random.standard_normal((4, 4)))
        weights[f"up{i}"] = wide.astype(HALF).astype(np.float32)
        weights[f"down{i}"] = (np.linalg.pinv(wide) @ turned).astype(HALF).astype(np.float32)
        nodes += [node("MatMul", [last, f"up{i}"], [f"w{i}"]), node("MatMul", [f"w{i}", f"down{i}"], [f"n{i}"])]
        last = f"n{i}"
    nodes[-1].output[0] = "y"
    return model(nodes, [value("x", (64, 4))], constants=weights), weights


def in_halves(weights: dict[str, Array], x: Array) -> Array:
    for weight in weights.values():
        x = (x @ weight).astype(HALF).astype(np.float32)
    return x


def by_rules(source: onnx.ModelProto, x: Array, actual: Array, sampled: bool) -> tuple[Deviation, BoundedTensor]:
    reference = ReferenceModel(source, None, "fp16")
    chain = LiveValues(reference, reference.chained, {"x": x}, sampled)
    for one in reference.nodes:
        chain.values.update(chain.run(one))
    expected = chain["y"]
    assert isinstance(expected, BoundedTensor)
    return compare_tensor(actual, expected, reference.chained.types), expected


@pytest.mark.parametrize("seed", range(4))
def test_an_error_that_many_elements_share_is_added_up(seed: int) -> None:
    source, weights = narrow_and_wide()
    x = np.random.default_rng(seed).standard_normal((64, 4)).astype(HALF).astype(np.float32)
    actual = in_halves(weights, x)
    alone, _ = by_rules(source, x, actual, sampled=False)
    together, expected = by_rules(source, x, actual, sampled=True)
    assert not alone.ok
    assert together.ok
    deviation = np.sqrt(np.mean(np.square(actual - expected.value)))
    assert (
        0.25 < deviation / np.sqrt(np.mean(np.square(expected.get_errors()))) < 0.6
    )  # RMS of a rounding: 0.4 of the max


def test_a_fault_is_beyond_what_dependent_errors_make() -> None:
    source, weights = narrow_and_wide()
    x = np.random.default_rng(0).standard_normal((64, 4)).astype(HALF).astype(np.float32)

    def run(inputs: dict[str, Array]) -> Array:
        return in_halves(weights, inputs["x"])

    def faulty(inputs: dict[str, Array]) -> Array:
        spoilt = {**weights, "down7": weights["down7"].copy()}
        spoilt["down7"][5, 2] = 0
        return in_halves(spoilt, inputs["x"])

    assert pumice.validate(source, [x], candidate=run, candidate_precision="fp16").ok
    report = pumice.validate(source, [x], candidate=faulty, candidate_precision="fp16")
    assert not report.ok
    assert report.rows[-1].verdict == "wrong"
    assert report.rows[-1].severity > 2


def test_references_have_dependent_errors_too(context: pumice.Context) -> None:
    source, weights = narrow_and_wide()
    x = np.random.default_rng(0).standard_normal((64, 4)).astype(HALF).astype(np.float32)
    report = pumice.validate(source, [x], context=context, precision="fp32", reference="fp16")
    assert report.ok, report.summary
    stored = {"y": in_halves(weights, x).astype(HALF)}
    report = pumice.validate(source, [x], context=context, precision="fp16", reference=stored)
    assert report.ok, report.summary
    with pumice.Model(source, context, "fp16") as loaded:
        assert [row.verdict for row in compare_stored_outputs(loaded, {"x": x}, {"y": in_halves(weights, x)})] == [
            "right"
        ]


def test_equal_numbers_are_rounded_alike() -> None:
    """Their mean has the error of a single number."""
    nodes = [
        node("Mul", ["x", "c"], ["p"]),
        node("Sub", ["p", "near"], ["d"]),
        node("ReduceMean", ["d"], axes=[1], keepdims=1),
    ]
    near = np.float32([3.296875])
    source = model(nodes, [value("x", (1, 4096))], constants={"c": np.float32([3]), "near": near})
    x = np.full((1, 4096), HALF(1.101), np.float32)
    product = (x[:, :1] * 3).astype(HALF).astype(np.float32)
    assert abs(product - x[:, :1] * 3) > 0
    actual = (product - near).astype(HALF).astype(np.float32)
    assert not by_rules(source, x, actual, sampled=False)[0].ok
    assert by_rules(source, x, actual, sampled=True)[0].ok


def test_a_rounded_constant_shifts_every_element() -> None:
    """The row of constants is either exact or rounded, and a mean over rows keeps its whole rounding error."""
    nodes = [node("Add", ["x", "b"], ["s"]), node("ReduceMean", ["s"], axes=[0], keepdims=1)]
    row = np.float32([1000.4, 3.0])
    source = model(nodes, [value("x", (2048, 2))], constants={"b": row})
    x = np.random.default_rng(0).uniform(-400, 400, (2048, 2)).astype(HALF).astype(np.float32)
    for bias in (row, row.astype(HALF).astype(np.float32)):
        actual = (x + bias).astype(HALF).mean(0, keepdims=True, dtype=np.float64).astype(HALF).astype(np.float32)
        assert by_rules(source, x, actual, sampled=True)[0].ok


def test_what_constants_make_keeps_its_errors_in_matmuls() -> None:
    """The folded product is rounded to fp16, perhaps to a different number than the reference's."""
    random = np.random.default_rng(2)
    weights = {"a": random.standard_normal((16, 16)), "b": random.standard_normal((16, 16))}
    weights = {name: one.astype(np.float32) for name, one in weights.items()}
    nodes = [node("MatMul", ["a", "b"], ["m"], name="folded"), node("MatMul", ["x", "m"])]
    reference = ReferenceModel(model(nodes, [value("x", (1, 16))], constants=weights), None, "fp16")
    chain = LiveValues(reference, reference.chained, {"x": np.ones((1, 16), np.float32)})
    made = chain.run(reference.nodes[0])["m"]
    assert isinstance(made, BoundedTensor)
    chain.values["m"] = made.as_constant()
    exact = BoundedTensor(made.value, None, made.dtype, True)
    with_errors = chain.run(reference.nodes[1])["y"]
    chain.values["m"] = exact
    without = chain.run(reference.nodes[1])["y"]
    assert isinstance(with_errors, BoundedTensor)
    assert isinstance(without, BoundedTensor)
    lost = np.sqrt(np.square(with_errors.get_errors()) - np.square(without.get_errors()))
    np.testing.assert_allclose(lost, np.sqrt(np.sum(np.square(made.get_errors()), 0))[None], rtol=0.2)


@pytest.mark.parametrize(
    ("op", "attributes", "x", "error"),
    [
        ("MaxPool", {"kernel_shape": [1, 2]}, [[[[1.0, 0.9]]]], [[[[0.0, 0.1]]]]),
        ("ReduceMax", {"axes": [3]}, [[[[1.0, 0.9]]]], [[[[0.0, 0.1]]]]),
        ("Exp", {}, [1.0], [0.5]),
        ("Log", {}, [1.0], [0.2]),
    ],
)
def test_errors_of_four_deviations_are_within_four_errors(
    op: str, attributes: dict[str, Any], x: list[Any], error: list[Any]
) -> None:
    """Includes functions for which twice the input error more than doubles the error of the result."""
    types = ProgramTypes("fp32", independent_errors=True)
    rule = find_rule(op)
    assert rule is not None

    def run(v: Array, e: Array | None) -> BoundedTensor:
        made: BoundedTensor = rule(OperatorCall(op, [BoundedTensor(v, e, np.float32)], attributes, 17, types))[0]
        return made

    value_of, errors = np.float64(x), np.float64(error)
    made = run(value_of, errors)
    for sign in (-1, 1):
        moved = run(value_of + sign * types.to_max_deviation(errors), None)
        assert (np.abs(moved.value - made.value) <= types.to_max_deviation(made.get_errors()) * (1 + 1e-9)).all()


def test_what_follows_an_overflow_is_unproved_and_not_wrong(context: pumice.Context) -> None:
    """The unfused program overflows on store; the optimised program keeps the value in float32."""
    nodes = [
        node("Mul", ["x", "large"], ["m"], name="overflows"),
        node("Mul", ["m", "small"], ["s"], name="behind"),
        node("Relu", ["s"], name="last"),
    ]
    constants = {"large": np.float32([4096]), "small": np.float32([2**-14])}
    source = model(nodes, [value("x", (1, 4))], constants=constants)
    case = np.float32([[64, 1, 2, 3]])
    report = pumice.validate(source, [case], context=context, precision="fp16", mode="chained")
    verdicts = {row.node: row.verdict for row in report.rows}
    assert verdicts == {"overflows": "right", "behind": "unproved", "last": "unproved", "y": "right"}
    notes = {row.node: row.note for row in report.rows}
    assert notes["behind"] == notes["last"] == "depends on node 'overflows', which overflows"
    assert [one.node for one in report.findings if one.kind == "overflow"] == ["overflows"]


def test_inputs_are_as_they_are_or_rounded() -> None:
    reference = ReferenceModel(model([node("Relu")], [value("x", (4,))]), None, "fp16")
    x = np.float32([1.1, 1.2, 1.3, 1.4])
    chain = LiveValues(reference, reference.chained, {"x": x}, sampled=True)
    given = make_bounded_input(x, reference.chained.types)
    made = chain.run(reference.nodes[0])["y"]
    assert isinstance(given, BoundedTensor)
    assert isinstance(made, BoundedTensor)
    assert (made.get_errors() >= given.get_errors()).all()
