"""Precision of standalone operators: the same results as a graph of that single node, with the same rounding and summation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pumice
from binding_tables import execute, initialise
from cases import CASES, Case
from described_operators import OF_THE_HOST, Array, Operand, spread
from pumice import TensorDesc, _pumice

HOST_INPUTS = {row.name: row.host_inputs for row in pumice.operators()}
PRECISIONS = ("fp32", "fp16", "bf16")
WIDTHS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def executed_at(
    context: pumice.Context,
    name: str,
    inputs: list[Operand | Array | None],
    outputs: list[TensorDesc],
    precision: str | None,
    flags: tuple[str, ...] = (),
    owned: tuple[int, ...] = (),
    **attributes: Any,
) -> list[Array]:
    descs = [one.desc if isinstance(one, Operand) else one for one in inputs]
    given = [
        TensorDesc(one.dtype, one.shape, one.strides, owned=k in owned) if isinstance(one, TensorDesc) else one
        for k, one in enumerate(descs)
    ]
    compiled = pumice.Operator(name, given, outputs, **attributes).compile(context, precision, flags)
    tensors: list[pumice.Tensor | None] = []
    for one in inputs:
        if not isinstance(one, Operand):
            tensors.append(None)
            continue
        tensor = pumice.Tensor(one.desc, pumice.Buffer(context, max(one.desc.bytes, 16)))
        tensor.upload(np.asarray(one.array))
        tensors.append(tensor)
    weights = [tensor if k in owned else None for k, tensor in enumerate(tensors)]
    persistent = initialise(context, compiled, weights if owned else None)
    results = [pumice.Tensor(desc, pumice.Buffer(context, max(desc.bytes, 16))) for desc in outputs]
    bound = [None if k in owned else tensor for k, tensor in enumerate(tensors)]
    execute(context, compiled, bound, results, persistent)
    return [result.numpy() for result in results]


def of_a_graph(
    context: pumice.Context,
    case: Case,
    arrays: list[Array | None],
    names: list[str],
    precision: str,
    deterministic: bool = False,
) -> list[Array]:
    """Run a graph of the node, unfused, so that the casts at its border equal the operator's."""
    graph = pumice.Graph()
    values: list[pumice.Value | None] = []
    given: dict[str, Array] = {}
    for k, array in enumerate(arrays):
        if array is None:
            values.append(None)
        elif k < len(names) and names[k] in HOST_INPUTS[case.op]:
            values.append(graph.constant(array))
        else:
            given[f"i{k}"] = array
            values.append(graph.input(f"i{k}", str(array.dtype), list(array.shape)))
    made = graph.add(case.op, *values, outputs=case.outputs, **case.attributes)
    for k, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"o{k}", value)
    results = graph.compile(context, precision, fuse=False, deterministic=deterministic)(given)
    return [results[f"o{k}"] for k in range(case.outputs)]


def first_cases() -> Iterator[Any]:
    """Yield all cases with float inputs, marked slow except for the first of every operator and target type of casts."""
    seen: set[tuple[str, Any]] = set()
    for case in CASES:
        floats = [one for one in case.inputs if one is not None and one.dtype in WIDTHS]
        if case.op in OF_THE_HOST or not floats or case.large:
            continue
        kind = (case.op, case.attributes.get("to"))
        slow = [pytest.mark.slow] if kind in seen else []
        seen.add(kind)
        yield pytest.param(case, id=str(case), marks=slow)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", list(first_cases()))
def test_an_operator_computes_at_its_precision_what_a_graph_of_it_does(
    untold_of_spills: pumice.Context, case: Case, precision: str
) -> None:
    """Compare bit for bit. Spill queries are off, since kernels with different I/O types could be tiled differently."""
    context = untold_of_spills
    names = [role.name for role in pumice.operators(case.op).inputs]
    arrays = case.arrays()
    inputs: list[Operand | Array | None] = [
        array if array is None or (k < len(names) and names[k] in HOST_INPUTS[case.op]) else Operand(array)
        for k, array in enumerate(arrays)
    ]
    described = _pumice.output_descs(
        case.op,
        [one.desc if isinstance(one, Operand) else one for one in inputs],
        case.outputs,
        **case.attributes,
    )
    outputs = [desc for desc in described if desc is not None]
    # By default, updates of one element are added in any order, which is not reproducible on GPUs.
    in_order = case.op in ("ScatterElements", "ScatterND")
    flags = ("DETERMINISTIC",) if in_order else ()
    results = executed_at(context, case.op, inputs, outputs, precision, flags, **case.attributes)
    wanted = of_a_graph(context, case, arrays, names, precision, in_order)
    for actual, expected in zip(results, wanted, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


def softmax(precision: str | None, flags: tuple[str, ...] = ()) -> tuple[float, ...]:
    x = np.random.default_rng(0).standard_normal((8, 33)).astype("float32")
    (made,) = executed_at(
        pumice.default_context(),
        "Softmax",
        [Operand(x)],
        [TensorDesc("float32", [8, 33])],
        precision,
        flags,
        axis=-1,
    )
    return tuple(made.ravel().tolist())


def test_every_precision_gives_numbers_of_its_own_and_the_flag_those_of_half() -> None:
    by_precision = {precision: softmax(precision) for precision in PRECISIONS}
    assert len(set(by_precision.values())) == len(PRECISIONS)
    assert softmax(None) == by_precision["fp32"]
    for precision, wanted in ((None, "fp16"), ("fp32", "fp16"), ("fp16", "fp16"), ("bf16", "bf16")):
        assert softmax(precision, ("ALLOW_HALF_PRECISION_COMPUTATION",)) == by_precision[wanted]
    assert softmax(None, ("DISABLE_META_COMMANDS",)) == by_precision["fp32"]
    with pytest.raises(pumice.UnsupportedError, match="fp12"):
        softmax("fp12")


def rounded(array: Array, precision: str) -> Array:
    import ml_dtypes

    dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}[precision]
    return array.astype(dtype).astype("float64")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("described", ["float32", "float16"])
