"""Helpers for binding table tests: initialise, execute, expect an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pumice
from pumice import BindingTable, Buffer, BufferRange, CommandList, TensorDesc

F64 = TensorDesc("float32", [64])  # 256 bytes
F40 = TensorDesc("float32", [40])  # 160 bytes
ROWS = TensorDesc("float32", [4, 8])
OWNED = TensorDesc("float32", [8, 8], owned=True)  # 256 bytes


def operator(
    context: pumice.Context,
    name: str,
    inputs: Sequence[TensorDesc | None],
    outputs: Sequence[TensorDesc | None],
    flags: Sequence[str] = (),
    **attributes: Any,
) -> pumice.CompiledOperator:
    described = pumice.Operator(name, inputs=list(inputs), outputs=list(outputs), **attributes)
    return described.compile(context, flags=list(flags))


def expect_error(rule: str, call: Callable[..., object], *arguments: object) -> pumice.BindingError:
    """Check that the call raises a BindingError of that rule with all fields set."""
    with pytest.raises(pumice.BindingError) as caught:
        call(*arguments)
    assert caught.value.rule == rule, caught.value
    assert caught.value.slot
    assert caught.value.expected
    assert caught.value.given
    assert f"[{rule}]" in str(caught.value)
    return caught.value


def parts(memory: Buffer, *offsets: int, size: int = 256) -> list[BufferRange]:
    return [BufferRange(memory, offset, size) for offset in offsets]


def resources(context: pumice.Context, sizes: Sequence[int]) -> list[BufferRange | None]:
    """Return ranges of one buffer for persistent or temporary resources; None for empty ones."""
    rounded = [-(-size // 256) * 256 for size in sizes]
    buffer = Buffer(context, sum(rounded))
    return [BufferRange(buffer, sum(rounded[:i]), size) if size else None for i, size in enumerate(sizes)]


def run(context: pumice.Context, dispatchable: pumice.Dispatchable, table: BindingTable) -> CommandList:
    commands = CommandList(context)
    commands.dispatch(dispatchable, table)
    commands.commit()
    commands.exec().wait()
    return commands


def initialise(
    context: pumice.Context, compiled: pumice.CompiledOperator, inputs: Sequence[object] | None = None
) -> BufferRange | None:
    """Run an initializer for this operator only; return its persistent range."""
    initializer = pumice.Initializer(context, [compiled])
    table = BindingTable(initializer)
    (persistent,) = resources(context, [compiled.binding_properties.persistent_bytes])
    table.bind_inputs([inputs and list(inputs)])
    table.bind_outputs([persistent])
    if temporary := initializer.binding_properties.temporary_bytes:
        table.bind_temporary(Buffer(context, temporary))
    run(context, initializer, table)
    return persistent


def table_of(
    context: pumice.Context,
    compiled: pumice.CompiledOperator,
    inputs: Sequence[object],
    outputs: Sequence[object],
    persistent: object = None,
    temporary: Buffer | None = None,
) -> BindingTable:
    table = BindingTable(compiled)
    table.bind_inputs(list(inputs))
    table.bind_outputs(list(outputs))
    table.bind_persistent(persistent)
    if size := compiled.binding_properties.temporary_bytes:
        table.bind_temporary(temporary or Buffer(context, size))
    return table


def execute(
    context: pumice.Context,
    compiled: pumice.CompiledOperator,
    inputs: Sequence[object],
    outputs: Sequence[object],
    persistent: object = None,
    temporary: Buffer | None = None,
) -> CommandList:
    """Bind and run once; return the list for further runs. temporary: allocated if None."""
    return run(context, compiled, table_of(context, compiled, inputs, outputs, persistent, temporary))


def random(desc: TensorDesc, seed: int = 1) -> np.ndarray:
    """Return normally distributed float32 numbers for a description."""
    return np.random.default_rng(seed).standard_normal(desc.shape).astype("float32")
