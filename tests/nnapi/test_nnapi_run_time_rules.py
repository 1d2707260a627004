"""Random operands of NNAPI's data movement operations, valid and invalid, against the specification in NumPy. Valid
ones are correct and invalid ones are rejected by name, whether sizes and lists are known at construction or at run
time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import nnapi_reference as reference
import pumice
from control_graphs import only_loop
from nnapi_operations import assert_near
from nnapi_random_operands import KINDS, SCALE, ZERO_POINT, Draw, Indices, Numbers, Operands, Tensor, draws


class Known(Enum):
    """What an operation knows about its operands when it is added."""

    ALL = "everything"
    RANKS = "ranks and lists"
    LISTS = "lists"
    SHAPES = "shapes"
    NOTHING = "nothing"
    COMPUTED = "ranks; lists are computed"


def expected(draw: Draw, operands: Operands) -> tuple[np.ndarray, ...] | None:
    """Return the results by the specification; None for invalid operands."""
    given = [one if isinstance(one, int | float) else one.array for one in operands]
    given = [
        one.tolist() if isinstance(op, Numbers) and one.ndim == 1 else one
        for one, op in zip(given, operands, strict=True)
    ]
    if draw.op == "PAD" and draw.dtype in ("uint8", "int8"):
        given.append(ZERO_POINT)
    try:
        made = draw.rule(*given)
    except reference.Illegal:
        return None
    return made if isinstance(made, tuple) else (made,)


def add(graph: pumice.Graph, draw: Draw, operands: Operands, known: Known) -> None:
    """Add the operation `it`, with the known facts of its operands."""
    values: list[Any] = []
    for i, operand in enumerate(operands):
        if isinstance(operand, int | float):
            values.append(operand)
            continue
        given = operand.array
        is_late = known in (Known.SHAPES, Known.NOTHING, Known.COMPUTED)
        if not isinstance(operand, Tensor) and not is_late:
            values.append(graph.constant(given))
            continue
        shape: list[int | None] | None = list(given.shape)
        if known in (Known.LISTS, Known.NOTHING):
            shape = None
        elif known in (Known.RANKS, Known.COMPUTED):
            shape = [None] * given.ndim
        parameters = {"scale": SCALE, "zero_point": ZERO_POINT} if given.dtype in ("uint8", "int8") else {}
        value = graph.input(f"x{i}", given.dtype, shape, **parameters)
        if known is Known.COMPUTED and isinstance(operand, Numbers):
            value = graph.add("nnapi::ADD", value, [0], 0)
        values.append(value)
    made = graph.add(f"nnapi::{draw.op}", *values, name="it")
    for j, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"y{j}", value)


def shapes_of(operands: Operands) -> list[tuple[int, ...]]:
    return [one.array.shape for one in operands if not isinstance(one, int | float)]


def ranks_of(operands: Operands) -> list[int]:
    return [len(shape) for shape in shapes_of(operands)]


def bound(draw: Draw, known: Known) -> list[tuple[Operands, tuple[np.ndarray, ...] | None]]:
    """Return the operands of each call of one program, with the expected results."""
    first = draw.bindings[0]
    every = []
    for operands in draw.bindings:
        if known in (Known.RANKS, Known.LISTS):  # the lists are fixed per program
            operands = tuple(
                mine if isinstance(mine, Numbers | Indices) else own for mine, own in zip(first, operands, strict=True)
            )
        if known in (Known.RANKS, Known.COMPUTED) and ranks_of(operands) != ranks_of(first):
            continue
        made = expected(draw, operands)
        is_late = known in (Known.SHAPES, Known.NOTHING, Known.COMPUTED)
        if made is None and is_late and any(isinstance(one, Indices) for one in operands):
            continue
        if known is Known.SHAPES and shapes_of(operands) != shapes_of(first):
            continue
        every.append((operands, made))
    return every


def check_refusal(error: pumice.GraphError, draw: Draw) -> None:
    assert error.node == "it"
    assert f"nnapi::{draw.op}: " in str(error)


def check(context: pumice.Context, draw: Draw, known: Known) -> tuple[int, int]:
    """Check one draw; return the number of valid and invalid cases."""
    counts = [0, 0]
    for group in [[one] for one in bound(draw, known)] if known is Known.ALL else [bound(draw, known)]:
        if not group:
            continue
        graph = pumice.Graph()
        try:
            add(graph, draw, group[0][0], known)
        except pumice.GraphError as error:
            check_refusal(error, draw)
            assert all(made is None for _, made in group), (draw.op, known, group)
            counts[1] += len(group)
            continue
        assert known is not Known.ALL or group[0][1] is not None, (draw.op, group)
        program = graph.compile(context)
        for operands, made in group:
            fed = {f"x{i}": one.array for i, one in enumerate(operands) if not isinstance(one, int | float)}
            fed = {value.name: fed[value.name] for value in program.inputs}
            counts[made is None] += 1
            if made is None:
                with pytest.raises(pumice.GraphError) as refused:
                    program(fed)
                check_refusal(refused.value, draw)
                continue
            outputs = program(fed)
            for j, one in enumerate(made):
                assert_near(outputs[f"y{j}"], one.astype(draw.dtype))
        program.close()
    return counts[0], counts[1]


def run_draws(context: pumice.Context, seed: int) -> Iterator[tuple[str, int, int]]:
    """Yield the operation's name, valid and invalid cases of each draw, forever."""
    random = np.random.default_rng(seed)
    for op in cycle(KINDS):
        draw = draws(random, op)
        for known in Known:
            yield draw.op, *check(context, draw, known)


