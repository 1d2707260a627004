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
from ..build.compound_values import BuiltValue, ValueKind, get_parts, get_value_kind
from ..build.subgraphs import (
    add_captured,
    flatten_tensors,
    get_captured_values,
    get_condition,
    make_capture_signature,
    make_subgraph_builder,
)
from ..file.recipe import RANDOM_STATE, InputRecipe, NodeRecipe, Recipe
from .random import make_iteration_state

if TYPE_CHECKING:
    from ..._pumice import Graph, Value

INT32, INT64 = 6, 7  # TensorProto.DataType
_INT32_ONE = np.array([1], np.int32)
SCALAR = np.zeros(0, np.int64)  # the shape of a scalar
_MAX_BUFFER_BYTES = 64 << 20  # size limit for a scan output buffer whose rows may stay unused

Shape = tuple["int | None", ...] | None
Sizes: TypeAlias = "tuple[int, ...] | Value"


class Element(NamedTuple):
    """The type of the element that one iteration adds to a scan output."""

    dtype: str
    shape: Shape

    @property
    def known_sizes(self) -> tuple[int, ...] | None:
        sizes = [size for size in self.shape or () if size is not None]
        return tuple(sizes) if self.shape is not None and len(sizes) == len(self.shape) else None


class SlicedValue(NamedTuple):
    """A value that the loop reads or writes slice by slice."""

    name: str
    axis: int = 0
    reverse: bool = False
    rank: int | None = None  # declared rank of a slice


class State(NamedTuple):
    """The type of a loop-carried value."""

    dtype: str
    shape: Shape

    def common_type(self, other: Value) -> State:
        """Return the common type of two states: sizes on which both agree, None for the others."""
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return self._replace(shape=None)
        return self._replace(shape=tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True)))


class Body(NamedTuple):
    """A built body: its graph, the next states, and the types of its scan output elements."""

    inner: Builder
    states: list[Value]
    elements: list[Element]
    scan_values: list[Value]  # the body's values for `elements`


def _shape_of(value: Value, declared: SlicedValue) -> Shape:
    """Return the value's shape; if unknown, the rank declared in the file, which must hold at run time."""
    return (None,) * declared.rank if value.shape is None and declared.rank is not None else value.shape


def get_declared_rank(output: InputRecipe) -> int | None:
    return None if output.shape is None else len(output.shape)


