"""RNN, LSTM and GRU; If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from random_nodes.maker import Maker, SkipError, Value
from random_nodes.oracle import RefusedError
from random_nodes.table import makes

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


@makes("RNN LSTM GRU")
def recurrent(m: Maker, op: str) -> None:
    steps, batch = m.size(), m.size()
    width, hidden = m.one([1, 2, 3, 4]), m.one([1, 2, 4])
    direction = m.one([None, "forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    gates = GATES[op]
    x = m.pick("float32", sizes=[steps, batch, *m.fixed(width)], low=-6, high=6)
    if x.least == 0:
        raise SkipError("no steps")
    inputs: list[Value | None] = [
        x,
        m.leaf("float32", m.fixed(ways, gates * hidden, width), -1, 1),
        m.leaf("float32", m.fixed(ways, gates * hidden, hidden), -1, 1),
        m.leaf("float32", m.fixed(ways, 2 * gates * hidden), -1, 1) if m.chance(0.6) else None,
        m.input([m.random.integers(1, one.shape[0] + 1, one.shape[1]).astype("int32") for one in x.data])
        if m.chance(0.2)
        else None,
        m.leaf("float32", [*m.fixed(ways), batch, *m.fixed(hidden)], -1, 1) if m.chance(0.4) else None,
    ]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "LSTM":
        inputs.append(m.leaf("float32", [*m.fixed(ways), batch, *m.fixed(hidden)], -1, 1) if m.chance(0.4) else None)
        inputs.append(m.leaf("float32", m.fixed(ways, 3 * hidden), -1, 1) if m.chance(0.2) else None)
    if op == "GRU":
        attributes["linear_before_reset"] = m.one([None, 1])
    m.node(op, *inputs, outputs=m.one([1, 2, 2 if op != "LSTM" else 3]), **attributes)


def tensor_info(name: str, dtype: str, rank: int | None) -> Any:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None if rank is None else [None] * rank
    )


def number(m: Maker, name: str, value: Any, dtype: str) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype)))


def chain(m: Maker, x: str, dtype: str, others: list[Value], prefix: str) -> tuple[list[NodeProto], str, list[Value]]:
    """Return one to three bit-exact body nodes that keep the shape of `x`, their result's name and the values they capture."""
    nodes: list[NodeProto] = []
    used: list[Value] = []
    signed = dtype[0] != "u"
    for k in range(m.whole(1, 3)):
        name = f"{prefix}{k}"
        kind = m.random.random()
        if kind < 0.35 and others:
            other = m.one(others)
            used.append(other)
            nodes.append(
                helper.make_node(
                    m.one(["Add", "Sub", "Max", "Min"]) if signed else m.one(["Add", "Max"]), [x, other.name], [name]
                )
            )
        elif kind < 0.7:
            nodes.append(number(m, f"{name}c", m.one([1, 2, 3]), dtype))
            nodes.append(
                helper.make_node(m.one(["Add", "Sub", "Max", "Min"]) if signed else "Add", [x, f"{name}c"], [name])
            )
        elif signed:
            nodes.append(helper.make_node(m.one(["Neg", "Abs", "Relu"]), [x], [name]))
        else:
            nodes.append(helper.make_node("Identity", [x], [name]))
        x = name
    return nodes, x, used


CARRIED = ("float32", "float32", "int64", "int32")


def narrower(m: Maker, x: Value) -> list[Value]:
    """Return values that broadcast to the shape of another."""

    def fits(v: Value) -> bool:
        return v.rank <= x.rank and all(
            a == b or set(b) == {1} for a, b in zip(x.sizes[x.rank - v.rank :], v.sizes, strict=True)
        )

    return [v for v in m.values if not v.is_list and v.dtype == x.dtype and v.exact and within_small(v) and fits(v)]


def within_small(v: Value) -> bool:
    return all(np.abs(one.astype(np.float64)).max(initial=0) < 100 for one in v.data)


