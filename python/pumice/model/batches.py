"""Batches of rows: find a model's batch axes, split a batch into runs, and concatenate the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.element_types import Array
from ..base.errors import binding_error
from ..base.host_arrays import as_array
from .model import Model


@dataclass(frozen=True)
class BatchLayout:
    """Which inputs of a model have a batch axis, and whether the file fixes the number of rows."""

    inputs: tuple[str, ...]  # names of all inputs, in graph order
    row_inputs: frozenset[str]  # names of inputs whose first axis is the batch axis; other inputs are not split
    fixed_rows: int | None  # number of rows per run if the file fixes it


def get_batch_layout(model: Model) -> BatchLayout:
    """Return the batch layout of a model. Batch axes are first axes of unknown size, or all first axes if none is unknown.

    Raise BindingError if no input has a batch axis, if fixed row counts differ, or if an output's first axis is certainly not the batch
    axis.
    """
    layout = _get_input_layout(model)
    shapes = [value.shape or () for value in model.inputs]
    row_names = {shape[0] for shape in shapes if shape}
    other_names = {size for shape in shapes for size in shape[1:] if isinstance(size, str)} - row_names
    for value in model.outputs:
        first = None if value.shape is None else (*value.shape, 0)[0]
        has_number = isinstance(first, int) and (not value.shape or first != layout.fixed_rows)
        if has_number or first in other_names or "sequence" in value.kind:
            expectation = f"{'' if layout.fixed_rows is None else f'{layout.fixed_rows} '}rows along the first axis, as of the inputs"
            raise binding_error("K10", value.name, expectation, str(value), kind="output")
    return layout


def _get_input_layout(model: Model) -> BatchLayout:
    names = tuple(value.name for value in model.inputs)
    free_inputs = [
        value.name for value in model.inputs if value.shape is None or not isinstance((*value.shape, 1)[0], int)
    ]
    if free_inputs:
        return BatchLayout(names, frozenset(free_inputs), None)
    fixed_rows = {value.name: value.shape[0] for value in model.inputs if value.shape}
    if len({*fixed_rows.values()}) != 1:
        received = ", ".join(map(str, model.inputs)) or "no input"
        raise binding_error("K10", "", "a first axis of rows, with the same size for all inputs", received)
    rows = next(iter(fixed_rows.values()))
    return BatchLayout(names, frozenset(fixed_rows), rows if isinstance(rows, int) else None)


@dataclass
class Batch:
    """A batch in progress. sent: number of rows submitted. done: number of rows with results."""

    arrays: dict[str, Array]  # by input name
    rows: int
    is_named: bool  # whether to return results by name
    passthrough: dict[str, Any]  # columns to return with the results
    sent: int = 0
    done: int = 0
    is_started: bool = False  # whether a run was submitted; needed for batches without rows
    run_results: list[tuple[Array, ...]] = field(default_factory=list)  # outputs of each finished run

    def concatenate_results(self) -> tuple[Array, ...]:
        """Return each output for all rows of the batch."""
        if len(self.run_results) == 1:
            return self.run_results[0]
        return tuple(np.concatenate(arrays) for arrays in zip(*self.run_results, strict=True))


def make_batch(layout: BatchLayout, columns_or_arrays: Any, columns: Mapping[str, str], keep: Sequence[str]) -> Batch:
    """Make a Batch from an array, a tuple of arrays in the order of the inputs, or a dict of columns.

    columns: input name -> column name. keep: columns to return with the results. Raise BindingError for a missing column or array, or
    different row counts.
    """
    is_named = isinstance(columns_or_arrays, Mapping)
    if not is_named:
        arrays = columns_or_arrays if isinstance(columns_or_arrays, tuple) else (columns_or_arrays,)
        if len(arrays) != len(layout.inputs):
            expected = f"{len(layout.inputs)} ({', '.join(layout.inputs)})"
            raise binding_error("K4", "", expected, str(len(arrays)))
        columns_or_arrays = dict(zip(layout.inputs, arrays, strict=True))
    inputs: dict[str, Array] = {}
    for name in layout.inputs:
        column = columns.get(name, name) if is_named else name
        if column not in columns_or_arrays:
            received = f"the columns {', '.join(map(str, columns_or_arrays))}"
            hint = f"columns={{'{name}': ...}} names another column"
            raise binding_error("K3", name, f"a column '{column}'", received, hint)
        inputs[name] = as_array(columns_or_arrays[column], name, "an array of rows")
    for column in keep if is_named else ():
        if column not in columns_or_arrays:
            received = f"the columns {', '.join(map(str, columns_or_arrays))}"
            raise binding_error("K4", str(column), "one of the batch's columns", received, kind="column")
    rows = {name: len(x) if x.ndim else 0 for name, x in inputs.items() if name in layout.row_inputs}
    first = next(iter(rows))
    for name, count in rows.items():
        x = inputs[name]
        if count != rows[first] or not x.ndim:
            expected = f"{rows[first]} rows, as in '{first}'" if x.ndim else "an array with an axis of rows"
            raise binding_error("K10", name, expected, f"shape {list(x.shape)}")
    kept = {column: columns_or_arrays[column] for column in keep} if is_named else {}
    return Batch(inputs, rows[first], is_named, kept)


def slice_rows(layout: BatchLayout, batch: Batch, begin: int, count: int, padded: int) -> dict[str, Array]:
    """Return the arguments of a run: rows `begin` to `begin + count`, padded to `padded` rows with copies of the last one."""
    arguments = {}
    for name, array in batch.arrays.items():
        if name not in layout.row_inputs:
            arguments[name] = array
            continue
        row_slice = array[begin : begin + count]
        if padded > count:
            padded_rows = np.zeros((padded, *array.shape[1:]), array.dtype)
            padded_rows[:count] = row_slice
            padded_rows[count:] = row_slice[-1:] if count else 0
            row_slice = padded_rows
        arguments[name] = row_slice
    return arguments


def check_result_rows(model: Model, results: Sequence[Any], rows: int, count: int) -> tuple[Array, ...]:
    """Return the first `count` rows of each result.

    Raise BindingError if a result does not have `rows` rows along its first axis: such results cannot be concatenated.
    """
    for value, result in zip(model.outputs, results, strict=True):
        shape = getattr(result, "shape", None)
        if not shape or shape[0] != rows:
            received = f"shape {list(shape)}" if shape is not None else type(result).__name__
            raise binding_error(
                "K10", value.name, f"{rows} rows along the first axis, as of the inputs", received, kind="output"
            )
    return tuple(result if count == rows else result[:count] for result in results)
