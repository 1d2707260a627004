"""Loop and Scan of ONNX as the engine's WHILE.

What an iteration adds to the results becomes a row of a buffer where the number of rows and their shape are known before the
loop, which then has shapes that do not change; else it is appended, and the host drives the loop. The engine counts in int32: a
trip count above 2^31 - 1 counts as that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .element_types import Array, numpy_dtype
from .errors import graph_error
from .graph_builder import Builder, Refused
from .recipe import InputRecipe, NodeRecipe, Recipe
from .subgraphs import SINGLE, add_captured, captured, inner_builder, signature, single_bool, subgraphs_of

if TYPE_CHECKING:
    from ._pumice import Graph, Value

_INT32, _INT64 = 6, 7  # TensorProto.DataType
_ONE = np.array([1], np.int32)
_SCALAR = np.zeros(0, np.int64)  # as a shape
_MOST_TRIPS = 2**31 - 1
_MOST_BUFFER_BYTES = 64 << 20  # of rows that may stay unused

Shape = tuple["int | None", ...] | None


class Element(NamedTuple):
    """What each iteration gives for one of the results."""

    dtype: str
    shape: Shape

    @property
    def known(self) -> tuple[int, ...] | None:
        sizes = [size for size in self.shape or () if size is not None]
        return tuple(sizes) if self.shape is not None and len(sizes) == len(self.shape) else None


class Scanned(NamedTuple):
    """A value that the iterations take slice by slice, or one that they give so."""

    name: str
    axis: int = 0
    reverse: bool = False
    rank: int | None = None  # of a slice, as the file declares it


class State(NamedTuple):
    """What one iteration leaves to the next."""

    dtype: str
    shape: Shape

    def joined(self, other: Value) -> State:
        """What holds of both."""
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return self._replace(shape=None)
        return self._replace(shape=tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True)))


class Body(NamedTuple):
    """A body as it was built: its graph, what of it comes next, what it gives for the results."""

    inner: Builder
    states: list[Value]
    elements: list[Element]


def _shape_of(value: Value, declared: Scanned) -> Shape:
    """What the file says counts where the graph does not know; it has to be right when the loop runs."""
    return (None,) * declared.rank if value.shape is None and declared.rank is not None else value.shape


def _declared_rank(output: InputRecipe) -> int | None:
    return None if output.shape is None else len(output.shape)


class _Loop:
    """One Loop or Scan on its way into the graph."""

    def __init__(self, builder: Builder, node: NodeRecipe, body: Recipe) -> None:
        self.builder = builder
        self.node = node
        self.body = body
        self.inputs: list[InputRecipe] = []  # of the body, for the states
        self.outputs: list[str] = []  # of the body, the next states
        self.initial: list[Value] = []
        self.rows: int | Value | None = None  # at most so many trips; int64[1] where it is computed
        self.limit: Value | Array | None = None  # the same as int32[1]
        self.goes_on: Value | Array | None = None  # the first condition; none where it is always true
        self.number = ""  # what the body calls the iteration number, and its condition
        self.number_shape = _SCALAR
        self.condition_in = self.condition_out = ""
        self.slices: list[Scanned] = []
        self.sliced: list[Value] = []
        self.given: list[Scanned] = []  # for each of the results that are read

    # ---- graphs

    def _open(
        self, role: str, states: list[State], extra: list[State]
    ) -> tuple[Builder, list[Value], dict[str, Value]]:
        """A graph with the loop's inputs: states, extra states, counter, condition; limit, sliced values, captured values."""
        builder, node = self.builder, self.node
        inner = inner_builder(builder, node, role, self.body)
        names = [value.name for value in self.inputs]
        graph = inner.graph
        values = [graph.input(name, state.dtype, state.shape) for name, state in zip(names, states, strict=True)]
        inner.values.update(zip(names, values, strict=True))
        values += [graph.input(f"{node.name}/rows{i}", state.dtype, state.shape) for i, state in enumerate(extra)]
        own = {"counter": graph.input(f"{node.name}/counter", "int32", [1])}
        if self.goes_on is not None:
            own["goes_on"] = graph.input(f"{node.name}/goes on", "bool", [1])
        if self.limit is not None and not isinstance(self.limit, np.ndarray):
            own["limit"] = graph.input(f"{node.name}/limit", "int32", [1])
        for i, value in enumerate(self.sliced):
            own[f"sliced{i}"] = graph.input(f"{node.name}/sliced{i}", value.dtype, value.shape)
        add_captured(inner, self.captured)
        return inner, values, own

    def _limit_in(self, own: dict[str, Value]) -> Value | Array:
        limit = own.get("limit", self.limit)
        assert limit is not None
        return limit

    def _row(self, inner: Builder, own: dict[str, Value], reverse: bool) -> Value:
        """The row of this iteration, int32[1]."""
        if not reverse:
            return own["counter"]
        after = inner.helper(self.node, "Add", own["counter"], _ONE)
        return inner.helper(self.node, "Sub", self._limit_in(own), after)

    def _condition(self, states: list[State], extra: list[State]) -> Graph:
        inner, _, own = self._open("condition", states, extra)
        more: Value | None = None
        if self.limit is not None:
            more = inner.helper(self.node, "Less", own["counter"], self._limit_in(own))
        if self.goes_on is not None:
            more = inner.helper(self.node, "And", more, own["goes_on"]) if more else own["goes_on"]
        if more is None or self.limit is None:
            more = inner.helper(self.node, "Identity", np.array([True]) if more is None else more)
        inner.graph.output("more", more)
        return inner.graph

    def _iteration(self, states: list[State], extra: list[State], modes: list[bool]) -> Body:
        """The body; without `modes` a trial that leaves the results out."""
        sliced = tuple((value.dtype, value.shape) for value in self.sliced)
        what = (id(self.body), self.builder.path(self.node), self._fixed())
        key = (*what, tuple(states), tuple(extra), tuple(modes), signature(self.captured), sliced)
        if key not in self.builder.subgraphs:
            self.builder.subgraphs[key] = self._built(states, extra, modes)
        body: Body = self.builder.subgraphs[key]
        return body

    def _fixed(self) -> tuple[Any, ...]:
        limit = int(self.limit[0]) if isinstance(self.limit, np.ndarray) else self.limit is None
        return limit, self.goes_on is None

    def _built(self, states: list[State], extra: list[State], modes: list[bool]) -> Body:
        node = self.node
        inner, values, own = self._open("body", states, extra)
        if self.number:
            number = inner.helper(node, "Reshape", own["counter"], self.number_shape)
            inner.values[self.number] = inner.helper(node, "Cast", number, to=_INT64)
        if self.condition_in:
            inner.values[self.condition_in] = inner.graph.constant(np.array(True))
        for i, scanned in enumerate(self.slices):
            row = inner.helper(node, "Reshape", self._row(inner, own, scanned.reverse), _SCALAR)
            index = inner.helper(node, "Cast", row, to=_INT64)
            inner.values[scanned.name] = inner.helper(node, "Gather", own[f"sliced{i}"], index, axis=scanned.axis)
        inner.add_nodes()
        made = [inner.operand(scanned.name) for scanned in self.given]
        elements = [
            Element(value.dtype, _shape_of(value, scanned)) for value, scanned in zip(made, self.given, strict=True)
        ]
        following = [inner.made_value(node, name) for name in self.outputs]
        for j, value in enumerate(following):
            inner.graph.output(f"{j}", value)
        if modes:
            rows = values[len(states) :]
            for value in self._results_in(inner, own, made, rows, modes):
                inner.graph.output("", value)
        inner.graph.output("counter", inner.helper(node, "Add", own["counter"], _ONE))
        if self.goes_on is not None:
            goes_on = single_bool(inner, node, self.condition_out)
            inner.graph.output("goes on", inner.helper(node, "Identity", goes_on))
        return Body(inner, following, elements)

    # ---- results, row by row

    def _results_in(
        self, inner: Builder, own: dict[str, Value], made: list[Value], rows: list[Value], modes: list[bool]
    ) -> list[Value]:
        """The next states of the buffers (mode True), or of flat values that grow and of their elements' shape."""
        node = self.node
        following = []
        left = iter(rows)
        for value, scanned, buffered in zip(made, self.given, modes, strict=True):
            before = next(left)
            if buffered:
                row = inner.helper(node, "Reshape", self._row(inner, own, scanned.reverse), np.array([1, 1]))
                index = inner.helper(node, "Cast", row, to=_INT64)
                update = inner.helper(node, "Unsqueeze", value, np.array([0]))
                following.append(inner.helper(node, "ScatterND", before, index, update))
                continue
            next(left)
            flat = inner.helper(node, "Reshape", value, np.array([-1]))
            both = (flat, before) if scanned.reverse else (before, flat)
            following.append(inner.helper(node, "Concat", *both, axis=0))
            following.append(inner.helper(node, "Shape", value))
        return following

    def _rows_before(self, elements: list[Element], modes: list[bool]) -> tuple[list[State], list[Value | Array]]:
        states: list[State] = []
        initial: list[Value | Array] = []
        for element, buffered in zip(elements, modes, strict=True):
            if buffered:
                states.append(
                    State(element.dtype, (self.rows if isinstance(self.rows, int) else None, *(element.known or ())))
                )
                initial.append(self._zeros(element))
                continue
            shape_of_shape = None if element.shape is None else len(element.shape)
            sizes = np.array([size or 0 for size in element.shape or ()], np.int64)
            states += [State(element.dtype, (None,)), State("int64", (shape_of_shape,))]
            initial += [np.zeros(0, numpy_dtype(element.dtype)), sizes]
        return states, initial

    def _zeros(self, element: Element) -> Value | Array:
        dtype, sizes = numpy_dtype(element.dtype), element.known or ()
        if isinstance(self.rows, int):
            return np.zeros((self.rows, *sizes), dtype)
        assert self.rows is not None
        helper = self.builder.helper
        shape = helper(self.node, "Concat", self.rows, np.array(sizes, np.int64), axis=0)
        return helper(self.node, "ConstantOfShape", shape, value=np.zeros(1, dtype))

    def _is_buffered(self, element: Element) -> bool:
        if element.known is None or self.rows is None:
            return False
        if isinstance(self.rows, int):
            unused = math.prod((self.rows, *element.known)) * numpy_dtype(element.dtype).itemsize
            return self.goes_on is None or unused <= _MOST_BUFFER_BYTES
        return self.goes_on is None

    def _result(
        self, element: Element, buffered: bool, scanned: Scanned, name: str, rows: list[Value], count: Value
    ) -> Value:
        """The result as ONNX has it. `rows` starts with what the loop gave for it."""
        helper, node = self.builder.helper, self.node
        steps: list[tuple[str, list[Any], dict[str, Any]]] = []
        shape: Value | Array
        known = element.known
        if buffered and self.goes_on is not None:
            end = helper(node, "Cast", count, to=_INT64)
            steps.append(("Slice", [np.array([0]), end, np.array([0])], {}))
        elif buffered and self._is_shaped_late(element):
            steps.append(("Reshape", [np.array([-1, *(known or ())])], {}))
        elif not buffered:
            if known is not None and 0 not in known:
                shape = np.array([-1, *known])
            else:
                shape = helper(node, "Concat", helper(node, "Cast", count, to=_INT64), rows[1], axis=0)
            steps.append(("Reshape", [shape], {"allowzero": 1}))
        if scanned.axis != 0:
            steps.append(("Transpose", [], {"perm": self._order(element, scanned.axis)}))
        value = rows[0]
        for i, (op, operands, attributes) in enumerate(steps):
            output = name if i == len(steps) - 1 else ""
            value = helper(node, op, value, *operands, output=output, **attributes)
        return value

    def _is_shaped_late(self, element: Element) -> bool:
        """Whether a buffer of a computed number of rows needs a Reshape to tell its rank."""
        return not isinstance(self.rows, int) and 0 not in (element.known or ())

    def _order(self, element: Element, axis: int) -> list[int]:
        if element.shape is None:
            raise graph_error("node", self.node.name, f"scan output on axis {axis} of a value of unknown rank")
        rank = len(element.shape) + 1
        if not -rank <= axis < rank:
            raise graph_error("node", self.node.name, f"scan output: expected an axis of {rank}, given {axis}")
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        return order

    # ---- the node

    def add(self, names: list[str]) -> None:
        """`names`: of the states after the loop, then of `given`; "" for what nobody reads."""
        builder, node = self.builder, self.node
        self.captured = captured(builder, [self.body])
        states = [State(value.dtype, value.shape) for value in self.initial]
        self._check_types(states)
        while True:
            trial = self._iteration(states, [], [])
            self._check_types([State(value.dtype, value.shape) for value in trial.states])
            joined = [state.joined(value) for state, value in zip(states, trial.states, strict=True)]
            if joined == states:
                break
            states = joined
        modes = [self._is_buffered(element) for element in trial.elements]
        extra, zeros = self._rows_before(trial.elements, modes)
        body = self._iteration(states, extra, modes) if modes else trial
        counter = np.zeros(1, np.int32)
        carried: list[Value | Array] = [*self.initial, *zeros, counter]
        if self.goes_on is not None:
            carried.append(self.goes_on)
        invariant = [*([] if self.limit is None or isinstance(self.limit, np.ndarray) else [self.limit]), *self.sliced]
        condition = self._condition(states, extra)
        made = builder.graph.while_(
            condition,
            body.inner.graph,
            carried=carried,
            invariant=[*invariant, *self.captured.values()],
            name=node.name,
            output_names=self._made_names(names, trial.elements, modes, len(carried)),
        )
        count = made[len(states) + len(zeros)]
        values = list(made[: len(states)])
        rows = list(made[len(states) :])
        results = zip(trial.elements, modes, self.given, names[len(states) :], strict=True)
        for element, buffered, scanned, name in results:
            values.append(self._result(element, buffered, scanned, name, rows, count))
            rows = rows[1 if buffered else 2 :]
        found = {name: value for name, value in zip(names, values, strict=True) if name}
        builder.keep(list(found), tuple(found.values()))

    def _made_names(self, names: list[str], elements: list[Element], modes: list[bool], count: int) -> list[str]:
        """Of what the WHILE gives: the file's names for what is a result as it is."""
        states = len(self.initial)
        made = list(names[:states])
        for element, buffered, scanned, name in zip(elements, modes, self.given, names[states:], strict=True):
            final = buffered and self.goes_on is None and scanned.axis == 0 and not self._is_shaped_late(element)
            made += [name if final else ""] + ([] if buffered else [""])
        made += [""] * (count - len(made))
        return [name or f"{self.node.name}/made{i}" for i, name in enumerate(made)]

    def _check_types(self, states: list[State]) -> None:
        for state, declared in zip(states, self.inputs, strict=True):
            if declared.dtype and declared.dtype != state.dtype:
                expected = f"'{declared.name}': expected {declared.dtype} as its body declares"
                raise graph_error("node", self.node.name, f"{expected}, given {state.dtype}")


