"""Random models that are right: validation proves them, or names the choice that no bound decides."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from provable_models import FAMILIES, Draft, Drawn, ints
from pumice.validation.rules.bounded_tensor import RULES, BoundedTensor, OperatorCall, UndecidedError

PRECISIONS = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
QUICK, ALL = 3, 40  # seeds per family


def seeds() -> list[Any]:
    return [pytest.param(seed, marks=[] if seed < QUICK else [pytest.mark.slow]) for seed in range(ALL)]


def drawn(family: str, seed: int) -> Drawn:
    return FAMILIES[family](np.random.default_rng([zlib.crc32(family.encode()), seed]))


def ancestors(proto: onnx.ModelProto, output: str) -> set[str]:
    """Return the names of all nodes that an output depends on."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    found: set[str] = set()
    names = [output]
    while names:
        node = makers.get(names.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            names += node.input
    return found


def check_report(report: pumice.ValidationReport, one: Drawn) -> None:
    rows = [*report.rows, *report.kernels]
    assert {"nodes", "outputs"} <= {row.program for row in rows}
    left = [row for row in rows if row.verdict != "right"]
    assert all(row.verdict == "unproved" for row in left), report.summary
    assert all(any(reason in row.note for reason in one.reasons) for row in left), report.summary
    assert report.ok or one.reasons, report.summary
    made = {name for node in one.proto.graph.node for name in node.output}
    for row in report.kernels:  # rows of a body or branch use the names of its graph
        assert row.output not in made or set(row.members) <= ancestors(one.proto, row.output) | {row.node}, (
            row.output,
            row.members,
        )


def check_values(results: list[Any], one: Drawn, unit: float) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(one.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in one.proto.graph.input]
    for ours, theirs in zip(results, session.run(None, dict(zip(names, one.inputs, strict=True))), strict=True):
        assert (np.shape(ours), np.asarray(ours).dtype) == (theirs.shape, theirs.dtype)
        if theirs.dtype.kind != "f" or one.accuracy is None:
            assert one.accuracy is None or np.array_equal(ours, theirs)
            continue
        allowed = (
            one.accuracy * unit * max(float(np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))), 2.0**-3)
        )
        np.testing.assert_allclose(ours, theirs, rtol=one.accuracy * unit, atol=allowed)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_right_models_are_proved(family: str, seed: int, context: pumice.Context) -> None:
    one = drawn(family, seed)
    for precision, unit in PRECISIONS.items():
        with pumice.Model(one.proto, context, precision) as loaded:
            results = loaded(*one.inputs)
            report = pumice.validate(loaded, [one.inputs])
        check_report(report, one)
        check_values(list(results) if isinstance(results, tuple | list) else [results], one, unit)


# ---- errors at the same nodes are found


def changed(results: dict[str, Any], name: str, change: Callable[[Any], None]) -> None:
    if name in results:
        change(results[name])


