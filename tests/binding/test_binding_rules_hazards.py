"""Family H: which bindings may share memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import pumice
from binding_tables import F40, F64, OWNED, ROWS, execute, expect_error, initialise, operator, parts
from pumice import BindingTable, Buffer, BufferRange, Initializer, TensorDesc


@pytest.fixture
def memory(context: pumice.Context) -> Buffer:
    return Buffer(context, 4096)


def bound(compiled: pumice.CompiledOperator, inputs: list[BufferRange]) -> BindingTable:
    table = BindingTable(compiled)
    table.bind_inputs(inputs)
    return table


def init_bound(compiled: pumice.CompiledOperator, weight: BufferRange) -> BindingTable:
    table = BindingTable(Initializer(compiled.context, [compiled]))
    table.bind_inputs([[None, weight]])
    return table


def test_h1_different_memory_never_conflicts(
    relu: pumice.CompiledOperator, multiply: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    other = Buffer(context, 4096)
    bound(relu, parts(memory, 0)).bind_outputs(parts(other, 0))
    size = multiply.binding_properties.persistent_bytes
    init_bound(multiply, BufferRange(memory, 0, 256)).bind_outputs([BufferRange(other, 0, size)])


def test_h2_disjoint_ranges_of_one_buffer_are_enough(
    relu: pumice.CompiledOperator, multiply: pumice.CompiledOperator, memory: Buffer
) -> None:
    bound(relu, parts(memory, 0)).bind_outputs(parts(memory, 256))
    size = multiply.binding_properties.persistent_bytes
    expect_error(
        "H11", init_bound(multiply, BufferRange(memory, 0, 256)).bind_outputs, [BufferRange(memory, 256, size)]
    )


def test_h3_reads_never_conflict(context: pumice.Context, memory: Buffer) -> None:
    table = bound(operator(context, "Add", [F40, F40], [F40]), parts(memory, 0, 96, size=160))
    table.bind_outputs(parts(Buffer(context, 160), 0, size=160))


def test_h4_in_place_where_the_operator_supports_it(
    relu: pumice.CompiledOperator, multiply: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    assert relu.supports_in_place(0, 0)
    bound(relu, parts(memory, 0)).bind_outputs(parts(memory, 0))
    softmax = operator(context, "Softmax", [F64], [F64])
    assert not softmax.supports_in_place(0, 0)
    error = expect_error("H4", bound(softmax, parts(memory, 0)).bind_outputs, parts(memory, 0))
    assert error.slot == "outputs[0]"
    size = multiply.binding_properties.persistent_bytes
    table = init_bound(multiply, BufferRange(memory, 0, size))
    expect_error("H11", table.bind_outputs, [BufferRange(memory, 0, size)])


def test_h5_overlapping_ranges_are_identical(
    relu: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    table = bound(operator(context, "Relu", [F40], [F40]), [BufferRange(memory, 0, 208)])
    expect_error("H5", table.bind_outputs, [BufferRange(memory, 64, 176)])
    same = bound(relu, parts(memory, 0))
    expect_error("H5", same.bind_outputs, parts(memory, 0, size=272))
    same.bind_outputs(parts(memory, 256))  # adjacent ranges do not overlap
    softmax = bound(operator(context, "Softmax", [F40], [F40]), [BufferRange(memory, 0, 208)])
    expect_error("H5", softmax.bind_outputs, [BufferRange(memory, 64, 176)])


def test_an_overlap_names_the_users_buffers_and_offsets(context: pumice.Context) -> None:
    """Buffers are suballocated from larger blocks, but errors use the offsets within the user's buffer."""
    for _ in range(3):
        memory = Buffer(context, 1024)
        table = bound(operator(context, "Relu", [F40], [F40]), [BufferRange(memory, 0, 208)])
        error = expect_error("H5", table.bind_outputs, [BufferRange(memory, 64, 176)])
        place = f"of buffer {memory.id}"
        assert (
            error.given == f"outputs[0] (176 bytes at offset 64 {place}) and inputs[0] (208 bytes at offset 0 {place})"
        )
        assert f"Buffer {memory.id} of 1024 bytes" in repr(memory)
        copying = pumice.CommandList(context)
        error = expect_error("R1", copying.copy, BufferRange(memory, 16, 64), BufferRange(memory, 48, 64))
        assert (error.expected, error.given) == (
            f"memory that does not overlap the source's, 64 bytes at offset 16 {place}",
            f"64 bytes at offset 48 {place}",
        )
        error = expect_error("R1", table.bind_outputs, [BufferRange(memory, 960, 176)])
        assert error.given == f"176 bytes at offset 960 {place}"


