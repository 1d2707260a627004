"""Rare forms of operations: integers, ranks and lists at the limits of what NNAPI allows, against NumPy."""

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


SIXTEEN = ["uint16", "int16"]
TARGETS = [*SIXTEEN, "uint8", "int8", "int32", "float32", "float16", "bool"]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("back", [False, True], ids=["from 16 bits", "to 16 bits"])
def test_casts_of_16_bits_are_those_to_the_same_type(context: pumice.Context, dtype: str, to: str, back: bool) -> None:
    """Every integer keeps its bits, and the result its scale and zero point. NNAPI defines no other 16-bit casts:
    feature level 3 casts among floats, int32 and uint8; level 4 from each type to itself."""
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    given = Quantized(every, 0.25, 1000 if dtype == "uint16" else 0)
    if dtype == to:
        made = run(context, "CAST", given, dtype=to, scale=0.25, zero_point=given.zero_point)
        np.testing.assert_array_equal(made, every)
        with pytest.raises(pumice.GraphError, match="expected, as operand 0, 'x'; given scale 0.5"):
            run(context, "CAST", given, dtype=to, scale=0.5)
        return
    source, target = (to, dtype) if back else (dtype, to)
    graph = pumice.Graph()
    scale = {} if source in ("float32", "float16", "int32", "bool") else {"scale": 0.25}
    x = graph.input("x", source, [4], **scale)
    levels = "feature level 3 has casts among .*, and feature level 4 also has casts of each type to itself"
    with pytest.raises(
        pumice.GraphError, match=f"nnapi::CAST: operand 0, 'x': {source} cannot be cast to {target}; {levels}"
    ):
        graph.add("nnapi::CAST", x, dtype=target, name="it")


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
    """The sizes are constants or inputs."""
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


def test_FILL_with_a_value_of_more_than_one_element_is_rejected() -> None:
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
    for given in ([0], [1, -1], [2, 0], [0, 1, 2], [-3, -2, -1], [1, 1], [1, -2]):
        expected = REDUCED[op](array, axis=tuple({axis % 3 for axis in given}), keepdims=keep)
        made = program({"x": array, "axes": np.array(given, "int32")})["y"]
        assert_near(made, np.reshape(expected, expected.shape or (1,)).astype("float32"), ulp=16)
    for given, match in (([3], "axis 3"), ([-4], "axis -4")):
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
    for axes, shape in (([0], (3, 1)), ([-1], (1, 3)), ([2, 0], (3,)), ([0, 0], (3, 1))):
        np.testing.assert_array_equal(program({"x": x, "axes": np.array(axes, "int32")})["y"], x.reshape(shape))
    for wrong in ([1], [3], [-4]):
        with pytest.raises(pumice.GraphError):
            program({"x": x, "axes": np.array(wrong, "int32")})
    one = np.full((1, 1), 5, "float32")
    assert program_of(1, 1)({"x": one, "axes": np.array([0, 1], "int32")})["y"].tolist() == [5]


def given_lists(op: str, shape: tuple[int, ...], lists: list[tuple[list[int], bool]], *more: Any) -> pumice.Graph:
    """An operation whose lists, of these shapes, are inputs; some are computed on the device."""
    graph = pumice.Graph()
    values = []
    for i, (list_shape, is_computed) in enumerate(lists):
        value = graph.input(f"list{i}", "int32", list_shape)
        values.append(graph.add("nnapi::ADD", value, np.zeros(1, "int32"), 0) if is_computed else value)
    graph.output("y", graph.add(f"nnapi::{op}", graph.input("x", "float32", list(shape)), *values, *more))
    return graph


def fed_of(x: np.ndarray, *lists: Any) -> dict[str, np.ndarray]:
    return {"x": x} | {f"list{i}": np.array(one, "int32") for i, one in enumerate(lists)}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (2, 1, 3, 2, 2)])
def test_TRANSPOSE_by_an_order_that_a_program_is_given(
    context: pumice.Context, shape: tuple[int, ...], computed: bool
) -> None:
    """An empty permutation reverses the axes."""
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    program = given_lists("TRANSPOSE", shape, [([None], computed)]).compile(context)
    random = np.random.default_rng(0)
    for _ in range(4):
        perm = random.permutation(len(shape))
        np.testing.assert_array_equal(program(fed_of(x, perm))["y"], x.transpose(perm))
    np.testing.assert_array_equal(program(fed_of(x, np.zeros(0, "int32")))["y"], x.transpose())
    for wrong in ([0] * (len(shape) + 1), [len(shape)] * len(shape), [*range(1, len(shape)), -len(shape) - 1]):
        with pytest.raises(pumice.GraphError):
            program(fed_of(x, wrong))


