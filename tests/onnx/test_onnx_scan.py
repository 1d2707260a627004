"""Scan of ONNX models, against onnx's reference implementation and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_control_flow_models import INT64, check, loops_of, typed
from onnx_models import model, node, subgraph, value
from pumice.importer.translators import loops
from tensor_arrays import ramp


def scanning(**attributes: Any) -> onnx.ModelProto:
    """state = state / 2 + a * b for slices a, b; returns the state and a - b."""
    nodes = [
        node("Mul", ["a", "b"], ["ab"]),
        node("Mul", ["s_in", "half"], ["h"]),
        node("Add", ["h", "ab"], ["s_out"]),
        node("Identity", ["s_out"], ["states"]),
        node("Sub", ["a", "b"], ["differences"]),
    ]
    names = ["s_out", "states", "differences"]
    body = subgraph(nodes, [value(name, ["N"]) for name in ("s_in", "a", "b")], [value(name, ["N"]) for name in names])
    nodes = [node("Scan", ["s", "p", "q"], ["last", "S", "D"], name="scan", body=body, num_scan_inputs=2, **attributes)]
    inputs = [value(name, ["N"] if name == "s" else ["T", "N"]) for name in "spq"]
    return typed(model(nodes, inputs, ["last", "S", "D"], {"half": np.array(0.5, np.float32)}))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [0, 1]},
        {"scan_input_directions": [1, 0], "scan_output_directions": [1, 0], "scan_output_axes": [1, -1]},
        {"scan_input_axes": [1, -1], "scan_output_axes": [0, 1]},
    ],
)
def test_a_scan_of_two_inputs(context: pumice.Context, attributes: dict[str, list[int]], known: bool) -> None:
    transposed = "scan_input_axes" in attributes
    shape = (3, 5) if transposed else (5, 3)
    proto = scanning(**attributes)
    for info in proto.graph.input[1:]:
        info.CopyFrom(value(info.name, shape if known else ("A", "B")))
    if known:
        proto.graph.input[0].CopyFrom(value("s", [3]))
    case = {"s": ramp(3), "p": ramp(*shape), "q": ramp(*shape) ** 2}
    loaded = check(context, proto, [case], reference=attributes == {})
    report = {row["node"]: row["op"] for row in loaded.report()}
    assert report["scan"] == "While"


def test_a_scan_of_symbolic_sizes_stays_on_the_device(context: pumice.Context) -> None:
    """Scan outputs have the sizes of other values, one of them computed."""
    nodes = [
        node("MatMul", ["h", "w"], ["hw"]),
        node("Add", ["hw", "x_t"], ["sum"]),
        node("Tanh", ["sum"], ["h_out"]),
        node("Transpose", ["h_out"], ["turned"], perm=[1, 0]),
        node("Identity", ["h_out"], ["row"]),
    ]
    states = [value("h", None), value("x_t", None)]
    body = subgraph(nodes, states, [value("h_out", None), value("row", None), value("turned", None)], w=ramp(4, 4) / 4)
    nodes = [
        node("Transpose", ["x"], ["by_time"], perm=[1, 0, 2]),
        node("ReduceMax", ["x"], ["h0"], axes=[1], keepdims=0),
        node("Scan", ["h0", "by_time"], ["h", "rows", "turns"], name="scan", body=body, num_scan_inputs=1),
    ]
    proto = typed(model(nodes, [value("x", ["B", "T", 4])], ["h", "rows", "turns"]))
    cases = [{"x": ramp(b, t, 4) / 8} for b, t in ((2, 3), (5, 70), (2, 3))]
    loaded = check(context, proto, cases)
    (loop,) = loops_of(loaded, **cases[1])
    assert (loop["kind"], loop["trips"]) == ("counted", 70)


def test_a_scan_without_states(context: pumice.Context) -> None:
    body = subgraph([node("Neg", ["a"], ["n"])], [value("a", None)], [value("n", None)])
    proto = typed(model([node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)]))
    check(context, proto, [{"x": ramp(n, 4)} for n in (1, 3)])


def test_a_scan_of_nothing_gives_no_rows(context: pumice.Context) -> None:
    proto = scanning()
    for info in proto.graph.input:
        info.CopyFrom(value(info.name, [3] if info.name == "s" else ["T", 3]))
    last, states, differences = pumice.load(proto, context)(ramp(3), ramp(0, 3), ramp(0, 3))
    np.testing.assert_array_equal(last, ramp(3))
    assert states.shape == differences.shape == (0, 3)


def test_slices_of_other_lengths_are_rejected(context: pumice.Context) -> None:
    proto = scanning()
    for info, length in zip(proto.graph.input[1:], ("T", "U"), strict=True):
        info.CopyFrom(value(info.name, [length, 3]))
    with pytest.raises(pumice.GraphError, match="scan/Reshape"):
        pumice.load(proto, context)(ramp(3), ramp(5, 3), ramp(4, 3))
    proto.graph.input[1].CopyFrom(value("p", [5, 3]))
    proto.graph.input[2].CopyFrom(value("q", [4, 3]))
    with pytest.raises(pumice.GraphError, match="'q': expected 5 slices, given 4"):
        pumice.load(proto, context)


@pytest.mark.parametrize("length", [5, "T"])
def test_more_slices_than_the_engine_counts_are_rejected(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch, length: int | str
) -> None:
    """Loop counts are int32, so 2^31 iterations are too many; the test lowers the limit to 4."""
    proto = scanning()
    for info in proto.graph.input[1:]:
        info.CopyFrom(value(info.name, [length, 3]))
    monkeypatch.setattr(loops, "_MAX_TRIPS", 4)
    expected = "scan/Reshape" if length == "T" else "'p': expected at most 4 slices, given 5"
    with pytest.raises(pumice.GraphError, match=expected):
        pumice.load(proto, context)(ramp(3), ramp(5, 3), ramp(5, 3))


def test_more_slices_than_an_int32_holds_are_rejected_at_load(context: pumice.Context) -> None:
    proto = scanning()
    for info in proto.graph.input[1:]:
        info.CopyFrom(value(info.name, [2**31, 1]))
    proto.graph.input[0].CopyFrom(value("s", [1]))
    with pytest.raises(pumice.GraphError, match="'p': expected at most 2147483647 slices, given 2147483648"):
        pumice.load(proto, context)


# ---- opset 8, which has a batch axis


def batched(lengths: bool, directions: list[int]) -> onnx.ModelProto:
    """A Scan of opset 8 over two inputs: s = s + a, and s * b."""
    nodes = [node("Add", ["s", "a"], ["s_out"]), node("Mul", ["s_out", "b"], ["r"])]
    body = subgraph(nodes, [value(name, [2]) for name in "sab"], [value(name, [2]) for name in ("s_out", "r")])
    inputs = ["lengths" if lengths else "", "start", "p", "q"]
    scan = node("Scan", inputs, ["last", "R"], name="scan", body=body, num_scan_inputs=2, directions=directions)
    given = [value("start", ["B", 2]), value("p", ["B", "T", 2]), value("q", ["B", "T", 2])]
    proto = model([scan], given + ([value("lengths", ["B"], INT64)] if lengths else []), ["last", "R"], opset=8)
    proto.ir_version = 3
    proto.graph.output[0].CopyFrom(value("last", ["B", 2]))
    proto.graph.output[1].CopyFrom(value("R", ["B", "T", 2]))
    return proto


@pytest.mark.parametrize("lengths", [None, [4, 2, 3], [1, 4, 1]])
@pytest.mark.parametrize("directions", [[0, 0], [1, 0], [1, 1]])
def test_a_scan_with_a_batch(context: pumice.Context, lengths: list[int] | None, directions: list[int]) -> None:
    case = {"start": ramp(3, 2), "p": ramp(3, 4, 2), "q": ramp(3, 4, 2) ** 2}
    if lengths:
        case["lengths"] = np.array(lengths)
    check(context, batched(lengths is not None, directions), [case], reference=False)


@pytest.mark.parametrize(
    ("lengths", "steps"), [([5], [3]), ([-1], [0]), ([0], [0]), ([2, 0], [2, 0]), ([0, 9], [0, 3]), ([0, 0], [0, 0])]
)
@pytest.mark.parametrize("direction", [0, 1])
def test_lengths_of_nothing_and_beyond_the_rows(
    context: pumice.Context, lengths: list[int], steps: list[int], direction: int
) -> None:
    """With length 0 the state keeps its initial value; outputs past the length are zero, and their size is fixed."""
    start, p, q = ramp(len(lengths), 2), ramp(len(lengths), 3, 2), ramp(len(lengths), 3, 2) ** 2
    results = np.zeros_like(p)
    last = start.copy()
    for image, count in enumerate(steps):
        for i, row in enumerate(range(count)[:: -1 if direction else 1]):
            last[image] += p[image, row]
            results[image, i] = last[image] * q[image, row]
    loaded = pumice.load(batched(True, [direction] * 2), context)
    given = loaded(start, p, q, np.array(lengths))
    for actual, expected in zip(given, (last, results), strict=True):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("lengths", "constants", "expected"),
    [([1, -1], "", "non-negative lengths"), ([1, 4], "p", "lengths of 0 to 3"), ([3, 0], "p", None)],
)
def test_constant_lengths_that_there_are_not_are_rejected(
    context: pumice.Context, lengths: list[int], constants: str, expected: str | None
) -> None:
    proto = batched(True, [0, 0])
    fixed = {"lengths": np.array(lengths)} | {name: ramp(2, 3, 2) for name in constants}
    for info in [info for info in proto.graph.input if info.name in fixed]:
        proto.graph.input.remove(info)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in fixed.items())
    if expected is None:
        assert pumice.load(proto, context)(ramp(2, 2), ramp(2, 3, 2))[1].shape == (2, 3, 2)
        return
    with pytest.raises(pumice.GraphError, match=rf"'scan': input 'lengths': expected {expected}, given \["):
        pumice.load(proto, context)


def test_a_batched_scan_that_says_too_little_is_rejected() -> None:
    for changed in ({"num_scan_inputs": 9}, {"directions": [0]}):
        proto = batched(False, [0, 0])
        for attribute in proto.graph.node[0].attribute:
            if attribute.name in changed:
                attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, changed[attribute.name]))
        with pytest.raises(pumice.GraphError, match="node 'scan': expected"):
            pumice.load(proto)


# ---- states


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("first", "row"), [([1, 3], [2, 3]), ([3], [2, 3]), ([2, 1], [2, 3]), ([], [1])])
def test_a_state_that_changes_its_shape_is_rejected(
    context: pumice.Context, first: list[int], row: list[int], known: bool
) -> None:
    """A Loop may change the shape of its state; a Scan may not, as in ONNX Runtime."""
    nodes = [node("Add", ["s_in", "r"], ["s_out"]), node("Neg", ["r"], ["n"])]
    body = subgraph(nodes, [value("s_in", None), value("r", None)], [value("s_out", None), value("n", None)])
    shapes = [first, [4, *row]] if known else [[None] * len(first), [None] * (len(row) + 1)]
    proto = model(
        [node("Scan", ["s", "x"], ["last", "rows"], name="scan", body=body, num_scan_inputs=1)],
        [value("s", shapes[0]), value("x", shapes[1])],
        ["last", "rows"],
    )
    given = np.zeros(first, "float32"), np.ones([4, *row], "float32")
    with pytest.raises(pumice.GraphError, match="expected a state of shape .*, as before the iteration; given"):
        pumice.load(proto, context, progress=False)(*given)
    if not known:
        fits = np.zeros(row, "float32")
        same = model(proto.graph.node, [value("s", [None] * len(row)), proto.graph.input[1]], ["last", "rows"])
        last, rows = pumice.load(same, context, progress=False)(fits, given[1])
        np.testing.assert_array_equal(last, np.full(row, 4, "float32"))
        assert rows.shape == (4, *row)


def test_the_state_of_a_loop_may_change_its_shape(context: pumice.Context) -> None:
    nodes = [node("Concat", ["s_in", "x"], ["s_out"], axis=0), node("Identity", ["c_in"], ["c_out"])]
    inputs = [value("i", [], INT64), value("c_in", [], 9), value("s_in", None)]
    body = subgraph(nodes, inputs, [value("c_out", [], 9), value("s_out", None)])
    loop = node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    made = pumice.load(model([loop], [value("x", [None]), value("n", [], INT64)]), context)(ramp(3), np.array(2))
    np.testing.assert_array_equal(made, np.tile(ramp(3), 3))