def run_cases(context: pumice.Context, seed: int, count: int) -> None:
    """Run `count` cases; fail if an operation was never valid or never invalid."""
    legal, illegal = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for op, right, wrong in run_draws(context, seed):
        legal[op] += right
        illegal[op] += wrong
        if sum(legal.values()) + sum(illegal.values()) >= count:
            break
    assert min(legal.values()) > 0
    assert min(illegal.values()) > 0


def test_random_operands_are_right_or_rejected_by_name(context: pumice.Context) -> None:
    run_cases(context, 0, 350)


def test_a_state_that_a_loop_would_shrink_is_rejected_by_the_slice(context: pumice.Context) -> None:
    graph, body, condition = pumice.Graph(), pumice.Graph("body"), pumice.Graph("condition")
    condition.output("more", condition.add("nnapi::LESS", condition.input("i", "int32", [1]), [3]))
    condition.input("state", "float32", [None])
    i, state = body.input("i", "int32", [1]), body.input("state", "float32", [None])
    body.output("i", body.add("nnapi::ADD", i, [1], 0))
    body.output("state", body.add("nnapi::SLICE", state, [1], [3], name="it"))
    carried = [graph.input("i", "int32", [1]), graph.input("state", "float32", [None])]
    for j, value in enumerate(graph.while_(condition, body, carried=carried)):
        graph.output(f"y{j}", value)
    program = graph.compile(context)
    state_of_4 = np.arange(4, dtype="float32")
    last = program({"i": np.array([2], "int32"), "state": state_of_4})
    assert last["y1"].tolist() == [1, 2, 3]
    with pytest.raises(
        pumice.GraphError, match="'size': at most 3 elements expected on axis 0; given 3 from index 1"
    ) as refused:
        program({"i": np.array([1], "int32"), "state": state_of_4})
    assert refused.value.node == "it"


def test_a_slice_that_begins_past_the_end_is_rejected_at_the_call(context: pumice.Context) -> None:
    """The start is an input or computed from one; sizes, and so the binding, stay the same."""
    graph = pumice.Graph()
    x, begin = graph.input("x", "float32", [None, 2]), graph.input("begin", "int32", [2])
    graph.output("given", graph.add("nnapi::SLICE", x, begin, [2, 2], name="it"))
    more = graph.add("nnapi::ADD", begin, [1, 0], 0)
    graph.output("followed", graph.add("nnapi::SLICE", x, more, [1, 1], name="next"))
    program = graph.compile(context)
    array = np.arange(6, dtype="float32").reshape(3, 2)
    made = program({"x": array, "begin": np.array([1, 0], "int32")})
    assert made["given"].tolist() == [[2, 3], [4, 5]]
    assert made["followed"].tolist() == [[4]]
    for place, node, text in (
        ([2, 1], "it", "at most 3 elements expected on axis 0; given 2 from index 2"),
        ([1, 1], "it", "at most 2 elements expected on axis 1; given 2 from index 1"),
        ([-1, 0], "it", "'begin': at least 0 expected on axis 0; given -1"),
    ):
        with pytest.raises(pumice.GraphError, match=text) as refused:
            program({"x": array, "begin": np.array(place, "int32")})
        assert refused.value.node == node
    with pytest.raises(
        pumice.GraphError, match="at most 2 elements expected on axis 0; given 1 from index 2"
    ) as refused:
        graph = pumice.Graph()
        begin = graph.add("nnapi::ADD", graph.input("begin", "int32", [1]), [1], 0)
        graph.output("y", graph.add("nnapi::SLICE", np.arange(2, dtype="float32"), begin, [1], name="next"))
        graph.compile(context)({"begin": np.array([1], "int32")})
    assert refused.value.node == "next"


