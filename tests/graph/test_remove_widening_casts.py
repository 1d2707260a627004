"""float32 nodes that load and store 16-bit floats in their kernels: bit-identical to a separate Cast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16, finfo

import pumice
from cases import CASES, Case
from features import has_cpu_kernels

Array = np.ndarray[Any, Any]

READING = {  # inputs that are loaded as 16 bits
    "Conv": (0,),
    "ConvTranspose": (0,),
    "Gemm": (0, 1),
    "MatMul": (0, 1),
    "LayerNormalization": (0,),
    "RMSNormalization": (0,),
    "InstanceNormalization": (0,),
    "GroupNormalization": (0,),
    "BatchNormalization": (0,),
    "Softmax": (0,),
    "LogSoftmax": (0,),
    "Hardmax": (0,),
}
STORING = READING.keys() - {"Softmax", "LogSoftmax", "Hardmax"}
MODES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "fp16": ("fp16", "float16", ()),
    "fp16_packed": ("fp16", "float16", ("storageBuffer16BitAccess",)),
    "bf16_packed": ("bf16", "bfloat16", ()),
    "fp16_tiled": ("fp16", "float16", ("subgroupShuffle",)),
}
NUMBERS = {"float16": (np.float16, 10), "bfloat16": (bfloat16, 16)}  # NumPy's type and ONNX's number


@pytest.fixture(scope="module")
def contexts(pumice_context: pumice.Context) -> Iterator[dict[str, pumice.Context]]:
    made = {
        mode: pumice.Context(f"uuid:{pumice_context.info.uuid}", without=list(lacking))
        for mode, (_, _, lacking) in MODES.items()
    }
    yield made
    for context in made.values():
        context.close()


def parameters() -> Iterator[Any]:
    for case in CASES:
        if case.op not in READING or case.large or case.outputs != 1 or case.note.startswith("timed"):
            continue
        first = case.inputs[0]
        if first is not None and not first.constant and first.dtype == "float32":
            yield from (pytest.param(case, mode, id=f"{case}-{mode}") for mode in MODES)


def reversed_rows(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    """Return a 16-bit node's result, which the next operator reads."""
    ends = [np.array([number], np.int64) for number in (-1, np.iinfo(np.int64).min, 0, -1)]
    made: pumice.Value = graph.add("Slice", x, *ends)
    return made


def graph_of(case: Case, dtype: str, stored: bool) -> tuple[pumice.Graph, dict[str, Array]]:
    """Build the case after nodes that compute the inputs of READING; `stored`: with a Cast after it."""
    graph, given, values = pumice.Graph("case"), dict[str, Array](), list[Any]()
    kind, number = NUMBERS[dtype]
    for k, (one, array) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        if one is None or array is None:
            values.append(None)
        elif one.constant:
            values.append(graph.constant(array))
        else:
            read = k in READING[case.op]
            given[f"i{k}"] = array.astype(kind).astype(np.float32)[::-1] if read else array
            value = graph.input(f"i{k}", one.dtype, list(one.shape))
            values.append(reversed_rows(graph, value) if read else value)
    made = graph.add(case.op, *values, name="operator", **case.attributes)
    graph.output("y", graph.add("Cast", made, to=number, name="stored") if stored else made)
    return graph, given


def kernels_of(program: pumice.Program, given: dict[str, Array]) -> list[tuple[str, str]]:
    """Return the program's kernels without the casts of the inputs."""
    steps = program.plan([list(array.shape) for array in given.values()])
    return sorted((step["label"], step["kernel"]) for step in steps if not step["label"].startswith("cast 'i"))


@pytest.mark.parametrize(("case", "mode"), list(parameters()))
def test_the_bits_are_those_of_casts_beside_the_operator(
    case: Case, mode: str, contexts: dict[str, pumice.Context]
) -> None:
    precision, dtype, _ = MODES[mode]
    context = contexts[mode]
    apart, given = graph_of(case, dtype, False)
    program = apart.compile(context)
    expected, kernels = program(given, loop_timeout=None)["y"], kernels_of(program, given)
    mixed, given = graph_of(case, dtype, case.op in STORING)
    program = mixed.compile(context, precision, float32_nodes=["operator"])
    actual = program(given, loop_timeout=None)["y"]
    if case.op in STORING:
        with np.errstate(over="ignore"):
            expected = expected.astype(NUMBERS[dtype][0])
    assert actual.dtype == expected.dtype
    made = kernels_of(program, given)
    assert not [label for label, _ in made if label.startswith("cast")]
    if not has_cpu_kernels(context):  # GPU kernels have other fp16 tiles, with another order of sums
        units = 1e-5 if expected.dtype == np.float32 else 2 * float(finfo(expected.dtype).eps)
        finite = np.nan_to_num(expected.astype(np.float64), posinf=0, neginf=0)
        np.testing.assert_allclose(
            actual.astype(np.float64),
            expected.astype(np.float64),
            rtol=units,
            atol=units * float(np.abs(finite).max(initial=0)),
        )
    else:
        np.testing.assert_array_equal(actual, expected)
        assert made == kernels