def test_owned_weights_are_kept_at_the_precision(context: pumice.Context, precision: str, described: str) -> None:
    random = np.random.default_rng(5)
    x, w = (random.standard_normal(shape).astype(described) for shape in ((6, 40), (40, 24)))
    outputs = [TensorDesc(described, [6, 24])]
    inputs: list[Operand | Array | None] = [Operand(x), Operand(w)]
    plain = executed_at(context, "MatMul", inputs, outputs, precision)[0]
    owned = executed_at(context, "MatMul", inputs, outputs, precision, owned=(1,))[0]
    exact = rounded(x, precision) @ rounded(w, precision)
    least = min((precision, WIDTHS[described]), key=["bf16", "fp16", "fp32"].index)
    tolerance = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}[least]
    for made in (plain, owned):
        np.testing.assert_allclose(made.astype("float64"), exact, atol=tolerance * np.abs(exact).max())
    desc = TensorDesc(described, [40, 24], owned=True)
    operator = pumice.Operator("MatMul", [inputs[0].desc, desc], outputs)  # type: ignore[union-attr]
    sizes = {p: operator.compile(context, p).binding_properties.persistent_bytes for p in PRECISIONS}
    assert sizes["fp16"] == sizes["bf16"] < sizes["fp32"]


def test_an_owned_tensor_that_no_kernel_packs_is_converted_once(context: pumice.Context) -> None:
    x, w = (np.random.default_rng(k).standard_normal((4, 8)).astype("float32") for k in (0, 1))
    for precision in PRECISIONS:
        (made,) = executed_at(
            context, "Add", [Operand(x), Operand(w)], [TensorDesc("float32", [4, 8])], precision, owned=(1,)
        )
        exact = rounded(rounded(x, precision) + rounded(w, precision), precision)
        np.testing.assert_allclose(made, exact, rtol=1e-6)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("op", ["Softmax", "MatMul", "Transpose", "ReduceMean", "LayerNormalization"])
def test_strided_tensors_are_read_at_the_precision(context: pumice.Context, op: str, precision: str) -> None:
    random = np.random.default_rng(2)
    arrays = {
        "Softmax": [random.standard_normal((7, 9))],
        "MatMul": [random.standard_normal((7, 9)), random.standard_normal((9, 5))],
        "Transpose": [random.standard_normal((7, 9))],
        "ReduceMean": [random.standard_normal((7, 9))],
        "LayerNormalization": [random.standard_normal((7, 9)), random.standard_normal(9), random.standard_normal(9)],
    }[op]
    given = [array.astype("float32") for array in arrays]
    packed: list[Operand | Array | None] = [Operand(array) for array in given]
    strided: list[Operand | Array | None] = [Operand(array, spread(array.shape)) for array in given]
    (desc,) = (one for one in _pumice.output_descs(op, [one.desc for one in packed], 1) if one)  # type: ignore[union-attr]
    apart = TensorDesc(desc.dtype, desc.shape, spread(desc.shape))
    (plain,) = executed_at(context, op, packed, [desc], precision)
    (made,) = executed_at(context, op, strided, [apart], precision)
    np.testing.assert_array_equal(made, plain)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("described", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_parts_of_a_result_in_scratch_memory_may_begin_in_the_middle_of_a_word(
    context: pumice.Context, rows: int, described: str, precision: str
) -> None:
    """A broadcast batch MatMul is computed in slices at unaligned offsets."""
    random = np.random.default_rng(rows)
    for columns in (1, 3, 4):
        a, b = (random.standard_normal(shape).astype(described) for shape in ((2, 1, rows, 7), (3, 7, columns)))
        exact = rounded(a, precision) @ rounded(b, precision)
        outputs = [TensorDesc(described, exact.shape)]
        (made,) = executed_at(context, "MatMul", [Operand(a), Operand(b)], outputs, precision)
        tolerance = {"fp32": 1e-3, "fp16": 4e-3, "bf16": 3e-2}[precision] * max(np.abs(exact).max(), 1)
        np.testing.assert_allclose(made.astype("float64"), exact, atol=tolerance)
