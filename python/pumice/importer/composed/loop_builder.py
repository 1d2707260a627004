"""Build the engine's WHILE for an ONNX loop: its carried values, counter, slices and scan outputs.

Scan outputs are written to a buffer if the number of rows and their shape are known before the loop, which keeps all
shapes constant. Otherwise they are appended, and the host drives the loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..._pumice import GraphError
from ...base.element_types import Array, numpy_dtype
from ...base.errors import graph_error
from ..build.builder import Builder
from ..build.compound_values import Kind, Made, kind_of, parts_of
from ..build.subgraphs import add_captured, captured, inner_builder, signature, single_bool, tensors
from ..file.recipe import RANDOM_STATE, InputRecipe, NodeRecipe, Recipe
from .random import next_state

if TYPE_CHECKING:
    from ..._pumice import Graph, Value

INT32, INT64 = 6, 7  # TensorProto.DataType
_ONE = np.array([1], np.int32)
SCALAR = np.zeros(0, np.int64)  # the shape of a scalar
_MOST_BUFFER_BYTES = 64 << 20  # size limit for a scan output buffer whose rows may stay unused

Shape = tuple["int | None", ...] | None
Sizes: TypeAlias = "tuple[int, ...] | Value"


class Element(NamedTuple):
    """The type of the element that one iteration adds to a scan output."""

    dtype: str
    shape: Shape

    @property
    def known(self) -> tuple[int, ...] | None:
        sizes = [size for size in self.shape or () if size is not None]
        return tuple(sizes) if self.shape is not None and len(sizes) == len(self.shape) else None


class Scanned(NamedTuple):
    """A value that the loop reads or writes slice by slice."""

    name: str
    axis: int = 0
    reverse: bool = False
    rank: int | None = None  # declared rank of a slice


class State(NamedTuple):
    """The type of a loop-carried value."""

    dtype: str
    shape: Shape

    def joined(self, other: Value) -> State:
        """Return the common type of two states: sizes on which both agree, None for the others."""
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return self._replace(shape=None)
        return self._replace(shape=tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True)))


class Body(NamedTuple):
    """A built body: its graph, the next states, and the types of its scan output elements."""

    inner: Builder
    states: list[Value]
    elements: list[Element]
    made: list[Value]  # the body's values for `elements`


def _shape_of(value: Value, declared: Scanned) -> Shape:
    """Return the value's shape; if unknown, the rank declared in the file, which must hold at run time."""
    return (None,) * declared.rank if value.shape is None and declared.rank is not None else value.shape


def declared_rank(output: InputRecipe) -> int | None:
    return None if output.shape is None else len(output.shape)