@pytest.mark.parametrize(
    "output",
    [TensorDesc("float32", [8, 8], strides=[1, 8]), TensorDesc("float32", [8, 8], strides=[16, 1])],
    ids=["transposed", "padded"],
)
def test_h6_in_place_needs_one_description(context: pumice.Context, memory: Buffer, output: TensorDesc) -> None:
    square = TensorDesc("float32", [8, 8])
    table = bound(operator(context, "Relu", [square], [output]), parts(memory, 0, size=1024))
    error = expect_error("H6", table.bind_outputs, parts(memory, 0, size=1024))
    assert error.given == f"float32[8, 8] with strides {list(output.strides)} in {output.bytes} bytes"
    assert str(error).count("with strides") == 2  # each of the two tensors is described once
    table.bind_outputs(parts(memory, 1024, size=1024))
    same = bound(operator(context, "Relu", [output], [output]), parts(memory, 0, size=1024))
    same.bind_outputs(parts(memory, 0, size=1024))


def test_h7_outputs_do_not_overlap(context: pumice.Context, memory: Buffer) -> None:
    half = TensorDesc("float32", [32])
    table = BindingTable(operator(context, "Split", [F64], [half, half], axis=0))
    table.bind_outputs(parts(memory, 0, 128, size=128))
    expect_error("H7", table.bind_outputs, parts(memory, 0, 112, size=128))
    table.bind_outputs([BufferRange(memory, 0, 192), BufferRange(memory, 128, 128)])  # overlaps the slack only


