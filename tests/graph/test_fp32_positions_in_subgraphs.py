"""Positions that enter or leave branches and loop bodies are computed in float32, and so are masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from exact_sessions import exact_session
from onnx_models import model, node, value

Array = npt.NDArray[Any]
Made = tuple[onnx.ModelProto, tuple[Array, ...]]
FREQUENCIES = (1 / 10000 ** (np.arange(0, 16, 2) / 16)).astype("float32")
POSITIONS = np.array([0, 1, 257, 1001, 2049, 4097, 40001])
IDS = value("p", ["t"], TensorProto.INT64)
CHOICE = value("choice", [], TensorProto.BOOL)
YES = np.array(True)
CONSTANTS = {"w": FREQUENCIES[None], "one": np.array([1]), "seven": np.float32(7), "step": np.float32(1), "yes": YES}


def graph_of(name: str, nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], **constants: Any) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(one), key) for key, one in constants.items()]
    return helper.make_graph(nodes, name, inputs, outputs, tensors)


def floats(name: str, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def choice(nodes: list[onnx.NodeProto], result: str, made: str) -> onnx.NodeProto:
    """Return an If: the then branch has the nodes, the else branch returns the negative."""
    first = graph_of("yes", nodes, [], [floats(result)])
    second = graph_of("no", [*nodes, node("Neg", [result], ["negative"])], [], [floats("negative")])
    return node("If", ["choice"], [made], then_branch=first, else_branch=second)


def column() -> list[onnx.NodeProto]:
    """Return the positions as floats, [t, 1]."""
    return [node("Cast", ["p"], ["f"], to=TensorProto.FLOAT), node("Unsqueeze", ["f", "one"], ["c"])]


def used(proto_nodes: list[onnx.NodeProto], more: str = "") -> dict[str, Any]:
    """Return the constants that the nodes and their subgraphs read."""
    names = set(more.split())
    for one in proto_nodes:
        names.update(one.input)
        for attribute in one.attribute:
            if attribute.HasField("g"):
                names.update(used(list(attribute.g.node)))
    return {name: one for name, one in CONSTANTS.items() if name in names}


def of(nodes: list[onnx.NodeProto], inputs: list[Any], *given: Array) -> Made:
    return model(nodes, inputs, ["y"], used(nodes)), given


def read_in_a_branch() -> Made:
    inside = [node("Mul", ["c", "w"], ["a"]), node("Sin", ["a"], ["s"])]
    return of([*column(), choice(inside, "s", "y")], [IDS, CHOICE], POSITIONS, YES)


def angles_in_a_branch() -> Made:
    nodes = [*column(), node("Mul", ["c", "w"], ["a"]), choice([node("Sin", ["a"], ["s"])], "s", "y")]
    return of(nodes, [IDS, CHOICE], POSITIONS, YES)


def made_in_a_branch() -> Made:
    inside = [node("Cast", ["p"], ["f"], to=TensorProto.FLOAT), node("Unsqueeze", ["f", "one"], ["c"])]
    nodes = [choice(inside, "c", "chosen"), node("Mul", ["chosen", "w"], ["a"]), node("Sin", ["a"], ["y"])]
    return of(nodes, [IDS, CHOICE], POSITIONS, YES)


def angles_leave_a_branch() -> Made:
    inside = [*column(), node("Mul", ["c", "w"], ["a"])]
    return of([choice(inside, "a", "chosen"), node("Sin", ["chosen"], ["y"])], [IDS, CHOICE], POSITIONS, YES)


def floors_behind_a_branch() -> Made:
    inside = [node("Cast", ["p"], ["f"], to=TensorProto.FLOAT), node("Div", ["f", "seven"], ["d"])]
    floor = [choice(inside, "d", "chosen"), node("Floor", ["chosen"], ["y"])]
    return of(floor, [IDS, CHOICE], POSITIONS * 7 + 3, YES)


def moved_input() -> Made:
    """A float input that is reshaped outside the branch, and scaled inside."""
    inside = [node("Mul", ["c", "w"], ["a"]), node("Sin", ["a"], ["s"])]
    nodes = [node("Unsqueeze", ["x", "one"], ["c"]), choice(inside, "s", "y")]
    return of(nodes, [value("x", ["t"]), CHOICE], POSITIONS.astype("float32"), YES)


def loop(nodes: list[onnx.NodeProto], carried: list[str], scanned: list[str]) -> onnx.GraphProto:
    """Return a body with a carried float t, and the outputs `carried` and `scanned`."""
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("more", TensorProto.BOOL, []),
        floats("t", [1]),
    ]
    outputs = [helper.make_tensor_value_info("again", TensorProto.BOOL, []), *map(floats, carried + scanned)]
    made: onnx.GraphProto = graph_of("body", [node("Identity", ["more"], ["again"]), *nodes], inputs, outputs)
    return made


def in_a_loop(body: onnx.GraphProto, results: list[str], after: list[onnx.NodeProto], start: float = 2049) -> Made:
    nodes = [node("Loop", ["rounds", "yes", "start"], results, body=body), *after]
    made = model(
        nodes,
        [value("start", [1])],
        ["y"],
        used(nodes) | {"rounds": np.array(6)},
    )
    return made, (np.array([start], "float32"),)


COUNTS = node("Add", ["t", "step"], ["next"])


def counted_up() -> Made:
    """t = t + 1.0, and the sine of its angles in each iteration."""
    nodes = [COUNTS, node("Mul", ["t", "w"], ["a"]), node("Sin", ["a"], ["s"])]
    return in_a_loop(loop(nodes, ["next"], ["s"]), ["last", "y"], [])


def last_of_a_loop() -> Made:
    after = [node("Mul", ["last", "w"], ["a"]), node("Sin", ["a"], ["y"])]
    return in_a_loop(loop([COUNTS], ["next"], []), ["last"], after)


def scanned_angles() -> Made:
    """The scan output has the angles of all iterations."""
    nodes = [COUNTS, node("Mul", ["t", "w"], ["a"])]
    return in_a_loop(loop(nodes, ["next"], ["a"]), ["last", "all"], [node("Sin", ["all"], ["y"])])


def captured_in_a_loop() -> Made:
    """The captured positions, and the iteration number."""
    nodes = [
        node("Identity", ["t"], ["next"]),
        node("Cast", ["i"], ["round"], to=TensorProto.FLOAT),
        node("Add", ["c", "round"], ["moved"]),
        node("Mul", ["moved", "w"], ["a"]),
        node("Sin", ["a"], ["s"]),
    ]
    body = loop(nodes, ["next"], ["s"])
    whole = [*column(), node("Loop", ["rounds", "yes", "start"], ["last", "y"], body=body)]
    constants = used(whole) | {"rounds": np.array(6), "start": np.array([0], "float32")}
    return model(whole, [IDS], ["y"], constants), (POSITIONS,)


def scan() -> Made:
    """Scan with a float position as its state."""
    inside = [
        node("Add", ["t", "x"], ["next"]),
        node("Mul", ["next", "w"], ["a"]),
        node("Sin", ["a"], ["s"]),
    ]
    body = graph_of("body", inside, [floats("t", [1]), floats("x", [1])], [floats("next", [1]), floats("s", [1, 8])])
    whole = [node("Scan", ["start", "steps"], ["last", "y"], body=body, num_scan_inputs=1)]
    made = model(whole, [value("start", [1]), value("steps", [6, 1])], ["y"], used(whole))
    return made, (np.array([2049], "float32"), np.ones((6, 1), "float32"))


FORMS: dict[str, Callable[[], Made]] = {
    one.__name__: one
    for one in (
        read_in_a_branch,
        angles_in_a_branch,
        made_in_a_branch,
        angles_leave_a_branch,
        floors_behind_a_branch,
        moved_input,
        counted_up,
        last_of_a_loop,
        scanned_angles,
        captured_in_a_loop,
        scan,
    )
}
ROUNDING = {"fp16": 2.0**-11, "bf16": 2.0**-8}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("form", FORMS)
def test_positions_stay_exact_across_borders(context: pumice.Context, form: str, precision: str, fuse: bool) -> None:
    proto, given = FORMS[form]()
    names = [one.name for one in proto.graph.input]
    (expected,) = exact_session(proto, optimize=False).run(None, dict(zip(names, given, strict=True)))
    with pumice.load(proto, context, precision, fuse=fuse, progress=False) as loaded:
        actual = loaded(*given)
    # A result is rounded once; float32's own angles of 40,001 are off by 2e-3.
    np.testing.assert_allclose(actual, expected, rtol=ROUNDING[precision], atol=4e-3)


@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("form", ["read_in_a_branch", "made_in_a_branch", "counted_up", "captured_in_a_loop", "scan"])
def test_validation_calls_them_right(context: pumice.Context, form: str, precision: str) -> None:
    proto, given = FORMS[form]()
    report = pumice.validate(proto, [given], context=context, precision=precision)
    assert "wrong" not in {row.verdict for row in report.rows}, report.summary


@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("inside", ["sum", "softmax"])
def test_masks_of_inputs_are_finite_across_borders(context: pumice.Context, inside: str, precision: str) -> None:
    added, shares = node("Add", ["x", "mask"], ["s"]), node("Softmax", ["s"], ["p"])
    nodes = {
        "sum": [choice([added], "s", "chosen"), node("Softmax", ["chosen"], ["y"])],
        "softmax": [added, choice([shares], "p", "y")],
    }[inside]
    proto = model(nodes, [value("x", [2, 4]), value("mask", [2, 4]), CHOICE], ["y"])
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    mask = np.where([[0, 0, 1, 1], [1, 1, 1, 1]], np.finfo("float32").min, np.float32(0))
    (expected,) = exact_session(proto, optimize=False).run(None, {"x": x, "mask": mask, "choice": YES})
    with pumice.load(proto, context, precision, progress=False) as loaded:
        np.testing.assert_allclose(loaded(x, mask, YES), expected, atol=1e-2)


def test_matmul_states_stay_in_16_bits(context: pumice.Context) -> None:
    """A MatMul's result is not a position, so a loop that carries it stays in 16 bits."""
    nodes = [
        node("MatMul", ["t", "w"], ["product"]),
        node("Add", ["t", "product"], ["sum"]),
        node("Tanh", ["sum"], ["next"]),
        node("Identity", ["more"], ["again"]),
    ]
    body = loop(nodes[:3], ["next"], [])
    body.input[2].CopyFrom(floats("t", [1, 4]))
    whole = [node("Loop", ["rounds", "yes", "start"], ["y"], body=body)]
    constants = {"rounds": np.array(3), "yes": YES, "w": np.eye(4, dtype="float32")}
    with pumice.load(model(whole, [value("start", [1, 4])], ["y"], constants), context, "fp16") as loaded:
        assert "positions" not in str(loaded.report())