class LoopBuilder:
    """Builds one Loop or Scan into the graph."""

    def __init__(self, builder: Builder, node: NodeRecipe, body: Recipe) -> None:
        self.builder = builder
        self.node = node
        self.body = body
        self.inputs: list[InputRecipe] = []  # body inputs of the states
        self.states: list[tuple[str, str, Kind]] = []  # (name of the state in the body, name of the next state, kind)
        self.initial: list[Value] = []
        self.rows: int | Value | None = None  # maximum trip count, int64[1] if computed; None if unlimited
        self.limit: Value | Array | None = None  # maximum trip count as int32[1]
        self.goes_on: Value | Array | None = None  # initial condition; None if always true
        self.number = ""  # name of the iteration number in the body
        self.number_shape = SCALAR
        self.condition_in = self.condition_out = ""
        self.slices: list[Scanned] = []
        self.sliced: list[Value] = []
        self.given: list[Scanned] = []  # scan outputs that are used
        self.elements: list[Element] = []  # element types of the scan outputs in `given`
        self.sizes: list[Sizes | None] = []
        self.keeps_shapes = False  # whether to reject iterations that change a state's shape
        self.certain = False  # whether known sizes hold for all inputs of the model

    def add_state(self, given: InputRecipe, following: InputRecipe, initial: Made) -> None:
        """Add a state, or several for a sequence or an optional value. Raise GraphError if the initial value has another kind."""
        kind, declared = kind_of(initial), Kind.of(given.dtype)
        if given.dtype and (kind.sequence or declared.sequence) and kind[:2] != declared[:2]:
            expected = f"'{given.name}': expected {declared} as its body declares"
            raise graph_error("node", self.node.name, f"{expected}, given {kind}")
        kind = kind.joined(declared)
        self.states.append((given.name, following.name, kind))
        self.initial += parts_of(self.builder, self.node, initial, kind)
        if kind.compound:
            parts = zip(kind.names(given.name), kind.parts, strict=True)
            self.inputs += [InputRecipe(name, dtype, shape, []) for name, (_, dtype, shape) in parts]
        else:
            self.inputs.append(given)

    # ---- graphs

    def _open(
        self, role: str, states: list[State], extra: list[State]
    ) -> tuple[Builder, list[Value], dict[str, Value]]:
        """Open a graph with the loop's inputs: states, extra states, counter, condition, limit, sliced and captured values."""
        builder, node = self.builder, self.node
        inner = inner_builder(builder, node, role, self.body)
        names = [value.name for value in self.inputs]
        graph, assumed = inner.graph, not builder.graph.exact
        values = [
            graph.input(name, state.dtype, state.shape, assumed=assumed)
            for name, state in zip(names, states, strict=True)
        ]
        inner.values.update(zip(names, values, strict=True))
        left = iter(values)
        for name, _, kind in self.states:
            inner.values[name] = kind.packed(left)
        values += [
            graph.input(f"{node.name}/rows{i}", state.dtype, state.shape, assumed=assumed)
            for i, state in enumerate(extra)
        ]
        own = {"counter": graph.input(f"{node.name}/counter", "int32", [1])}
        if self.goes_on is not None:
            own["goes_on"] = graph.input(f"{node.name}/goes on", "bool", [1])
        if self.limit is not None and not isinstance(self.limit, np.ndarray):
            own["limit"] = graph.input(f"{node.name}/limit", "int32", [1])
        for i, value in enumerate(self.sliced):
            own[f"sliced{i}"] = graph.input(f"{node.name}/sliced{i}", value.dtype, value.shape, assumed=assumed)
        add_captured(inner, self.captured)
        return inner, values, own

    def _limit_in(self, own: dict[str, Value]) -> Value | Array:
        limit = own.get("limit", self.limit)
        assert limit is not None
        return limit

    def _row(self, inner: Builder, own: dict[str, Value], reverse: bool) -> Value:
        """Return the slice index of this iteration as int32[1]."""
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
        """Return the body for these types, built once; without `modes` it is a trial without scan outputs."""
        sliced = tuple((value.dtype, value.shape) for value in self.sliced)
        what = (id(self.body), self.builder.path(self.node), self._fixed(), self.builder.graph.exact)
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
        if RANDOM_STATE in self.captured:
            inner.values[RANDOM_STATE] = next_state(inner, node, inner.tensor(RANDOM_STATE), own["counter"])
        if self.number:
            number = inner.helper(node, "Reshape", own["counter"], self.number_shape)
            inner.values[self.number] = inner.helper(node, "Cast", number, to=INT64)
        if self.condition_in:
            inner.values[self.condition_in] = inner.graph.constant(np.array(True))
        for i, scanned in enumerate(self.slices):
            row = inner.helper(node, "Reshape", self._row(inner, own, scanned.reverse), SCALAR)
            index = inner.helper(node, "Cast", row, to=INT64)
            inner.values[scanned.name] = inner.helper(node, "Gather", own[f"sliced{i}"], index, axis=scanned.axis)
        inner.add_nodes()
        made = [inner.tensor(scanned.name) for scanned in self.given]
        elements = [
            Element(value.dtype, _shape_of(value, scanned)) for value, scanned in zip(made, self.given, strict=True)
        ]
        following = [value for _, name, kind in self.states for value in inner.made_values(node, name, kind)]
        if self.keeps_shapes:
            following = [self._kept(inner, value, before) for value, before in zip(following, values, strict=False)]
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
        return Body(inner, following, elements, made)

    def _kept(self, inner: Builder, value: Value, before: Value) -> Value:
        """Return the next state. If its shape is unknown, a node checks at run time that it has not changed."""
        is_known = value.shape is not None and None not in value.shape and inner.graph.exact
        if is_known and value.shape == before.shape:
            return value
        kept: Value = inner.helper(self.node, "pumice::Unchanged", value, before)
        return kept

    # ---- scan outputs

    def _results_in(
        self, inner: Builder, own: dict[str, Value], made: list[Value], rows: list[Value], modes: list[bool]
    ) -> list[Value]:
        """Return the scan outputs' next states: a buffer with one more row (mode True), or all elements flattened and their shapes."""
        node = self.node
        following = []
        left = iter(rows)
        for value, scanned, buffered in zip(made, self.given, modes, strict=True):
            before = next(left)
            if buffered:
                row = inner.helper(node, "Reshape", self._row(inner, own, scanned.reverse), np.array([1, 1]))
                index = inner.helper(node, "Cast", row, to=INT64)
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
        for element, sizes_of_rows, buffered in zip(elements, self.sizes, modes, strict=True):
            if buffered:
                assert sizes_of_rows is not None
                rows = self.rows if isinstance(self.rows, int) else None
                states.append(State(element.dtype, (rows, *(element.shape or ()))))
                initial.append(self._zeros(element, sizes_of_rows))
                continue
            shape_of_shape = None if element.shape is None else len(element.shape)
            sizes: Value | Array = np.array([size or 0 for size in element.shape or ()], np.int64)
            if sizes_of_rows is not None and not isinstance(sizes_of_rows, tuple):
                sizes = sizes_of_rows  # a loop without iterations returns these sizes unchanged
            states += [State(element.dtype, (None,)), State("int64", (shape_of_shape,))]
            initial += [np.zeros(0, numpy_dtype(element.dtype)), sizes]
        return states, initial

    def _zeros(self, element: Element, sizes: Sizes) -> Value:
        assert self.rows is not None
        builder, node = self.builder, self.node
        rows = np.array([self.rows]) if isinstance(self.rows, int) else self.rows
        parts = [rows, np.array(sizes, np.int64) if isinstance(sizes, tuple) else sizes]
        if isinstance(rows, np.ndarray) and isinstance(sizes, tuple):
            shape: Value | Array = np.concatenate([rows, np.array(sizes, np.int64)])
        else:
            shape = builder.helper(node, "Concat", *parts, axis=0)
        zeros = builder.helper(node, "ConstantOfShape", shape, value=np.zeros(1, numpy_dtype(element.dtype)))
        return self._expected(zeros, element)

    def _expected(self, rows: Value, element: Element) -> Value:
        """Return the rows, after passing their likely shape to the graph as a hint."""
        if element.shape is not None:
            count = self.rows if isinstance(self.rows, int) and self.goes_on is None else None
            self.builder.graph.expect(rows, [count, *element.shape])
        return rows

    def _is_buffered(self, element: Element, sizes: Sizes | None) -> bool:
        return sizes is not None and self._may_be_buffered(element)

    def _may_be_buffered(self, element: Element) -> bool:
        if self.rows is None:
            return False
        if self.goes_on is None:
            return True
        if element.known is None or not isinstance(self.rows, int):
            return False
        return math.prod((self.rows, *element.known)) * numpy_dtype(element.dtype).itemsize <= _MOST_BUFFER_BYTES

    def _sizes(self, trial: Body) -> list[Sizes | None]:
        """Return the sizes of each element: integers if certain, else a vector computed before the loop.

        They are None if only an iteration can determine them. Sizes that agree for some of the model's input sizes prove nothing, for
        example s % 2 or min(n, s).
        """
        if self.certain:
            return [element.known for element in self.elements]
        return [
            () if element.shape == () else self._sizes_before(trial.inner, j, value)
            for j, (element, value) in enumerate(zip(self.elements, trial.made, strict=True))
        ]

    def _sizes_before(self, inner: Builder, j: int, value: Value) -> Value | None:
        """Return the sizes in the first iteration, which ONNX requires of all; None if they cannot be computed.

        The nodes that produce the element are copied before the loop; only its shape is read there.
        """
        builder, node = self.builder, self.node
        sources = inner.graph.shape_sources(value)
        if sources is None:
            return None
        operands = [
            *self.initial,
            np.zeros(1, np.int32),
            *([] if self.goes_on is None else [self.goes_on]),
            *([] if self.limit is None or isinstance(self.limit, np.ndarray) else [self.limit]),
            *self.sliced,
            *tensors(self.captured),
        ]
        for inside, operand in zip(inner.graph.inputs, operands, strict=True):
            if inside not in sources or isinstance(operand, np.ndarray):
                continue
            outside = builder.graph.shape_sources(operand, elements=True)
            if outside is None or (outside and builder.outer):
                return None
        try:
            first = builder.graph.graft(value, operands, builder.helper_name(node, "first"))
        except GraphError:  # the nodes cannot run on these sizes, or not on any of the sizes tried
            return None
        if first.shape is None and self.elements[j].shape is None:
            return None
        if self.elements[j].shape is None:  # the body does not know which sizes are equal, but the outer graph may
            self.elements[j] = self.elements[j]._replace(shape=first.shape)
        return builder.helper(node, "Shape", first)

    def _result(
        self, element: Element, buffered: bool, scanned: Scanned, name: str, rows: list[Value], count: Value
    ) -> Value:
        """Return the scan output in ONNX's form. The first entries of `rows` are the loop's results for it."""
        helper, node = self.builder.helper, self.node
        known = element.known if self.certain else None
        value = rows[0]
        last = "" if scanned.axis else name
        if buffered and self.goes_on is not None:
            end = helper(node, "Cast", count, to=INT64)
            value = helper(node, "Slice", value, np.array([0]), end, np.array([0]), output=last)
        elif not buffered:
            if known is not None and 0 not in known:
                shape: Value | Array = np.array([-1, *known])
            else:
                shape = helper(node, "Concat", helper(node, "Cast", count, to=INT64), rows[1], axis=0)
            value = helper(node, "Reshape", value, shape, output=last, allowzero=1)
        return self._turned(self._expected(value, element), element, scanned.axis, name)

    def _turned(self, rows: Value, element: Element, axis: int, name: str) -> Value:
        return (
            self.builder.helper(self.node, "Transpose", rows, perm=self._order(element, axis), output=name)
            if axis
            else rows
        )

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
        """Add the loop. names: names of the states after the loop, then of the scan outputs in `given`; "" for unused results."""
        kinds = [kind for _, _, kind in self.states]
        self._add(
            [part for name, kind in zip(names, kinds, strict=False) for part in kind.names(name)] + names[len(kinds) :]
        )
        for name, kind in zip(names, kinds, strict=False):
            if name and kind.compound:
                parts = [self.builder.values[part] for part in kind.names(name)]
                self.builder.values[name] = kind.packed(iter(parts))  # type: ignore[arg-type]

    def _add(self, names: list[str]) -> None:
        """Add the loop; `names` has one entry per tensor of a state."""
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
        self.elements = list(trial.elements)
        self.certain = builder.graph.exact and trial.inner.graph.exact
        self.sizes = self._sizes(trial)
        if self.rows == 0:
            self._add_nothing(names)
            return
        modes = [self._is_buffered(*element) for element in zip(self.elements, self.sizes, strict=True)]
        extra, zeros = self._rows_before(self.elements, modes)
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
            invariant=[*invariant, *tensors(self.captured)],
            name=node.name,
            output_names=self._made_names(names, modes, len(carried)),
        )
        count = made[len(states) + len(zeros)]
        values = list(made[: len(states)])
        rows = list(made[len(states) :])
        results = zip(self.elements, modes, self.given, names[len(states) :], strict=True)
        for element, buffered, scanned, name in results:
            values.append(self._result(element, buffered, scanned, name, rows, count))
            rows = rows[1 if buffered else 2 :]
        found = {name: value for name, value in zip(names, values, strict=True) if name}
        builder.keep(list(found), tuple(found.values()))

    def _add_nothing(self, names: list[str]) -> None:
        """Add the results of a loop without iterations: its initial states, and no rows."""
        builder, node = self.builder, self.node
        results = zip(self.elements, self.sizes, self.given, names[len(self.initial) :], strict=True)
        values = list(self.initial)
        for element, sizes, scanned, _ in results:
            zeros = self._zeros(element, tuple(size or 0 for size in element.shape or ()) if sizes is None else sizes)
            values.append(self._turned(zeros, element, scanned.axis, ""))
        builder.keep_results(node._replace(outputs=names), *values)

    def _made_names(self, names: list[str], modes: list[bool], count: int) -> list[str]:
        """Return names for the WHILE's outputs: the file's name if the output is used unchanged."""
        states = len(self.initial)
        made = list(names[:states])
        for buffered, scanned, name in zip(modes, self.given, names[states:], strict=True):
            final = buffered and self.goes_on is None and scanned.axis == 0
            made += [name if final else ""] + ([] if buffered else [""])
        made += [""] * (count - len(made))
        return [name or f"{self.node.name}/made{i}" for i, name in enumerate(made)]

    def _check_types(self, states: list[State]) -> None:
        for state, declared in zip(states, self.inputs, strict=True):
            if declared.dtype and declared.dtype != state.dtype:
                expected = f"'{declared.name}': expected {declared.dtype} as its body declares"
                raise graph_error("node", self.node.name, f"{expected}, given {state.dtype}")