def test_TRANSPOSE_by_an_order_of_an_unknown_rank(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x, perm = graph.input("x", "uint8", None, scale=0.5, zero_point=3), graph.input("perm", "int32", None)
    graph.output("y", graph.add("nnapi::TRANSPOSE", x, perm))
    program = graph.compile(context)
    for shape in ((2, 3), (2, 3, 4)):
        array = np.arange(np.prod(shape), dtype="uint8").reshape(shape)
        np.testing.assert_array_equal(program({"x": array, "perm": np.zeros(0, "int32")})["y"], array.transpose())


@pytest.mark.parametrize("computed", [False, True])
def test_REVERSE_of_an_axis_that_a_program_is_given(context: pumice.Context, computed: bool) -> None:
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    program = given_lists("REVERSE", x.shape, [([None], computed)]).compile(context)
    for axis in range(3):
        np.testing.assert_array_equal(program(fed_of(x, [axis]))["y"], np.flip(x, axis))
    for wrong in ([3], [-4], [0, 1], []):
        with pytest.raises(pumice.GraphError):
            program(fed_of(x, wrong))


def batches(x: np.ndarray, block: list[int], pads: list[list[int]]) -> np.ndarray:
    x = np.pad(x, [(0, 0), *pads, (0, 0)])
    n, h, w, c = x.shape
    parts = x.reshape(n, h // block[0], block[0], w // block[1], block[1], c).transpose(2, 4, 0, 1, 3, 5)
    return np.asarray(parts.reshape(n * block[0] * block[1], h // block[0], w // block[1], c))


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("planes", [False, True])
def test_SPACE_TO_BATCH_ND_and_back_by_lists_that_a_program_is_given(
    context: pumice.Context, planes: bool, computed: bool
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 3)).astype("float32")
    turned = (lambda one: np.ascontiguousarray(one.transpose(0, 3, 1, 2))) if planes else (lambda one: one)
    shape = [2, 3, 4, 6] if planes else [2, 4, 6, 3]
    there = given_lists("SPACE_TO_BATCH_ND", tuple(shape), [([2], computed), ([2, 2], computed)], planes)
    program = there.compile(context)
    back_of: Any = [None, 3, None, None] if planes else [None, None, None, 3]
    back = given_lists("BATCH_TO_SPACE_ND", back_of, [([None], computed)], planes).compile(context)
    for block, pads in (([2, 3], [[0, 0], [0, 0]]), ([1, 1], [[1, 2], [0, 3]]), ([3, 2], [[1, 1], [2, 0]])):
        expected = batches(x, block, pads)
        made = program(fed_of(turned(x), block, pads))["y"]
        np.testing.assert_array_equal(made, turned(expected))
        np.testing.assert_array_equal(back(fed_of(made, block))["y"], turned(np.pad(x, [(0, 0), *pads, (0, 0)])))
    for block, pads, operand in (
        ([3, 1], [[0, 0], [0, 0]], "block_sizes"),
        ([0, 1], [[0, 0], [0, 0]], "block_sizes"),
        ([1, 1], [[0, -1], [0, 0]], "paddings"),
    ):
        with pytest.raises(pumice.GraphError, match=operand):
            program(fed_of(turned(x), block, pads))
    for wrong in ([2, 2], [1], [-1, 1]):
        with pytest.raises(pumice.GraphError, match="block_sizes"):
            back(fed_of(turned(np.zeros((6, 1, 1, 3), "float32")), wrong))


@pytest.mark.parametrize(
    ("op", "at", "more"),
    [("GATHER", 2, (1,)), ("EMBEDDING_LOOKUP", 0, ()), ("AXIS_ALIGNED_BBOX_TRANSFORM", 2, ())],
)
def test_indices_that_only_the_device_knows_are_reported_where_they_are_checked(
    context: pumice.Context, op: str, at: int, more: tuple[int, ...]
) -> None:
    """NNAPI has no negative indices: -1 is as invalid as an index past the end."""
    graph = pumice.Graph()
    indices = graph.input("indices", "int32", [2])
    x = np.arange(12, dtype="float32").reshape(4, 3)
    if op == "AXIS_ALIGNED_BBOX_TRANSFORM":
        boxes, images = np.array([[0, 0, 1, 1]] * 2, "float32"), np.full((3, 2), 8, "float32")
        operands: list[Any] = [boxes, np.zeros((2, 4), "float32"), indices, images]
    else:
        operands = [x, *more, indices] if at == 2 else [indices, x]
    graph.output("y", graph.add(f"nnapi::{op}", *operands))
    size = 4 if op == "EMBEDDING_LOOKUP" else 3
    with graph.compile(context, check_indices=True) as program:
        program({"indices": np.array([0, size - 1], "int32")})
        for wrong in (-1, size):
            with pytest.raises(pumice.IndexRangeError, match=f"{wrong} at .*expected 0 to {size - 1}"):
                program({"indices": np.array([0, wrong], "int32")})
