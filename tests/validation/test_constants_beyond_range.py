"""Constants beyond the range of the storage type: what kernels use instead, and what remains unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import BFLOAT16, FLOAT16, FLOAT32, ProgramTypes
from pumice.validation.rules.program_values import make_bounded_constant

FLOAT = np.float32
BEYOND = FLOAT(3.4e38)  # bfloat16's largest number is 3.3895e38
ROW = np.array([1, 2, BEYOND, 4], FLOAT)
X = np.random.default_rng(0).uniform(1, 2, (2, 4)).astype(FLOAT)


def report_of(context: pumice.Context, precision: str, nodes: Any, x: Any, **constants: Any) -> pumice.ValidationReport:
    return pumice.validate(
        model(nodes, [value("x", x.shape)], constants=constants), [(x,)], context=context, precision=precision
    )


def test_a_constant_beyond_bfloat16_is_off_by_its_distance_to_the_limit() -> None:
    assert BFLOAT16.store_constant([BEYOND, -BEYOND, 1, np.inf]).tolist() == [
        BFLOAT16.largest,
        -BFLOAT16.largest,
        1,
        np.inf,
    ]
    assert FLOAT16.store_constant([1e5, 0.1]).tolist() == [1e5, float(np.float16(0.1))]
    assert FLOAT32.compute_storage_error([BEYOND]).tolist() == [0]
    made = make_bounded_constant(ROW, ProgramTypes("bf16"))
    assert made.error is not None
    assert made.error.tolist() == [0, 0, float(BEYOND) - BFLOAT16.largest, 0]
    rounded = make_bounded_constant(ROW, ProgramTypes("bf16").for_fused_kernel("rounded"))
    assert rounded.value.tolist() == [1, 2, BFLOAT16.largest, 4]
    assert make_bounded_constant(ROW, ProgramTypes("fp16")).error is None


MAPS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Mul": ([node("Mul", ["x", "c"], ["y"])], {"c": ROW}),
    "of another one": (
        [node("Mul", ["x", "c"], ["t"]), node("Sub", ["t", "d"], ["y"])],
        {"c": ROW, "d": FLOAT(3.4028e35)},
    ),
    "Min": ([node("Min", ["x", "c"], ["y"])], {"c": ROW}),
    "a mask": ([node("Add", ["x", "c"], ["t"]), node("Softmax", ["t"], ["y"])], {"c": FLOAT([0, -BEYOND, 0, -BEYOND])}),
    "Pad": ([node("Pad", ["x", "p", "v"], ["y"])], {"p": np.int64([0, 1, 0, 1]), "v": -BEYOND}),
}


@pytest.mark.parametrize("name", MAPS)
def test_what_maps_make_of_it_is_right(context: pumice.Context, name: str) -> None:
    nodes, constants = MAPS[name]
    report = report_of(context, "bf16", nodes, FLOAT(1e-3) * X, **constants)
    assert report.state == "right"
    assert not [row.node for row in report.rows if row.verdict == "wrong"]
    # Scores that depend on an input are float32, and so is the mask.
    assert ("clamped constant" in {one.kind for one in report.findings}) == (name != "a mask")


@pytest.mark.parametrize("shape", [(4, 1), (4, 3)])
def test_of_a_matmul_with_it_nothing_is_known(context: pumice.Context, shape: tuple[int, int]) -> None:
    """Some GEMM kernels hold it as infinity; the columns without it are checked."""
    w = np.random.default_rng(1).uniform(1, 2, shape).astype(FLOAT)
    w[2, 0] = BEYOND
    report = report_of(context, "bf16", [node("MatMul", ["x", "w"], ["y"])], FLOAT(1e-3) * X, w=w)
    assert report.state == "unproved"
    row = report.rows[0]
    assert row.deviation is not None
    assert (row.deviation.unknown, row.deviation.ok) == (2, True)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_matmul_that_computes_in_float32_for_it_is_proved(context: pumice.Context, nodes: int) -> None:
    w = np.random.default_rng(1).uniform(1, 2, (4, 3)).astype(FLOAT)
    w[2, 0] = 1e5
    given = [node("MatMul", ["x", "w"], ["t"]), node("Mul", ["t", "s"], ["y"])] if nodes > 1 else []
    report = report_of(
        context,
        "fp16",
        given or [node("MatMul", ["x", "w"], ["y"])],
        FLOAT(0.25) * X,
        w=w,
        **({"s": FLOAT(1e-3)} if given else {}),
    )
    assert report.state == "right"
    assert "wide constant" in {one.kind for one in report.findings}


WAYS = [{}, {"mode": "isolated"}, {"mode": "isolated", "inputs": "reference"}, {"mode": "chained"}]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("op", ["Gemm", "Conv"])
def test_a_bias_beyond_keeps_the_matrix_in_float32_too(context: pumice.Context, op: str, way: dict[str, str]) -> None:
    """The inputs are exact in fp16, so their rounding adds no tolerance that would cover a rounded matrix."""
    random = np.random.default_rng(1)
    x, w = ((2, 64), (64, 4)) if op == "Gemm" else ((1, 8, 6, 6), (4, 8, 3, 3))
    constants = {"w": random.standard_normal(w).astype(FLOAT), "b": FLOAT([1e5, 0, 1, -1])}
    proto = model([node(op, ["x", "w", "b"], ["y"])], [value("x", list(x))], constants=constants)
    given = random.standard_normal(x).astype(np.float16).astype(FLOAT)
    report = pumice.validate(proto, [given], context=context, precision="fp16", **way)
    assert report.state == "right", report.summary


OTHERS = [
    (node("ConstantOfShape", ["s"], ["y"], value=onnx.numpy_helper.from_array(np.array([BEYOND]))), np.int64([2]), 18),
    (node("Clip", ["s"], ["y"], min=-3.0, max=float(BEYOND)), FLOAT([1, 3.4e38]), 6),
    (node("Pad", ["s"], ["y"], pads=[1, 1], value=float(BEYOND)), FLOAT([1, 2]), 2),
]


@pytest.mark.parametrize(("made", "given", "opset"), OTHERS, ids=[one[0].op_type for one in OTHERS])
def test_attribute_numbers_are_clamped_likewise(made: Any, given: Any, opset: int) -> None:
    dtype = np.dtype(given.dtype)
    (found,) = RuleRunner({"": opset}, ProgramTypes("bf16")).run_node(
        made, [BoundedTensor(given, None, dtype, stored=True)], {}
    )
    assert isinstance(found, BoundedTensor)
    with np.errstate(all="ignore"):
        error = found.get_errors()[found.value > 1e38]
    assert ((error > 1e35) & (error < 1e37)).all()


@pytest.mark.parametrize("number", [65519.0, 65520.0])
def test_a_constant_at_the_end_of_float16_is_what_the_engine_has_of_it(context: pumice.Context, number: float) -> None:
    """The first number rounds to 65504, the second to no finite float16."""
    report = report_of(
        context, "fp16", [node("MatMul", ["x", "c"], ["y"])], FLOAT(1e-3) * X, c=np.full((4, 3), number, FLOAT)
    )
    assert [row.verdict for row in report.rows if row.verdict == "wrong"] == []
    assert ("wide constant" in {one.kind for one in report.findings}) == (number == 65520)


@pytest.mark.parametrize("alpha", [70000.0, 1e-6, 0.7, -2.0], ids=str)
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_matrix_that_is_scaled_before_it_is_rounded_is_right(
    context: pumice.Context, precision: str, is_constant: bool, alpha: float
) -> None:
    random = np.random.default_rng(1)
    x = (random.uniform(-1, 1, (3, 256)) / max(abs(alpha), 1)).astype(FLOAT)
    b = random.uniform(0.5, 1, (256, 16)).astype(FLOAT)
    inputs = [value("x", x.shape)] + ([] if is_constant else [value("b", b.shape)])
    proto = model([node("Gemm", ["x", "b"], ["y"], alpha=alpha)], inputs, constants={"b": b} if is_constant else {})
    report = pumice.validate(proto, [(x,) if is_constant else (x, b)], context=context, precision=precision)
    assert [row.verdict for row in report.rows if row.verdict == "wrong"] == []
    is_wide = precision == "fp16" and abs(alpha) not in (0.7, 2.0)
    assert ("wide constant" in {one.kind for one in report.findings}) == is_wide