class LoopBuilder:
    """Builds one Loop or Scan into the graph."""

    def __init__(self, builder: Builder, node: NodeRecipe, body: Recipe) -> None:
        self.builder = builder
        self.node = node
        self.body = body
        self.inputs: list[InputRecipe] = []  # body inputs of the states
        self.states: list[tuple[str, str, ValueKind]] = []  # (name in the body, name of the next state, kind)
        self.initial: list[Value] = []
        self.rows: int | Value | None = None  # maximum trip count, int64[1] if computed; None if unlimited
        self.limit: Value | Array | None = None  # maximum trip count as int32[1]
        self.loop_condition: Value | Array | None = None  # initial condition; None if always true
        self.number = ""  # name of the iteration number in the body
        self.number_shape = SCALAR
        self.condition_in = self.condition_out = ""
        self.slices: list[SlicedValue] = []
        self.sliced_inputs: list[Value] = []
        self.scan_outputs: list[SlicedValue] = []  # scan outputs that are used
        self.elements: list[Element] = []  # element types of the scan outputs in `given`
        self.sizes: list[Sizes | None] = []
        self.keeps_shapes = False  # whether to reject iterations that change a state's shape
        self.is_exact = False  # whether known sizes hold for all inputs of the model

    def add_state(self, body_input: InputRecipe, next_states: InputRecipe, initial: BuiltValue) -> None:
        """Add a state, or several for a sequence or an optional value. Raise GraphError if the initial value has another kind."""
        kind, declared = get_value_kind(initial), ValueKind.parse(body_input.dtype)
        if body_input.dtype and (kind.sequence or declared.sequence) and kind[:2] != declared[:2]:
            expected = f"'{body_input.name}': expected {declared} as its body declares"
            raise graph_error("node", self.node.name, f"{expected}, given {kind}")
        kind = kind.with_optional(declared)
        self.states.append((body_input.name, next_states.name, kind))
        self.initial += get_parts(self.builder, self.node, initial, kind)
        if kind.is_compound:
            tensor_specs = zip(kind.get_part_names(body_input.name), kind.tensor_specs, strict=True)
            self.inputs += [InputRecipe(name, dtype, shape, []) for name, (_, dtype, shape) in tensor_specs]
        else:
            self.inputs.append(body_input)

    # ---- graphs

    def _open_graph(
        self, role: str, states: list[State], extra: list[State]
    ) -> tuple[Builder, list[Value], dict[str, Value]]:
        """Open a graph with the loop's inputs: states, extra states, counter, condition, limit, sliced and captured values."""
        builder, node = self.builder, self.node
        inner = make_subgraph_builder(builder, node, role, self.body)
        names = [value.name for value in self.inputs]
        graph, assumed = inner.graph, not builder.graph.exact
        pairs = zip(names, states, strict=True)
        values = [graph.input(name, state.dtype, state.shape, assumed=assumed) for name, state in pairs]
        inner.values.update(zip(names, values, strict=True))
        remaining = iter(values)
        for name, _, kind in self.states:
            inner.values[name] = kind.packed(remaining)
        values += [
            graph.input(f"{node.name}/rows{i}", state.dtype, state.shape, assumed=assumed)
            for i, state in enumerate(extra)
        ]
        controls = {"counter": graph.input(f"{node.name}/counter", "int32", [1])}
        if self.loop_condition is not None:
            controls["loop_condition"] = graph.input(f"{node.name}/goes on", "bool", [1])
        if self.limit is not None and not isinstance(self.limit, np.ndarray):
            controls["limit"] = graph.input(f"{node.name}/limit", "int32", [1])
        for i, value in enumerate(self.sliced_inputs):
            controls[f"sliced{i}"] = graph.input(f"{node.name}/sliced{i}", value.dtype, value.shape, assumed=assumed)
        add_captured(inner, self.captured_values)
        return inner, values, controls

    def _get_limit(self, control_values: dict[str, Value]) -> Value | Array:
        limit = control_values.get("limit", self.limit)
        assert limit is not None
        return limit

    def _get_row_index(self, inner: Builder, control_values: dict[str, Value], reverse: bool) -> Value:
        """Return the slice index of this iteration as int32[1]."""
        if not reverse:
            return control_values["counter"]
        after = inner.add_helper(self.node, "Add", control_values["counter"], _INT32_ONE)
        return inner.add_helper(self.node, "Sub", self._get_limit(control_values), after)

    def _build_condition(self, states: list[State], extra: list[State]) -> Graph:
        inner, _, controls = self._open_graph("condition", states, extra)
        continues: Value | None = None
        if self.limit is not None:
            continues = inner.add_helper(self.node, "Less", controls["counter"], self._get_limit(controls))
        if self.loop_condition is not None:
            condition = controls["loop_condition"]
            continues = inner.add_helper(self.node, "And", continues, condition) if continues else condition
        if continues is None or self.limit is None:
            continues = inner.add_helper(self.node, "Identity", np.array([True]) if continues is None else continues)
        inner.graph.output("more", continues)
        return inner.graph

    def _get_body(self, states: list[State], extra: list[State], modes: list[bool]) -> Body:
        """Return the body for these types, built once; without `modes` it is a trial without scan outputs."""
        sliced = tuple((value.dtype, value.shape) for value in self.sliced_inputs)
        path_key = (id(self.body), self.builder.path(self.node), self._get_fixed_limits(), self.builder.graph.exact)
        captured = make_capture_signature(self.captured_values)
        key = (*path_key, tuple(states), tuple(extra), tuple(modes), captured, sliced)
        if key not in self.builder.subgraphs:
            self.builder.subgraphs[key] = self._build_body(states, extra, modes)
        body: Body = self.builder.subgraphs[key]
        return body

    def _get_fixed_limits(self) -> tuple[Any, ...]:
        limit = int(self.limit[0]) if isinstance(self.limit, np.ndarray) else self.limit is None
        return limit, self.loop_condition is None

    def _build_body(self, states: list[State], extra: list[State], modes: list[bool]) -> Body:
        node = self.node
        inner, values, controls = self._open_graph("body", states, extra)
        add, counter = inner.add_helper, controls["counter"]
        if RANDOM_STATE in self.captured_values:
            inner.values[RANDOM_STATE] = make_iteration_state(inner, node, inner.tensor(RANDOM_STATE), counter)
        if self.number:
            inner.values[self.number] = add(node, "Cast", add(node, "Reshape", counter, self.number_shape), to=INT64)
        if self.condition_in:
            inner.values[self.condition_in] = inner.graph.constant(np.array(True))
        for i, src in enumerate(self.slices):
            row = add(node, "Reshape", self._get_row_index(inner, controls, src.reverse), SCALAR)
            index = add(node, "Cast", row, to=INT64)
            inner.values[src.name] = add(node, "Gather", controls[f"sliced{i}"], index, axis=src.axis)
        inner.add_nodes()
        scans = [inner.tensor(output.name) for output in self.scan_outputs]
        pairs = zip(scans, self.scan_outputs, strict=True)
        elements = [Element(value.dtype, _shape_of(value, output)) for value, output in pairs]
        outputs = [x for _, name, kind in self.states for x in inner.make_subgraph_outputs(node, name, kind)]
        if self.keeps_shapes:
            outputs = [self._check_unchanged(inner, x, previous) for x, previous in zip(outputs, values, strict=False)]
        for j, value in enumerate(outputs):
            inner.graph.output(f"{j}", value)
        if modes:
            rows = values[len(states) :]
            for value in self._append_scan_outputs(inner, controls, scans, rows, modes):
                inner.graph.output("", value)
        inner.graph.output("counter", add(node, "Add", counter, _INT32_ONE))
        if self.loop_condition is not None:
            loop_condition = get_condition(inner, node, self.condition_out)
            inner.graph.output("goes on", add(node, "Identity", loop_condition))
        return Body(inner, outputs, elements, scans)

    def _check_unchanged(self, inner: Builder, value: Value, previous: Value) -> Value:
        """Return the next state. If its shape is unknown, a node checks at run time that it has not changed."""
        is_known = value.shape is not None and None not in value.shape and inner.graph.exact
        if is_known and value.shape == previous.shape:
            return value
        checked: Value = inner.add_helper(self.node, "pumice::Unchanged", value, previous)
        return checked

    # ---- scan outputs

    def _append_scan_outputs(
        self,
        inner: Builder,
        control_values: dict[str, Value],
        scan_values: list[Value],
        rows: list[Value],
        modes: list[bool],
    ) -> list[Value]:
        """Return the scan outputs' next states: a buffer with one more row (mode True), or all elements flattened and their shapes."""
        add, node = inner.add_helper, self.node
        next_states = []
        remaining = iter(rows)
        for value, output, buffered in zip(scan_values, self.scan_outputs, modes, strict=True):
            previous = next(remaining)
            if buffered:
                row_index = self._get_row_index(inner, control_values, output.reverse)
                index = add(node, "Cast", add(node, "Reshape", row_index, np.array([1, 1])), to=INT64)
                update = add(node, "Unsqueeze", value, np.array([0]))
                next_states.append(add(node, "ScatterND", previous, index, update))
                continue
            next(remaining)
            flat = add(node, "Reshape", value, np.array([-1]))
            pair = (flat, previous) if output.reverse else (previous, flat)
            next_states.append(add(node, "Concat", *pair, axis=0))
            next_states.append(add(node, "Shape", value))
        return next_states

    def _make_initial_rows(self, elements: list[Element], modes: list[bool]) -> tuple[list[State], list[Value | Array]]:
        states: list[State] = []
        initial: list[Value | Array] = []
        for element, sizes_of_rows, buffered in zip(elements, self.sizes, modes, strict=True):
            if buffered:
                assert sizes_of_rows is not None
                rows = self.rows if isinstance(self.rows, int) else None
                states.append(State(element.dtype, (rows, *(element.shape or ()))))
                initial.append(self._make_zero_rows(element, sizes_of_rows))
                continue
            shape_of_shape = None if element.shape is None else len(element.shape)
            sizes: Value | Array = np.array([size or 0 for size in element.shape or ()], np.int64)
            if sizes_of_rows is not None and not isinstance(sizes_of_rows, tuple):
                sizes = sizes_of_rows  # a loop without iterations returns these sizes unchanged
            states += [State(element.dtype, (None,)), State("int64", (shape_of_shape,))]
            initial += [np.zeros(0, numpy_dtype(element.dtype)), sizes]
        return states, initial

    def _make_zero_rows(self, element: Element, sizes: Sizes) -> Value:
        assert self.rows is not None
        builder, node = self.builder, self.node
        rows = np.array([self.rows]) if isinstance(self.rows, int) else self.rows
        shape_parts = [rows, np.array(sizes, np.int64) if isinstance(sizes, tuple) else sizes]
        if isinstance(rows, np.ndarray) and isinstance(sizes, tuple):
            shape: Value | Array = np.concatenate([rows, np.array(sizes, np.int64)])
        else:
            shape = builder.add_helper(node, "Concat", *shape_parts, axis=0)
        zeros = builder.add_helper(node, "ConstantOfShape", shape, value=np.zeros(1, numpy_dtype(element.dtype)))
        return self._hint_shape(zeros, element)

    def _hint_shape(self, rows: Value, element: Element) -> Value:
        """Return the rows, after passing their likely shape to the graph as a hint."""
        if element.shape is not None:
            count = self.rows if isinstance(self.rows, int) and self.loop_condition is None else None
            self.builder.graph.expect(rows, [count, *element.shape])
        return rows

    def _is_buffered(self, element: Element, sizes: Sizes | None) -> bool:
        return sizes is not None and self._may_be_buffered(element)

    def _may_be_buffered(self, element: Element) -> bool:
        if self.rows is None:
            return False
        if self.loop_condition is None:
            return True
        if element.known_sizes is None or not isinstance(self.rows, int):
            return False
        return math.prod((self.rows, *element.known_sizes)) * numpy_dtype(element.dtype).itemsize <= _MAX_BUFFER_BYTES

    def _get_element_sizes(self, trial: Body) -> list[Sizes | None]:
        """Return the sizes of each element: integers if certain, else a vector computed before the loop.

        They are None if only an iteration can determine them. Sizes that agree for some of the model's input sizes prove nothing, for
        example s % 2 or min(n, s).
        """
        if self.is_exact:
            return [element.known_sizes for element in self.elements]
        return [
            () if element.shape == () else self._compute_first_sizes(trial.inner, j, value)
            for j, (element, value) in enumerate(zip(self.elements, trial.scan_values, strict=True))
        ]

    def _compute_first_sizes(self, inner: Builder, j: int, value: Value) -> Value | None:
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
            *([] if self.loop_condition is None else [self.loop_condition]),
            *([] if self.limit is None or isinstance(self.limit, np.ndarray) else [self.limit]),
            *self.sliced_inputs,
            *flatten_tensors(self.captured_values),
        ]
        for inner_input, operand in zip(inner.graph.inputs, operands, strict=True):
            if inner_input not in sources or isinstance(operand, np.ndarray):
                continue
            outer_sources = builder.graph.shape_sources(operand, elements=True)
            if outer_sources is None or (outer_sources and builder.outer):
                return None
        try:
            first_value = builder.graph.graft(value, operands, builder.make_helper_name(node, "first"))
        except GraphError:  # the nodes cannot run on these sizes, or not on any of the sizes tried
            return None
        if first_value.shape is None and self.elements[j].shape is None:
            return None
        if self.elements[j].shape is None:  # the body does not know which sizes are equal, but the outer graph may
            self.elements[j] = self.elements[j]._replace(shape=first_value.shape)
        return builder.add_helper(node, "Shape", first_value)

    def _finish_scan_output(
        self, element: Element, buffered: bool, sliced_value: SlicedValue, name: str, rows: list[Value], count: Value
    ) -> Value:
        """Return the scan output in ONNX's form. The first entries of `rows` are the loop's results for it."""
        add_helper, node = self.builder.add_helper, self.node
        known_sizes = element.known_sizes if self.is_exact else None
        value = rows[0]
        last = "" if sliced_value.axis else name
        if buffered and self.loop_condition is not None:
            end = add_helper(node, "Cast", count, to=INT64)
            value = add_helper(node, "Slice", value, np.array([0]), end, np.array([0]), output=last)
        elif not buffered:
            if known_sizes is not None and 0 not in known_sizes:
                shape: Value | Array = np.array([-1, *known_sizes])
            else:
                shape = add_helper(node, "Concat", add_helper(node, "Cast", count, to=INT64), rows[1], axis=0)
            value = add_helper(node, "Reshape", value, shape, output=last, allowzero=1)
        return self._move_scan_axis(self._hint_shape(value, element), element, sliced_value.axis, name)

    def _move_scan_axis(self, rows: Value, element: Element, axis: int, name: str) -> Value:
        if not axis:
            return rows
        order = self._get_axis_order(element, axis)
        return self.builder.add_helper(self.node, "Transpose", rows, perm=order, output=name)

    def _get_axis_order(self, element: Element, axis: int) -> list[int]:
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
        parts = [part for name, kind in zip(names, kinds, strict=False) for part in kind.get_part_names(name)]
        self._add(parts + names[len(kinds) :])
        for name, kind in zip(names, kinds, strict=False):
            if name and kind.is_compound:
                values = [self.builder.values[part] for part in kind.get_part_names(name)]
                self.builder.values[name] = kind.packed(iter(values))  # type: ignore[arg-type]

    def _add(self, names: list[str]) -> None:
        """Add the loop; `names` has one entry per tensor of a state."""
        builder, node = self.builder, self.node
        self.captured_values = get_captured_values(builder, [self.body])
        states, trial = self._find_state_types()
        self.elements = list(trial.elements)
        self.is_exact = builder.graph.exact and trial.inner.graph.exact
        self.sizes = self._get_element_sizes(trial)
        if self.rows == 0:
            self._add_empty_loop(names)
            return
        modes = [self._is_buffered(*element) for element in zip(self.elements, self.sizes, strict=True)]
        extra, zeros = self._make_initial_rows(self.elements, modes)
        body = self._get_body(states, extra, modes) if modes else trial
        carried: list[Value | Array] = [*self.initial, *zeros, np.zeros(1, np.int32)]
        if self.loop_condition is not None:
            carried.append(self.loop_condition)
        limit = [] if self.limit is None or isinstance(self.limit, np.ndarray) else [self.limit]
        outputs = builder.graph.while_(
            self._build_condition(states, extra),
            body.inner.graph,
            carried=carried,
            invariant=[*limit, *self.sliced_inputs, *flatten_tensors(self.captured_values)],
            name=node.name,
            output_names=self._make_output_names(names, modes, len(carried)),
        )
        count = outputs[len(states) + len(zeros)]
        values, rows = list(outputs[: len(states)]), list(outputs[len(states) :])
        results = zip(self.elements, modes, self.scan_outputs, names[len(states) :], strict=True)
        for element, buffered, output, name in results:
            values.append(self._finish_scan_output(element, buffered, output, name, rows, count))
            rows = rows[1 if buffered else 2 :]
        named = {name: value for name, value in zip(names, values, strict=True) if name}
        builder.set_values(list(named), tuple(named.values()))

    def _find_state_types(self) -> tuple[list[State], Body]:
        """Return the state types that all iterations have in common, and the trial body for them."""
        states = [State(value.dtype, value.shape) for value in self.initial]
        self._check_types(states)
        while True:
            trial = self._get_body(states, [], [])
            self._check_types([State(value.dtype, value.shape) for value in trial.states])
            common = [state.common_type(value) for state, value in zip(states, trial.states, strict=True)]
            if common == states:
                return states, trial
            states = common

    def _add_empty_loop(self, names: list[str]) -> None:
        """Add the results of a loop without iterations: its initial states, and no rows."""
        builder, node = self.builder, self.node
        results = zip(self.elements, self.sizes, self.scan_outputs, names[len(self.initial) :], strict=True)
        values = list(self.initial)
        for element, sizes, output, _ in results:
            known = tuple(size or 0 for size in element.shape or ()) if sizes is None else sizes
            values.append(self._move_scan_axis(self._make_zero_rows(element, known), element, output.axis, ""))
        builder.set_results(node._replace(outputs=names), *values)

    def _make_output_names(self, names: list[str], modes: list[bool], count: int) -> list[str]:
        """Return names for the WHILE's outputs: the file's name if the output is used unchanged."""
        states = len(self.initial)
        out = list(names[:states])
        for buffered, output, name in zip(modes, self.scan_outputs, names[states:], strict=True):
            final = buffered and self.loop_condition is None and output.axis == 0
            out += [name if final else ""] + ([] if buffered else [""])
        out += [""] * (count - len(out))
        return [name or f"{self.node.name}/made{i}" for i, name in enumerate(out)]

    def _check_types(self, states: list[State]) -> None:
        for state, declared in zip(states, self.inputs, strict=True):
            if declared.dtype and declared.dtype != state.dtype:
                expected = f"'{declared.name}': expected {declared.dtype} as its body declares"
                raise graph_error("node", self.node.name, f"{expected}, given {state.dtype}")