# ---- Loop


def _trip_count(loop: _Loop, name: str) -> None:
    """Of any number: at least 0, and as the engine counts at most 2^31 - 1."""
    builder, node = loop.builder, loop.node
    array = builder.array(name)
    if array is not None:
        if array.size != 1 or array.dtype.kind not in "iu":
            raise graph_error(
                "node", node.name, f"trip count '{name}': expected one integer, given {array.dtype}{array.shape}"
            )
        loop.rows = max(0, min(int(array.reshape(1)[0]), _MOST_TRIPS))
        loop.limit = np.array([loop.rows], np.int32)
        return
    count = builder.helper(node, "Reshape", builder.operand(name), SINGLE)
    if count.dtype != "int64":
        raise graph_error("node", node.name, f"trip count '{name}': expected int64, given {count.dtype}")
    loop.rows = builder.helper(node, "Clip", count, np.array(0), np.array(_MOST_TRIPS))
    loop.limit = builder.helper(node, "Cast", loop.rows, to=_INT32)


def _is_always_true(builder: Builder, body: Recipe) -> bool:
    """Whether a body that goes on once goes on for ever, as far as can be seen."""
    name = body.outputs[0].name
    sources = {output: node.inputs[0] for node in body.nodes if node.op == "Identity" for output in node.outputs}
    while name in sources:
        name = sources[name]
    if name == body.inputs[1].name:
        return True
    constant = body.constants.get(name) or (builder.constants.get(name) if name in body.captured else None)
    return constant is not None and constant.dtype == "bool" and any(bytes(constant.raw))


