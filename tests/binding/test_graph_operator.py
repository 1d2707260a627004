"""Graphs compiled to one operator: tables, initializers, owned inputs, constants, planned memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import pumice
from binding_tables import execute, initialise, resources
from pumice import BindingTable, Buffer, BufferRange

RNG = np.random.default_rng(3)
PRECISIONS = [("fp32", 1e-5), ("fp16", 1e-2), ("bf16", 8e-2)]


def random(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def network(owned: bool = True) -> tuple[pumice.Graph, dict[str, np.ndarray]]:
    """Build two convolutions with a residual; one has owned weights, the other constant weights."""
    arrays = {"x": random(1, 5, 9, 7), "w": random(5, 5, 3, 3), "b": random(5), "s": random(5, 1, 1)}
    graph = pumice.Graph("network")
    x = graph.input("x", "float32", arrays["x"].shape)
    w, b, scale = (graph.input(name, "float32", arrays[name].shape, owned=owned) for name in "wbs")
    y = graph.add("Relu", graph.add("Conv", x, w, b, pads=[1, 1, 1, 1]))
    z = graph.add("Conv", y, arrays["w"][::-1].copy(), pads=[1, 1, 1, 1], name="second")
    graph.output("y", y)
    graph.output("z", graph.add("Add", z, graph.add("Mul", x, scale)))
    return graph, arrays


def expected(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
        )
        return np.einsum("nchwij,ocij->nohw", windows, w)

    x, w, b = arrays["x"], arrays["w"], arrays["b"]
    y = np.maximum(conv(x, w) + b[:, None, None], 0)
    return y, conv(y, w[::-1]) + x * arrays["s"]


@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_a_graph_runs_through_tables(context: pumice.Context, precision: str, tolerance: float) -> None:
    graph, arrays = network()
    compiled = graph.compile_operator(context, precision=precision)
    assert [slot.name for slot in compiled.inputs] == ["x", "w", "b", "s"]
    assert [slot.name for slot in compiled.outputs] == ["y", "z"]
    assert [slot.desc.owned for slot in compiled.inputs if slot.desc] == [False, True, True, True]
    assert {slot.desc.dtype for slot in (*compiled.inputs, *compiled.outputs) if slot.desc} == {"float32"}
    x, *weights = (pumice.tensor(arrays[name], context) for name in "xwbs")
    persistent = initialise(context, compiled, [None, *weights])
    for tensor in weights:
        tensor.upload(np.full(tensor.shape, np.nan, "float32"))
    results = [pumice.empty(arrays["x"].shape, "float32", context) for _ in range(2)]
    commands = execute(context, compiled, [x, None, None, None], results, persistent)
    for _ in range(2):
        for result, wanted in zip(results, expected(arrays), strict=True):
            np.testing.assert_allclose(result.numpy(), wanted, rtol=tolerance, atol=tolerance * 10)
            result.upload(np.zeros_like(wanted))
        commands.exec().wait()


@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_it_computes_what_the_program_does(context: pumice.Context, precision: str, tolerance: float) -> None:
    graph, arrays = network(owned=False)
    compiled = graph.compile_operator(context, precision=precision)
    persistent = initialise(context, compiled, None)
    results = [pumice.empty(arrays["x"].shape, "float32", context) for _ in range(2)]
    execute(context, compiled, [pumice.tensor(arrays[name], context) for name in "xwbs"], results, persistent)
    program = graph.compile(context, precision=precision)(arrays)
    for result, name in zip(results, "yz", strict=True):
        np.testing.assert_allclose(result.numpy(), program[name], rtol=tolerance, atol=tolerance)


def test_temporary_memory_is_planned_by_lifetime(context: pumice.Context) -> None:
    """Tensors are 1 MiB: below that size, steps may run concurrently regardless of memory use."""
    graph = pumice.Graph()
    value = x = graph.input("x", "float32", [512, 512])
    for _ in range(12):
        value = graph.add("MatMul", value, x)
    graph.output("y", value)
    properties = graph.compile_operator(context).binding_properties
    assert properties.persistent_bytes == 0
    assert 0 < properties.temporary_bytes <= 3 * 512 * 512 * 4


def test_owned_inputs_through_views_and_as_outputs(context: pumice.Context) -> None:
    """No node here packs the weight."""
    w = random(6, 4)
    graph = pumice.Graph()
    owned = graph.input("w", "float32", w.shape, owned=True)
    x = graph.input("x", "float32", [4, 6])
    graph.output("same", owned)
    graph.output("flat", graph.add("Reshape", owned, np.array([24], "int64")))
    graph.output("sum", graph.add("Add", graph.add("Reshape", owned, np.array([4, 6], "int64")), x))
    for precision, tolerance in PRECISIONS:
        compiled = graph.compile_operator(context, precision=precision)
        persistent = initialise(context, compiled, [pumice.tensor(w, context), None])
        results = [pumice.empty(shape, "float32", context) for shape in ((6, 4), (24,), (4, 6))]
        execute(context, compiled, [None, pumice.tensor(np.ones((4, 6), "float32"), context)], results, persistent)
        for result, wanted in zip(results, (w, w.ravel(), w.reshape(4, 6) + 1), strict=True):
            np.testing.assert_allclose(result.numpy(), wanted, rtol=tolerance, atol=tolerance)


def test_c8_a_graph_counts_its_own_inputs(context: pumice.Context) -> None:
    graph = pumice.Graph()
    values = [graph.input(name, "float32", [64]) for name in "abc"]
    y = values[0]
    for i in range(9):
        y = graph.add("Add", y, values[i % 3])
    graph.output("y", y)
    compiled = graph.compile_operator(context)
    memory = Buffer(context, 4096)
    table = BindingTable(compiled)
    for count in (2, 4, 10):
        with pytest.raises(pumice.BindingError, match="C1"):
            table.bind_inputs([BufferRange(memory, 256 * i, 256) for i in range(count)])
    table.bind_inputs([BufferRange(memory, 256 * i, 256) for i in range(3)])
    with pytest.raises(pumice.BindingError, match="C2"):
        table.bind_outputs([BufferRange(memory, 1024, 256), None])
    table.bind_outputs([BufferRange(memory, 1024, 256)])
    assert not compiled.supports_in_place(0, 0)  # in-place needs a single, unfused dispatch
    with pytest.raises(pumice.BindingError, match="H4"):
        table.bind_outputs([BufferRange(memory, 0, 256)])


def test_o6_the_flag_is_the_graph_inputs(context: pumice.Context) -> None:
    """All nodes that read an owned input read it from the persistent resource. Programs have no initializer to bind it."""
    graph = pumice.Graph()
    x, w = graph.input("x", "float32", [4, 4]), graph.input("w", "float32", [4, 4], owned=True)
    graph.output("y", graph.add("Add", graph.add("MatMul", x, w), w))
    compiled = graph.compile_operator(context)
    a, b = random(4, 4), random(4, 4)
    persistent = initialise(context, compiled, [None, pumice.tensor(b, context)])
    result = pumice.empty((4, 4), "float32", context)
    execute(context, compiled, [pumice.tensor(a, context), None], [result], persistent)
    np.testing.assert_allclose(result.numpy(), a @ b + b, rtol=1e-5, atol=1e-5)
    with pytest.raises(pumice.BindingError, match="O2"):
        BindingTable(compiled).bind_inputs([pumice.tensor(a, context), pumice.tensor(b, context)])
    with pytest.raises(pumice.GraphError) as caught:
        graph.compile(context)
    assert (caught.value.rule, caught.value.node) == ("O6", "w")


def test_g1_every_input_is_connected_and_there_are_no_cycles() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4])
    for missing in ((x,), (x, None), (None, x), ()):
        with pytest.raises(pumice.GraphError, match="Add") as caught:
            graph.add("Add", *missing)
        assert caught.value.rule == "G1"
    other = pumice.Graph().input("x", "float32", [4])
    with pytest.raises(pumice.GraphError, match="another graph"):
        graph.add("Add", x, other)  # a node can only read existing values
    graph.output("y", graph.add("Relu", x))
    graph.finish()


def test_g1_every_operator_and_operation_names_the_rule_where_an_input_is_missing() -> None:
    checked = 0
    for row in pumice._pumice.operators():
        if not row.inputs or all(role.optional or role.variadic for role in row.inputs):
            continue
        checked += 1
        for call in (
            lambda name=row.name: pumice.Graph().add(name),
            lambda name=row.name: pumice.Operator(name, [], [None]),
        ):
            with pytest.raises((pumice.GraphError, pumice.UnsupportedError)) as caught:
                call()
            if isinstance(caught.value, pumice.GraphError) and "needs the attribute" not in str(caught.value):
                assert caught.value.rule == "G1", caught.value
    for operation in pumice._pumice.nnapi_operations():
        checked += 1
        with pytest.raises(pumice.GraphError) as caught:
            pumice.Graph().add(operation.name)
        assert caught.value.rule == "G1", caught.value
    assert checked > 200


def test_g7_a_graph_has_an_output(context: pumice.Context) -> None:
    for finish in (
        pumice.Graph.finish,
        lambda graph: graph.compile(context),
        lambda graph: graph.compile_operator(context),
    ):
        graph = pumice.Graph()
        graph.input("x", "float32", [4])
        with pytest.raises(pumice.GraphError, match="at least one output") as caught:
            finish(graph)
        assert caught.value.rule == "G7"
    with pytest.raises(pumice.GraphError) as caught:
        pumice.Graph().output("y", None)
    assert caught.value.rule == "G7"


def test_g2_connected_tensors_have_the_same_elements() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4, 6])
    assert graph.add("Reshape", x, np.array([2, 3, 4], "int64")).shape == (2, 3, 4)
    with pytest.raises(pumice.GraphError):
        graph.add("Reshape", x, np.array([5, 5], "int64"))
    with pytest.raises(pumice.GraphError):
        graph.add("MatMul", x, np.ones((4, 6), "float32"))


def test_g3_padding_between_rows_is_not_read(context: pumice.Context) -> None:
    padded = pumice.TensorDesc("float32", [3, 5], strides=[8, 1])
    packed = pumice.TensorDesc("float32", [3, 5])
    total = pumice.Operator("ReduceSum", [padded, None], [pumice.TensorDesc("float32", [1, 1])]).compile(context)
    relu = pumice.Operator("Relu", [packed], [padded]).compile(context)
    memory = pumice.tensor(np.full(32, np.nan, "float32"), context)
    x, rows, y = pumice.tensor(np.ones((3, 5), "float32"), context), memory, pumice.empty((1, 1), "float32", context)
    first = initialise(context, relu, None)
    second = initialise(context, total, None)
    execute(context, relu, [x], [BufferRange(rows.buffer, 0, padded.bytes)], first)
    execute(context, total, [BufferRange(rows.buffer, 0, padded.bytes), None], [y], second)
    assert y.numpy() == 15


def test_g4_a_compiled_graph_does_not_need_the_graph(context: pumice.Context) -> None:
    graph, arrays = network(owned=False)
    compiled = graph.compile_operator(context)
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
    results = [pumice.empty(arrays["x"].shape, "float32", context) for _ in range(2)]
    persistent = initialise(context, compiled, None)
    execute(context, compiled, [pumice.tensor(arrays[name], context) for name in "xwbs"], results, persistent)
    np.testing.assert_allclose(results[1].numpy(), expected(arrays)[1], rtol=1e-4, atol=1e-4)


def test_g5_constants_are_read_at_compile(context: pumice.Context) -> None:
    constant = np.ones(64, "float32")
    graph = pumice.Graph()
    graph.output("y", graph.add("Add", graph.input("x", "float32", [64]), constant))
    compiled = graph.compile_operator(context)
    constant[:] = 100
    persistent = initialise(context, compiled, None)
    y = pumice.empty(64, "float32", context)
    execute(context, compiled, [pumice.tensor(np.zeros(64, "float32"), context)], [y], persistent)
    np.testing.assert_array_equal(y.numpy(), np.ones(64))


def test_g6_an_input_that_no_node_uses_still_counts(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [64])
    graph.input("unused", "float32", [3])
    graph.input("unused_weight", "float32", [3], owned=True)
    graph.output("y", graph.add("Relu", x))
    compiled = graph.compile_operator(context)
    a, y = pumice.tensor(np.ones(64, "float32"), context), pumice.empty(64, "float32", context)
    with pytest.raises(pumice.BindingError, match="C1"):
        BindingTable(compiled).bind_inputs([a])
    unused = pumice.empty(3, "float32", context)
    persistent = initialise(context, compiled, [None, None, unused])
    execute(context, compiled, [a, unused, None], [y], persistent)
    np.testing.assert_array_equal(y.numpy(), np.ones(64))


def test_what_needs_the_host_is_rejected_by_name(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x, sizes = graph.input("x", "float32", [6]), graph.input("sizes", "int64", [2])
    graph.output("y", graph.add("Reshape", x, sizes, name="to_rows"))
    with pytest.raises(pumice.UnsupportedError, match=r"'to_rows'.*'sizes'"):
        graph.compile_operator(context)
    assert graph.compile(context)({"x": np.zeros(6, "float32"), "sizes": np.array([2, 3])})["y"].shape == (2, 3)


def test_unknown_sizes_and_flags_are_rejected_by_name(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("Relu", graph.input("x", "float32", [None, 6])))
    with pytest.raises(pumice.GraphError, match="x"):
        graph.compile_operator(context)
    with pytest.raises(pumice.UnsupportedError, match="FAST"):
        graph.compile_operator(context, flags=["FAST"])


def test_several_graphs_and_operators_in_one_initializer(context: pumice.Context) -> None:
    """Their persistent resources share one buffer, and they share temporary memory."""
    graphs = [network() for _ in range(2)]
    compiled = [graph.compile_operator(context, precision="fp16") for graph, _ in graphs]
    relu = pumice.Operator("Relu", [pumice.TensorDesc("float32", [64])], [pumice.TensorDesc("float32", [64])])
    compiled.insert(1, relu.compile(context))
    initializer = pumice.Initializer(context, compiled)
    sources = [[None, *(pumice.tensor(arrays[name], context) for name in "wbs")] for _, arrays in graphs]
    ranges = resources(context, [one.binding_properties.persistent_bytes for one in compiled])
    assert [one is None for one in ranges] == [False, True, False]
    table = BindingTable(initializer)
    table.bind_inputs([sources[0], None, sources[1]])
    table.bind_outputs(ranges)
    table.bind_temporary(Buffer(context, initializer.binding_properties.temporary_bytes))
    commands = pumice.CommandList(context)
    commands.dispatch(initializer, table)
    commands.commit()
    commands.exec().wait()
    for operator, persistent, (_, arrays) in zip(compiled[::2], ranges[::2], graphs, strict=True):
        results = [pumice.empty(arrays["x"].shape, "float32", context) for _ in range(2)]
        execute(context, operator, [pumice.tensor(arrays["x"], context), None, None, None], results, persistent)
        np.testing.assert_allclose(results[0].numpy(), expected(arrays)[0], rtol=1e-2, atol=1e-1)
    with pytest.raises(pumice.BindingError, match="P5"):
        wrong = BindingTable(compiled[0])
        wrong.bind_persistent(ranges[2])