def test_a_slice_that_begins_at_the_counter_of_a_loop_stays_on_the_device(context: pumice.Context) -> None:
    graph, body, condition = pumice.Graph(), pumice.Graph("body"), pumice.Graph("condition")
    shapes = [("i", "int32", [1]), ("sum", "float32", [1]), ("x", "float32", [None])]
    i, total, x = (body.input(*one) for one in shapes)
    body.output("i", body.add("nnapi::ADD", i, [1], 0))
    body.output("sum", body.add("nnapi::ADD", total, body.add("nnapi::SLICE", x, i, [1]), 0))
    counter, _, _ = (condition.input(*one) for one in shapes)
    condition.output("more", condition.add("nnapi::LESS", counter, [6]))
    *carried, x = (graph.input(*one) for one in shapes)
    graph.output("sum", graph.while_(condition, body, carried=carried, invariant=[x])[1])
    execution = graph.compile(context).execution()
    execution.set("i", np.zeros(1, "int32"))
    execution.set("sum", np.zeros(1, "float32"))
    execution.set("x", np.arange(6, dtype="float32"))
    assert execution.compute()["sum"].tolist() == [15]
    assert only_loop(execution)["kind"] == "counted"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_checks_hold_at_every_precision(context: pumice.Context, precision: str) -> None:
    graph = pumice.Graph()
    condition = graph.input("condition", "bool", [None, 3])
    a, b = graph.input("a", "float32", [None, 3]), graph.input("b", "float32", [None, 3])
    doubled = graph.add("nnapi::ADD", a, a, 0)
    graph.output("y", graph.add("nnapi::SELECT", condition, doubled, b, name="it"))
    program = graph.compile(context, precision=precision)
    one, two = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    made = program({"condition": np.eye(2, 3, dtype=bool), "a": one, "b": 3 * one})["y"]
    assert_near(made, np.where(np.eye(2, 3), two, 3 * one).astype("float32"))
    with pytest.raises(
        pumice.GraphError, match=r"operand 2, 'b': the shape of operand 0, \[2, 3\], expected; given \[1, 3\]"
    ):
        program({"condition": np.eye(2, 3, dtype=bool), "a": one, "b": one[:1]})


@pytest.mark.parametrize("size", [5, None])
def test_a_strided_slice_backwards_from_before_the_first_element_has_none(
    context: pumice.Context, size: int | None
) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [size])
    graph.output("none", graph.add("nnapi::STRIDED_SLICE", x, [-7], [-9], [-1], 0, 1, 0))
    graph.output("first", graph.add("nnapi::STRIDED_SLICE", x, [-5], [-9], [-1], 0, 1, 0))
    made = graph.compile(context)({"x": np.arange(5, dtype="float32")})
    assert made["none"].shape == (0,)
    assert made["first"].tolist() == [0]