def add_loop(builder: Builder, node: NodeRecipe) -> None:
    (body,) = subgraphs_of(builder, node, "body")
    inputs = node.inputs + [""] * (2 - len(node.inputs))
    states = len(inputs) - 2
    if len(body.inputs) != len(inputs) or not 1 + states <= len(body.outputs) or len(node.outputs) >= len(body.outputs):
        expected = f"a body of {len(inputs)} inputs and at least {max(1 + states, 1 + len(node.outputs))} outputs"
        raise graph_error("node", node.name, f"expected {expected}, given {len(body.inputs)} and {len(body.outputs)}")
    if "" in inputs[2:]:
        builder.unsupported.append(f"node '{builder.path(node)}': operator Loop: an optional value that is left out")
        raise Refused
    loop = _Loop(builder, node, body)
    loop.inputs = body.inputs[2:]
    loop.outputs = [output.name for output in body.outputs[1 : 1 + states]]
    loop.initial = [builder.operand(name) for name in inputs[2:]]
    if inputs[0]:
        _trip_count(loop, inputs[0])
    first = single_bool(builder, node, inputs[1]) if inputs[1] else np.array([True])
    starts = isinstance(first, np.ndarray) and bool(first[0])
    ignored = bool(inputs[0]) and not inputs[1]  # by the standard; without both the body's own condition ends the loop
    if not (starts and (ignored or _is_always_true(builder, body))):
        loop.goes_on = first
    loop.number, loop.condition_in = body.inputs[0].name, body.inputs[1].name
    loop.number_shape = SINGLE if len(body.inputs[0].shape or ()) == 1 else _SCALAR
    loop.condition_out = body.outputs[0].name
    names = node.outputs + [""] * (states - len(node.outputs))
    scans = [j for j in range(states, len(names)) if names[j]]
    results = [body.outputs[1 + j] for j in scans]
    loop.given = [Scanned(result.name, rank=_declared_rank(result)) for result in results]
    loop.add(names[:states] + [names[j] for j in scans])


