"""The accuracy limit: an output whose error rounding explains, but which no caller would accept, is not right."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from precision_models import precision_model
from pumice.base.errors import InputError
from pumice.validation.report.accuracy import compute_sample_scale, find_accuracy_violation, find_loosest_bound
from pumice.validation.rules.bounded_tensor import BoundedTensor

Array = np.ndarray[Any, Any]
FLOAT = np.float32


def detector(end: list[onnx.NodeProto], rows: int = 8) -> tuple[onnx.ModelProto, Array]:
    """Boxes near 500, and scores in 0..1 that lose precision when 30,000 is added and subtracted; `end` combines them."""
    random = np.random.default_rng(0)
    nodes = [
        node("MatMul", ["x", "wb"], ["boxes"]),
        node("MatMul", ["x", "ws"], ["s0"]),
        node("Add", ["s0", "c"], ["s1"]),
        node("Transpose", ["s1"], ["st"], perm=[0, 1]),
        node("Sub", ["st", "c"], ["s2"]),
        node("Sigmoid", ["s2"], ["scores"]),
        *end,
    ]
    constants = {
        "wb": random.uniform(0, 80, (16, 4)).astype(FLOAT),
        "ws": random.standard_normal((16, 4)).astype(FLOAT),
        "c": np.array(30000, FLOAT),
        "k": np.array([2, 2, 2, 2, 1, 1, 1, 1], FLOAT),
        "shape": np.array([-1, 2, 4]),
    }
    made = model(end and nodes, [value("x", [rows, 16])], constants=constants)
    return made, random.uniform(0, 1, (rows, 16)).astype(FLOAT)


JOINED = {
    "side by side": [node("Concat", ["boxes", "scores"], axis=1)],
    "in rows": [node("Concat", ["boxes", "scores"], axis=0)],
    "turned": [node("Concat", ["boxes", "scores"], ["j"], axis=1), node("Transpose", ["j"], perm=[1, 0])],
    "in another shape": [node("Concat", ["boxes", "scores"], ["j"], axis=1), node("Reshape", ["j", "shape"])],
    "scaled and clipped": [
        node("Concat", ["boxes", "scores"], ["j"], axis=1),
        node("Mul", ["j", "k"], ["m"]),
        node("Relu", ["m"]),
    ],
}


@pytest.mark.parametrize("rows", [8, 1])
@pytest.mark.parametrize("name", JOINED)
def test_large_numbers_beside_scores_do_not_hide_their_error(name: str, rows: int, context: pumice.Context) -> None:
    source, x = detector(JOINED[name], rows)
    report = pumice.validate(source, [(x,)], context=context, precision="fp16")
    assert (report.state, report.ok, report.first_divergence) == ("ill-conditioned", False, None)
    row = report.rows[-1]
    assert row.verdict == "ill-conditioned" and row.inaccuracy is not None
    assert row.inaccuracy.error > 0.1 > row.inaccuracy.limit
    assert [one.node for one in report.findings if one.kind == "ill-conditioned"] == ["y"]
    assert "1 ill-conditioned; first output 'y': off by" in report.summary
    with pytest.raises(pumice.ValidationError, match="off by"):
        report.raise_if_failed()
    pumice.validate(source, [(x,)], context=context).raise_if_failed()


def test_a_caller_may_accept_it(context: pumice.Context) -> None:
    source, x = detector(JOINED["side by side"])

    def state(**options: Any) -> tuple[str, bool]:
        report = pumice.validate(source, [(x,)], context=context, precision="fp16", mode="chained", **options)
        return report.rows[-1].verdict, report.ok

    for allowed in (True, ["y"]):
        assert state(allow_ill_conditioned=allowed) == ("ill-conditioned", True)
    assert state(allow_unchecked=True) == ("ill-conditioned", False)
    for accuracy in (1.0, {"y": 1.0}):
        assert state(accuracy=accuracy) == ("right", True)
    assert state(tolerances={"y": 1.0}) == ("right", True)
    assert state(accuracy={"y": 0.1}) == ("ill-conditioned", False)
    searched = pumice.validate(source, [(x,)], context=context, precision="fp16", mode="bisect")
    assert (searched.state, searched.first_divergence) == ("ill-conditioned", None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"accuracy": -1}, "accuracy: expected a non-negative number"),
        ({"accuracy": {"y": "2%"}}, r"accuracy\['y'\]: expected a non-negative number"),
        ({"accuracy": {"boxes": 1}}, "accuracy: expected outputs of the model, given 'boxes'"),
        ({"allow_ill_conditioned": "y"}, "allow_ill_conditioned: expected True or a list"),
        ({"allow_ill_conditioned": ["boxes"]}, "allow_ill_conditioned: expected outputs of the model, given 'boxes'"),
        ({"accuracy": 1, "mode": "isolated"}, "accuracy: mode 'isolated' judges no outputs"),
    ],
)
def test_what_cannot_be_honoured_is_rejected(options: dict[str, Any], text: str, context: pumice.Context) -> None:
    source, x = detector(JOINED["side by side"])
    with pytest.raises(InputError, match=text):
        pumice.validate(source, [(x,)], context=context, **options)


@pytest.mark.parametrize("mode", ["both", "chained", "bisect"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])  # in fp16 the whole error comes from rounded weights
def test_angles_that_lose_their_precision_are_not_right(precision: str, mode: str, context: pumice.Context) -> None:
    """Angles up to 1,000 from a MatMul with K = 2: a cosine that is off by 0.16 still differs from any other by less than 2."""
    frequencies = 1 / 10000 ** (np.arange(0, 64, 2) / 64)
    weights = np.stack([frequencies, np.zeros(32)]).astype(FLOAT)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Cos", ["a"], ["y"])]
    source = model(nodes, [value("x", ["t", 2])], constants={"w": weights})
    x = np.stack([np.arange(1001), np.ones(1001)], 1).astype(FLOAT)
    report = pumice.validate(source, [(x,)], context=context, precision=precision, mode=mode)
    with pumice.load(source, context, precision) as loaded:
        off = np.abs(loaded(x) - np.cos(x.astype(float) @ weights.astype(float))).max()
    assert off > 0.02 and not report.ok and report.state in ("ill-conditioned", "unproved")


@pytest.mark.parametrize("name", ["large_offset", "angles", "softmax_of_close_scores", "underflow"])
def test_traps_without_fusion_are_not_right(name: str, context: pumice.Context) -> None:
    """Leave out the bounded layers after a trap, so that no later rule clips its error to a finite bound."""
    proto, case = precision_model(name)
    with pumice.load(proto, context, "fp16", fuse=False) as loaded:
        report = pumice.validate(loaded, [case], mode="chained")
    assert not report.ok


def test_a_scale_is_that_of_the_sample_and_not_of_an_element() -> None:
    """A logit near zero in a row of large ones is measured relative to the row; the same holds for a small probability."""
    logits = BoundedTensor(np.linspace(-20, 20, 64).reshape(2, 32) + 0.01, np.full((2, 32), 9.0), FLOAT)
    assert compute_sample_scale(logits).shape == (2, 1)
    actual = logits.value.astype(FLOAT)
    actual[0, 31] += 0.3
    assert find_accuracy_violation(actual, logits, 0.02) is None
    actual[1, 0] += 0.5
    found = find_accuracy_violation(actual, logits, 0.02)
    assert found is not None and (found.at, found.elements) == ((1, 0), 1)
    assert found.error == pytest.approx(0.5, abs=1e-5) and found.scale == pytest.approx(20.01)
    assert find_loosest_bound(logits)[0] == 9


def test_infinity_instead_of_a_number_is_above_every_limit() -> None:
    expected = BoundedTensor(np.array([1.0, 70000.0]), np.array([0.0, 40.0]), FLOAT)
    found = find_accuracy_violation(np.array([1, np.inf], FLOAT), expected, 0.02)
    assert found is not None and found.at == (1,) and np.isinf(found.error)
    same = BoundedTensor(np.array([np.inf, np.nan]), None, FLOAT)
    assert find_accuracy_violation(np.array([np.inf, np.nan], FLOAT), same, 0.0) is None
