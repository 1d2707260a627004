"""Block-quantised weights with fp32 scales in fp16 programs: kernels on cooperative matrices round the scales to fp16, and the report
notes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from exact_sessions import exact_session
from onnx_models import node, value

Array = npt.NDArray[Any]
DEPTH, COLUMNS, BLOCK = 256, 48, 32
INEXACT = (np.random.default_rng(0).random((COLUMNS, DEPTH // BLOCK)) * 0.02 + 0.001).astype("float32")
NOTE = "scales rounded to float16"


@pytest.fixture(scope="module")
def units() -> pumice.Context:
    """A device with emulated cooperative matrices."""
    return pumice.Context(quirks=["emulated_fragments"])


def n_bits(bits: int, scales: Array, codes: Array) -> onnx.ModelProto:
    """Return a model with com.microsoft::MatMulNBits."""
    each = 8 // bits
    words = sum(codes[:, k::each].astype(np.uint8) << (k * bits) for k in range(each))
    packed = np.asarray(words, np.uint8).reshape(COLUMNS, DEPTH // BLOCK, -1)
    attributes = {"K": DEPTH, "N": COLUMNS, "bits": bits, "block_size": BLOCK}
    made = node("MatMulNBits", ["x", "q", "s"], ["y"], name="product", domain="com.microsoft", **attributes)
    return in_model([made], {"q": packed, "s": scales.reshape(-1)})


def dequantized(bits: int, scales: Array, codes: Array) -> onnx.ModelProto:
    """Return a model with blocked DequantizeLinear and MatMul."""
    signed = (codes - (1 << bits - 1)).T.astype("int8")
    if bits == 4:
        q = helper.make_tensor("q", TensorProto.INT4, signed.shape, signed.reshape(-1).tolist())
    else:
        q = numpy_helper.from_array(signed, "q")
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=BLOCK),
        node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    return in_model(nodes, {"s": np.ascontiguousarray(scales.T)}, [q])


def in_model(nodes: list[onnx.NodeProto], constants: dict[str, Array], more: Any = ()) -> onnx.ModelProto:
    tensors = [*more, *(numpy_helper.from_array(one, name) for name, one in constants.items())]
    graph = helper.make_graph(nodes, "blocks", [value("x", ["rows", DEPTH])], [value("y", None)], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


FORMS = {(n_bits, 2), (n_bits, 4), (n_bits, 8), (dequantized, 4), (dequantized, 8)}
by_form = pytest.mark.parametrize(
    ("form", "bits"), sorted(FORMS, key=str), ids=lambda one: getattr(one, "__name__", one)
)


def made(form: Any, bits: int, scales: Array) -> tuple[onnx.ModelProto, Array]:
    """Return the model, and the codes minus their zero point."""
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (COLUMNS, DEPTH), dtype=np.uint8)
    return form(bits, scales, codes), codes.astype(float) - (1 << bits - 1)


def run(
    proto: onnx.ModelProto, context: pumice.Context, x: Array, precision: Any = "fp16"
) -> tuple[Array, list[str], str]:
    """Return the result, the kernels, and the report's note on the GEMM."""
    with pumice.load(proto, context, precision, progress=False) as loaded:
        y = loaded(x)
        notes = [row["note"] for row in loaded.program.report() if row["op"] == "MatMul"]
        kernels = [step["kernel"] for step in loaded.program.plan([list(x.shape)])]
    return y, kernels, notes[0]