@makes("If")
def choice(m: Maker, op: str) -> None:
    x = m.pick(CARRIED, 0, 4, low=-100, high=100, exact=True)
    if m.chance(0.5):
        test = m.leaf("bool", [], constant=False)
    else:
        total = m.node(
            "ReduceSum", m.pick(("float32", "int64", "int32"), 0, 4, exact=True, low=-100, high=100), keepdims=0
        )[0]
        if not total.exact:
            raise SkipError("a sum of unknown bits")
        (test,) = m.node("Greater", total, m.constant(np.array(0, total.dtype)))
    one, y, used = chain(m, x.name, x.dtype, narrower(m, x), f"{m.fresh()}t")
    other, z, also = chain(m, x.name, x.dtype, narrower(m, x), f"{m.fresh()}e")
    if m.chance(0.3) and x.rank:
        last = f"{m.fresh()}e"
        other.append(helper.make_node("Concat", [z, z], [last], axis=m.whole(0, x.rank - 1)))
        z = last
    bodies = [
        m.body("branch", nodes, [], [tensor_info(name, x.dtype, x.rank)]) for nodes, name in ((one, y), (other, z))
    ]
    m.node(op, test, then_branch=bodies[0], else_branch=bodies[1], captures=[x, *used, *also], exact=True)


@makes("Loop")
def loop(m: Maker, op: str) -> None:
    x = m.pick(CARRIED, 0, 3, low=-100, high=100, exact=True)
    count = m.whole(0, 4) if m.chance(0.9) else 0
    kind = m.random.random()
    if kind < 0.4:
        trips = m.constant(np.array(count))
    elif kind < 0.7:
        trips = m.input([np.array(m.whole(0, 4)) for _ in range(m.calls)])
    else:
        (trips,) = m.node("Size", m.leaf("float32", [m.size()]))
    p = m.fresh()
    nodes, y, used = chain(m, f"{p}x", x.dtype, narrower(m, x), f"{p}b")
    bounded = m.chance(0.3)
    if bounded:
        nodes.append(number(m, f"{p}most", m.whole(1, 3), "int64"))
        nodes.append(helper.make_node("Less", [f"{p}i", f"{p}most"], [f"{p}on"]))
    else:
        nodes.append(helper.make_node("Identity", [f"{p}go"], [f"{p}on"]))
    outputs = [tensor_info(f"{p}on", "bool", 0), tensor_info(y, x.dtype, x.rank)]
    scanned = m.chance(0.5) and x.least > 0
    if scanned:
        nodes.append(helper.make_node("Neg", [y], [f"{p}s"]))
        outputs.append(tensor_info(f"{p}s", x.dtype, x.rank))
    inputs = [tensor_info(f"{p}i", "int64", 0), tensor_info(f"{p}go", "bool", 0), tensor_info(f"{p}x", x.dtype, x.rank)]
    go = m.constant(np.array(True)) if bounded or m.chance(0.5) else None

    def expected(given: dict[str, Any], results: list[Any]) -> list[Any]:
        """Fix shapes: ONNX Runtime loses sizes if there was no iteration and adds an axis to scalars; onnx's
        reference concatenates scan outputs."""
        shape = given[x.name].shape
        for one in results[1:]:
            if not given[x.name].size and one.ndim != 1 + len(shape):
                raise RefusedError(
                    "rows without elements that were joined end to end, of which nobody knows how many they were"
                )
        counts = [one.size // given[x.name].size if given[x.name].size else one.shape[0] for one in results[1:]]
        return [results[0], *[one.reshape(count, *shape) for count, one in zip(counts, results[1:], strict=True)]]

    m.node(
        op,
        trips,
        go,
        x,
        expected=expected,
        body=m.body("body", nodes, inputs, outputs),
        outputs=len(outputs) - 1,
        captures=used,
        exact=True,
    )


@makes("Scan")
def scan(m: Maker, op: str) -> None:
    rows = m.pick(CARRIED, 1, 3, low=-100, high=100, exact=True, nonempty=True)
    state = m.pick(rows.dtype, sizes=rows.sizes[1:], low=-100, high=100, exact=True)
    p = m.fresh()
    nodes, y, used = chain(m, f"{p}s", rows.dtype, [], f"{p}b")
    nodes.append(helper.make_node(m.one(["Add", "Sub", "Max"]), [y, f"{p}x"], [f"{p}z"]))
    nodes.append(helper.make_node("Neg", [f"{p}z"], [f"{p}out"]))
    rank = rows.rank - 1
    inputs = [tensor_info(f"{p}{one}", rows.dtype, rank) for one in "sx"]
    outputs = [tensor_info(f"{p}{one}", rows.dtype, rank) for one in ("z", "out")]
    body = m.body("body", nodes, inputs, outputs)
    attributes: dict[str, Any] = {}
    if m.chance(0.3):
        attributes["scan_input_directions"] = [1]
    if m.chance(0.2):
        attributes["scan_output_directions"] = [1]
    m.node(op, state, rows, body=body, num_scan_inputs=1, outputs=2, captures=used, exact=True, **attributes)
