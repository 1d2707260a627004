"""Every operator with tensors larger than the maximum buffer range, on contexts with small ranges, against the unlimited device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from cases import CASES, Case, grids, ranges
from lesser_devices import SHORT_RANGE, lesser, results
from operator_references import compiled
from pumice.testing import assert_close

Array = npt.NDArray[Any]

SMALLER = [1 << bits for bits in range(12, 17)]

# Operands that an operator does not split. All other operators accept operands larger than a range.
WHOLE = {
    "ArgMax": "a row",
    "ArgMin": "a row",
    "Attention": "a head's keys, or its queries where each sees keys of its own",
    "Conv": "the weights of 16 output channels",
    "ConvTranspose": "the weights of 16 output channels",
    "CumSum": "a row",
    "DFT": "a row",
    "Det": "a matrix",
    "GRU": "the weights of 16 units",
    "Gemm": "a row",
    "GroupNormalization": "a group",
    "InstanceNormalization": "a plane",
    "LSTM": "the weights of 16 units",
    "LayerNormalization": "a row",
    "MatMul": "a row",
    "MelWeightMatrix": "the result",
    "Pad": "axes that are padded",
    "RNN": "the weights of 16 units",
    "Resize": "a plane",
    "TopK": "a row",
}


@pytest.fixture(scope="module")
def shorter(pumice_context: pumice.Context) -> Iterator[dict[int, pumice.Context]]:
    """Contexts keyed by their maximum buffer range."""
    with ExitStack() as stack:
        yield {size: stack.enter_context(lesser(pumice_context, {"maxStorageBufferRange": size})) for size in SMALLER}


def on_device(case: Case, context: pumice.Context, precision: str) -> tuple[list[Array], list[Array], int]:
    """Return a case's inputs, results, and the bytes of its largest tensor."""
    program, given = compiled(case, context, precision)
    made = list(program(given).values())
    constants = [array for array in case.arrays() if array is not None]
    return list(given.values()), made, max(array.nbytes for array in [*constants, *given.values(), *made])


