"""Build the engine's WHILE for an ONNX Loop or Scan: carried values, counter, slices and scan outputs.

A scan output is written to a preallocated buffer if its length and element shape are known before the loop; all shapes are
then constant. Otherwise each iteration appends to it, and the host drives the loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..._pumice import GraphError
from ...base.element_types import Array, get_numpy_dtype
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..build.non_tensor_values import BuiltValue, ValueKind, get_value_kind, to_tensors
from ..build.subgraphs import (
    add_captured_inputs,
    flatten_tensors,
    get_captured_values,
    get_condition,
    make_capture_signature,
    make_subgraph_builder,
)
from ..file.graph_recipe import RANDOM_STATE, GraphRecipe, InputRecipe, NodeRecipe
from .loop_types import LoopStateType, ScanElementType, SlicedValue, get_shape_or_declared_rank
from .random import make_iteration_random_state

if TYPE_CHECKING:
    from ..._pumice import Graph, Value

INT32, INT64 = 6, 7  # TensorProto.DataType
_INT32_ONE = np.array([1], np.int32)
SCALAR = np.zeros(0, np.int64)  # shape of a scalar
_MAX_BUFFER_BYTES = 64 << 20  # size limit for a scan output buffer that the loop may fill only partly

Sizes: TypeAlias = "tuple[int, ...] | Value"


class BuiltLoopBody(NamedTuple):
    """A built loop body: its graph, the next states, and the types and values of its scan output elements."""

    inner: GraphBuilder
    states: list[Value]
    elements: list[ScanElementType]
    scan_values: list[Value]  # values in the body, one per entry of `elements`


class LoopBuilder:
    """Builds one Loop or Scan into the graph."""

    def __init__(self, builder: GraphBuilder, node: NodeRecipe, body: GraphRecipe) -> None:
        self.builder = builder
        self.node = node
        self.body = body
        self.inputs: list[InputRecipe] = []  # body inputs that receive the states, one per tensor
        self.states: list[tuple[str, str, ValueKind]] = []  # (name in the body, name of the next state, kind)
        self.initial: list[Value] = []
        self.max_trips: int | Value | None = None  # maximum trip count, int64[1] if computed; None: unlimited
        self.trip_limit: Value | Array | None = None  # max_trips as int32[1]
        self.loop_condition: Value | Array | None = None  # initial condition; None: always true
        self.iteration_name = ""  # body input that receives the iteration number
        self.iteration_shape = SCALAR
        self.condition_in = self.condition_out = ""
        self.slices: list[SlicedValue] = []
        self.sliced_inputs: list[Value] = []
        self.scan_outputs: list[SlicedValue] = []  # the scan outputs that the model reads
        self.elements: list[ScanElementType] = []  # element types of `scan_outputs`
        self.element_sizes: list[Sizes | None] = []
        self.keeps_shapes = False  # whether to reject iterations that change a state's shape
        self.is_exact = False  # whether known sizes hold for all input sizes of the model

    def add_state(self, body_input: InputRecipe, next_states: InputRecipe, initial: BuiltValue) -> None:
        """Add a state, or several for a sequence or an optional value. Raise GraphError if the initial value is of another kind."""
        kind, declared = get_value_kind(initial), ValueKind.parse(body_input.dtype)
        if body_input.dtype and (kind.sequence or declared.sequence) and kind[:2] != declared[:2]:
            expected = f"'{body_input.name}': expected {declared} as its body declares"
            raise graph_error("node", self.node.name, f"{expected}, given {kind}")
        kind = kind.with_optional(declared)
        self.states.append((body_input.name, next_states.name, kind))
        self.initial += to_tensors(self.builder, self.node, initial, kind)
        if kind.is_non_tensor:
            tensor_specs = zip(kind.get_tensor_names(body_input.name), kind.tensor_specs, strict=True)
            self.inputs += [InputRecipe(name, dtype, shape, []) for name, (_, dtype, shape) in tensor_specs]
        else:
            self.inputs.append(body_input)

    # ---- condition and body graphs

    def _begin_body_graph(
        self, role: str, states: list[LoopStateType], row_states: list[LoopStateType]
    ) -> tuple[GraphBuilder, list[Value], dict[str, Value]]:
        """Begin a subgraph with the loop's inputs: states, row states, counter, condition, limit, sliced and captured values.

        Return its builder, the values of all states, and the control values by name.
        """
        builder, node = self.builder, self.node
        inner = make_subgraph_builder(builder, node, role, self.body)
        names = [value.name for value in self.inputs]
        graph, assumed = inner.graph, not builder.graph.exact
        pairs = zip(names, states, strict=True)
        values = [graph.input(name, state.dtype, state.shape, assumed=assumed) for name, state in pairs]
        inner.values.update(zip(names, values, strict=True))
        remaining = iter(values)
        for name, _, kind in self.states:
            inner.values[name] = kind.make_value(remaining)
        values += [
            graph.input(f"{node.name}/rows{i}", state.dtype, state.shape, assumed=assumed)
            for i, state in enumerate(row_states)
        ]
        controls = {"counter": graph.input(f"{node.name}/counter", "int32", [1])}
        if self.loop_condition is not None:
            controls["loop_condition"] = graph.input(f"{node.name}/goes on", "bool", [1])
        if self._trip_limit_operands:
            controls["limit"] = graph.input(f"{node.name}/limit", "int32", [1])
        for i, value in enumerate(self.sliced_inputs):
            controls[f"sliced{i}"] = graph.input(f"{node.name}/sliced{i}", value.dtype, value.shape, assumed=assumed)
        add_captured_inputs(inner, self.captured_values)
        return inner, values, controls

    @property
    def _trip_limit_operands(self) -> list[Value]:
        """The trip limit if it is computed, and so is an operand of the WHILE; else nothing."""
        return [] if self.trip_limit is None or isinstance(self.trip_limit, np.ndarray) else [self.trip_limit]

    def _get_trip_limit(self, control_values: dict[str, Value]) -> Value | Array:
        limit = control_values.get("limit", self.trip_limit)
        assert limit is not None
        return limit

    def _get_row_index(self, inner: GraphBuilder, control_values: dict[str, Value], reverse: bool) -> Value:
        """Return the slice index of this iteration as int32[1]."""
        if not reverse:
            return control_values["counter"]
        after = inner.add_helper(self.node, "Add", control_values["counter"], _INT32_ONE)
        return inner.add_helper(self.node, "Sub", self._get_trip_limit(control_values), after)

    def _build_condition(self, states: list[LoopStateType], row_states: list[LoopStateType]) -> Graph:
        inner, _, controls = self._begin_body_graph("condition", states, row_states)
        continues: Value | None = None
        if self.trip_limit is not None:
            continues = inner.add_helper(self.node, "Less", controls["counter"], self._get_trip_limit(controls))
        if self.loop_condition is not None:
            condition = controls["loop_condition"]
            continues = inner.add_helper(self.node, "And", continues, condition) if continues else condition
        if continues is None or self.trip_limit is None:
            continues = inner.add_helper(self.node, "Identity", np.array([True]) if continues is None else continues)
        inner.graph.output("more", continues)
        return inner.graph

    def _get_body(
        self, states: list[LoopStateType], row_states: list[LoopStateType], buffered_flags: list[bool]
    ) -> BuiltLoopBody:
        """Return the body for these types, built once per key. Without `buffered_flags` it is a trial body without scan outputs."""
        sliced = tuple((value.dtype, value.shape) for value in self.sliced_inputs)
        path_key = (
            id(self.body),
            self.builder.get_node_path(self.node),
            self._make_trip_limit_cache_key(),
            self.builder.graph.exact,
        )
        captured = make_capture_signature(self.captured_values)
        key = (*path_key, tuple(states), tuple(row_states), tuple(buffered_flags), captured, sliced)
        if key not in self.builder.subgraphs:
            self.builder.subgraphs[key] = self._build_body(states, row_states, buffered_flags)
        body: BuiltLoopBody = self.builder.subgraphs[key]
        return body

    def _make_trip_limit_cache_key(self) -> tuple[Any, ...]:
        limit = int(self.trip_limit[0]) if isinstance(self.trip_limit, np.ndarray) else self.trip_limit is None
        return limit, self.loop_condition is None

    def _build_body(
        self, states: list[LoopStateType], row_states: list[LoopStateType], buffered_flags: list[bool]
    ) -> BuiltLoopBody:
        node = self.node
        inner, values, controls = self._begin_body_graph("body", states, row_states)
        add, counter = inner.add_helper, controls["counter"]
        if RANDOM_STATE in self.captured_values:
            inner.values[RANDOM_STATE] = make_iteration_random_state(
                inner, node, inner.require_tensor(RANDOM_STATE), counter
            )
        if self.iteration_name:
            inner.values[self.iteration_name] = add(
                node, "Cast", add(node, "Reshape", counter, self.iteration_shape), to=INT64
            )
        if self.condition_in:
            inner.values[self.condition_in] = inner.graph.constant(np.array(True))
        for i, sliced in enumerate(self.slices):
            row = add(node, "Reshape", self._get_row_index(inner, controls, sliced.reverse), SCALAR)
            index = add(node, "Cast", row, to=INT64)
            inner.values[sliced.name] = add(node, "Gather", controls[f"sliced{i}"], index, axis=sliced.axis)
        inner.add_nodes()
        scans = [inner.require_tensor(output.name) for output in self.scan_outputs]
        pairs = zip(scans, self.scan_outputs, strict=True)
        elements = [ScanElementType(value.dtype, get_shape_or_declared_rank(value, output)) for value, output in pairs]
        outputs = [x for _, name, kind in self.states for x in inner.make_subgraph_outputs(node, name, kind)]
        if self.keeps_shapes:
            outputs = [
                self._check_shape_unchanged(inner, x, previous) for x, previous in zip(outputs, values, strict=False)
            ]
        for j, value in enumerate(outputs):
            inner.graph.output(f"{j}", value)
        if buffered_flags:
            rows = values[len(states) :]
            for value in self._append_scan_outputs(inner, controls, scans, rows, buffered_flags):
                inner.graph.output("", value)
        inner.graph.output("counter", add(node, "Add", counter, _INT32_ONE))
        if self.loop_condition is not None:
            loop_condition = get_condition(inner, node, self.condition_out)
            inner.graph.output("goes on", add(node, "Identity", loop_condition))
        return BuiltLoopBody(inner, outputs, elements, scans)

    def _check_shape_unchanged(self, inner: GraphBuilder, value: Value, previous: Value) -> Value:
        """Return the next state, checked at run time for an unchanged shape if its shape is unknown."""
        is_known = value.shape is not None and None not in value.shape and inner.graph.exact
        if is_known and value.shape == previous.shape:
            return value
        checked: Value = inner.add_helper(self.node, "pumice::Unchanged", value, previous)
        return checked

    # ---- scan outputs

    def _append_scan_outputs(
        self,
        inner: GraphBuilder,
        control_values: dict[str, Value],
        scan_values: list[Value],
        rows: list[Value],
        buffered_flags: list[bool],
    ) -> list[Value]:
        """Append an element to each scan output and return the next states.

        Buffered: the buffer with one more row written. Otherwise: all elements so far, flattened, and the shape of one.
        """
        add, node = inner.add_helper, self.node
        next_states = []
        remaining = iter(rows)
        for value, output, buffered in zip(scan_values, self.scan_outputs, buffered_flags, strict=True):
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

    def _make_initial_rows(
        self, elements: list[ScanElementType], buffered_flags: list[bool]
    ) -> tuple[list[LoopStateType], list[Value | Array]]:
        states: list[LoopStateType] = []
        initial: list[Value | Array] = []
        for element, sizes_of_rows, buffered in zip(elements, self.element_sizes, buffered_flags, strict=True):
            if buffered:
                assert sizes_of_rows is not None
                rows = self.max_trips if isinstance(self.max_trips, int) else None
                states.append(LoopStateType(element.dtype, (rows, *(element.shape or ()))))
                initial.append(self._make_zero_rows(element, sizes_of_rows))
                continue
            shape_of_shape = None if element.shape is None else len(element.shape)
            sizes: Value | Array = np.array([size or 0 for size in element.shape or ()], np.int64)
            if sizes_of_rows is not None and not isinstance(sizes_of_rows, tuple):
                sizes = sizes_of_rows  # the result's element shape if the loop has no iterations
            states += [LoopStateType(element.dtype, (None,)), LoopStateType("int64", (shape_of_shape,))]
            initial += [np.zeros(0, get_numpy_dtype(element.dtype)), sizes]
        return states, initial

    def _make_zero_rows(self, element: ScanElementType, sizes: Sizes) -> Value:
        assert self.max_trips is not None
        builder, node = self.builder, self.node
        rows = np.array([self.max_trips]) if isinstance(self.max_trips, int) else self.max_trips
        row_shape = np.array(sizes, np.int64) if isinstance(sizes, tuple) else sizes
        if isinstance(rows, np.ndarray) and isinstance(row_shape, np.ndarray):
            shape: Value | Array = np.concatenate([rows, row_shape])
        else:
            shape = builder.add_helper(node, "Concat", rows, row_shape, axis=0)
        zeros = builder.add_helper(node, "ConstantOfShape", shape, value=np.zeros(1, get_numpy_dtype(element.dtype)))
        return self._add_row_shape_hint(zeros, element)

    def _add_row_shape_hint(self, rows: Value, element: ScanElementType) -> Value:
        """Pass the likely shape of the rows to the graph as a hint, and return the rows."""
        if element.shape is not None:
            count = self.max_trips if isinstance(self.max_trips, int) and self.loop_condition is None else None
            self.builder.graph.expect(rows, [count, *element.shape])
        return rows

    def _can_preallocate_scan_output(self, element: ScanElementType, sizes: Sizes | None) -> bool:
        return sizes is not None and self._fits_scan_buffer_limit(element)

    def _fits_scan_buffer_limit(self, element: ScanElementType) -> bool:
        if self.max_trips is None:
            return False
        if self.loop_condition is None:
            return True
        if element.known_sizes is None or not isinstance(self.max_trips, int):
            return False
        return (
            math.prod((self.max_trips, *element.known_sizes)) * get_numpy_dtype(element.dtype).itemsize
            <= _MAX_BUFFER_BYTES
        )

    def _compute_element_sizes(self, trial: BuiltLoopBody) -> list[Sizes | None]:
        """Return the shape of each element: integers if certain, else an int64 vector computed before the loop.

        An entry is None if only running an iteration can determine the shape. Shapes that agree for some input sizes of the model prove
        nothing; consider s % 2 or min(n, s).
        """
        if self.is_exact:
            return [element.known_sizes for element in self.elements]
        return [
            () if element.shape == () else self._compute_first_element_sizes(trial.inner, j, value)
            for j, (element, value) in enumerate(zip(self.elements, trial.scan_values, strict=True))
        ]

    def _compute_first_element_sizes(self, inner: GraphBuilder, j: int, value: Value) -> Value | None:
        """Return the element's shape in the first iteration, computed before the loop; None if that is impossible.

        ONNX requires the same shape in all iterations. The nodes that produce the element are copied; only its shape is read.
        """
        builder, node = self.builder, self.node
        sources = inner.graph.shape_sources(value)
        if sources is None:
            return None
        operands = [
            *self.initial,
            np.zeros(1, np.int32),
            *([] if self.loop_condition is None else [self.loop_condition]),
            *self._trip_limit_operands,
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
        except GraphError:  # the copied nodes do not accept the outer graph's shapes
            return None
        if first_value.shape is None and self.elements[j].shape is None:
            return None
        if self.elements[j].shape is None:  # the outer graph may know the rank although the body does not
            self.elements[j] = self.elements[j]._replace(shape=first_value.shape)
        return builder.add_helper(node, "Shape", first_value)

    def _finish_scan_output(
        self,
        element: ScanElementType,
        buffered: bool,
        sliced_value: SlicedValue,
        name: str,
        rows: list[Value],
        count: Value,
    ) -> Value:
        """Convert the WHILE's results for one scan output, the first entries of `rows`, to the output that ONNX specifies."""
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
        return self._move_scan_axis(self._add_row_shape_hint(value, element), element, sliced_value.axis, name)

    def _move_scan_axis(self, rows: Value, element: ScanElementType, axis: int, name: str) -> Value:
        if not axis:
            return rows
        order = self._get_axis_order(element, axis)
        return self.builder.add_helper(self.node, "Transpose", rows, perm=order, output=name)

    def _get_axis_order(self, element: ScanElementType, axis: int) -> list[int]:
        if element.shape is None:
            raise graph_error("node", self.node.name, f"scan output on axis {axis} of a value of unknown rank")
        rank = len(element.shape) + 1
        if not -rank <= axis < rank:
            raise graph_error("node", self.node.name, f"scan output: expected an axis of {rank}, given {axis}")
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        return order

    # ---- the WHILE node

    def add_to_graph(self, names: list[str]) -> None:
        """Add the loop. names: output names of the states, then of `scan_outputs`; "" for unused outputs."""
        kinds = [kind for _, _, kind in self.states]
        parts = [part for name, kind in zip(names, kinds, strict=False) for part in kind.get_tensor_names(name)]
        self._add_loop(parts + names[len(kinds) :])
        for name, kind in zip(names, kinds, strict=False):
            if name and kind.is_non_tensor:
                values = [self.builder.values[part] for part in kind.get_tensor_names(name)]
                self.builder.values[name] = kind.make_value(iter(values))  # type: ignore[arg-type]

    def _add_loop(self, names: list[str]) -> None:
        """Add the loop. `names` has one entry per tensor, not one per state as in add_to_graph()."""
        builder, node = self.builder, self.node
        self.captured_values = get_captured_values(builder, [self.body])
        states, trial = self._find_state_types()
        self.elements = list(trial.elements)
        self.is_exact = builder.graph.exact and trial.inner.graph.exact
        self.element_sizes = self._compute_element_sizes(trial)
        if self.max_trips == 0:
            self._add_empty_loop(names)
            return
        buffered_flags = [
            self._can_preallocate_scan_output(*element)
            for element in zip(self.elements, self.element_sizes, strict=True)
        ]
        row_states, zeros = self._make_initial_rows(self.elements, buffered_flags)
        body = self._get_body(states, row_states, buffered_flags) if buffered_flags else trial
        carried: list[Value | Array] = [*self.initial, *zeros, np.zeros(1, np.int32)]
        if self.loop_condition is not None:
            carried.append(self.loop_condition)
        outputs = builder.graph.while_(
            self._build_condition(states, row_states),
            body.inner.graph,
            carried=carried,
            invariant=[*self._trip_limit_operands, *self.sliced_inputs, *flatten_tensors(self.captured_values)],
            name=node.name,
            output_names=self._make_output_names(names, buffered_flags, len(carried)),
        )
        count = outputs[len(states) + len(zeros)]
        values, rows = list(outputs[: len(states)]), list(outputs[len(states) :])
        results = zip(self.elements, buffered_flags, self.scan_outputs, names[len(states) :], strict=True)
        for element, buffered, output, name in results:
            values.append(self._finish_scan_output(element, buffered, output, name, rows, count))
            rows = rows[1 if buffered else 2 :]
        named = {name: value for name, value in zip(names, values, strict=True) if name}
        builder.set_values(list(named), tuple(named.values()))

    def _find_state_types(self) -> tuple[list[LoopStateType], BuiltLoopBody]:
        """Return the state types that hold in all iterations, found by fixed-point iteration, and the trial body for them."""
        states = [LoopStateType(value.dtype, value.shape) for value in self.initial]
        self._check_state_types(states)
        while True:
            trial = self._get_body(states, [], [])
            self._check_state_types([LoopStateType(value.dtype, value.shape) for value in trial.states])
            common = [state.merge_with(value) for state, value in zip(states, trial.states, strict=True)]
            if common == states:
                return states, trial
            states = common

    def _add_empty_loop(self, names: list[str]) -> None:
        """Add the results of a loop without iterations: the initial states, and empty scan outputs."""
        builder, node = self.builder, self.node
        results = zip(self.elements, self.element_sizes, self.scan_outputs, names[len(self.initial) :], strict=True)
        values = list(self.initial)
        for element, sizes, output, _ in results:
            known = tuple(size or 0 for size in element.shape or ()) if sizes is None else sizes
            values.append(self._move_scan_axis(self._make_zero_rows(element, known), element, output.axis, ""))
        builder.set_node_outputs(node._replace(outputs=names), *values)

    def _make_output_names(self, names: list[str], buffered_flags: list[bool], count: int) -> list[str]:
        """Return the names of the WHILE's outputs. An output that needs no conversion gets the file's name."""
        states = len(self.initial)
        out = list(names[:states])
        for buffered, output, name in zip(buffered_flags, self.scan_outputs, names[states:], strict=True):
            final = buffered and self.loop_condition is None and output.axis == 0
            out += [name if final else ""] + ([] if buffered else [""])
        out += [""] * (count - len(out))
        return [name or f"{self.node.name}/made{i}" for i, name in enumerate(out)]

    def _check_state_types(self, states: list[LoopStateType]) -> None:
        for state, declared in zip(states, self.inputs, strict=True):
            if declared.dtype and declared.dtype != state.dtype:
                expected = f"'{declared.name}': expected {declared.dtype} as its body declares"
                raise graph_error("node", self.node.name, f"{expected}, given {state.dtype}")