def behind_a_product(name: str, weights: Array, **others: Array) -> pumice.Graph:
    """Return 16-bit rows in reverse order, a MatMul named "wide", and the `others`, which are added to its result."""
    graph = pumice.Graph(name)
    made = reversed_rows(graph, graph.input("x", "float32", [6, 16]))
    made = graph.add("MatMul", made, weights, name="wide")
    for added, array in others.items():
        made = graph.add("Add", made, array, name=added)
    graph.output("y", made)
    return graph


ROWS = np.random.default_rng(3).integers(-128, 129, (6, 16)).astype(np.float32) / 64


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_weights_that_16_bits_hold_are_kept_in_16_bits(context: pumice.Context, precision: str) -> None:
    """A float32 MatMul with weights exact in 16 bits uses as much memory as a 16-bit one, with float32 results."""
    exact, other = np.eye(16, dtype=np.float32) * 3, np.eye(16, dtype=np.float32) / 3
    sizes = {}
    for name, weights in (("exact", exact), ("other", other)):
        graph = behind_a_product(name, weights)
        program = graph.compile(context, precision, float32_nodes=["wide"])
        expected = graph.compile(context)({"x": ROWS}, loop_timeout=None)["y"]
        made = program({"x": ROWS}, loop_timeout=None)["y"]
        if precision == "fp16":  # fp16 represents the rows exactly
            np.testing.assert_array_equal(made, expected)
        sizes[name] = program.arena([[6, 16]])["persistent_bytes"]
    if context.info.kind == "software":  # GPUs may pack a 16-bit matrix in larger blocks
        assert 2 * sizes["exact"] == sizes["other"]


def test_16_bit_matmuls_return_numbers_beyond_16_bits(context: pumice.Context) -> None:
    graph = behind_a_product("large", np.full((16, 16), 1024, np.float32))
    rows = np.full((6, 16), 64, np.float32)
    program = graph.compile(context, "fp16", float32_nodes=["wide"])
    np.testing.assert_array_equal(program({"x": rows}, loop_timeout=None)["y"], 16 * 64 * 1024)


def test_a_16_bit_matmul_stores_its_float32_epilogue(context: pumice.Context) -> None:
    """The elementwise op is fused into its kernel, without rounding in between."""
    offset = np.array(1e6, np.float32)
    graph = behind_a_product("offset", np.eye(16, dtype=np.float32), far=offset)
    program = graph.compile(context, "fp16", float32_nodes=["far"])
    np.testing.assert_array_equal(program({"x": ROWS}, loop_timeout=None)["y"], ROWS[::-1] + offset)
    assert [row["fusion"] for row in program.report() if row["node"] == "far"] == ["epilogue"]
    assert [label for label, _ in kernels_of(program, {"x": ROWS})] == ["Slice_0", "cast 'x' to float16", "wide"]


def test_a_residual_of_16_bits_is_read_by_a_kernel_that_stores_float32(context: pumice.Context) -> None:
    graph = pumice.Graph("stream")
    stream = reversed_rows(graph, graph.input("x", "float32", [6, 16]))
    layer = graph.add("MatMul", stream, np.eye(16, dtype=np.float32) * 60000, name="layer")
    graph.output("y", graph.add("Add", stream, layer, name="sum"))
    program = graph.compile(context, "fp16", float32_nodes=["sum"])
    rows = np.ones((6, 16), np.float32) * 2
    np.testing.assert_array_equal(program({"x": rows}, loop_timeout=None)["y"], 120002)
    assert [label for label, _ in kernels_of(program, {"x": rows})] == ["Slice_0", "cast 'x' to float16", "layer"]


@pytest.mark.parametrize("op", ["Relu", "Tanh", "Mul", "Slice"])
@pytest.mark.parametrize("producer", ["Conv", "MatMul", "InstanceNormalization"])
@pytest.mark.parametrize("wide", [["sum"], ["made", "sum"], ["made", "sum", "beside"], ["sum", "beside"]], ids=str)
def test_what_makes_a_residual_stays_where_its_cast_is_read_over(
    context: pumice.Context, op: str, producer: str, wide: list[str]
) -> None:
    """The skip is a 16-bit elementwise op, which the Cast after it could fuse; other float32 nodes may read that Cast too."""
    random = np.random.default_rng(7)
    graph = pumice.Graph("skips")
    x, z = (graph.input(name, "float32", [1, 8, 6, 8]) for name in "xz")
    skip = graph.add(op, x, x) if op == "Mul" else reversed_rows(graph, x) if op == "Slice" else graph.add(op, x)
    weights = {"Conv": [(8, 8, 1, 1)], "MatMul": [(8, 8)], "InstanceNormalization": [(8,), (8,)]}[producer]
    constants = [graph.constant(random.standard_normal(shape).astype(np.float32)) for shape in weights]
    made = graph.add(producer, z, *constants, name="made")
    graph.output("y", graph.add("Add", made, skip, name="sum"))
    if "beside" in wide:
        graph.output("e", graph.add("Exp", skip, name="beside"))
    given = {name: random.standard_normal((1, 8, 6, 8)).astype(np.float32) for name in "xz"}
    expected = graph.compile(context)(given, loop_timeout=None)
    found = graph.compile(context, "fp16", float32_nodes=wide)(given, loop_timeout=None)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-2, atol=2e-2 * np.abs(array).max())