# ---- Scan


def _integers(node: NodeRecipe, name: str, count: int) -> list[int]:
    given = node.attributes.get(name, [0] * count)
    if not isinstance(given, list) or len(given) != count or not all(isinstance(item, int) for item in given):
        raise graph_error("node", node.name, f"attribute '{name}': expected {count} integers, given {given!r}")
    return [int(item) for item in given]


def _directions(node: NodeRecipe, name: str, count: int) -> list[bool]:
    given = _integers(node, name, count)
    if not set(given) <= {0, 1}:
        raise graph_error("node", node.name, f"attribute '{name}': expected 0 or 1, given {given!r}")
    return [direction == 1 for direction in given]


def add_scan(builder: Builder, node: NodeRecipe) -> None:
    (body,) = subgraphs_of(builder, node, "body")
    slices = node.attributes.get("num_scan_inputs")
    if not isinstance(slices, int) or not 1 <= slices <= len(node.inputs) or "" in node.inputs:
        expected = f"between 1 and all {len(node.inputs)} of its inputs as 'num_scan_inputs'"
        raise graph_error("node", node.name, f"expected {expected}, given {slices!r}")
    states = len(node.inputs) - slices
    results = len(body.outputs) - states
    if len(body.inputs) != len(node.inputs) or results < 0 or len(node.outputs) > len(body.outputs):
        expected = f"a body of {len(node.inputs)} inputs and at least {max(states, len(node.outputs))} outputs"
        raise graph_error("node", node.name, f"expected {expected}, given {len(body.inputs)} and {len(body.outputs)}")
    loop = _Loop(builder, node, body)
    loop.inputs = body.inputs[:states]
    loop.outputs = [output.name for output in body.outputs[:states]]
    loop.initial = [builder.operand(name) for name in node.inputs[:states]]
    axes = _integers(node, "scan_input_axes", slices)
    reverse = _directions(node, "scan_input_directions", slices)
    loop.slices = [Scanned(body.inputs[states + i].name, axes[i], reverse[i]) for i in range(slices)]
    _take_slices(loop, [builder.operand(name) for name in node.inputs[states:]])
    axes, reverse = _integers(node, "scan_output_axes", results), _directions(node, "scan_output_directions", results)
    names = node.outputs + [""] * (states - len(node.outputs))
    scans = [j for j in range(states, len(names)) if names[j]]
    loop.given = [
        Scanned(body.outputs[j].name, axes[j - states], reverse[j - states], _declared_rank(body.outputs[j]))
        for j in scans
    ]
    loop.add(names[:states] + [names[j] for j in scans])


