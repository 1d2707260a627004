"""The rules of binding tables, each with what it accepts and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from pumice import BindingTable, Buffer, BufferRange, TensorDesc

F64 = TensorDesc("float32", [64])  # 256 bytes
F40 = TensorDesc("float32", [40])  # 160 bytes


def operator(
    context: pumice.Context,
    name: str,
    inputs: list[TensorDesc | None],
    outputs: list[TensorDesc | None],
    **attributes: object,
) -> pumice.CompiledOperator:
    return pumice.Operator(name, inputs=inputs, outputs=outputs, **attributes).compile(context)


@pytest.fixture
def add(context: pumice.Context) -> pumice.CompiledOperator:
    return operator(context, "Add", [F64, F64], [F64])


@pytest.fixture
def relu(context: pumice.Context) -> pumice.CompiledOperator:
    return operator(context, "Relu", [F64], [F64])


@pytest.fixture
def memory(context: pumice.Context) -> Buffer:
    return Buffer(context, 4096)


def refused(rule: str, call: object, *arguments: object) -> pumice.BindingError:
    with pytest.raises(pumice.BindingError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.rule == rule, caught.value
    assert caught.value.expected
    assert caught.value.given
    assert f"[{rule}]" in str(caught.value)
    return caught.value


def parts(memory: Buffer, *offsets: int, size: int = 256) -> list[BufferRange]:
    return [BufferRange(memory, offset, size) for offset in offsets]


def test_c1_inputs_are_counted(add: pumice.CompiledOperator, memory: Buffer) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    refused("C1", table.bind_inputs, parts(memory, 0))
    refused("C1", table.bind_inputs, parts(memory, 0, 256, 512))


def test_c2_outputs_are_counted(add: pumice.CompiledOperator, memory: Buffer) -> None:
    refused("C2", BindingTable(add).bind_outputs, parts(memory, 0, 256))


def test_c5_a_required_input_is_needed(add: pumice.CompiledOperator, memory: Buffer) -> None:
    error = refused("C5", BindingTable(add).bind_inputs, [*parts(memory, 0), None])
    assert error.slot == "inputs[1]"


def test_c6_a_tensor_takes_a_range_not_an_array(add: pumice.CompiledOperator, memory: Buffer) -> None:
    refused("C6", BindingTable(add).bind_inputs, [parts(memory, 0, 256), BufferRange(memory, 512, 256)])


def test_c7_none_unbinds_all(add: pumice.CompiledOperator, memory: Buffer, context: pumice.Context) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    table.bind_inputs(None)
    table.bind_outputs(parts(memory, 512))
    refused("C9", pumice.CommandList(context).dispatch, add, table)


def test_c9_a_dispatch_needs_every_binding(
    add: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    error = refused("C9", pumice.CommandList(context).dispatch, add, table)
    assert error.slot == "outputs[0]"


def test_c10_a_table_serves_its_own_dispatchable(
    add: pumice.CompiledOperator, relu: pumice.CompiledOperator, context: pumice.Context
) -> None:
    refused("C10", pumice.CommandList(context).dispatch, add, BindingTable(relu))
    required = add.binding_properties.descriptors
    BindingTable(add, required)
    refused("C10", BindingTable, add, required - 1)


def test_m1_execution_takes_the_default_heap(
    add: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    upload, readback = Buffer(context, 256, "upload"), Buffer(context, 256, "readback")
    refused("M1", BindingTable(add).bind_inputs, [BufferRange(upload), BufferRange(memory, 0, 256)])
    refused("M1", BindingTable(add).bind_outputs, [BufferRange(readback)])


def test_m3_buffers_are_of_the_same_context(
    add: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        foreign = Buffer(other, 256)
        refused("M3", BindingTable(add).bind_inputs, [BufferRange(foreign), BufferRange(memory, 0, 256)])


@pytest.mark.parametrize(("offset", "size"), [(16, 256), (2**64 - 16, 32), (0, 257)])
def test_r1_a_range_lies_inside_its_buffer(
    relu: pumice.CompiledOperator, context: pumice.Context, offset: int, size: int
) -> None:
    refused("R1", BindingTable(relu).bind_inputs, [BufferRange(Buffer(context, 256), offset, size)])


def test_r2_a_range_holds_its_tensor(relu: pumice.CompiledOperator, memory: Buffer) -> None:
    BindingTable(relu).bind_inputs(parts(memory, 0, size=512))
    refused("R2", BindingTable(relu).bind_inputs, parts(memory, 0, size=252))


def test_r3_offsets_are_aligned(relu: pumice.CompiledOperator, memory: Buffer, context: pumice.Context) -> None:
    BindingTable(relu).bind_inputs(parts(memory, 32))
    refused("R3", BindingTable(relu).bind_inputs, parts(memory, 8))
    guaranteed = operator(context, "Relu", [TensorDesc("float32", [64], alignment=64)], [F64])
    refused("R3", BindingTable(guaranteed).bind_inputs, parts(memory, 32))


@pytest.mark.parametrize("alignment", [24, 2])
def test_r4_alignments_are_powers_of_two_of_at_least_an_element(alignment: int) -> None:
    TensorDesc("float32", [64], alignment=64)
    with pytest.raises(pumice.GraphError) as caught:
        TensorDesc("float32", [64], alignment=alignment)
    assert caught.value.rule == "R4"


def test_r5_sizes_are_rounded_up_to_words() -> None:
    assert TensorDesc("float16", [3]).bytes == 8
    assert TensorDesc("uint8", [1]).bytes == 4


def test_r8_rank_and_element_count_are_bounded() -> None:
    assert TensorDesc("float32", []).elements == 1
    assert TensorDesc("float32", [0, 5]).bytes == 0
    for shape in ([1] * 9, [65536, 65536]):
        with pytest.raises(pumice.GraphError) as caught:
            TensorDesc("float32", shape)
        assert caught.value.rule == "R8"
    with pytest.raises(pumice.GraphError, match="3 strides"):
        TensorDesc("float32", [1, 2, 3, 4], strides=[1, 1, 1])


def test_h1_different_resources_never_conflict(
    relu: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 0))
    table.bind_outputs(parts(Buffer(context, 256), 0))


def test_h2_apart_in_one_resource(relu: pumice.CompiledOperator, memory: Buffer) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 0))
    table.bind_outputs(parts(memory, 256))


def test_h3_reads_never_conflict(context: pumice.Context, memory: Buffer) -> None:
    table = BindingTable(operator(context, "Add", [F40, F40], [F40]))
    table.bind_inputs([BufferRange(memory, 0, 160), BufferRange(memory, 96, 160)])
    table.bind_outputs(parts(Buffer(context, 160), 0, size=160))


def test_h4_in_place_where_the_operator_supports_it(
    relu: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 0))
    table.bind_outputs(parts(memory, 0))
    softmax = BindingTable(operator(context, "Softmax", [F64], [F64]))
    softmax.bind_inputs(parts(memory, 0))
    refused("H4", softmax.bind_outputs, parts(memory, 0))


def test_h5_partial_overlap_is_never_right(
    context: pumice.Context, memory: Buffer, relu: pumice.CompiledOperator
) -> None:
    table = BindingTable(operator(context, "Relu", [F40], [F40]))
    table.bind_inputs([BufferRange(memory, 0, 208)])
    refused("H5", table.bind_outputs, [BufferRange(memory, 64, 176)])
    same = BindingTable(relu)
    same.bind_inputs(parts(memory, 0, size=256))
    refused("H5", same.bind_outputs, parts(memory, 0, size=272))
    same.bind_outputs(parts(memory, 256))  # ranges that only touch


def test_h7_outputs_do_not_overlap(context: pumice.Context, memory: Buffer) -> None:
    half = TensorDesc("float32", [32])
    table = BindingTable(operator(context, "Split", [F64], [half, half], axis=0))
    table.bind_outputs(parts(memory, 0, 128, size=128))
    refused("H7", table.bind_outputs, parts(memory, 0, 112, size=128))


def test_a_refused_call_changes_nothing(add: pumice.CompiledOperator, context: pumice.Context) -> None:
    a, b, y = (pumice.tensor(np.full(64, value, "float32"), context) for value in (1, 2, 0))
    table = BindingTable(add)
    table.bind_inputs([a, b])
    table.bind_outputs([y])
    refused("C1", table.bind_inputs, [a])
    refused("M1", table.bind_outputs, [Buffer(context, 256, "readback")])
    initializer = pumice.Initializer(context, [add])
    commands = pumice.CommandList(context)
    commands.dispatch(initializer, BindingTable(initializer))
    commands.dispatch(add, table)
    commands.commit()
    commands.exec().wait()
    np.testing.assert_array_equal(y.numpy(), np.full(64, 3))


def test_i5_an_operator_is_initialised_once_before_it_runs(
    add: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    table.bind_outputs(parts(memory, 512))
    commands = pumice.CommandList(context)
    commands.dispatch(add, table)
    commands.commit()
    refused("I5", commands.exec)
    initializer = pumice.Initializer(context, [add])
    initialise = pumice.CommandList(context)
    initialise.dispatch(initializer, BindingTable(initializer))
    initialise.commit()
    initialise.exec().wait()
    commands.exec().wait()
    refused("I5", initialise.exec)


def test_owned_weights_live_in_the_persistent_resource(context: pumice.Context) -> None:
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(shape, "float32") for shape in ((1, 3, 9, 7), (5, 3, 3, 3), (5,)))
    owned = [TensorDesc("float32", array.shape, owned=True) for array in (w, b)]
    result = TensorDesc("float32", (1, 5, 9, 7))
    conv = operator(context, "Conv", [TensorDesc("float32", x.shape), *owned], [result], pads=[1, 1, 1, 1])
    properties = conv.binding_properties
    assert properties.persistent_bytes >= w.nbytes
    source, bias = pumice.tensor(w, context), pumice.tensor(b, context)
    persistent = BufferRange(Buffer(context, properties.persistent_bytes))
    initializer = pumice.Initializer(context, [conv])
    weights = BindingTable(initializer)
    refused("I2", weights.bind_inputs, [[None, source]])
    refused("O3", weights.bind_inputs, [[pumice.tensor(x, context), source, bias]])
    refused("O2", weights.bind_inputs, [[None, None, bias]])
    refused("I4", weights.bind_outputs, [None])
    refused("I6", weights.bind_persistent, persistent)
    weights.bind_inputs([[None, source, bias]])
    weights.bind_outputs([persistent])
    if properties := initializer.binding_properties.temporary_bytes:
        weights.bind_temporary(BufferRange(Buffer(context, properties)))
    commands = pumice.CommandList(context)
    commands.dispatch(initializer, weights)
    commands.commit()
    commands.exec().wait()
    source.upload(np.zeros_like(w))  # O4: the sources are no longer needed
    y = pumice.empty((1, 5, 9, 7), "float32", context)
    table = BindingTable(conv)
    refused("O2", table.bind_inputs, [pumice.tensor(x, context), source, None])
    table.bind_inputs([pumice.tensor(x, context), None, None])
    table.bind_outputs([y])
    refused("P2", table.bind_persistent, BufferRange(persistent.buffer, 16))
    table.bind_persistent(persistent)
    if conv.binding_properties.temporary_bytes:
        table.bind_temporary(BufferRange(Buffer(context, conv.binding_properties.temporary_bytes)))
    else:
        refused("P3", table.bind_temporary, BufferRange(Buffer(context, 256)))
    commands = pumice.CommandList(context)
    commands.dispatch(conv, table)
    commands.commit()
    commands.exec().wait()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None]
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)
