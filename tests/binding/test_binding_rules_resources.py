"""Families P and L: temporary and persistent resources, lifetimes, barriers."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import pumice
from binding_tables import F64, OWNED, ROWS, execute, expect_error, initialise, operator, parts, random, run, table_of
from pumice import BindingTable, Buffer, BufferRange, CommandList, Initializer, TensorDesc
from threads import in_threads

X, W, Y = (TensorDesc("float32", shape) for shape in ([1, 3, 9, 7], [5, 3, 3, 3], [1, 5, 7, 5]))


@pytest.fixture
def conv(context: pumice.Context) -> pumice.CompiledOperator:
    """Return a Conv that packs its weights at every execution, which needs a temporary resource."""
    compiled = operator(context, "Conv", [X, W, None], [Y])
    assert compiled.binding_properties.temporary_bytes > 0
    return compiled


@pytest.fixture
def memory(context: pumice.Context) -> Buffer:
    return Buffer(context, 16384)


def test_p1_what_needs_no_resource_is_bound_to_nothing(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    assert (relu.binding_properties.temporary_bytes, relu.binding_properties.persistent_bytes) == (0, 0)
    x, y = pumice.tensor(-np.ones(64, "float32"), context), pumice.empty(64, "float32", context)
    initialise(context, relu)
    table = table_of(context, relu, [x], [y])
    run(context, relu, table)
    table.bind_temporary(None)
    table.bind_persistent(None)
    run(context, relu, table)
    np.testing.assert_array_equal(y.numpy(), np.zeros(64))


def test_p2_resources_have_their_size_and_alignment(
    conv: pumice.CompiledOperator, multiply: pumice.CompiledOperator, context: pumice.Context, memory: Buffer
) -> None:
    for compiled, kind in ((conv, "temporary"), (multiply, "persistent")):
        size = getattr(compiled.binding_properties, f"{kind}_bytes")
        table = BindingTable(compiled)
        bind = getattr(table, f"bind_{kind}")
        bind(BufferRange(memory, 256, size))
        bind(BufferRange(memory, 512))
        assert expect_error("P2", bind, BufferRange(memory, 0, size - 1)).slot == kind
        expect_error("P2", bind, BufferRange(memory, 16, size))
        expect_error("R1", bind, BufferRange(memory, 16384, size))
        expect_error("M1", bind, Buffer(context, size, "upload"))
        bind(None)
        table.bind_inputs(
            [BufferRange(memory, 0, 1024), *([BufferRange(memory, 1024, 1024), None] if compiled is conv else [None])]
        )
        table.bind_outputs([BufferRange(memory, 4096, 1024)])
        assert expect_error("P2", CommandList(context).dispatch, compiled, table).slot == kind


def test_p3_nothing_is_bound_where_no_resource_is_needed(
    relu: pumice.CompiledOperator, conv: pumice.CompiledOperator, memory: Buffer, context: pumice.Context
) -> None:
    expect_error("P3", BindingTable(relu).bind_temporary, BufferRange(memory))
    expect_error("P3", BindingTable(relu).bind_persistent, BufferRange(memory))
    expect_error("P3", BindingTable(conv).bind_persistent, memory)
    x, y = pumice.tensor(np.ones(64, "float32"), context), pumice.empty(64, "float32", context)
    initialise(context, relu)
    execute(context, relu, [x], [y])  # the device still works


def test_p4_temporary_memory_needs_no_content_and_is_shared(
    conv: pumice.CompiledOperator, context: pumice.Context
) -> None:
    other = operator(context, "Conv", [X, W, None], [Y])
    size = conv.binding_properties.temporary_bytes
    shared = pumice.tensor(np.full(-(-size // 4), np.nan, "float32"), context)
    x = pumice.tensor(random(X), context)
    weights = [pumice.tensor(random(W, seed), context) for seed in range(2)]
    results = [pumice.empty(Y.shape, "float32", context) for _ in range(4)]
    commands = CommandList(context)
    for compiled, w, y in zip((conv, other), weights, results, strict=False):
        initialise(context, compiled)
        execute(context, compiled, [x, w, None], [y])  # execute() allocates temporary memory for each
    for compiled, w, y in zip((conv, other), weights, results[2:], strict=True):
        table = BindingTable(compiled)
        table.bind_inputs([x, w, None])
        table.bind_outputs([y])
        table.bind_temporary(BufferRange(shared.buffer, 0, size))
        commands.dispatch(compiled, table)
    commands.commit()
    commands.exec().wait()
    for apart, together in zip(results[:2], results[2:], strict=True):
        np.testing.assert_array_equal(apart.numpy(), together.numpy())
        assert np.isfinite(together.numpy()).all()


def test_p5_persistent_memory_is_known_by_identity(multiply: pumice.CompiledOperator, context: pumice.Context) -> None:
    w, x = pumice.tensor(random(OWNED), context), pumice.tensor(random(ROWS), context)
    y = pumice.empty(ROWS.shape, "float32", context)
    size = multiply.binding_properties.persistent_bytes
    early = BindingTable(multiply)
    copy = Buffer(context, size)
    early.bind_inputs([x, None])
    early.bind_outputs([y])
    early.bind_persistent(copy)  # accepted, since the operator is not initialized yet
    persistent = initialise(context, multiply, [None, w])
    assert persistent
    commands = CommandList(context)
    commands.copy(persistent, copy)
    commands.commit()
    commands.exec().wait()
    late = CommandList(context)
    late.dispatch(multiply, early)
    late.commit()
    expect_error("P5", late.exec)
    table = BindingTable(multiply)
    expect_error("P5", table.bind_persistent, copy)
    another = operator(context, "MatMul", [ROWS, OWNED], [ROWS])
    expect_error("P5", table.bind_persistent, initialise(context, another, [None, w]))
    execute(context, multiply, [x, None], [y], persistent)
    np.testing.assert_allclose(y.numpy(), x.numpy() @ w.numpy(), rtol=1e-4, atol=1e-4)


def test_p6_persistent_memory_is_written_at_initialisation_only(
    multiply: pumice.CompiledOperator, context: pumice.Context
) -> None:
    persistent = initialise(context, multiply, [None, pumice.tensor(random(OWNED), context)])
    assert persistent
    words = pumice.Tensor(TensorDesc("uint32", [persistent.bytes // 4]), persistent.buffer)
    before = words.numpy()
    y = pumice.empty(ROWS.shape, "float32", context)
    commands = execute(context, multiply, [pumice.tensor(random(ROWS), context), None], [y], persistent)
    for _ in range(10):
        commands.exec().wait()
    np.testing.assert_array_equal(words.numpy(), before)


def test_l1_a_list_keeps_what_it_uses(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    initialise(context, relu)
    x, y = pumice.tensor(-np.ones(64, "float32"), context), pumice.empty(64, "float32", context)
    commands = CommandList(context)
    commands.dispatch(relu, table_of(context, relu, [x], [y]))
    del x
    gc.collect()
    commands.commit()
    for value in range(20):
        Buffer(context, 256)  # would reuse the memory if the buffer were freed
        commands.exec().wait()
        assert (y.numpy() == 0).all(), value


def test_l1_closed_buffers_are_rejected(relu: pumice.CompiledOperator, context: pumice.Context, memory: Buffer) -> None:
    closed = Buffer(context, 256)
    closed.close()
    expect_error("L1", BindingTable(relu).bind_inputs, [BufferRange(closed, 0, 256)])
    later = Buffer(context, 256)
    table = table_of(context, relu, [later], parts(memory, 0))
    later.close()
    commands = CommandList(context)
    with pytest.raises(pumice.StateError, match="closed") as caught:
        commands.dispatch(relu, table)
        commands.commit()
    assert caught.value.rule == "L1"


def test_l1_what_is_closed_names_the_rule_everywhere(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    inputs, output = Buffer(context, 256), Buffer(context, 256)
    commands = CommandList(context)
    commands.dispatch(relu, table_of(context, relu, [inputs], [output]))
    commands.commit()
    initialise(context, relu)
    inputs.close()
    image = pumice.Image(context, "r32f", (4, 4))
    image.close()
    own = pumice.Context(f"uuid:{context.info.uuid}")
    own.close()
    tensor = pumice.Tensor(F64, inputs)
    calls = (
        commands.exec,
        inputs.map,
        tensor.numpy,
        lambda: tensor.upload(np.zeros(64, "float32")),
        lambda: tensor + 1,
        image.numpy,
        lambda: Buffer(own, 16),
        lambda: own.wait(0),
    )
    for call in calls:
        with pytest.raises(pumice.StateError, match="closed") as caught:
            call()
        assert caught.value.rule == "L1"


def test_l6_a_list_is_committed_once_and_then_executed(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    memory = Buffer(context, 1024)
    table = table_of(context, relu, parts(memory, 0), parts(memory, 256))
    commands = CommandList(context)
    commands.dispatch(relu, table)
    calls = (commands.exec, lambda: commands.time(1), commands.warm_up)
    later = (
        commands.commit,
        lambda: commands.dispatch(relu, table),
        lambda: commands.copy(*parts(memory, 0, 256)),
    )
    initialise(context, relu)
    for group in (calls, later):
        for call in group:
            with pytest.raises(pumice.StateError, match="commit") as caught:
                call()
            assert caught.value.rule == "L6"
        if group is calls:
            commands.commit()
    commands.exec().wait()


def test_l7_a_wait_is_for_an_execution_that_was_submitted(context: pumice.Context) -> None:
    commands = CommandList(context)
    commands.commit()
    for unknown in (context.submitted + 1, 2**63, 2**70, -1):
        for wait in (context.wait, commands.wait):
            with pytest.raises(pumice.StateError, match="has not been submitted") as caught:
                wait(unknown)
            assert caught.value.rule == "L7"


def test_l2_a_table_may_change_once_it_is_recorded(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    initialise(context, relu)
    values = [pumice.tensor(np.full(64, value, "float32"), context) for value in (3, 7)]
    results = [pumice.empty(64, "float32", context) for _ in range(2)]
    table, commands = BindingTable(relu), CommandList(context)
    for x, y in zip(values, results, strict=True):
        table.reset(relu)
        table.bind_inputs([x])
        table.bind_outputs([y])
        commands.dispatch(relu, table)
    del table
    commands.commit()
    commands.exec().wait()
    assert [y.numpy()[0] for y in results] == [3, 7]


def test_l3_operators_live_as_long_as_their_work(context: pumice.Context) -> None:
    y = pumice.empty(ROWS.shape, "float32", context)
    w, x = random(OWNED), random(ROWS)

    def recorded() -> CommandList:
        compiled = operator(context, "MatMul", [ROWS, OWNED], [ROWS])
        initializer = Initializer(context, [compiled])
        persistent, table = Buffer(context, compiled.binding_properties.persistent_bytes), BindingTable(initializer)
        table.bind_inputs([[None, pumice.tensor(w, context)]])
        table.bind_outputs([persistent])
        commands = CommandList(context)
        commands.dispatch(initializer, table)
        commands.dispatch(compiled, table_of(context, compiled, [pumice.tensor(x, context), None], [y], persistent))
        return commands

    commands = recorded()
    gc.collect()
    commands.commit()
    submission = commands.exec()
    del commands
    gc.collect()
    submission.wait()
    np.testing.assert_allclose(y.numpy(), x @ w, rtol=1e-4, atol=1e-4)


def test_l3_threads_have_tables_of_their_own(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    initialise(context, relu)

    def work(value: int) -> None:
        x, y = pumice.tensor(np.full(64, value, "float32"), context), pumice.empty(64, "float32", context)
        for _ in range(10):
            execute(context, relu, [x], [y])
            assert (y.numpy() == value).all()

    in_threads(work, range(4))


def test_l4_dispatches_wait_for_what_they_depend_on(relu: pumice.CompiledOperator, context: pumice.Context) -> None:
    initialise(context, relu)
    memory = Buffer(context, 4096)
    cases = {
        "a chain": ([(0, 256), (256, 512), (512, 768)], 2),
        "two readers of one input": ([(0, 256), (0, 512)], 0),
        "disjoint ranges of one buffer": ([(0, 256), (512, 768), (1024, 1280)], 0),
        "one output written twice": ([(0, 256), (512, 256)], 1),
        "an input overwritten after it is read": ([(0, 256), (512, 0)], 1),
    }
    for name, (dispatches, barriers) in cases.items():
        commands = CommandList(context)
        for source, target in dispatches:
            commands.dispatch(relu, table_of(context, relu, parts(memory, source), parts(memory, target)))
        commands.commit()
        assert commands.barriers == barriers, name
        commands.exec().wait()


def test_l5_after_a_failure_a_new_context_works(context: pumice.Context) -> None:
    for _ in range(2):
        with pumice.Context(f"uuid:{context.info.uuid}") as other:
            relu = operator(other, "Relu", [F64], [F64])
            x, y = pumice.tensor(np.ones(64, "float32"), other), pumice.empty(64, "float32", other)
            with pytest.raises(pumice.OutOfMemoryError):
                Buffer(other, 2**62)
            initialise(other, relu)
            commands = execute(other, relu, [x], [y])
            assert (y.numpy() == 1).all()
        with pytest.raises(pumice.StateError):
            commands.exec()
