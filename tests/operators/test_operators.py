"""Every row of the test table on the device, at every precision, against onnx.reference; the table covers all operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from cases import CASES, Case
from operator_references import MEETING, compiled, reference, reference_node
from pumice.testing import assert_close

Array = npt.NDArray[Any]

# Precision and disabled features. Without 16-bit storage, fp16 is packed in uint32 words. Without shuffles, GPU kernels with
# shared-memory reductions also run on software devices. Without 64-bit integers, pairs of uint32 are used.
MODES = {
    "fp32": ("fp32", ()),
    "fp16": ("fp16", ()),
    "fp16_packed": ("fp16", ("storageBuffer16BitAccess",)),
    "bf16_packed": ("bf16", ()),
    "fp32_tiled": ("fp32", ("subgroupShuffle",)),
    "fp16_tiled": ("fp16", ("subgroupShuffle",)),
    "fp32_pairs": ("fp32", ("shaderInt64",)),
}


@pytest.fixture(scope="module")
def contexts(pumice_context: pumice.Context) -> Iterator[dict[tuple[str, ...], pumice.Context]]:
    """Contexts keyed by their disabled features."""
    lacking = {features for _, features in MODES.values() if features}
    made = {
        features: pumice.Context(f"uuid:{pumice_context.info.uuid}", without=list(features)) for features in lacking
    }
    yield {(): pumice_context, **made}
    for context in made.values():
        context.close()


def run(case: Case, context: pumice.Context, precision: str = "fp32") -> list[Array]:
    program, given = compiled(case, context, precision)
    results = program(given)
    return [results[f"o{k}"] for k in range(case.outputs)]


def modes(case: Case) -> Iterator[str]:
    yield "fp32"
    if case.has_floats and case.op != "DynamicQuantizeLinear":  # its integers depend on the rounding of the scale
        yield from ("fp16", "fp16_packed", "bf16_packed")
    if case.has_wide_integers:
        yield "fp32_pairs"
    if case.op.startswith(MEETING):
        yield "fp32_tiled"
        yield "fp16_tiled"


def parameters() -> Iterator[Any]:
    for case in CASES:
        for mode in modes(case):
            slow = case.large or mode == "fp16_tiled"
            yield pytest.param(case, mode, id=f"{case}-{mode}", marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("case", "mode"), list(parameters()))
def test_operator_is_right(case: Case, mode: str, contexts: dict[tuple[str, ...], pumice.Context]) -> None:
    precision, lacking = MODES[mode]
    tolerance = case.tolerance(precision)
    for actual, expected in zip(run(case, contexts[lacking], precision), reference(case, precision), strict=True):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype.kind == "f":
            assert_close(actual, expected, rtol=tolerance[0], atol=tolerance[1])
        else:
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("mode", ["fp16", "fp16_packed", "bf16_packed"])
def test_dynamic_quantisation_suits_the_scale_that_it_gives(
    mode: str, contexts: dict[tuple[str, ...], pumice.Context]
) -> None:
    precision, lacking = MODES[mode]
    data = np.linspace(-0.03, 0.07, 1031, dtype="float32")
    graph = pumice.Graph()
    results = graph.add("DynamicQuantizeLinear", graph.input("x", "float32", list(data.shape)), outputs=3)
    for name, value in zip(("y", "scale", "zero"), results, strict=True):
        graph.output(name, value)
    made = graph.compile(contexts[lacking], precision=precision)({"x": data})
    back = (made["y"].astype("float32") - made["zero"]) * made["scale"]
    assert made["scale"] == pytest.approx(0.1 / 255, rel=1e-2)
    np.testing.assert_allclose(back, data, rtol=0, atol=float(made["scale"]) * 1.5)


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (
            "MatMulInteger",
            [(5, 7), (7, 3), (3,)],
            r"zero points of a: expected one number or one for each row .* given \[3\]",
        ),
        ("MatMulInteger", [(2, 5, 7), (7, 3), (2, 5, 7)], "zero points of a"),
        ("MatMulInteger", [(5, 7), (7, 3), (), (5,)], r"zero points of b: expected one number or one for each column"),
        ("MatMulInteger", [(5, 7), (5, 3)], "inner sizes differ"),
        ("ConvInteger", [(1, 3, 5, 5), (4, 3, 3, 3), (3,)], "zero point of x: expected one number"),
        ("ConvInteger", [(1, 3, 5, 5), (4, 3, 3, 3), (), (3,)], r"zero points of w .*\[4\]"),
    ],
)
def test_zero_points_of_another_shape_are_rejected(op: str, shapes: list[tuple[int, ...]], message: str) -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=message):
        graph.add(op, *[graph.input(f"i{k}", "int8", list(shape)) for k, shape in enumerate(shapes)])


def test_matrices_that_are_not_square_have_no_determinant() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=r"expected square matrices; given \[2, 3, 5\]"):
        graph.add("Det", graph.input("x", "float32", [2, 3, 5]))


def test_an_unpooled_tensor_fits_its_output() -> None:
    graph = pumice.Graph()
    inputs = graph.input("x", "float32", [1, 3, 2, 2]), graph.input("i", "int64", [1, 3, 2, 2])
    with pytest.raises(pumice.GraphError, match=r"expected 'output_shape' of at least \[1, 3, 4, 4\]"):
        graph.add("MaxUnpool", *inputs, np.array([1, 3, 4, 3]), kernel_shape=[2, 2], strides=[2, 2])


MIDDLES = {
    "ReduceSum": ([], {}),
    "Softmax": ([], {}),
    "Softmax: columns": ([], {"axis": 1}),
    "LayerNormalization": ([np.ones(64, "float32")], {}),
    "InstanceNormalization": ([np.ones(2, "float32")] * 2, {}),
    "BatchNormalization": ([np.ones(2, "float32")] * 4, {}),
    "GroupNormalization": ([np.ones(2, "float32")] * 2, {"num_groups": 1}),
}


@pytest.mark.parametrize("mode", ["fp32", "fp16", "fp16_packed", "fp16_tiled"])
@pytest.mark.parametrize("operator", MIDDLES)
def test_an_input_begins_in_the_middle_of_a_vector(
    operator: str, mode: str, contexts: dict[tuple[str, ...], pumice.Context]
) -> None:
    """The second part of a concatenation is written in place, here at an offset of four elements."""
    precision, lacking = MODES[mode]
    constants, attributes = MIDDLES[operator]
    op = operator.split(":")[0]
    first, data = np.arange(4, dtype="float32"), (np.arange(3 * 2 * 64, dtype="float32") % 37 - 18) / 16
    graph = pumice.Graph()
    parts = [graph.add("Neg", graph.input(name, "float32", [a.size])) for name, a in (("a", first), ("b", data))]
    graph.output("whole", graph.add("Concat", *parts, axis=0))
    parameters = [graph.constant(array) for array in constants]
    graph.output("y", graph.add(op, graph.add("Reshape", parts[1], np.array([3, 2, 64])), *parameters, **attributes))
    (expected,) = reference_node(op, 1, attributes, [-data.reshape(3, 2, 64), *constants])
    results = graph.compile(contexts[lacking], precision=precision)({"a": first, "b": data})
    tolerance = 1e-4 if precision == "fp32" else 1e-2
    assert_close(results["y"], expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(results["whole"], -np.concatenate([first, data]))


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_four_bits_inside_a_program(dtype: str, pumice_context: pumice.Context) -> None:
    data = np.linspace(-3, 3, 3 * 5 * 7, dtype="float32").reshape(3, 5, 7)
    scale, zero = np.linspace(0.25, 0.5, 5, dtype="float32"), np.array([1, 2, 3, 4, 5], dtype)
    graph = pumice.Graph()
    parameters = graph.constant(scale), graph.constant(zero)
    quantized = graph.add("QuantizeLinear", graph.input("x", "float32", [3, 5, 7]), *parameters)
    graph.output("y", graph.add("DequantizeLinear", quantized, *parameters))
    low, high = (-8, 7) if dtype == "int4" else (0, 15)
    columns, zeros = scale.reshape(5, 1), zero.astype("float32").reshape(5, 1)
    expected = (np.clip(np.rint(data / columns) + zeros, low, high) - zeros) * columns
    assert_close(graph.compile(pumice_context)({"x": data})["y"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0, 3), (4, 32)], ids=str)
def test_four_bits_at_the_border_of_a_program(dtype: str, shape: tuple[int, ...], context: pumice.Context) -> None:
    """Inputs, outputs and constants: NumPy stores one 4-bit element per byte, the device two."""
    low, high = (-8, 7) if dtype == "int4" else (0, 15)
    random = np.random.default_rng(3)
    x, zero = random.integers(low, high, shape, endpoint=True).astype(dtype), np.array(3, dtype)
    floats = random.integers(low, high, shape, endpoint=True).astype("float32")
    graph = pumice.Graph()
    scale = graph.constant(np.array(0.5, "float32"))
    graph.output("real", graph.add("DequantizeLinear", graph.input("x", dtype, shape), scale, graph.constant(zero)))
    quantized = graph.add("QuantizeLinear", graph.input("f", "float32", shape), scale, graph.constant(zero))
    graph.output("whole", quantized)
    program = graph.compile(context)
    made = program({"x": x[::-1][::-1] if x.ndim else x, "f": floats})
    np.testing.assert_array_equal(made["real"], (x.astype("float32") - 3) * 0.5)
    assert made["whole"].dtype == x.dtype
    np.testing.assert_array_equal(made["whole"].astype("int32"), np.clip(2 * floats + 3, low, high))
    first = program.run_async((x, floats)).result()
    np.testing.assert_array_equal(np.asarray(first[1]).astype("int32"), made["whole"].astype("int32"))
    with pytest.raises(pumice.BindingError, match=dtype):
        program({"x": floats, "f": floats})


def test_four_bits_pass_through_a_program(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.input("x", "int4", [5]))
    graph.output("z", graph.constant(np.array([-8, 7, 1], "int4")))
    made = graph.compile(context)({"x": np.array([-8, -1, 0, 3, 7], "int4")})
    assert made["y"].tolist() == [-8, -1, 0, 3, 7]
    assert made["z"].tolist() == [-8, 7, 1]


def test_every_operator_has_a_case_and_every_case_an_operator() -> None:
    own = {row.name for row in pumice.operators() if row.domain == "ai.onnx" and row.skeleton != "composed"}
    defined = {row.name for row in pumice._pumice.operators() if row.definition}
    assert {case.op for case in CASES} == own | defined


def test_no_two_cases_have_one_name() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)
