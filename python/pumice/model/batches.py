"""Batches of rows: how a model accepts them, how to split them into runs, and how to concatenate the results."""

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
class Layout:
    """Which of a model's inputs have a batch axis, and the number of rows per run."""

    inputs: tuple[str, ...]  # names of all inputs
    by_row: frozenset[str]  # inputs whose first axis is the batch axis; the others are passed to each run unchanged
    fixed: int | None  # rows per run if the file fixes them


def layout_of(model: Model) -> Layout:
    """Return a model's Layout: batch axes are first axes without a fixed size; if there are none, the first axes of all inputs of rank 1 or
    more.

    Raise BindingError if no input has a batch axis, if fixed row counts differ, or if an output's first axis is known not
    to be the batch axis.
    """
    layout = _layout_of_inputs(model)
    shapes = [value.shape or () for value in model.inputs]
    row_names = {shape[0] for shape in shapes if shape}
    others = {size for shape in shapes for size in shape[1:] if isinstance(size, str)} - row_names
    for value in model.outputs:
        first = None if value.shape is None else (*value.shape, 0)[0]
        has_number = isinstance(first, int) and (not value.shape or first != layout.fixed)
        if has_number or first in others or "sequence" in value.kind:
            wanted = f"{'' if layout.fixed is None else f'{layout.fixed} '}rows along the first axis, as of the inputs"
            raise binding_error("K10", value.name, wanted, str(value), kind="output")
    return layout


def _layout_of_inputs(model: Model) -> Layout:
    names = tuple(value.name for value in model.inputs)
    free = [value.name for value in model.inputs if value.shape is None or not isinstance((*value.shape, 1)[0], int)]
    if free:
        return Layout(names, frozenset(free), None)
    fixed = {value.name: value.shape[0] for value in model.inputs if value.shape}
    if len({*fixed.values()}) != 1:
        told = ", ".join(map(str, model.inputs)) or "no input"
        raise binding_error("K10", "", "a first axis that counts rows, with one size for all inputs", told)
    rows = next(iter(fixed.values()))
    return Layout(names, frozenset(fixed), rows if isinstance(rows, int) else None)


@dataclass
class Batch:
    """A batch in progress: `sent` rows have been submitted, `done` rows have results."""

    arrays: dict[str, Array]  # keyed by input name
    rows: int
    is_named: bool  # whether to return results by name
    kept: dict[str, Any]  # columns that are returned unchanged
    sent: int = 0
    done: int = 0
    is_begun: bool = False  # whether a run has started; also tracks batches without rows
    parts: list[tuple[Array, ...]] = field(default_factory=list)  # results of each run

    def results(self) -> tuple[Array, ...]:
        """Return the results of all rows."""
        if len(self.parts) == 1:
            return self.parts[0]
        return tuple(np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))


def batch_of(layout: Layout, given: Any, columns: Mapping[str, str], keep: Sequence[str]) -> Batch:
    """Return a Batch from an array, a tuple of arrays in the order of the inputs, or a dict of columns.

    Raise BindingError if an input has no array, or if row counts differ.
    """
    is_named = isinstance(given, Mapping)
    if not is_named:
        arrays = given if isinstance(given, tuple) else (given,)
        if len(arrays) != len(layout.inputs):
            expected = f"{len(layout.inputs)} ({', '.join(layout.inputs)})"
            raise binding_error("K4", "", expected, str(len(arrays)))
        given = dict(zip(layout.inputs, arrays, strict=True))
    found: dict[str, Array] = {}
    for name in layout.inputs:
        column = columns.get(name, name) if is_named else name
        if column not in given:
            hint = f"columns={{'{name}': ...}} names another column"
            raise binding_error("K3", name, f"a column '{column}'", f"the columns {', '.join(map(str, given))}", hint)
        found[name] = as_array(given[column], name, "an array of rows")
    for column in keep if is_named else ():
        if column not in given:
            told = f"the columns {', '.join(map(str, given))}"
            raise binding_error("K4", str(column), "one of the batch's columns", told, kind="column")
    rows = {name: len(found[name]) if found[name].ndim else 0 for name in layout.inputs if name in layout.by_row}
    first = next(iter(rows))
    for name, count in rows.items():
        if count != rows[first] or not found[name].ndim:
            wanted = f"{rows[first]} rows, as in '{first}'" if found[name].ndim else "an array with an axis of rows"
            raise binding_error("K10", name, wanted, f"shape {list(found[name].shape)}")
    return Batch(found, rows[first], is_named, {column: given[column] for column in keep} if is_named else {})


def rows_of(layout: Layout, batch: Batch, begin: int, count: int, padded: int) -> dict[str, Array]:
    """Return the arguments of a run: `count` rows from `begin` on, padded to `padded` rows by repeating the last one."""
    arguments = {}
    for name, array in batch.arrays.items():
        if name not in layout.by_row:
            arguments[name] = array
            continue
        part = array[begin : begin + count]
        if padded > count:
            made = np.zeros((padded, *array.shape[1:]), array.dtype)
            made[:count] = part
            made[count:] = part[-1:] if count else 0
            part = made
        arguments[name] = part
    return arguments


def checked_rows(model: Model, results: Sequence[Any], rows: int, count: int) -> tuple[Array, ...]:
    """Return the first `count` of `rows` rows of each result.

    Raise BindingError if a result's first axis is not the batch axis: such results cannot be concatenated.
    """
    for value, result in zip(model.outputs, results, strict=True):
        shape = getattr(result, "shape", None)
        if not shape or shape[0] != rows:
            told = f"shape {list(shape)}" if shape is not None else type(result).__name__
            raise binding_error(
                "K10", value.name, f"{rows} rows along the first axis, as of the inputs", told, kind="output"
            )
    return tuple(result if count == rows else result[:count] for result in results)