def check_same(case: Case, context: pumice.Context, given: list[Array], expected: list[Array], precision: str) -> None:
    program, _ = compiled(case, context, precision)
    rtol, atol = (max(bound, 1e-5) for bound in case.tolerance(precision))  # the order of summation differs
    for made, wanted in zip(results(program, given, expected), expected, strict=True):
        assert made.shape == wanted.shape and made.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            assert_close(made, wanted, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("case", list(ranges.ranges()), ids=str)
def test_tensors_larger_than_a_range_are_split(
    case: Case, precision: str, short: pumice.Context, context: pumice.Context
) -> None:
    if precision == "fp16" and not case.has_floats:
        pytest.skip("has no floats")
    given, expected, _ = on_device(case, context, precision)
    check_same(case, short, given, expected, precision)


@pytest.mark.parametrize("case", [one for one in ranges.ranges() if one.op in ("GRU", "LSTM", "RNN")], ids=str)
def test_recurrent_weights_are_split_where_bindings_begin_at_coarse_boundaries(
    case: Case, context: pumice.Context
) -> None:
    """Half of a block of 16 units is a multiple of 128 bytes, but a device may require 256-byte aligned bindings."""
    given, expected, _ = on_device(case, context, "fp16")
    with lesser(context, {"maxStorageBufferRange": SHORT_RANGE, "minStorageBufferOffsetAlignment": 256}) as coarse:
        check_same(case, coarse, given, expected, "fp16")


@pytest.mark.parametrize("case", list(ranges.ranges()), ids=str)
def test_each_of_these_cases_has_a_tensor_larger_than_the_range(case: Case, context: pumice.Context) -> None:
    assert on_device(case, context, "fp32")[2] > SHORT_RANGE or case.op in (
        "GRU",
        "LSTM",
        "RNN",
        "Conv",
        "ConvTranspose",
    )


def by_operator() -> dict[str, list[Case]]:
    """Group the cases of the operator test table and the cases with large workloads."""
    cases: dict[str, list[Case]] = {}
    for case in (*CASES, *grids.grids()):
        if not case.large:
            cases.setdefault(case.op, []).append(case)
    return cases


def has_integer_units(context: pumice.Context) -> bool:
    return any(one.a == "int8" for one in context.info.matrices)


@pytest.mark.parametrize("op", sorted(by_operator()))
def test_operators_are_split_or_name_what_is_too_large(
    op: str, shorter: dict[int, pumice.Context], context: pumice.Context
) -> None:
    """Run each case with the largest range below three quarters of its largest tensor."""
    # Integer GEMMs are not split on cooperative matrices, unlike on other devices.
    whole = WHOLE | ({"MatMulInteger": "the result"} if has_integer_units(context) else {})
    refused = 0
    for case in by_operator()[op]:
        given, expected, largest = on_device(case, context, "fp32")
        fitting = [size for size in SMALLER if size <= 0.75 * largest]
        if not fitting or not any(array.size for array in expected):
            continue
        size = fitting[-1]
        try:
            check_same(case, shorter[size], given, expected, "fp32")
        except pumice.UnsupportedError as error:
            pattern = rf"a tensor of (\d+) bytes; this device binds at most {size} bytes \(maxStorageBufferRange\)"
            found = re.search(pattern, str(error))
            assert found and int(found[1]) > size, str(error)
            refused += 1
            assert op in whole, f"{case}: {error}"
    assert (refused > 0) == (op in whole), f"{refused} cases were refused: {whole.get(op)}"


@pytest.mark.parametrize("channels", [5, 16])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_networks_with_fused_parts_and_other_layouts_are_split(
    channels: int, precision: str, short: pumice.Context, context: pumice.Context
) -> None:
    """Convolutions with epilogue, residual, channels-last layout in between, a view and a reduction."""
    random = np.random.default_rng(channels)

    def weights(*shape: int) -> Array:
        return (random.integers(-16, 17, shape) / 64).astype("float32")

    def network(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [2, channels, 61, 67])
        pads = {"pads": [1, 1, 1, 1]}
        first = graph.add("Relu", graph.add("Conv", x, *constants[:2], **pads))
        second = graph.add("Relu", graph.add("Add", graph.add("Conv", first, constants[2], **pads), first))
        normal = graph.add("Mul", second, constants[3])
        turned = graph.add("Transpose", normal, perm=[0, 2, 3, 1])
        graph.output("rows", graph.add("Softmax", turned, axis=-1))
        graph.output("pooled", graph.add("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]))
        graph.output("mean", graph.add("ReduceMean", turned, graph.constant(np.array([1, 2]))))

    x = (random.integers(-64, 65, (2, channels, 61, 67)) / 64).astype("float32")
    arrays = [weights(channels, channels, 3, 3), weights(channels), weights(channels, channels, 3, 3)]
    arrays.append(weights(channels, 1, 1))
    made = []
    for one in (context, short):
        graph = pumice.Graph()
        constants = [graph.constant(array) for array in arrays]
        network(graph)
        made.append(graph.compile(one, precision=precision)({"x": x}))
    tolerance = 1e-4 if precision == "fp32" else 4e-3
    for name, expected in made[0].items():
        assert_close(made[1][name], expected, rtol=tolerance, atol=tolerance)


def test_tensors_that_are_computed_with_are_split(short: pumice.Context) -> None:
    """Includes views with gaps between rows."""
    x = (np.arange(301 * 203) % 129 / 64 - 1).astype("float32").reshape(301, 203)
    row = x[0].copy()
    one = pumice.tensor(x, short)
    np.testing.assert_array_equal((one * 2 - pumice.tensor(row, short)).numpy(), x * 2 - row)
    np.testing.assert_array_equal((one.transpose([1, 0]) + pumice.tensor(x.T.copy(), short)).numpy(), x.T + x.T)
    np.testing.assert_array_equal((one[:, 3:190] < 0.25).numpy(), x[:, 3:190] < 0.25)