def add_one(array: Any) -> None:
    array.flat[array.size // 2] += 1


def next_number(array: Any) -> None:
    array.flat[1] = np.nextafter(array.flat[1], array.dtype.type(np.inf))


def make_nan(array: Any) -> None:
    array.flat[0] = np.nan


def swap_boxes(array: Any) -> None:
    array[[0, 1]] = array[[1, 0]]


def spoil_center(array: Any) -> None:
    array.flat[array.size // 2] += 0.5


WHOLE = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
BOXES = np.array([[[0, 0, 1, 2], [0, 1, 1, 3], [4, 4, 6, 6]]], np.float32)
SCORES = np.array([[[0.5, 0.25, 0.75]]], np.float32)


def chosen_sum(total: str, choice: str) -> Drawn:
    draft = Draft()
    x = draft.input(WHOLE)
    made = {
        "CumSum": lambda: draft.add("CumSum", x, draft.constant(np.int64(1))),
        "ReduceSum": lambda: draft.add("ReduceSum", x, draft.constant(ints(1))),
        "MatMul": lambda: draft.add("MatMul", x, draft.constant(WHOLE.T.copy())),
    }[total]()
    more = {"to": onnx.TensorProto.INT64} if choice == "Cast" else {}
    return draft.drawn(draft.add(choice, made, **more))


def exact_map(op: str) -> Drawn:
    draft = Draft()
    return draft.drawn(draft.add(op, draft.input(WHOLE / 4), draft.constant(np.float32(0.25))))


def power(base: Any, exponent: Any) -> Drawn:
    draft = Draft()
    return draft.drawn(draft.add("Pow", draft.input(base), draft.constant(exponent)))


def power_of_zero() -> Drawn:
    """Zero among numbers that a Mul has rounded."""
    draft = Draft()
    x = draft.input(np.array([0, 0.7, 1.7, 2.7], np.float32))
    return draft.drawn(
        draft.add("Pow", draft.add("Mul", x, draft.constant(np.float32(1.3))), draft.constant(np.float32(-2)))
    )


def tied_boxes() -> Drawn:
    """The first two boxes have an IoU of 1/3, which is the threshold."""
    draft = Draft()
    inputs = [
        draft.input(BOXES),
        draft.input(SCORES),
        draft.constant(ints(3)),
        draft.constant(np.array([1 / 3], np.float32)),
    ]
    return draft.drawn(draft.add("NonMaxSuppression", *inputs))


def open_size() -> Drawn:
    """Floor(10 * 1.1) is 11, but no bound of the product tells 11.0000002 from 10.9999998."""
    draft = Draft()
    x = draft.input(np.arange(400, dtype=np.float32).reshape(1, 4, 10, 10) / 4, [1, 4, "h", "w"])
    shape = draft.add("Shape", x)
    spatial = draft.add("Slice", shape, draft.constant(ints(2)), draft.constant(ints(4)))
    scaled = draft.add("Mul", draft.add("Cast", spatial, to=onnx.TensorProto.FLOAT), draft.constant(np.float32(1.1)))
    spatial = draft.add("Cast", draft.add("Floor", scaled), to=onnx.TensorProto.INT64)
    first = draft.add("Slice", shape, draft.constant(ints(0)), draft.constant(ints(2)))
    return draft.drawn(draft.add("Resize", x, "", "", draft.add("Concat", first, spatial, axis=0), mode="linear"))


FAULTS: dict[str, tuple[Callable[[], Drawn], Callable[[Any], None]]] = {
    **{f"{total}, {choice}": (partial(chosen_sum, total, choice), add_one)
       for total in ("CumSum", "ReduceSum", "MatMul") for choice in ("Floor", "Cast")},
    **{op: (partial(exact_map, op), next_number) for op in ("Mul", "Add", "Sub")},
    "power of integers": (partial(power, np.arange(-6, 6), np.float32(2)), add_one),
    "power of zero": (power_of_zero, make_nan),
    "boxes": (tied_boxes, swap_boxes),
    "open size": (open_size, spoil_center),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_of_what_is_proved_is_found(name: str, context: pumice.Context, spoil: Callable[..., None]) -> None:
    make, change = FAULTS[name]
    one = make()
    output, last = one.proto.graph.output[0].name, one.proto.graph.node[-1].name
    right = pumice.validate(one.proto, [one.inputs], context=context)
    assert right.state == "right", right.summary
    # Lowered nodes select the boxes, so only the program's output has the output's name.
    spoil(lambda results: changed(results, output, change), kept=name != "boxes")
    report = pumice.validate(one.proto, [one.inputs], context=context)
    assert report.state == "wrong", report.summary
    assert report.first_divergence is not None and report.first_divergence.node in (last, output), report.summary


# ---- the rules against simulations


@pytest.mark.parametrize("seed", range(20))
def test_sums_that_count_as_exact_are_so_in_any_order(seed: int) -> None:
    """Float32 products with factors split into fp16 hi/lo, without the lo * lo terms."""
    random = np.random.default_rng(seed)
    terms, most = int(random.integers(2, 200)), float(random.choice([3, 200, 2000, 1e6]))
    a, b = (np.round(random.uniform(-most, most, terms)) * 2.0 ** random.integers(-8, 3) for _ in range(2))
    product = RULES["MatMul"](
        OperatorCall(
            "MatMul", [BoundedTensor(a[None].astype(np.float32)), BoundedTensor(b[:, None].astype(np.float32))]
        )
    )[0]
    exact = product.exact_sums is not None and bool(product.exact_sums.all())
    assert exact or most > 3  # sums of such small numbers always are
    assert not exact or most < 1e6
    if not exact:
        return
    halves = [(one.astype(np.float16), (one - one.astype(np.float16)).astype(np.float16)) for one in (a, b)]
    for _ in range(10):
        (high_a, low_a), (high_b, low_b) = [[part.astype(np.float32) for part in one] for one in halves]
        total = np.float32(0)
        for i in random.permutation(terms):
            total += high_a[i] * high_b[i] + (high_a[i] * low_b[i] + low_a[i] * high_b[i])
        assert total == product.value.item()


def simulated(boxes: Any, scores: Any, overlap: Any, least: Any) -> list[int]:
    """Return the boxes that nms.comp keeps, in float32."""
    low, high = boxes[:, :2], boxes[:, 2:]
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        shares = []
        for k in kept:
            width, height = np.maximum(np.minimum(high[i], high[k]) - np.maximum(low[i], low[k]), 0)
            shared = width * height
            areas = [np.prod(high[one] - low[one], dtype=np.float32) for one in (i, k)]
            shares.append(shared / (areas[0] + areas[1] - shared))
        if scores[i] > least and not any(share > overlap for share in shares):
            kept.append(int(i))
    return kept


def test_boxes_that_are_decided_stay_so_within_their_errors() -> None:
    decided = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        low, more = random.integers(0, 4, (6, 2)), random.integers(1, 4, (6, 2))
        spread = random.random((6, 4)) * random.integers(2)
        boxes = (np.concatenate([low, low + more], 1) + spread).astype(np.float32)
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + np.float32(0.25))
        scores = random.permutation(np.arange(1, 7)).astype(np.float32) / 8
        off, off_score = random.choice([0, 1e-4, 1e-2]), random.choice([0, 1e-3])
        overlap, least = (np.float32(random.choice(one)) for one in ([0.5, 0.25, 1 / 3, 0], [0.25, 0.1]))
        given = [
            BoundedTensor(boxes[None], np.full((1, 6, 4), off)),
            BoundedTensor(scores[None, None], np.full((1, 1, 6), off_score)),
        ]
        numbers = [BoundedTensor(np.array([one]), None, None, constant=True) for one in (overlap, least)]
        call = OperatorCall("NonMaxSuppression", [*given, BoundedTensor(np.array([6])), *numbers])
        try:
            (made,) = RULES["NonMaxSuppression"](call)
        except UndecidedError:
            continue
        decided += 1
        for _ in range(5):
            moved = [(one + random.choice([-1, 1], one.shape) * 0.99 * by).astype(np.float32)
                     for one, by in ((boxes, off), (scores, off_score))]  # fmt: skip
            assert made.value[:, 2].tolist() == simulated(moved[0], moved[1], overlap, least), seed
    assert decided > 150