@pytest.mark.parametrize("rows", [1, 4, 18])
@by_form
def test_float32_scales_run_on_tensor_cores(units: pumice.Context, form: Any, bits: int, rows: int) -> None:
    proto, codes = made(form, bits, INEXACT)
    x = np.random.default_rng(1).standard_normal((rows, DEPTH)).astype("float32")
    y, kernels, note = run(proto, units, x)
    assert "gemv_quant_cpu.comp" not in kernels
    assert {"gemm_quant_mma.comp", "dequantize_weights.comp"} & {*kernels}
    assert note == NOTE
    expected = x @ (codes * INEXACT.repeat(BLOCK, 1)).T
    np.testing.assert_allclose(y, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("bits", [4, 8])
def test_results_are_those_of_onnx_runtime(units: pumice.Context, bits: int) -> None:
    proto, _ = made(n_bits, bits, INEXACT)
    x = np.random.default_rng(1).standard_normal((4, DEPTH)).astype("float32")
    expected = exact_session(proto, optimize=False).run(None, {"x": x})[0]
    y, kernels, _ = run(proto, units, x)
    assert "gemm_quant_mma.comp" in kernels
    np.testing.assert_allclose(y, expected, atol=2e-3 * np.abs(expected).max())


@by_form
def test_a_scale_becomes_the_nearest_half(units: pumice.Context, form: Any, bits: int) -> None:
    """Only one element of x is nonzero, a power of two: the result is a code times the scale, rounded once."""
    ties = np.array(
        [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-20, 1 - 2.0**-12, 2.0**-14, 32767.9, 0], "float32"
    )
    signed = np.concatenate([ties[:5], -ties[:5], [0]]).astype("float32")
    scales = np.resize(signed, (COLUMNS, DEPTH // BLOCK)).astype("float32")
    proto, codes = made(form, bits, scales)
    for place in (0, BLOCK + 3, DEPTH - 1):
        x = np.zeros((1, DEPTH), "float32")
        x[0, place] = 1
        y, kernels, _ = run(proto, units, x)
        assert "gemm_quant_mma.comp" in kernels
        product = codes[:, place] * scales[:, place // BLOCK].astype(np.float16).astype(float)
        np.testing.assert_array_equal(y[0], product.astype(np.float16).astype("float32"))


@by_form
def test_float16_scales_are_not_reported(units: pumice.Context, form: Any, bits: int) -> None:
    proto, _ = made(form, bits, INEXACT.astype(np.float16).astype("float32"))
    _, kernels, note = run(proto, units, np.ones((2, DEPTH), "float32"))
    assert ("gemm_quant_mma.comp" in kernels, note) == (True, "")


@pytest.mark.parametrize("scale", [1e-6, 2.0**-14 * (1 - 2.0**-24), -3e-5, 2.0**15, 1e5, np.inf])
@by_form
def test_other_scales_stay_float32(units: pumice.Context, form: Any, bits: int, scale: float) -> None:
    scales = INEXACT.copy()
    scales[3, 1] = scale
    proto, codes = made(form, bits, scales)
    x = np.random.default_rng(1).standard_normal((2, DEPTH)).astype("float32") * np.float32(1e-3)
    y, kernels, note = run(proto, units, x)
    assert "gemm_quant_mma.comp" not in kernels
    if scale == 1e5:  # the node stays in fp32
        assert note.startswith("float32: ") and note.endswith(" holds 100000, which float16 cannot represent")
    else:
        assert note.startswith("float32 scales, no cooperative matrices: ") and note.endswith(
            " is not a normal float16 number"
        )
    whole = np.arange(COLUMNS) != 3
    expected = x @ (codes[whole] * scales[whole].repeat(BLOCK, 1)).T
    np.testing.assert_allclose(y[:, whole], expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("precision", ["fp32", "bf16", {"default": "fp16", "op:*MatMul*": "fp32"}], ids=str)
def test_other_precisions_round_no_scales(units: pumice.Context, precision: Any) -> None:
    proto, _ = made(n_bits, 4, INEXACT)
    _, kernels, note = run(proto, units, np.ones((2, DEPTH), "float32"), precision)
    assert "gemm_quant_mma.comp" not in kernels
    assert "scales" not in note


def test_devices_without_tensor_cores_round_no_scales(context: pumice.Context) -> None:
    proto, codes = made(n_bits, 4, INEXACT)
    x = np.zeros((1, DEPTH), "float32")
    x[0, 5] = 1
    y, kernels, note = run(proto, context, x)
    if "gemm_quant_mma.comp" not in kernels:
        assert note == ""
        np.testing.assert_array_equal(y[0], (codes[:, 5] * INEXACT[:, 0].astype(float)).astype(np.float16))


@pytest.mark.parametrize("rows", [1, 18])
@by_form
def test_validation_knows_the_rounding(units: pumice.Context, form: Any, bits: int, rows: int) -> None:
    proto, _ = made(form, bits, INEXACT)
    x = np.random.default_rng(1).standard_normal((rows, DEPTH)).astype("float32")
    report = pumice.validate(proto, [(x,)], context=units, precision="fp16", allow_unchecked=bits == 2)
    assert "wrong" not in {row.verdict for row in report.rows}, report.summary
    assert report.state == "right" or bits == 2, report.summary