def _take_slices(loop: _Loop, values: list[Value]) -> None:
    """All as long as the first; where that is not known now, a Reshape fails when it is not so."""
    builder, node = loop.builder, loop.node
    lengths: list[int | None] = []
    for value, scanned in zip(values, loop.slices, strict=True):
        rank = None if value.shape is None else len(value.shape)
        if rank is not None and not -rank <= scanned.axis < rank:
            raise graph_error("node", node.name, f"'{value.name}': expected an axis of {rank}, given {scanned.axis}")
        lengths.append(value.shape[scanned.axis] if value.shape is not None else None)
    known = next((length for length in lengths if length is not None), None)
    for length, value in zip(lengths, values, strict=True):
        if length not in (known, None):
            raise graph_error("node", node.name, f"'{value.name}': expected {known} slices, given {length}")
    rows: Value | Array
    if known is not None:
        rows = np.array([known])
        loop.rows, loop.limit = known, np.array([known], np.int32)
    else:
        shape = builder.helper(node, "Shape", values[0])
        rows = loop.rows = builder.helper(node, "Gather", shape, np.array([loop.slices[0].axis]), axis=0)
        loop.limit = builder.helper(node, "Cast", rows, to=_INT32)
    for i, (length, value) in enumerate(zip(lengths, values, strict=True)):
        if length == known and (known is not None or i == 0):
            continue
        shape = builder.helper(node, "Shape", value)
        axis = loop.slices[i].axis
        index = np.array([[axis]]) if axis >= 0 or value.shape is None else np.array([[len(value.shape) + axis]])
        values[i] = builder.helper(node, "Reshape", value, builder.helper(node, "ScatterND", shape, index, rows))
    loop.sliced = values