def test_h8_persistent_memory_is_no_output(multiply: pumice.CompiledOperator, memory: Buffer) -> None:
    size = multiply.binding_properties.persistent_bytes
    table = BindingTable(multiply)
    table.bind_persistent(BufferRange(memory, 0, size))
    expect_error("H8", table.bind_outputs, parts(memory, 0))
    table.bind_outputs(parts(memory, -(-size // 256) * 256))
    expect_error("H8", table.bind_persistent, BufferRange(memory, -(-size // 256) * 256, size))


def test_h9_persistent_memory_may_be_an_input(multiply: pumice.CompiledOperator, memory: Buffer) -> None:
    table = BindingTable(multiply)
    table.bind_persistent(BufferRange(memory, 0, multiply.binding_properties.persistent_bytes))
    table.bind_inputs([BufferRange(memory, 0, 256), None])


def test_h10_temporary_memory_overlaps_nothing(context: pumice.Context) -> None:
    conv = operator(
        context,
        "Conv",
        [TensorDesc("float32", [1, 3, 9, 7]), TensorDesc("float32", [5, 3, 3, 3]), None],
        [TensorDesc("float32", [1, 5, 7, 5])],
    )
    size = conv.binding_properties.temporary_bytes
    assert size > 0
    memory = Buffer(context, 16384)
    x, w = BufferRange(memory, 0, 756), BufferRange(memory, 1024, 540)
    y = BufferRange(memory, 2048, 700)
    table = BindingTable(conv)
    table.bind_inputs([x, w, None])
    table.bind_outputs([y])
    for begin in (0, 1024, 2048):
        expect_error("H10", table.bind_temporary, BufferRange(memory, begin, size))
    table.bind_temporary(BufferRange(memory, 4096, size))
    expect_error("H10", table.bind_inputs, [x, BufferRange(memory, 4096, 540), None])
    expect_error("H10", table.bind_outputs, [BufferRange(memory, 4096, 700)])


def test_h11_initialisation_copies_between_buffers(
    multiply: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    size = multiply.binding_properties.persistent_bytes
    table = init_bound(multiply, BufferRange(memory, 0, 256))
    for offset in (0, 256, 2048):
        error = expect_error("H11", table.bind_outputs, [BufferRange(memory, offset, size)])
        assert error.slot == "outputs[0]"
    table.bind_outputs([Buffer(context, size)])


def test_h12_persistent_resources_of_two_operators_are_disjoint(context: pumice.Context, memory: Buffer) -> None:
    pair = [operator(context, "MatMul", [ROWS, OWNED], [ROWS]) for _ in range(2)]
    size = pair[0].binding_properties.persistent_bytes
    table = BindingTable(Initializer(context, pair))
    expect_error("H12", table.bind_outputs, [BufferRange(memory, 0, size), BufferRange(memory, 0, size)])
    table.bind_outputs([BufferRange(memory, 0, size), BufferRange(memory, -(-size // 256) * 256, size)])


def test_h13_conflicts_are_those_of_memory(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    """Small buffers may share an allocation without conflict; two views of one tensor are the same memory."""
    buffers = [Buffer(context, 256) for _ in range(4)]
    for one, other in pairwise(buffers):
        bound(relu, parts(one, 0)).bind_outputs(parts(other, 0))
    whole = pumice.empty(96, "float32", context)
    expect_error("H5", bound(relu, [whole[:64]]).bind_outputs, [whole[16:80]])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["PRelu", "Clip"])
def test_h14_only_the_input_that_is_mapped_may_be_the_output(
    context: pumice.Context, memory: Buffer, name: str
) -> None:
    one = TensorDesc("float32", [1])
    others = [F64] if name == "PRelu" else [one, one]
    compiled = operator(context, name, [F64, *others], [F64])
    assert [compiled.supports_in_place(i, 0) for i in range(len(others) + 1)] == [True] + [False] * len(others)
    assert not compiled.supports_in_place(0, 1)
    table = bound(compiled, parts(memory, 0, *(256 * (i + 1) for i in range(len(others)))))
    table.bind_outputs(parts(memory, 0))
    expect_error("H4", table.bind_outputs, parts(memory, 256))


@pytest.mark.parametrize("alias", [(0,), (1,), (0, 1)], ids=["a", "b", "both"])
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Pow", "Max"])
def test_h15_a_binary_operator_writes_on_either_input(
    context: pumice.Context, name: str, alias: tuple[int, ...]
) -> None:
    compiled = operator(context, name, [F64, F64], [F64])
    initialise(context, compiled)
    a, b = (np.random.default_rng(seed).uniform(1, 2, 64).astype("float32") for seed in range(2))
    x = pumice.tensor(a, context)
    y = x if alias == (0, 1) else pumice.tensor(b, context)
    if alias == (0, 1):
        b = a
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}
    target = (x, y)[alias[0]]
    execute(context, compiled, [x, y], [target])
    np.testing.assert_allclose(target.numpy(), function.get(name, np.maximum)(a, b), rtol=1e-5)


@pytest.mark.parametrize("row", [row for row in pumice.operators() if row.in_place], ids=lambda row: row.name)
def test_in_place_is_a_property_of_elementwise_rows(row: pumice.OperatorRow) -> None:
    assert row.skeleton in ("map", "view", "scan") or row.name == "TensorScatter"
    assert all(pair == (row.inputs[i].name, row.outputs[0].name) for i, pair in enumerate(row.in_place))


def test_operators_that_move_or_reduce_do_not_run_in_place() -> None:
    rows = {row.name: row for row in pumice.operators()}
    assert rows["Add"].in_place == [("a", "y"), ("b", "y")]
    assert rows["PRelu"].in_place == [("x", "y")]
    for name in ("Softmax", "Conv", "MatMul", "Gemm", "MaxPool", "ReduceSum", "Concat", "Slice", "Transpose", "Cast"):
        assert rows[name].in_place == []


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "uint8"])
@pytest.mark.parametrize("strided", [False, True])
def test_elementwise_rows_compute_the_same_in_place(context: pumice.Context, dtype: str, strided: bool) -> None:
    desc = TensorDesc(dtype, [5, 7], strides=[9, 1] if strided else None)
    compiled = operator(context, "Add", [desc, desc], [desc])
    initialise(context, compiled)
    memory = pumice.tensor(np.arange(96).astype(dtype), context)
    x = BufferRange(memory.buffer, 0, desc.bytes)
    execute(context, compiled, [x, x], [x])
    expected = np.arange(96).astype(dtype)
    for row in range(5):
        at = row * (9 if strided else 7)
        expected[at : at + 7] *= 2
    used = desc.bytes // expected.itemsize
    np.testing.assert_array_equal(memory.numpy()[: at + 7], expected[: at + 7])
    np.testing.assert_array_equal(memory.numpy()[used:], expected[used:])
