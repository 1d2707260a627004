"""Forms of operations that few programs use: integers, ranks and lists at the edge of what the system takes, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, assert_near, run


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_one_by_the_square_root_of_integers(context: pumice.Context, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = Quantized(np.arange(info.min + 1, info.max + 1).astype(dtype), 0.25, info.min)  # all above 0
    y = run(context, "RSQRT", x, scale=0.0078125, zero_point=info.min + 3)
    places = 1 / np.sqrt(x.reals.astype("float64")) / 0.0078125 + info.min + 3
    expected = np.clip(np.round(places), info.min, info.max).astype(dtype)
    clear = np.abs(places - np.floor(places) - 0.5) > 1e-3
    np.testing.assert_array_equal(y[clear], expected[clear])


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_a_cast_of_16_bits_to_itself_keeps_its_scale(context: pumice.Context, dtype: str) -> None:
    x = Quantized(np.array([0, 1, 200, 32767], dtype), 0.5, 0)
    np.testing.assert_array_equal(run(context, "CAST", x, dtype=dtype), x.array)
    graph = pumice.Graph()
    made = graph.add("nnapi::CAST", graph.input("x", dtype, [4], scale=0.5), dtype=dtype)
    assert (made.dtype, made.scale, made.zero_point) == (dtype, 0.5, 0)
    other = "int16" if dtype == "uint16" else "uint16"
    for to in (other, "uint8", "float32"):
        with pytest.raises(pumice.GraphError, match="becomes no"):
            graph.add("nnapi::CAST", graph.input(f"x {to}", dtype, [4], scale=0.5), dtype=to)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("axis", [[], [0], [-1]], ids=str)
def test_a_local_response_of_one_axis(context: pumice.Context, axis: list[int], dtype: str) -> None:
    x: Any = (np.arange(-3, 4) / 4).astype(dtype)
    wide = np.pad(x.astype("float64") ** 2, 2)
    sums = sum(wide[k : k + len(x)] for k in range(5))
    expected = (x.astype("float64") / (2 + 0.5 * sums) ** 0.75).astype(dtype)
    assert_near(run(context, "LOCAL_RESPONSE_NORMALIZATION", x, 2, 2.0, 0.5, 0.75, *axis), expected, ulp=8)


def test_an_empty_order_reverses_the_axes(context: pumice.Context) -> None:
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    np.testing.assert_array_equal(run(context, "TRANSPOSE", x, np.zeros(0, "int32").tolist()), x.transpose())
    graph = pumice.Graph()
    made = graph.add("nnapi::TRANSPOSE", graph.input("x", "float32", [2, 3, 4]), graph.constant(np.zeros(0, "int32")))
    graph.output("y", made)
    np.testing.assert_array_equal(graph.compile(context)({"x": x})["y"], x.transpose())


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 4), (1,), ()])
def test_FILL_with_a_value_that_a_program_is_given(context: pumice.Context, dtype: str, shape: tuple[int, ...]) -> None:
    """The sizes are constants, or those that the program is given too."""
    for known in (True, False):
        graph = pumice.Graph()
        dims = list(shape) if known else graph.input("dims", "int32", [len(shape)])
        graph.output("y", graph.add("nnapi::FILL", dims, graph.input("value", dtype, [])))
        program = graph.compile(context)
        for value in (-3, 7):
            fed = {"value": np.array(value, dtype)} | ({} if known else {"dims": np.array(shape, "int32")})
            made = program(fed)["y"]
            assert made.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(made, np.full(shape, value, dtype))


def test_FILL_with_a_value_of_more_than_one_element_is_refused() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match="a scalar expected"):
        graph.add("nnapi::FILL", [2, 3], graph.input("value", "float32", [1]))


REDUCED = {"MEAN": np.mean, "REDUCE_SUM": np.sum, "REDUCE_PROD": np.prod, "REDUCE_MAX": np.max, "REDUCE_MIN": np.min}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("op", list(REDUCED))
def test_reductions_by_axes_that_a_program_is_given(context: pumice.Context, op: str, keep: bool) -> None:
    graph = pumice.Graph()
    x, axes = graph.input("x", "float32", [2, 3, 4]), graph.input("axes", "int32", [None])
    graph.output("y", graph.add(f"nnapi::{op}", x, axes, int(keep) if op == "MEAN" else keep))
    program = graph.compile(context)
    array = (np.random.default_rng(0).integers(1, 9, (2, 3, 4)) / 4).astype("float32")
    for given in ([0], [1, -1], [2, 0], [0, 1, 2], [-3, -2, -1]):
        expected = REDUCED[op](array, axis=tuple({axis % 3 for axis in given}), keepdims=keep)
        made = program({"x": array, "axes": np.array(given, "int32")})["y"]
        assert_near(made, np.reshape(expected, expected.shape or (1,)).astype("float32"), ulp=16)
    for given, match in (([3], "axis 3"), ([-4], "axis -4"), ([1, 1], "given twice"), ([1, -2], "given twice")):
        with pytest.raises(pumice.GraphError, match=match):
            program({"x": array, "axes": np.array(given, "int32")})


def test_SQUEEZE_of_axes_that_a_program_is_given(context: pumice.Context) -> None:
    def program_of(*shape: int) -> pumice.Program:
        graph = pumice.Graph()
        x, axes = graph.input("x", "float32", list(shape)), graph.input("axes", "int32", [None])
        graph.output("y", graph.add("nnapi::SQUEEZE", x, axes))
        return graph.compile(context)

    x = np.arange(3, dtype="float32").reshape(1, 3, 1)
    program = program_of(1, 3, 1)
    for axes, shape in (([0], (3, 1)), ([-1], (1, 3)), ([2, 0], (3,))):
        np.testing.assert_array_equal(program({"x": x, "axes": np.array(axes, "int32")})["y"], x.reshape(shape))
    for wrong in ([1], [3], [-4], [0, 0]):
        with pytest.raises(pumice.GraphError):
            program({"x": x, "axes": np.array(wrong, "int32")})
    one = np.full((1, 1), 5, "float32")
    assert program_of(1, 1)({"x": one, "axes": np.array([0, 1], "int32")})["y"].tolist() == [5]
