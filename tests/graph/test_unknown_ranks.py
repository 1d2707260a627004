"""Ranks that depend on sizes known only at a call: readers of such a value are checked then, not by a guess at load time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import model, node, subgraph, value

Array = np.ndarray[Any, Any]
BOOL = 9


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize("shape", [(2, 5, 1), (2, 5), (1, 2, 1, 5), (2, 1, 5, 1, 1)])
def test_what_follows_a_squeeze_of_all_axes_is_checked_at_the_call(
    context: pumice.Context, shape: tuple[int, ...], opset: int
) -> None:
    """Gemm needs rank 2: it runs for sizes that squeeze to two axes, and raises GraphError for others."""
    constants = {"w": np.arange(15, dtype="float32").reshape(5, 3)}
    nodes = [node("Relu", ["x"], ["r"]), node("Squeeze", ["r"], ["s"]), node("Gemm", ["s", "w"], ["y"])]
    loaded = pumice.load(model(nodes, [value("x", [None] * len(shape))], constants=constants, opset=opset), context)
    assert loaded.outputs[0].shape is None or len(loaded.outputs[0].shape) == 2
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    np.testing.assert_array_equal(loaded(x), x.squeeze() @ constants["w"])
    with pytest.raises(pumice.GraphError, match="rank"):
        loaded(np.ones([2] * (len(shape) - 1) + [5] if len(shape) > 2 else [5, 1], "float32"))


OTHERS = {
    "Transpose": (lambda x: x.T, {}),
    "Softmax": (
        lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
        {},
    ),
    "ReduceSum": (lambda x: x.sum(keepdims=True), {}),
    "Flatten": (lambda x: x.reshape(x.shape[0], -1), {"axis": 1}),
    "Concat": (lambda x: x, {"axis": 0}),
    "Shape": (lambda x: np.array(x.shape), {}),
    "Split": (lambda x: np.split(x, 2)[0], {"num_outputs": 2}),
}


@pytest.mark.parametrize("named", [[None, None, "M"], [2, None, 1], ["N", 3, 1]])
@pytest.mark.parametrize("op", OTHERS)
def test_nodes_take_what_a_squeeze_leaves(context: pumice.Context, op: str, named: list[Any]) -> None:
    expected, attributes = OTHERS[op]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    nodes = [node("Squeeze", ["x"], ["s"]), node(op, ["s"], outputs, **attributes)]
    loaded = pumice.load(model(nodes, [value("x", named)], opset=21), context)
    x = np.random.default_rng(0).standard_normal((2, 3, 1)).astype("float32")
    np.testing.assert_allclose(loaded(x), expected(x[..., 0]), rtol=1e-6)


@pytest.mark.parametrize("computed", [True, False])
def test_a_branch_may_squeeze_what_only_the_call_knows(context: pumice.Context, computed: bool) -> None:
    shapes: list[Any] = [None, None, None]
    then = subgraph([node("Squeeze", ["x"], ["a"])], [], [value("a", None)])
    orelse = subgraph([node("Reshape", ["x", "flat"], ["b"])], [], [value("b", None)], flat=np.array([2, -1]))
    nodes = [node("If", ["c"], ["i"], then_branch=then, else_branch=orelse), node("Gemm", ["i", "w"], ["y"])]
    constants = {"w": np.ones((5, 1), "float32")}
    inputs = [value("x", shapes)]
    given: dict[str, Array] = {"x": np.ones((2, 5, 1), "float32")}
    if computed:
        inputs.append(value("c", [], BOOL))
        given["c"] = np.array(True)
    else:
        constants["c"] = np.array(True)
    loaded = pumice.load(model(nodes, inputs, constants=constants, opset=21), context)
    np.testing.assert_array_equal(loaded(**given), np.full((2, 1), 5, "float32"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slices_that_are_unlike_of_an_element_at_a_computed_position(context: pumice.Context, axis: int) -> None:
    """All tensors of the sequence have the same rank."""
    nodes = [
        node("SequenceConstruct", ["x", "z"], ["s"]),
        node("SequenceAt", ["s", "at"], ["e"]),
        node("Unique", ["e"], ["y"], axis=axis),
    ]
    inputs = [value("x", [4, 3, 2]), value("z", [None, 3, 2]), value("at", [], 7)]
    loaded = pumice.load(model(nodes, inputs, opset=21), context)
    random = np.random.default_rng(0)
    x, z = (random.integers(0, 2, (size, 3, 2)).astype("float32") for size in (4, 6))
    for at in (0, 1, -1, -2):
        np.testing.assert_array_equal(loaded(x, z, np.array(at)), np.unique((x, z)[at], axis=axis))


def test_slices_that_are_unlike_of_an_element_at_a_constant_position(context: pumice.Context) -> None:
    nodes = [
        node("SequenceConstruct", ["x"], ["s"]),
        node("SequenceAt", ["s", "at"], ["e"]),
        node("Unique", ["e"], ["y"], axis=1),
    ]
    loaded = pumice.load(model(nodes, [value("x", [8, 3, 2])], constants={"at": np.array(0)}, opset=21), context)
    x = np.random.default_rng(0).integers(0, 2, (8, 3, 2)).astype("float32")
    np.testing.assert_array_equal(loaded(x), np.unique(x, axis=1))


@pytest.mark.parametrize("split", [None, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("op", ["ConcatFromSequence", "SequenceAt"])
def test_tensors_out_of_a_sequence_of_unknown_length(
    context: pumice.Context, op: str, axis: int, split: int | None
) -> None:
    """Their sizes are a list of unknown length, and all trial sizes happen to give the same length."""
    constants: dict[str, Array] = {"w": np.ones((6, 1), "float32"), "at": np.array(0)}
    if split:
        constants["size"] = np.array(split)
    nodes = [node("SplitToSequence", ["x", "size"] if split else ["x"], ["q"], axis=axis)]
    if op == "SequenceAt":
        nodes.append(node(op, ["q", "at"], ["s"]))
        constants["w"] = constants["w"][: 6 if axis == 0 else split or 1]
    else:
        nodes.append(node(op, ["q"], ["s"], axis=axis))
    nodes.append(node("Gemm", ["s", "w"], ["y"]))
    loaded = pumice.load(model(nodes, [value("x", [None, None])], constants=constants, opset=21), context)
    made = loaded(np.ones((4, 6), "float32"))
    rows = (split or 1) if op == "SequenceAt" and axis == 0 else 4
    np.testing.assert_array_equal(made, np.full((rows, 1), len(constants["w"]), "float32"))


LISTS: dict[str, tuple[list[int], dict[str, int]]] = {
    "Reshape": ([2, 5], {}),
    "Expand": ([1, 5], {}),
    "Squeeze": ([2], {}),
    "ReduceSum": ([2], {"keepdims": 0}),
}


@pytest.mark.parametrize("length", [None, 1])
@pytest.mark.parametrize("sizes", [[2, 5, 1], [None, None, None]])
@pytest.mark.parametrize("op", LISTS)
def test_a_list_whose_length_the_call_determines(
    context: pumice.Context, op: str, sizes: list[Any], length: int | None
) -> None:
    numbers, attributes = LISTS[op]
    nodes = [node(op, ["q" if op == "Expand" else "x", "list"], ["s"], **attributes), node("Gemm", ["s", "w"], ["y"])]
    if op == "Expand":
        nodes.insert(0, node("Squeeze", ["x"], ["q"]))
    declared = None if length is None else len(numbers)
    inputs = [value("x", sizes), value("list", [declared], 7)]
    constants = {"w": np.arange(5, dtype="float32").reshape(5, 1)}
    loaded = pumice.load(model(nodes, inputs, constants=constants, opset=21), context)
    x = np.arange(10, dtype="float32").reshape(2, 5, 1)
    np.testing.assert_array_equal(loaded(x, np.array(numbers)), x[..., 0] @ constants["w"])


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("changed", [None, "SequenceInsert", "SequenceErase"])
def test_slices_that_are_unlike_of_a_part_of_a_known_rank(
    context: pumice.Context, changed: str | None, keepdims: int
) -> None:
    """Slices have the rank of the tensor, or one less, whatever their number; SequenceInsert and SequenceErase keep it."""
    nodes = [node("SplitToSequence", ["x"], ["q"], axis=0, keepdims=keepdims)]
    if changed == "SequenceInsert":
        nodes.append(node(changed, ["q", "z", "at"], ["r"]))
    elif changed:
        nodes.append(node(changed, ["q", "one"], ["r"]))
    nodes += [node("SequenceAt", ["r" if changed else "q", "at"], ["e"]), node("Unique", ["e"], ["y"], axis=-1)]
    inputs = [value("x", [None, None, None]), value("z", [None] * (2 + keepdims)), value("at", [], 7)]
    loaded = pumice.load(model(nodes, inputs, constants={"one": np.array(0)}, opset=21), context)
    random = np.random.default_rng(0)
    x, z = random.integers(0, 2, (4, 2, 5)), random.integers(0, 2, (1, 2, 3) if keepdims else (2, 3))
    given = {"x": x.astype("float32"), "z": z.astype("float32"), "at": np.array(2)}
    part: Array = z if changed == "SequenceInsert" else x[3 if changed else 2]
    if keepdims and changed != "SequenceInsert":
        part = part[None]
    made = loaded(**{one.name: given[one.name] for one in loaded.inputs})
    np.testing.assert_array_equal(made, np.unique(part, axis=-1))
