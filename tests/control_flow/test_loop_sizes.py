"""Loops with scan outputs of computed sizes, called with many sizes: no size of an earlier call is assumed for later ones."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_control_flow_models import loops_of

Array = np.ndarray[Any, Any]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CALLS = ((1, 1), (2, 3), (7, 2), (37, 5), (71, 40), (96, 1), (100, 9), (160, 8), (205, 300))
SIZES = {
    "s % 2": ("Mod", "s", 2),
    "s % 3": ("Mod", "s", 3),
    "min(n, s)": ("Min", "n", "s"),
    "s // 100 + 1": ("Add", ("Div", "s", 100), 1),
    "max(s, 40)": ("Max", "s", 40),
    "min(s, 8)": ("Min", "s", 8),
    "abs(s - 37)": ("Abs", ("Sub", "s", 37)),
    "(s + n) // 2": ("Div", ("Add", "s", "n"), 2),
    "s": ("Identity", "s"),
    "n": ("Identity", "n"),
    "3": ("Identity", 3),
    "s - s // 2": ("Sub", "s", ("Div", "s", 2)),
}


class Nodes:
    """Nodes and constants of a graph under construction."""

    def __init__(self, stem: str) -> None:
        self.stem = stem
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, array: Any) -> str:
        name = f"{self.stem}_k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        name = output or f"{self.stem}_v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [name], f"{self.stem}_{len(self.nodes)}", **attributes))
        return name

    def size(self, text: Any) -> str:
        """Return the size as an int64[1]."""
        if isinstance(text, int):
            return self.constant(np.array([text]))
        return text if isinstance(text, str) else self.add(text[0], *map(self.size, text[1:]))


def value(name: str, kind: int, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    expression: str, inside: bool, gives: str, ends: str, trips: int | None, axis: int = 0, declared: bool = False
) -> onnx.ModelProto:
    """Loop over x [s, 2], n int64[1], trips int64; each iteration appends a computed number of rows to a scan output.

    inside: compute the size in the body. gives: how the rows are computed. ends: how the loop ends. trips: constant
    trip count.
    """
    outer, body = Nodes("outer"), Nodes("body")
    outer.add("Slice", outer.add("Shape", "x"), np.array([0]), np.array([1]), np.array([0]), output="s")
    size = (body if inside else outer).size(SIZES[expression])
    number = body.add("Cast", body.add("Unsqueeze", "i", np.array([0])), to=FLOAT)
    if gives == "slice":
        base = outer.add("Range", np.float32(0), np.float32(400), np.float32(1))
        row = body.add("Add", body.add("Slice", base, np.array([0]), size, np.array([0])), number)
    elif gives == "captured":
        base = outer.add("Range", np.array(0, np.float32), np.array(400, np.float32), np.array(1, np.float32))
        row = body.add("Add", outer.add("Slice", base, np.array([0]), size, np.array([0])), number)
    elif gives == "expand":
        row = body.add("Expand", number, size)
    elif gives == "state":
        row = body.add("Mul", body.add("Expand", "state", size), number)
    else:
        row = body.add(
            "Add", body.add("ConstantOfShape", size, value=helper.make_tensor("v", FLOAT, [1], [2.0])), number
        )
    row = body.add("Identity", row, output="row")
    body.add("Add", "state", np.float32(1), output="next")
    if ends == "condition":
        body.add("Less", "i", np.array(2), output="goes")
    else:
        body.add("Identity", "go", output="goes")
    length = [None] if not declared else ["L"]
    graph = helper.make_graph(
        body.nodes,
        "body",
        [value("i", INT64, []), value("go", BOOL, []), value("state", FLOAT, [1])],
        [value("goes", BOOL, []), value("next", FLOAT, [1]), value("row", FLOAT, length)],
        body.constants,
    )
    count = outer.constant(np.array(trips)) if trips is not None else "trips"
    first = outer.constant(np.array(True)) if ends == "condition" else ""
    initial = outer.constant(np.array([0.5], np.float32))
    outer.nodes.append(helper.make_node("Loop", [count, first, initial], ["last", "rows"], "loop", body=graph))
    outer.add("ReduceSum", "rows", np.array([axis]), keepdims=0, output="sums")
    whole = helper.make_graph(
        outer.nodes,
        "sizes",
        [value("x", FLOAT, ["S", 2]), value("n", INT64, [1]), value("trips", INT64, [])],
        [value("last", FLOAT, None), value("rows", FLOAT, None), value("sums", FLOAT, None)],
        outer.constants,
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def session_of(proto: onnx.ModelProto) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    return runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def agree(context: pumice.Context, proto: onnx.ModelProto, calls: Any, about: str) -> None:
    session = session_of(proto)
    with pumice.load(proto.SerializeToString(), context) as loaded:
        for (s, n), trips in calls:
            inputs = {
                "x": np.zeros((s, 2), np.float32),
                "n": np.array([n]),
                "trips": np.array(trips),
            }
            wanted = session.run(None, inputs)
            try:
                made = loaded(**inputs)
            except pumice.Error as error:
                raise AssertionError(f"{about}, s = {s}, n = {n}, {trips} trips: {error}") from error
            for name, one, other in zip(("last", "rows", "sums"), made, wanted, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"{about}, s = {s}, n = {n}, {trips} trips: {name}")


@pytest.mark.parametrize("expression", SIZES)
def test_a_loop_gathers_values_of_a_computed_size(context: pumice.Context, expression: str) -> None:
    for inside, gives in ((True, "slice"), (False, "expand"), (True, "fill"), (False, "captured")):
        proto = model(expression, inside, gives, "trips", None)
        agree(context, proto, [(call, 3) for call in CALLS], f"{expression} {gives}")


@pytest.mark.slow
@pytest.mark.parametrize("expression", SIZES)
def test_all_loops_that_gather_values_of_a_computed_size(context: pumice.Context, expression: str) -> None:
    kinds = itertools.product((True, False), ("slice", "expand", "state", "fill"), ("trips", "condition"), (None, 4))
    for inside, gives, ends, trips in kinds:
        proto = model(expression, inside, gives, ends, trips, declared=random.Random(expression).random() < 0.5)
        agree(context, proto, [(call, count) for call in CALLS for count in (1, 4)], f"{expression} {gives} {ends}")
    for ends, trips in itertools.product(("trips", "condition"), (None, 4)):
        proto = model(expression, False, "captured", ends, trips)
        agree(context, proto, [(call, count) for call in CALLS for count in (1, 4)], f"{expression} captured {ends}")


def test_a_loop_of_a_computed_size_stays_on_the_device(context: pumice.Context) -> None:
    with pumice.load(model("s // 100 + 1", False, "captured", "trips", None).SerializeToString(), context) as loaded:
        inputs = {"x": np.zeros((205, 2), np.float32), "n": np.array([1]), "trips": np.array(5)}
        (loop,) = loops_of(loaded, **inputs)
        assert loop["kind"] != "host", loop


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("ends", ["trips", "condition"])
def test_a_loop_without_a_trip_gives_no_rows(context: pumice.Context, constant: bool, ends: str) -> None:
    """The trip count of 0 is a constant or an input."""
    for expression, gives in (("3", "expand"), ("s", "slice"), ("s % 2", "fill"), ("3", "state")):
        proto = model(expression, True, gives, ends, 0 if constant else None)
        with pumice.load(proto.SerializeToString(), context) as loaded:
            made = loaded(x=np.zeros((7, 2), np.float32), n=np.array([2]), trips=np.array(0))
        assert made["rows"].shape[0] == 0 and made["rows"].ndim == 2, (expression, gives)
        np.testing.assert_array_equal(made["last"], np.array([0.5], np.float32))
        if expression == "3":
            assert made["rows"].shape == (0, 3) and made["sums"].shape == (3,)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_a_scan_of_no_slices_gives_no_rows(context: pumice.Context, axis: int, reverse: int) -> None:
    body = Nodes("body")
    body.add("Add", "state", "slice", output="next")
    body.add("Mul", "slice", np.float32(2), output="row")
    graph = helper.make_graph(
        body.nodes,
        "body",
        [value("state", FLOAT, [3]), value("slice", FLOAT, [3])],
        [value("next", FLOAT, [3]), value("row", FLOAT, [3])],
        body.constants,
    )
    attributes = {"scan_input_directions": [reverse], "scan_output_directions": [reverse], "scan_output_axes": [axis]}
    node = helper.make_node(
        "Scan", ["begin", "x"], ["last", "rows"], "scan", num_scan_inputs=1, body=graph, **attributes
    )
    for length in (0, "S"):
        whole = helper.make_graph(
            [node],
            "scan",
            [value("begin", FLOAT, [3]), value("x", FLOAT, [length, 3])],
            [value("last", FLOAT, [3]), value("rows", FLOAT, None)],
        )
        proto = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        with pumice.load(proto.SerializeToString(), context) as loaded:
            made = loaded(begin=np.arange(3, dtype=np.float32), x=np.zeros((0, 3), np.float32))
        np.testing.assert_array_equal(made["last"], np.arange(3))
        assert made["rows"].shape == ((0, 3) if axis == 0 else (3, 0)), (length, axis)


@pytest.mark.parametrize("ends", ["trips", "condition", "computed condition"])
@pytest.mark.parametrize("known", [True, False])
def test_a_loop_without_a_trip_has_rows_of_the_sizes_of_its_first(
    context: pumice.Context, known: bool, ends: str
) -> None:
    """ONNX leaves them open; they are the same whether sizes are known at load time or not."""
    body = Nodes("body")
    row = body.add("Concat", body.add("Neg", "state"), "state", axis=1)
    body.add("Sub", "state", np.float32(3), output="next")
    body.add("Identity", row, output="row")
    body.add(
        "Less" if ends == "computed condition" else "Identity",
        *(["i", np.array(3)] if ends == "computed condition" else ["go"]),
        output="on",
    )
    graph = helper.make_graph(
        body.nodes,
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", FLOAT, [None, None])],
        [value("on", TensorProto.BOOL, []), value("next", FLOAT, [None, None]), value("row", FLOAT, [None, None])],
        body.constants,
    )
    loop = helper.make_node("Loop", ["n", "c", "x"], ["last", "rows"], "loop", body=graph)
    shape = [4, 2] if known else [None, None]
    proto = helper.make_model(
        helper.make_graph(
            [loop],
            "graph",
            [value("x", FLOAT, shape), value("n", TensorProto.INT64, []), value("c", TensorProto.BOOL, [])],
            [value("last", FLOAT, None), value("rows", FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    x = np.ones((4, 2), np.float32)
    with pumice.load(proto.SerializeToString(), context) as loaded:
        for trips in (0, 2):
            go = not (ends == "condition" and trips == 0)
            made = loaded(x=x, n=np.array(2 if ends == "condition" else trips), c=np.array(go))
            assert made["rows"].shape == (trips, 4, 4), (trips, made["rows"].shape)
            np.testing.assert_array_equal(made["last"], x - 3 * trips)


@pytest.mark.parametrize("trips", [0, 2])
@pytest.mark.parametrize("constant", [True, False])
def test_a_loop_without_a_trip_has_rows_of_the_rank_in_the_file(
    context: pumice.Context, constant: bool, trips: int
) -> None:
    """No trial sizes fit the MatMul: its K is 5, and no trial uses 5 for an unknown size."""
    body = Nodes("body")
    body.add("Neg", "state", output="row")
    body.add("Sub", "state", np.float32(3), output="next")
    body.add("Identity", "go", output="on")
    graph = helper.make_graph(
        body.nodes,
        "body",
        [value("i", INT64, []), value("go", BOOL, []), value("state", FLOAT, [None, None])],
        [value("on", BOOL, []), value("next", FLOAT, [None, None]), value("row", FLOAT, [None, None])],
        body.constants,
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Loop", ["n", "", "product"], ["last", "rows"], "loop", body=graph),
    ]
    weights = [numpy_helper.from_array(np.ones((5, 2), np.float32), "w")]
    inputs = [value("x", FLOAT, [None, None])]
    if constant:
        weights.append(numpy_helper.from_array(np.array(trips), "n"))
    else:
        inputs.append(value("n", INT64, []))
    proto = helper.make_model(
        helper.make_graph(nodes, "graph", inputs, [value("last", FLOAT, None), value("rows", FLOAT, None)], weights),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    given = {"x": np.ones((4, 5), np.float32), **({} if constant else {"n": np.array(trips)})}
    with pumice.load(proto.SerializeToString(), context) as loaded:
        made = loaded(**given)
    np.testing.assert_array_equal(made["last"], np.full((4, 2), 5 - 3 * trips, np.float32))
    expected = [np.full((4, 2), 3 * k - 5, np.float32) for k in range(trips)]
    np.testing.assert_array_equal(made["rows"], np.reshape(expected, (trips, 4, 2)))
