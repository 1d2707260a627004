"""Families C, I and O: number and kind of bindings, initializers, owned tensors. Rule ids are from pumice.binding_rules()."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from binding_tables import F64, execute, expect_error, initialise, operator, parts, random, resources, run, table_of
from pumice import BindingTable, Buffer, BufferRange, CommandList, Initializer, TensorDesc

X, Y = TensorDesc("float32", [1, 3, 9, 7]), TensorDesc("float32", [1, 5, 9, 7])
W, B = (TensorDesc("float32", shape) for shape in ([5, 3, 3, 3], [5]))
OWNED_W, OWNED_B = (TensorDesc("float32", shape, owned=True) for shape in ([5, 3, 3, 3], [5]))
HALF = TensorDesc("float32", [32])


@pytest.fixture
def add(context: pumice.Context) -> pumice.CompiledOperator:
    return operator(context, "Add", [F64, F64], [F64])


@pytest.fixture
def conv(context: pumice.Context) -> pumice.CompiledOperator:
    return operator(context, "Conv", [X, OWNED_W, OWNED_B], [Y], pads=[1, 1, 1, 1])


@pytest.fixture
def memory(context: pumice.Context) -> Buffer:
    return Buffer(context, 8192)


def convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None])


def test_c1_inputs_are_counted_optional_ones_included(
    add: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    for offsets in ([0], [0, 256, 512]):
        error = expect_error("C1", table.bind_inputs, parts(memory, *offsets))
        assert (error.slot, error.tensor, error.given) == ("inputs", "Add", str(len(offsets)))
    without_bias = BindingTable(operator(context, "Conv", [X, W, None], [Y], pads=[1, 1, 1, 1]))
    x, w = BufferRange(memory, 0, X.bytes), BufferRange(memory, 1024, W.bytes)
    without_bias.bind_inputs([x, w, None])
    expect_error("C1", without_bias.bind_inputs, [x, w])
    expect_error("C1", without_bias.bind_inputs, [x, w, None, None])


def test_c2_outputs_are_counted_optional_ones_included(
    add: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    expect_error("C2", BindingTable(add).bind_outputs, parts(memory, 0, 256))
    expect_error("C2", BindingTable(add).bind_outputs, [None, None])
    pool = operator(context, "MaxPool", [X], [TensorDesc("float32", [1, 3, 8, 6]), None], kernel_shape=[2, 2])
    table = BindingTable(pool)
    table.bind_outputs([BufferRange(memory, 0, 1024), None])
    expect_error("C2", table.bind_outputs, [BufferRange(memory, 0, 1024)])


def test_c3_every_tensor_of_a_variadic_operator_counts(context: pumice.Context, memory: Buffer) -> None:
    join = BindingTable(operator(context, "Concat", [HALF] * 3, [TensorDesc("float32", [96])], axis=0))
    join.bind_inputs(parts(memory, 0, 128, 256, size=128))
    expect_error("C6", join.bind_inputs, [parts(memory, 0, 128, 256, size=128)])
    expect_error("C1", join.bind_inputs, parts(memory, 0, 128, size=128))
    split = BindingTable(operator(context, "Split", [F64], [HALF, HALF], axis=0))
    split.bind_outputs(parts(memory, 0, 128, size=128))
    expect_error("C2", split.bind_outputs, parts(memory, 0, size=256))


def test_c4_what_is_described_as_absent_is_bound_to_nothing(context: pumice.Context, memory: Buffer) -> None:
    table = BindingTable(operator(context, "Conv", [X, W, None], [Y], pads=[1, 1, 1, 1]))
    x, w = BufferRange(memory, 0, X.bytes), BufferRange(memory, 1024, W.bytes)
    table.bind_inputs([x, w, None])
    error = expect_error("C4", table.bind_inputs, [x, w, BufferRange(memory, 2048, 256)])
    assert error.slot == "inputs[2]"
    assert error.tensor


def test_c5_what_is_described_is_bound(add: pumice.CompiledOperator, memory: Buffer) -> None:
    error = expect_error("C5", BindingTable(add).bind_inputs, [*parts(memory, 0), None])
    assert (error.slot, error.tensor, error.given) == ("inputs[1]", "b", "nothing")
    assert "256 bytes" in error.expected


@pytest.mark.parametrize("wrong", [5, "x", np.zeros(64, "float32"), object()], ids=["int", "text", "array", "object"])
def test_c6_a_binding_is_one_range(add: pumice.CompiledOperator, memory: Buffer, wrong: object) -> None:
    table = BindingTable(add)
    assert expect_error("C6", table.bind_inputs, [*parts(memory, 0), parts(memory, 256)]).slot == "inputs[1]"
    assert expect_error("C6", table.bind_inputs, [*parts(memory, 0), wrong]).slot == "inputs[1]"
    assert expect_error("C6", table.bind_outputs, [[wrong]]).slot == "outputs[0][0]"
    assert expect_error("C6", table.bind_inputs, wrong).slot == "inputs"
    assert expect_error("C6", table.bind_temporary, [None]).slot == "temporary"
    assert expect_error("C6", table.bind_persistent, wrong).slot == "persistent"
    assert "a, b, y" in expect_error("C6", lambda: table.bind(z=memory)).expected


@pytest.mark.parametrize("none", [None, [], ()])
def test_c7_no_bindings_unbind_all(
    add: pumice.CompiledOperator, memory: Buffer, context: pumice.Context, none: object
) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    table.bind_outputs(parts(memory, 512))
    table.bind_inputs(none)
    assert expect_error("C9", CommandList(context).dispatch, add, table).slot == "inputs[0]"
    table.bind_inputs(parts(memory, 0, 256))
    table.bind_outputs(none)
    assert expect_error("C9", CommandList(context).dispatch, add, table).slot == "outputs[0]"
    table.unbind()
    table.bind_outputs(parts(memory, 0))
    table.bind_inputs(parts(memory, 256, 512))
    CommandList(context).dispatch(add, table)


def test_c9_a_dispatch_needs_every_binding(
    add: pumice.CompiledOperator, conv: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    table = BindingTable(add)
    table.bind_inputs(parts(memory, 0, 256))
    error = expect_error("C9", CommandList(context).dispatch, add, table)
    assert (error.slot, error.tensor) == ("outputs[0]", "y")
    initializer = Initializer(context, [conv])
    assert expect_error("C9", CommandList(context).dispatch, initializer, BindingTable(initializer)).slot == "inputs[1]"


def test_c9_volatile_descriptors_are_read_at_execution(context: pumice.Context) -> None:
    add = operator(context, "Add", [F64, F64], [F64], flags=["DESCRIPTORS_VOLATILE"])
    a, b, c, y, z = (pumice.tensor(np.full(64, value, "float32"), context) for value in (1, 2, 10, 0, 0))
    initialise(context, add)
    table = BindingTable(add)
    commands = CommandList(context)
    commands.dispatch(add, table)
    commands.dispatch(add, table)
    commands.commit()
    expect_error("C9", commands.exec)
    table.bind(a=a, b=b, y=y)
    commands.exec().wait()
    np.testing.assert_array_equal(y.numpy(), np.full(64, 3))
    expect_error("C5", lambda: table.bind(a=a, y=z))
    table.bind(a=a, b=c, y=z)
    commands.exec().wait()
    commands.exec().wait()
    np.testing.assert_array_equal(z.numpy(), np.full(64, 11))
    np.testing.assert_array_equal(y.numpy(), np.full(64, 3))
    table.unbind()
    expect_error("C9", commands.exec)
    table.bind(a=a, b=c, y=y)
    commands.exec().wait()
    np.testing.assert_array_equal(y.numpy(), np.full(64, 11))
    table.reset(operator(context, "Add", [F64, F64], [F64]))
    expect_error("C10", commands.exec)


def test_c9_volatile_uses_keep_their_place_in_the_list(context: pumice.Context) -> None:
    add = operator(context, "Add", [F64, F64], [F64], flags=["DESCRIPTORS_VOLATILE"])
    initialise(context, add)
    one, x, y, z = (pumice.tensor(np.full(64, value, "float32"), context) for value in (1, 5, 0, 0))
    first, second = BindingTable(add), BindingTable(add)
    commands = CommandList(context)
    commands.dispatch(add, first)
    commands.copy(y, x)
    commands.dispatch(add, second)
    commands.commit()
    first.bind(a=x, b=one, y=y)
    second.bind(a=x, b=one, y=z)
    commands.exec().wait()
    np.testing.assert_array_equal(z.numpy(), np.full(64, 7))


@pytest.mark.parametrize("flag", ["ALLOW_HALF_PRECISION_COMPUTATION", "DISABLE_META_COMMANDS", "DESCRIPTORS_VOLATILE"])
def test_execution_flags_are_taken_by_name(context: pumice.Context, flag: str) -> None:
    add = operator(context, "Add", [F64, F64], [F64], flags=[flag])
    initialise(context, add)
    x, y = pumice.tensor(np.ones(64, "float32"), context), pumice.empty(64, "float32", context)
    execute(context, add, [x, x], [y])
    np.testing.assert_array_equal(y.numpy(), np.full(64, 2))
    with pytest.raises(pumice.UnsupportedError, match="'FASTER'.*DESCRIPTORS_VOLATILE"):
        operator(context, "Add", [F64, F64], [F64], flags=[flag, "FASTER"])


def test_c10_a_table_serves_its_own_dispatchable(add: pumice.CompiledOperator, context: pumice.Context) -> None:
    other = operator(context, "Add", [F64, F64], [F64])
    expect_error("C10", CommandList(context).dispatch, add, BindingTable(other))
    required = add.binding_properties.descriptors
    BindingTable(add, required)
    expect_error("C10", BindingTable, add, required - 1)
    table = BindingTable(add)
    expect_error("C10", table.reset, None)
    with pumice.Context(f"uuid:{context.info.uuid}") as foreign:
        expect_error("C10", CommandList(foreign).dispatch, add, table)
        expect_error("M3", Initializer, foreign, [add])


def test_i1_an_initializer_takes_an_array_per_operator_in_order(context: pumice.Context, memory: Buffer) -> None:
    small, large = (
        operator(context, "MatMul", [TensorDesc("float32", [4, n]), TensorDesc("float32", [n, n], owned=True)],
                 [TensorDesc("float32", [4, n])])
        for n in (8, 16)
    )  # fmt: skip
    table = BindingTable(Initializer(context, [small, large]))
    arrays = [[None, BufferRange(memory, 0, 256)], [None, BufferRange(memory, 1024, 1024)]]
    table.bind_inputs(arrays)
    assert expect_error("I1", table.bind_inputs, arrays[:1]).given == "1"
    assert expect_error("I1", table.bind_inputs, [arrays[0], BufferRange(memory, 0, 256)]).slot == "inputs[1]"
    assert expect_error("R2", table.bind_inputs, arrays[::-1]).slot == "inputs[1][1]"
    tensors = [[None, pumice.empty((n, n), "float32", context)] for n in (8, 16)]
    table.bind_inputs(tensors)
    expect_error("R2", table.bind_inputs, tensors[::-1])


def test_i2_an_array_has_an_entry_for_every_input(conv: pumice.CompiledOperator, memory: Buffer) -> None:
    table = BindingTable(Initializer(conv.context, [conv]))
    w, b = BufferRange(memory, 0, W.bytes), BufferRange(memory, 1024, 32)
    table.bind_inputs([[None, w, b]])
    assert expect_error("I2", table.bind_inputs, [[w, b]]).expected == "3 entries"
    expect_error("I2", table.bind_inputs, [[None, w, b, None]])


@pytest.mark.parametrize("nothing", [None, [], [None, None]], ids=["none", "empty", "nulls"])
def test_i3_operators_without_owned_tensors_take_nothing(
    add: pumice.CompiledOperator, conv: pumice.CompiledOperator, memory: Buffer, nothing: object
) -> None:
    table = BindingTable(Initializer(add.context, [conv, add]))
    array = [None, BufferRange(memory, 0, W.bytes), BufferRange(memory, 1024, 32)]
    table.bind_inputs([array, nothing])
    for missing in (None, []):
        assert expect_error("I3", table.bind_inputs, [missing, nothing]).slot == "inputs[0]"


def test_i4_outputs_are_the_persistent_resources(
    add: pumice.CompiledOperator, conv: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    table = BindingTable(Initializer(context, [conv, add]))
    size = conv.binding_properties.persistent_bytes
    assert add.binding_properties.persistent_bytes == 0
    table.bind_outputs([BufferRange(memory, 0, size), None])
    expect_error("I4", table.bind_outputs, [BufferRange(memory, 0, size)])
    assert expect_error("I4", table.bind_outputs, [None, None]).slot == "outputs[0]"
    error = expect_error("I4", table.bind_outputs, [BufferRange(memory, 0, size), BufferRange(memory, 4096, 256)])
    assert error.slot == "outputs[1]"
    expect_error("P2", table.bind_outputs, [BufferRange(memory, 0, size - 1), None])
    expect_error("P2", table.bind_outputs, [BufferRange(memory, 16, size), None])
    expect_error("M1", table.bind_outputs, [Buffer(context, size, "upload"), None])


def test_i5_an_operator_is_initialised_once_before_it_runs(
    add: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    commands = CommandList(context)
    commands.dispatch(add, table_of(context, add, parts(memory, 0, 256), parts(memory, 512)))
    commands.commit()
    expect_error("I5", commands.exec)
    initialise(context, add)
    commands.exec().wait()
    expect_error("I5", lambda: initialise(context, add))
    twice = operator(context, "Add", [F64, F64], [F64])
    expect_error("I5", Initializer, context, [twice, twice])
    initialise(context, twice)  # the rejected list changed nothing


def test_i5_an_operator_stands_in_an_initializer_once(
    add: pumice.CompiledOperator, conv: pumice.CompiledOperator, context: pumice.Context
) -> None:
    error = expect_error("I5", Initializer, context, [add, conv, add])
    assert (error.slot, error.given) == ("operators[2]", "that of operators[0]")
    initializer = Initializer(context, [add, conv])
    expect_error("I5", initializer.reset, [conv, conv])
    assert len(initializer.inputs) == 2  # a rejected reset changes nothing
    initializer.reset([conv, add])


def test_i5_a_rejected_list_initialises_nothing(add: pumice.CompiledOperator, context: pumice.Context) -> None:
    other = operator(context, "Add", [F64, F64], [F64])
    x, y = pumice.tensor(np.ones(64, "float32"), context), pumice.empty(64, "float32", context)
    initializer = Initializer(context, [add])
    commands = CommandList(context)
    commands.dispatch(initializer, BindingTable(initializer))
    commands.dispatch(other, table_of(context, other, [x, x], [y]))
    commands.commit()
    expect_error("I5", commands.exec)
    initialise(context, other)
    commands.exec().wait()
    np.testing.assert_array_equal(y.numpy(), np.full(64, 2))


def test_i6_an_initializer_without_operators_does_nothing(context: pumice.Context, memory: Buffer) -> None:
    initializer = Initializer(context, [])
    assert initializer.binding_properties == Initializer(context, []).binding_properties
    assert (initializer.inputs, initializer.outputs, initializer.binding_properties.persistent_bytes) == ([], [], 0)
    table = BindingTable(initializer)
    table.bind_inputs([])
    table.bind_outputs([])
    table.bind_temporary(None)
    table.bind_persistent(None)
    run(context, initializer, table)
    expect_error("I1", table.bind_inputs, [None])
    expect_error("I6", table.bind_persistent, BufferRange(memory, 0, 256))
    expect_error("P3", table.bind_temporary, BufferRange(memory, 0, 256))


def test_i6_it_is_not_reset_while_its_work_runs(context: pumice.Context) -> None:
    square = TensorDesc("float32", [384, 384])
    multiply, add = operator(context, "MatMul", [square] * 2, [square]), operator(context, "Add", [F64] * 2, [F64])
    initialise(context, multiply)
    x, y = (pumice.tensor(np.zeros((384, 384), "float32"), context) for _ in range(2))
    initializer = Initializer(context, [add])
    commands = CommandList(context)
    for _ in range(8):
        commands.dispatch(multiply, table_of(context, multiply, [x, x], [y]))
    commands.dispatch(initializer, BindingTable(initializer))
    commands.commit()
    submission = commands.exec()
    try:
        initializer.reset([])
        was_refused = False
    except pumice.BindingError as error:
        was_refused = error.rule == "I6"
    assert was_refused or submission.done
    submission.wait()
    initializer.reset([])
    assert initializer.inputs == []


def test_i7_after_a_reset_all_is_read_anew(
    add: pumice.CompiledOperator, conv: pumice.CompiledOperator, context: pumice.Context
) -> None:
    initializer = Initializer(context, [add])
    before = initializer.binding_properties
    table, commands = BindingTable(initializer), CommandList(context)
    commands.dispatch(initializer, table)
    commands.commit()
    initializer.reset([conv])
    assert initializer.binding_properties != before
    assert [slot.name for slot in initializer.inputs] == ["Conv"]
    for stale in (table.bind_inputs, table.bind_outputs, table.bind_temporary):
        expect_error("I7", stale, None)
    expect_error("I7", CommandList(context).dispatch, initializer, table)
    expect_error("I7", commands.exec)
    table.reset(initializer)
    table.bind_inputs([[None, pumice.tensor(random(W), context), pumice.tensor(random(B), context)]])


def test_o1_only_inputs_are_owned(context: pumice.Context) -> None:
    operator(context, "Conv", [X, OWNED_W, None], [Y], pads=[1, 1, 1, 1])
    with pytest.raises(pumice.GraphError) as caught:
        pumice.Operator("Relu", [F64], [TensorDesc("float32", [64], owned=True)])
    assert caught.value.rule == "O1"


def test_o2_owned_tensors_are_bound_at_initialisation(conv: pumice.CompiledOperator, context: pumice.Context) -> None:
    x, w, b = (pumice.tensor(random(desc), context) for desc in (X, W, B))
    table = BindingTable(conv)
    table.bind_inputs([x, None, None])
    assert expect_error("O2", table.bind_inputs, [x, w, None]).slot == "inputs[1]"
    init = BindingTable(Initializer(context, [conv]))
    init.bind_inputs([[None, w, b]])
    error = expect_error("O2", init.bind_inputs, [[None, None, b]])
    assert error.slot == "inputs[0][1]"


def test_o3_other_tensors_are_bound_at_execution(conv: pumice.CompiledOperator, context: pumice.Context) -> None:
    x, w, b = (pumice.tensor(random(desc), context) for desc in (X, W, B))
    init = BindingTable(Initializer(context, [conv]))
    assert expect_error("O3", init.bind_inputs, [[x, w, b]]).slot == "inputs[0][0]"
    expect_error("C5", BindingTable(conv).bind_inputs, [None, None, None])


def test_o4_sources_of_owned_tensors_are_not_needed_any_more(
    conv: pumice.CompiledOperator, context: pumice.Context
) -> None:
    x, w, b = (random(desc, seed) for seed, desc in enumerate((X, W, B)))
    sources = [pumice.tensor(one, context) for one in (w, b)]
    persistent = initialise(context, conv, [None, *sources])
    sources[0].upload(np.full(W.shape, np.nan, "float32"))
    sources[1].buffer.close()
    y = pumice.empty(Y.shape, "float32", context)
    execute(context, conv, [pumice.tensor(x, context), None, None], [y], persistent)
    np.testing.assert_allclose(y.numpy(), convolved(x, w, b), rtol=1e-4, atol=1e-4)


def test_o5_other_tensors_are_read_at_every_execution(context: pumice.Context) -> None:
    conv = operator(context, "Conv", [X, W, B], [Y], pads=[1, 1, 1, 1])
    x, w, b = (random(desc, seed) for seed, desc in enumerate((X, W, B)))
    tensors, y = [pumice.tensor(one, context) for one in (x, w, b)], pumice.empty(Y.shape, "float32", context)
    persistent = initialise(context, conv)
    commands = execute(context, conv, tensors, [y], persistent)
    tensors[1].upload(2 * w)
    commands.exec().wait()
    np.testing.assert_allclose(y.numpy(), convolved(x, 2 * w, b), rtol=1e-4, atol=1e-4)


def test_one_initializer_serves_several_operators(context: pumice.Context) -> None:
    """Their persistent resources are ranges of one buffer."""
    convs = [operator(context, "Conv", [X, OWNED_W, OWNED_B], [Y], pads=[1, 1, 1, 1]) for _ in range(2)]
    relu = operator(context, "Relu", [F64], [F64])
    weights = [[random(desc, seed) for desc in (W, B)] for seed in range(2)]
    sources = [[None, *(pumice.tensor(one, context) for one in pair)] for pair in weights]
    operators = [convs[0], relu, convs[1]]
    ranges = resources(context, [one.binding_properties.persistent_bytes for one in operators])
    initializer = Initializer(context, operators)
    table = BindingTable(initializer)
    table.bind_inputs([sources[0], None, sources[1]])
    table.bind_outputs(ranges)
    run(context, initializer, table)
    x, y = random(X, 9), pumice.empty(Y.shape, "float32", context)
    for conv, persistent, (w, b) in zip(convs, ranges[::2], weights, strict=True):
        execute(context, conv, [pumice.tensor(x, context), None, None], [y], persistent)
        np.testing.assert_allclose(y.numpy(), convolved(x, w, b), rtol=1e-4, atol=1e-4)