@pytest.mark.parametrize(
    ("begin", "end", "step", "taken"),
    [
        (1, 2, 1, 1),
        (-1, 0, 1, 4),
        (4, 9, 3, 4),
        (1, 3, 1, 2),
        (1, 1, 1, 0),
        (5, 6, 1, 0),
        (-6, -5, 1, 0),
    ],
)
def test_an_axis_goes_where_its_range_has_one_element(
    context: pumice.Context, begin: int, end: int, step: int, taken: int
) -> None:
    """`taken`: the element, or the number of elements."""
    one = {(1, 2), (-1, 0), (4, 9)}
    for size in (5, None):
        graph = pumice.Graph()
        x = graph.input("x", "float32", [size, 2])

        def run(graph: pumice.Graph = graph, x: pumice.Value = x) -> np.ndarray:
            y = graph.add("nnapi::STRIDED_SLICE", x, [begin, 0], [end, 2], [step, 1], 0, 0, 1, name="it")
            graph.output("y", y)
            return graph.compile(context)({"x": np.arange(10, dtype="float32").reshape(5, 2)})["y"]

        if (begin, end) in one:
            assert run().tolist() == [2 * taken, 2 * taken + 1]
            continue
        text = f"a range of one element expected on axis 0, which is removed; given one of {taken}"
        with pytest.raises(pumice.GraphError, match=text) as refused:
            run()
        assert refused.value.node == "it"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_random_operands_are_right_or_rejected_by_name(context: pumice.Context, seed: int) -> None:
    run_cases(context, seed, 2000)


def device_begin(graph: pumice.Graph, names: str, rank: int) -> Any:
    """Return a list computed on the device by a matmul, which never runs on the host."""
    floats = graph.input(names, "float32", [rank])
    return graph.add("Cast", graph.add("MatMul", floats, np.eye(rank, dtype="float32")), to=6)


@pytest.mark.parametrize("known", [True, False])
def test_a_slice_that_the_device_begins_past_the_end_reads_no_other_row(context: pumice.Context, known: bool) -> None:
    """The start is clamped so that the slice fits; a program that checks indices reports the node, the number and its position."""
    graph = pumice.Graph()
    shape = [4, 5]
    x = graph.input("x", "float32", shape if known else [None, None])
    graph.output("y", graph.add("nnapi::SLICE", x, device_begin(graph, "begin", 2), [2, 3], name="it"))
    program, checked = graph.compile(context), graph.compile(context, check_indices=True)
    array = np.arange(20, dtype="float32").reshape(shape)
    for rows in range(-6, 9):
        for columns in (-9, -1, 0, 2, 3, 4, 100):
            given = {"x": array, "begin": np.array([rows, columns], "float32")}
            row, column = min(max(rows, 0), 2), min(max(columns, 0), 2)
            expected = array[row : row + 2, column : column + 3]
            np.testing.assert_array_equal(program(given)["y"], expected)
            if (row, column) == (rows, columns):
                np.testing.assert_array_equal(checked(given)["y"], expected)
                continue
            wrong, place = (rows, 0) if row != rows else (columns, 1)
            with pytest.raises(
                pumice.IndexRangeError, match=rf"the index {wrong} at \[{place}\]; expected 0 to 2"
            ) as told:
                checked(given)
            assert "it" in told.value.node


def test_a_strided_slice_of_a_list_that_the_device_makes_is_checked_where_it_is_read(context: pumice.Context) -> None:
    """The host reads the lists of STRIDED_SLICE before it runs: past the end there are no elements, as specified."""
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4, 5])
    lists = [device_begin(graph, name, 2) for name in ("begin", "end")]
    graph.output("y", graph.add("nnapi::STRIDED_SLICE", x, *lists, [1, 1], 0, 0, 0, name="it"))
    graph.output("z", graph.add("nnapi::STRIDED_SLICE", x, *lists, [1, 1], 0, 0, 1, name="one"))
    program = graph.compile(context)
    array = np.arange(20, dtype="float32").reshape(4, 5)
    for begin, end in (([1, 1], [2, 4]), ([3, 2], [4, 9]), ([-1, -3], [4, 5])):
        made = program({"x": array, "begin": np.array(begin, "float32"), "end": np.array(end, "float32")})
        expected = array[begin[0] : end[0], begin[1] : end[1]]
        np.testing.assert_array_equal(made["y"], expected)
        np.testing.assert_array_equal(made["z"], expected[0])
    for begin, end in (([4, 1], [5, 4]), ([0, 2], [3, 3]), ([9, 0], [12, 4])):
        with pytest.raises(pumice.GraphError, match="a range of one element expected on axis 0"):
            program({"x": array, "begin": np.array(begin, "float32"), "end": np.array(end, "float32")})
