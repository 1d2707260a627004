"""Indices of NNAPI's operations: out of range or negative ones are rejected if the host knows them. Indices computed
on the device never read out of bounds, and `check_indices=True` reports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice

Array = np.ndarray[Any, Any]
BOXES = np.array([[0, 0, 3, 2], [1, 0, 3, 3]], "float32")
IMAGES = (np.random.default_rng(0).integers(-16, 17, (3, 4, 4, 2)) / 8).astype("float32")
TABLE = IMAGES.reshape(3, 32)
SIZES = np.array([[9, 8], [7, 9], [8, 8]], "float32")
SCORES = np.array([[0.1, 0.9], [0.2, 0.8]], "float32")


class Indexed(NamedTuple):
    """An operation with two indices into three rows. `operands`: function of the indexed tensor and the indices;
    `table`: that tensor. `refused`: error for constant indices, after the operation's name. `from_end`: unchecked
    negative indices in range count from the end."""

    table: Array
    operands: Callable[[Any, Any], tuple[Any, ...]]
    refused: str
    from_end: bool = False
    unlimited: bool = False


INDEXED = {
    "GATHER": Indexed(TABLE, lambda x, i: (x, 0, i), "non-negative indices below", True),
    "EMBEDDING_LOOKUP": Indexed(TABLE, lambda x, i: (i, x), "non-negative indices below", True),
    "AXIS_ALIGNED_BBOX_TRANSFORM": Indexed(
        SIZES, lambda x, i: (BOXES, np.zeros((2, 4), "float32"), i, x), "non-negative image indices", True
    ),
    "ROI_ALIGN": Indexed(IMAGES, lambda x, i: (x, BOXES, i, 2, 2, 1.0, 1.0, 2, 2, False), "non-negative image indices"),
    "ROI_POOLING": Indexed(IMAGES, lambda x, i: (x, BOXES, i, 2, 2, 1.0, 1.0, False), "non-negative image indices"),
    "BOX_WITH_NMS_LIMIT": Indexed(
        SCORES,
        lambda x, i: (x, np.tile(BOXES, 2), i, 0.0, -1, 0, 0.5, 0.5, 0.0),
        "non-negative image indices",
        unlimited=True,
    ),
}
# Operands named like indices that are none: keys with any value, and lists that the host reads at binding time.
OTHERS = {"HASHTABLE_LOOKUP.lookups", "SLICE.begin", "STRIDED_SLICE.begin", "STRIDED_SLICE.begin_mask"}
WRONG = [[0, -1], [3, 0], [-4, 1], [2**31 - 1, 2], [-(2**31), 2]]


def wrong_for(one: Indexed) -> list[list[int]]:
    return [given for given in WRONG if not one.unlimited or min(given) < 0]


def add(graph: pumice.Graph, op: str, indices: Any, shape: list[int] | None = None) -> None:
    """Add the operation with the table as input `x`, of the given or its own shape, and its results as outputs."""
    one = INDEXED[op]
    x = graph.input("x", one.table.dtype, list(one.table.shape) if shape is None else shape)
    made = graph.add(f"nnapi::{op}", *one.operands(x, indices), name="it")
    for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"y{i}", value)


def test_every_operand_of_indices_is_here() -> None:
    named = ("ind", "lookup", "begin", "batch")
    operands = {
        f"{one.name.removeprefix('nnapi::')}.{role.name}"
        for one in pumice.operators()
        if one.name.startswith("nnapi::")
        for role in one.inputs
        if any(part in role.name for part in named)
    }
    assert {one.split(".")[0] for one in operands - OTHERS} == set(INDEXED)


@pytest.mark.parametrize("op", INDEXED)
def test_constants_are_rejected_when_the_operation_is_added(op: str) -> None:
    for given in wrong_for(INDEXED[op]):
        graph = pumice.Graph()
        with pytest.raises(pumice.GraphError, match=f"'it': nnapi::{op}: operand ., .*{INDEXED[op].refused}") as caught:
            add(graph, op, graph.constant(np.array(given, "int32")))
        assert f"given {next(one for one in given if one < 0 or one > 2)}" in str(caught.value)


@pytest.mark.parametrize("op", [op for op, one in INDEXED.items() if not one.unlimited])
@pytest.mark.parametrize("unknown", ["sizes", "rank"])
def test_constants_are_rejected_when_sizes_become_known(context: pumice.Context, op: str, unknown: str) -> None:
    one = INDEXED[op]
    graph = pumice.Graph()
    shape: Any = [None] * one.table.ndim
    indices = graph.constant(np.array([0, 3], "int32"))
    x = graph.input("x", "float32", None if unknown == "rank" else shape)
    graph.output("y", graph.add(f"nnapi::{op}", *one.operands(x, indices), name="it"))
    with graph.compile(context) as program:
        program({"x": np.concatenate([one.table, one.table])})
        with pytest.raises(pumice.GraphError, match="below 3.*given 3") as caught:
            program({"x": one.table})
        assert caught.value.node == "it"


@pytest.mark.parametrize("op", INDEXED)
def test_those_that_follow_from_sizes_are_rejected_when_a_program_is_bound(context: pumice.Context, op: str) -> None:
    """The host computes the indices: the number of rows of another input, minus 1 and minus 3."""
    graph = pumice.Graph()
    rows = graph.add("Shape", graph.input("rows", "float32", [None, 1]), end=1)
    last = graph.add("Sub", graph.add("Concat", rows, rows, axis=0), np.array([1, 3]))
    add(graph, op, graph.add("Cast", last, to=6))
    with graph.compile(context) as program:
        fed = {"x": INDEXED[op].table}
        program(fed | {"rows": np.zeros((3, 1), "float32")})
        for wrong in (2,) if INDEXED[op].unlimited else (2, 4):
            with pytest.raises((pumice.GraphError, pumice.IndexRangeError), match="index .*expected 0 "):
                program(fed | {"rows": np.zeros((wrong, 1), "float32")})


@pytest.mark.parametrize("op", INDEXED)
def test_those_that_a_call_hands_over_are_rejected_by_it(context: pumice.Context, op: str) -> None:
    """Checked for arrays whether or not the program checks indices; each call is checked, also with unchanged sizes."""
    for checked in (False, True):
        graph = pumice.Graph()
        add(graph, op, graph.input("indices", "int32", [2]))
        with graph.compile(context, check_indices=checked) as program:
            fed = {"x": INDEXED[op].table}
            right = program(fed | {"indices": np.array([0, 2], "int32")})
            for given in wrong_for(INDEXED[op]):
                with pytest.raises(pumice.IndexRangeError, match=r"expected 0 (to 2|or more); \d of 2") as caught:
                    program(fed | {"indices": np.array(given, "int32")})
                error = caught.value
                first = next(k for k, one in enumerate(given) if one < 0 or one > 2)
                assert "it" in error.node
                assert (error.value, error.index, tuple(error.element)) == ("indices", given[first], (first,))
            again = program(fed | {"indices": np.array([0, 2], "int32")})
            for name, made in right.items():
                np.testing.assert_array_equal(made, again[name])


def on_the_device(graph: pumice.Graph, name: str, size: int) -> Any:
    """Return integers computed by a matmul, which never runs on the host."""
    floats = graph.input(name, "float32", [size])
    return graph.add("Cast", graph.add("MatMul", floats, np.eye(size, dtype="float32")), to=6)


@pytest.mark.parametrize("op", INDEXED)
def test_those_that_only_the_device_has_are_reported_where_they_are_checked(context: pumice.Context, op: str) -> None:
    graph = pumice.Graph()
    add(graph, op, on_the_device(graph, "indices", 2))
    with graph.compile(context, check_indices=True) as program:
        fed = {"x": INDEXED[op].table}
        program(fed | {"indices": np.array([0, 2], "float32")})
        for given in wrong_for(INDEXED[op])[:3]:
            with pytest.raises(pumice.IndexRangeError, match=r"expected 0 (to 2|or more); 1 of 2") as caught:
                program(fed | {"indices": np.array(given, "float32")})
            assert caught.value.index == next(one for one in given if one < 0 or one > 2)


@pytest.mark.parametrize("op", [op for op, one in INDEXED.items() if not one.unlimited])
def test_unchecked_indices_refer_to_an_element_of_the_tensor(context: pumice.Context, op: str) -> None:
    """Row lookups count negative indices from the end; all others, and batch indices, are clamped to 0."""
    graph = pumice.Graph()
    add(graph, op, on_the_device(graph, "indices", 2))
    with graph.compile(context) as program:
        fed = {"x": INDEXED[op].table}
        for given in (*WRONG[:3], [1 << 30, 2], [-(1 << 30), 2]):
            meant = [one if 0 <= one < 3 else one + 3 if INDEXED[op].from_end and -3 <= one < 0 else 0 for one in given]
            made, expected = (program(fed | {"indices": np.array(one, "float32")})["y0"] for one in (given, meant))
            np.testing.assert_array_equal(made, expected)


def test_images_below_0_that_nobody_checks_are_images_of_their_own(context: pumice.Context) -> None:
    """BOX_WITH_NMS_LIMIT only compares them and never uses them as an address."""
    graph = pumice.Graph()
    add(graph, "BOX_WITH_NMS_LIMIT", on_the_device(graph, "indices", 2))
    with graph.compile(context) as program:
        for given in ([-1, 0], [-7, -7], [0, -1]):
            made = program({"x": SCORES, "indices": np.array(given, "float32")})
            right = program({"x": SCORES, "indices": np.array([one + 7 for one in given], "float32")})
            for k in range(3):
                np.testing.assert_array_equal(made[f"y{k}"], right[f"y{k}"])
            np.testing.assert_array_equal(made["y3"], right["y3"] - 7)


def test_keys_that_are_not_there_are_no_indices(context: pumice.Context) -> None:
    graph = pumice.Graph()
    lookups, keys = graph.input("lookups", "int32", [4]), np.array([-5, 0, 7], "int32")
    y, hits = graph.add("nnapi::HASHTABLE_LOOKUP", lookups, graph.constant(keys), graph.constant(TABLE))
    graph.output("y", y)
    graph.output("hits", hits)
    made = graph.compile(context, check_indices=True)({"lookups": np.array([-5, -1, 9, 7], "int32")})
    assert made["hits"].tolist() == [1, 0, 0, 1]
    np.testing.assert_array_equal(made["y"], [TABLE[0], 0 * TABLE[0], 0 * TABLE[0], TABLE[2]])


def test_a_recorded_list_replays_without_a_look_at_indices(context: pumice.Context) -> None:
    """Its inputs are Tensors without a host copy; for arrays converted at a call, the host has one."""
    graph = pumice.Graph()
    add(graph, "GATHER", graph.input("indices", "int32", [2]))
    with graph.compile(context) as program:
        x, indices = pumice.tensor(TABLE, context), pumice.tensor(np.array([0, -1], "int32"), context)
        made = pumice.empty([2, 32], "float32", context)
        operator = program.compiled([[2], [3, 32]])
        table = pumice.BindingTable(operator)
        table.bind_inputs([indices, x, *[None] * (len(operator.inputs) - 2)])
        table.bind_outputs([made])
        if operator.binding_properties.persistent_bytes:
            table.bind_persistent(program.persistent)
        if size := operator.binding_properties.temporary_bytes:
            table.bind_temporary(pumice.Buffer(size, context=context))
        commands = pumice.CommandList(context)
        commands.dispatch(operator, table)
        commands.commit()
        commands.exec().wait(timeout=10)
        np.testing.assert_array_equal(made.numpy(), TABLE[[0, -1]])
        with pytest.raises(pumice.IndexRangeError, match="the index -1"):
            program({"x": x, "indices": indices})


def test_indices_of_a_loop_are_rejected_at_its_call(context: pumice.Context) -> None:
    """They are loop-carried, so the device checks them if asked to; otherwise they count from the end."""
    body, condition = pumice.Graph("body"), pumice.Graph("condition")
    for graph in (body, condition):
        graph.input("i", "int32", [1])
        graph.input("y", "float32", [2, 32])
        graph.input("indices", "int32", [2])
    i, _, indices = body.inputs
    body.output("i", body.add("nnapi::ADD", i, [1], 0))
    body.output("y", body.add("nnapi::GATHER", body.constant(TABLE), 0, indices, name="look up"))
    condition.output("more", condition.add("nnapi::LESS", condition.inputs[0], [2]))
    graph = pumice.Graph()
    given = [graph.input("i", "int32", [1]), graph.input("y", "float32", [2, 32])]
    shared = graph.input("indices", "int32", [2])
    made = graph.add("nnapi::WHILE", condition, body, *given, shared, outputs=2, name="loop")
    graph.output("y", made[1])
    fed = {"i": np.zeros(1, "int32"), "y": np.zeros((2, 32), "float32")}
    with graph.compile(context, check_indices=True) as program:
        right = program(fed | {"indices": np.array([2, 1], "int32")})["y"]
        np.testing.assert_array_equal(right, TABLE[[2, 1]])
        with pytest.raises(pumice.IndexRangeError, match="look up.*the index -1"):
            program(fed | {"indices": np.array([2, -1], "int32")})
    with graph.compile(context) as program:
        counted = program(fed | {"indices": np.array([2, -1], "int32")})["y"]
        np.testing.assert_array_equal(counted, TABLE[[2, -1]])


@pytest.mark.parametrize("of", ["nnapi::RESHAPE", "nnapi::SLICE", "nnapi::ADD"])
def test_what_the_host_makes_of_indices_of_a_call_is_rejected_too(context: pumice.Context, of: str) -> None:
    graph = pumice.Graph()
    given = graph.input("indices", "int32", [1, 2])
    if of == "nnapi::RESHAPE":
        made = graph.add(of, given, [2])
    elif of == "nnapi::SLICE":
        made = graph.add("nnapi::RESHAPE", graph.add(of, given, [0, 0], [1, 2]), [2])
    else:
        made = graph.add("nnapi::RESHAPE", graph.add(of, given, [[0, 0]], 0), [2])
    graph.output("y", graph.add("nnapi::GATHER", graph.constant(TABLE), 0, made, name="look up"))
    with graph.compile(context) as program:
        right = program({"indices": np.array([[2, 1]], "int32")})["y"]
        np.testing.assert_array_equal(right, TABLE[[2, 1]])
        with pytest.raises(pumice.IndexRangeError, match="look up.*the index -1"):
            program({"indices": np.array([[2, -1]], "int32")})
