"""Families M, R and T: memory, ranges, sizes, alignment and tensor descriptions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pumice
from binding_tables import F64, execute, expect_error, initialise, operator, parts
from pumice import BindingTable, Buffer, BufferRange, Initializer, TensorDesc


@pytest.fixture
def memory(context: pumice.Context) -> Buffer:
    return Buffer(context, 4096)


def creation_refused(rule: str, *arguments: object, **options: object) -> None:
    with pytest.raises(pumice.GraphError) as caught:
        TensorDesc(*arguments, **options)  # type: ignore[arg-type]
    assert caught.value.rule == rule


def test_m1_execution_is_in_the_default_heap(
    relu: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 0))
    for heap in ("upload", "readback"):
        other = Buffer(context, 256, heap)
        assert heap in expect_error("M1", table.bind_inputs, [other]).given
        expect_error("M1", table.bind_outputs, [BufferRange(other)])


def test_m2_owned_tensors_come_from_the_default_or_upload_heap(
    multiply: pumice.CompiledOperator, context: pumice.Context
) -> None:
    table = BindingTable(Initializer(context, [multiply]))
    for heap in ("default", "upload"):
        table.bind_inputs([[None, Buffer(context, 256, heap)]])
    expect_error("M2", table.bind_inputs, [[None, Buffer(context, 256, "readback")]])


def test_m3_a_binding_is_a_buffer_of_the_context(
    relu: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 0))
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        expect_error("M3", table.bind_inputs, [Buffer(other, 256)])
    image = pumice.Image(context, "r32f", (4, 4))
    assert expect_error("M3", table.bind_inputs, [image]).given == "Image"


def test_m5_a_buffer_has_no_bytes_or_more(context: pumice.Context) -> None:
    assert Buffer(context, 0).bytes == 0
    for wrong in (-1, -(2**70), 2**64, 2**70):
        expect_error("M5", Buffer, context, wrong)
    with pytest.raises(pumice.OutOfMemoryError):
        Buffer(context, 2**64 - 1)


@pytest.mark.parametrize("heap", ["default", "upload", "readback"])
def test_m4_shaders_read_and_write_every_buffer(context: pumice.Context, heap: str) -> None:
    """Copies are kernels; the validation layer would report a buffer without the storage usage."""
    source, buffer, target = (
        pumice.tensor(np.arange(64, dtype="float32"), context),
        Buffer(context, 256, heap),
        pumice.empty(64, "float32", context),
    )
    commands = pumice.CommandList(context)
    commands.copy(source, buffer)
    commands.copy(buffer, target)
    commands.commit()
    commands.exec().wait()
    np.testing.assert_array_equal(target.numpy(), np.arange(64))


def test_r1_a_range_lies_inside_its_buffer(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    buffer, table = Buffer(context, 256), BindingTable(relu)
    table.bind_inputs([BufferRange(buffer, 0, 256)])
    for offset, size in [(16, 256), (2**64 - 16, 32), (0, 257), (256, 256), (2**63, 2**63), (0, 2**64 - 1)]:
        expect_error("R1", table.bind_inputs, [BufferRange(buffer, offset, size)])


def test_r2_a_range_holds_its_tensor(relu: pumice.CompiledOperator, memory: Buffer) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 0, size=256))
    table.bind_inputs(parts(memory, 0, size=512))
    error = expect_error("R2", table.bind_inputs, parts(memory, 0, size=252))
    assert (error.expected, error.given) == ("at least 256 bytes", "252 bytes")


def test_r3_offsets_are_aligned(relu: pumice.CompiledOperator, context: pumice.Context, memory: Buffer) -> None:
    table = BindingTable(relu)
    table.bind_inputs(parts(memory, 32))
    expect_error("R3", table.bind_inputs, parts(memory, 8))
    guaranteed = BindingTable(operator(context, "Relu", [TensorDesc("float32", [64], alignment=64)], [F64]))
    guaranteed.bind_inputs(parts(memory, 64))
    assert "64" in expect_error("R3", guaranteed.bind_inputs, parts(memory, 32)).expected
    small = BindingTable(operator(context, "Relu", [TensorDesc("float32", [64], alignment=4)], [F64]))
    expect_error("R3", small.bind_inputs, parts(memory, 4))


def test_r4_alignments_are_powers_of_two_of_at_least_an_element() -> None:
    for alignment in (0, 4, 64):
        assert TensorDesc("float32", [64], alignment=alignment).alignment == alignment
    for alignment in (24, 2):
        creation_refused("R4", "float32", [64], alignment=alignment)


def test_r5_sizes_are_multiples_of_4_bytes() -> None:
    assert TensorDesc("float16", [3]).bytes == 8
    assert TensorDesc("uint8", [1]).bytes == 4
    assert TensorDesc("float16", [3], total_bytes=8).bytes == 8
    for total in (6, 9):
        creation_refused("R5", "float16", [3], total_bytes=total)
    assert TensorDesc("float32", [0, 5], total_bytes=0).bytes == 0
    with pytest.raises(AttributeError):
        TensorDesc("float16", [3]).bytes = 6  # type: ignore[misc]


SHAPES = st.lists(st.integers(1, 5), max_size=4)


@given(SHAPES, st.data(), st.sampled_from(["uint8", "float16", "float32", "int64"]))
def test_r6_sizes_reach_to_the_last_element(shape: list[int], data: st.DataObject, dtype: str) -> None:
    strides = data.draw(st.lists(st.integers(0, 30), min_size=len(shape), max_size=len(shape)))
    desc = TensorDesc(dtype, shape, strides=strides)
    reached = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    assert desc.bytes == -(-reached * np.dtype(dtype).itemsize // 4) * 4


def test_r6_the_total_size_reaches_to_the_last_element() -> None:
    creation_refused("R6", "float16", [8, 8], total_bytes=64)
    creation_refused("R6", "float16", [8, 8], strides=[16, 1], total_bytes=128)
    creation_refused("R6", "float32", [4], total_bytes=0)
    padded = TensorDesc("float16", [8, 8], total_bytes=160)
    assert padded.bytes == 160
    assert padded != TensorDesc("float16", [8, 8])
    assert padded.packed().bytes == 128
    assert padded.permute([1, 0]).bytes == 160


def test_r6_more_than_the_tensor_is_padding(context: pumice.Context, memory: Buffer) -> None:
    half = TensorDesc("float16", [8, 8])
    table = BindingTable(operator(context, "Relu", [half], [half]))
    expect_error("R2", table.bind_inputs, parts(memory, 0, size=64))
    table.bind_inputs(parts(memory, 0, size=160))


def test_r6_padding_is_bound_with_the_tensor(context: pumice.Context, memory: Buffer) -> None:
    half = TensorDesc("float16", [8, 8], total_bytes=160)
    compiled = operator(context, "Split", [TensorDesc("float16", [16, 8])], [half, half], axis=0, num_outputs=2)
    table = BindingTable(compiled)
    expect_error("R2", table.bind_outputs, parts(memory, 0, 160, size=128))
    expect_error("H7", table.bind_outputs, parts(memory, 0, 144, size=160))
    table.bind_outputs(parts(memory, 0, 160, size=160))
    initialise(context, compiled)
    x = np.arange(128, dtype="float16").reshape(16, 8)
    execute(context, compiled, [pumice.tensor(x, context)], parts(memory, 0, 160, size=160))
    written = pumice.Tensor(half, memory, 80).numpy()
    np.testing.assert_array_equal(written, x[8:])


def test_h6_tensors_in_place_have_one_total_size(context: pumice.Context, memory: Buffer) -> None:
    plain, padded = TensorDesc("float32", [64]), TensorDesc("float32", [64], total_bytes=272)
    table = BindingTable(operator(context, "Relu", [plain], [padded]))
    table.bind_inputs(parts(memory, 0, size=272))
    assert "272 bytes" in expect_error("H6", table.bind_outputs, parts(memory, 0, size=272)).given
    same = BindingTable(operator(context, "Relu", [padded], [padded]))
    same.bind_inputs(parts(memory, 0, size=272))
    same.bind_outputs(parts(memory, 0, size=272))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8"])
def test_r7_bytes_outside_an_output_are_untouched(context: pumice.Context, dtype: str) -> None:
    desc = TensorDesc(dtype, [3, 5], strides=[8, 1])
    x = np.arange(15).reshape(3, 5).astype(dtype)
    compiled = operator(context, "Neg", [TensorDesc(dtype, [3, 5])], [desc])
    initialise(context, compiled)
    memory = pumice.tensor(np.full(512, 0xA5, "uint8"), context)
    execute(context, compiled, [pumice.tensor(x, context)], [BufferRange(memory.buffer, 64, desc.bytes)])
    after = memory.numpy()
    assert (after[:64] == 0xA5).all()
    assert (after[64 + desc.bytes :] == 0xA5).all()
    written = after[64 : 64 + (2 * 8 + 5) * x.itemsize].view(dtype)
    for row in range(3):
        np.testing.assert_array_equal(written[8 * row : 8 * row + 5], -x[row])


def test_r8_ranks_and_sizes(context: pumice.Context, memory: Buffer) -> None:
    assert TensorDesc("float32", []).elements == 1
    assert TensorDesc("float32", [1] * 8).elements == 1
    for shape in ([1] * 9, [65536, 65536]):
        creation_refused("R8", "float32", shape)
    with pytest.raises(pumice.GraphError, match="3 strides"):
        TensorDesc("float32", [1, 2, 3, 4], strides=[1, 1, 1])


@pytest.mark.parametrize("binding", ["none", "range", "odd", "empty"])
def test_r8_a_tensor_without_elements_takes_any_range(context: pumice.Context, memory: Buffer, binding: str) -> None:
    nothing = TensorDesc("float32", [0, 5])
    assert nothing.bytes == 0
    compiled = operator(context, "Add", [nothing, nothing], [nothing])
    initialise(context, compiled)
    bindings = {
        "none": None,
        "range": BufferRange(memory, 0, 256),
        "odd": BufferRange(memory, 3, 1),
        "empty": BufferRange(memory, 4096, 0),
    }
    execute(context, compiled, [bindings[binding]] * 2, [bindings[binding]])


def test_r8_one_input_without_elements(context: pumice.Context, memory: Buffer) -> None:
    descs = [TensorDesc("float32", [size]) for size in (3, 0, 2)]
    join = operator(context, "Concat", descs, [TensorDesc("float32", [5])], axis=0)
    initialise(context, join)
    x, z, y = (pumice.tensor(np.arange(n, dtype="float32"), context) for n in (3, 2, 5))
    for nothing in (None, BufferRange(memory, 3, 1)):
        execute(context, join, [x, nothing, z], [y])
        np.testing.assert_array_equal(y.numpy(), [0, 1, 2, 0, 1])


@pytest.mark.parametrize("strides", [[0, 1], [4, 1], [2, 2]], ids=["zero", "overlapping", "colliding"])
def test_r9_every_index_of_an_output_has_an_element(strides: list[int]) -> None:
    plain = TensorDesc("float32", [4, 8])
    pumice.Operator("Relu", [TensorDesc("float32", [4, 8], strides=strides)], [plain])
    pumice.Operator("Relu", [plain], [TensorDesc("float32", [4, 8], strides=[1, 4])])
    with pytest.raises(pumice.GraphError) as caught:
        pumice.Operator("Relu", [plain], [TensorDesc("float32", [4, 8], strides=strides)])
    assert caught.value.rule == "R9"


def test_t1_a_tensor_has_the_described_dtype(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    table = BindingTable(relu)
    table.bind_inputs([pumice.empty(64, "float32", context)])
    error = expect_error("T1", table.bind_inputs, [pumice.empty(64, "int32", context)])
    assert (error.slot, error.tensor, error.expected, error.given) == ("inputs[0]", "x", "float32[64]", "int32[64]")
    expect_error("R2", table.bind_inputs, [pumice.empty(64, "float16", context)])
    bits = pumice.empty(64, "int32", context)
    table.bind_inputs([BufferRange(bits.buffer)])  # a range has no dtype


def test_t2_a_tensor_has_the_described_shape(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    table = BindingTable(relu)
    matrix = pumice.empty((8, 8), "float32", context)
    assert expect_error("T2", table.bind_outputs, [matrix]).given == "float32[8, 8]"
    expect_error("T2", table.bind_outputs, [pumice.empty(65, "float32", context)])
    expect_error("R2", table.bind_outputs, [pumice.empty(63, "float32", context)])
    table.bind_outputs([matrix.reshape((64,))])


def test_t3_a_tensor_has_the_described_strides(context: pumice.Context) -> None:
    square, transposed = TensorDesc("float32", [8, 8]), TensorDesc("float32", [8, 8], strides=[1, 8])
    matrix = pumice.empty((8, 8), "float32", context)
    table = BindingTable(operator(context, "Relu", [square], [transposed]))
    table.bind_inputs([matrix])
    expect_error("T3", table.bind_inputs, [matrix.transpose((1, 0))])
    expect_error("T3", table.bind_outputs, [matrix])
    table.bind_outputs([pumice.empty((8, 8), "float32", context).transpose((1, 0))])
    error = expect_error("T3", table.bind_outputs, [matrix])
    told = ("float32[8, 8] with strides [1, 8]", "float32[8, 8] with strides [8, 1]")
    assert (error.expected, error.given) == told
    row = TensorDesc("float32", [1, 64], strides=[1000, 1])
    flat = BindingTable(operator(context, "Relu", [row], [row]))
    flat.bind_inputs([pumice.empty((1, 64), "float32", context)])  # the stride of an axis of size 1 is ignored


def test_t2_owned_tensors_are_compared_too(multiply: pumice.CompiledOperator, context: pumice.Context) -> None:
    table = BindingTable(Initializer(context, [multiply]))
    table.bind_inputs([[None, pumice.empty((8, 8), "float32", context)]])
    assert expect_error("T2", table.bind_inputs, [[None, pumice.empty(64, "float32", context)]]).slot == "inputs[0][1]"
