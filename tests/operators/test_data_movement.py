"""Data movement operators beyond the test table: strided tensors, out-of-range indices, rejected arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from small_programs import of_the_device

Array = npt.NDArray[Any]


def executed(
    context: pumice.Context, op: str, inputs: list[pumice.Tensor], outputs: list[pumice.Tensor], **attributes: Any
) -> None:
    """Run one operator on tensors with their given memory layout."""
    described = pumice.Operator(op, [one.desc for one in inputs], [one.desc for one in outputs], **attributes)
    compiled = described.compile(context)
    initializer = pumice.Initializer(context, [compiled])
    commands = pumice.CommandList(context)
    commands.dispatch(initializer, pumice.BindingTable(initializer))
    table = pumice.BindingTable(compiled)
    table.bind_inputs(inputs)
    table.bind_outputs(outputs)
    if temporary := compiled.binding_properties.temporary_bytes:
        table.bind_temporary(pumice.Buffer(context, temporary))
    commands.dispatch(compiled, table)
    commands.commit()
    commands.exec().wait()


def run(
    context: pumice.Context, op: str, arrays: dict[str, Array], constants: tuple[str, ...] = (), **attributes: Any
) -> Array:
    """Run a graph of one node; the arrays are its inputs, in order."""
    graph = pumice.Graph()
    values = [
        graph.constant(array) if name in constants else graph.input(name, str(array.dtype), list(array.shape))
        for name, array in arrays.items()
    ]
    graph.output("y", graph.add(op, *values, **attributes))
    result: Array = graph.compile(context)({name: array for name, array in arrays.items() if name not in constants})[
        "y"
    ]
    return result


def _part(random: np.random.Generator, tensor: pumice.Tensor, array: Array, order: list[int]) -> tuple[Any, Array]:
    """Return a slice of the tensor with permuted axes, and the same slice of the array."""
    ends = tuple(slice(0, int(random.integers(1, size + 1))) for size in array.shape)
    return tensor[ends].transpose(order), array[ends].transpose(order)


@pytest.mark.parametrize("lacking", [(), ("subgroupShuffle",)], ids=["", "tiled"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
def test_copies_between_strided_tensors_write_nothing_else(
    dtype: str, lacking: tuple[str, ...], context: pumice.Context
) -> None:
    random = np.random.default_rng(len(dtype))
    with pumice.Context(f"uuid:{context.info.uuid}", without=list(lacking)) as other:
        for _ in range(12):
            order = [int(axis) for axis in random.permutation(3)]
            shape = [int(size) for size in random.choice([1, 2, 3, 4, 8, 16, 18, 20, 32], 3)]
            x = random.integers(0, 100, shape).astype(dtype)
            source, expected = _part(random, pumice.tensor(x, context=other), x, order)
            back = [order.index(axis) for axis in range(3)] if random.integers(2) else [0, 1, 2]
            room = [expected.shape[back.index(axis)] + int(random.integers(0, 5)) for axis in range(3)]
            y = np.full(room, 101, dtype)
            target = pumice.tensor(y, context=other)
            window = tuple(slice(0, expected.shape[back.index(axis)]) for axis in range(3))
            executed(other, "Identity", [source], [target[window].transpose(back)])
            y[window].transpose(back)[...] = expected
            np.testing.assert_array_equal(np.array(target), y)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_gathers_read_and_write_strided_tensors(context: pumice.Context, dtype: str) -> None:
    x = np.arange(35).reshape(5, 7).astype(dtype)
    indices = np.array([[1, 0], [-1, 6], [2, 2]], "int64")
    rows = pumice.tensor(x, context=context)
    transposed = rows.transpose([1, 0])
    given = pumice.tensor(np.ascontiguousarray(indices.T), context=context).transpose([1, 0])
    out = pumice.empty((2, 5, 3), dtype, context=context)
    executed(context, "Gather", [transposed, given], [out.transpose([2, 0, 1])], axis=0)
    np.testing.assert_array_equal(np.array(out).transpose(2, 0, 1), np.take(x.T, indices, 0))


def test_a_scatter_takes_strided_tensors(context: pumice.Context) -> None:
    x, updates = np.arange(35, dtype="float32").reshape(5, 7), np.arange(6, dtype="float32").reshape(3, 2) + 100
    rows, columns = pumice.tensor(x, context=context), pumice.tensor(updates, context=context)
    indices = np.array([[6, 0, 3], [1, 5, 2]], "int64")
    y = pumice.empty((5, 7), "float32", context=context)
    executed(
        context,
        "ScatterElements",
        [rows.transpose([1, 0]), pumice.tensor(indices, context=context).transpose([1, 0]), columns],
        [y.transpose([1, 0])],
        axis=0,
    )
    expected = x.T.copy()
    np.put_along_axis(expected[:, :2], indices.T, updates, 0)
    np.testing.assert_array_equal(np.array(y).T, expected)


def test_a_gather_counts_an_index_of_the_device_out_of_range_as_the_first(context: pumice.Context) -> None:
    graph = pumice.Graph()
    indices = of_the_device(graph, graph.input("indices", "int64", [2]), "found")
    graph.output("y", graph.add("Gather", np.arange(1, 8, dtype="float32"), indices))
    program = graph.compile(context)
    for wild in (7, -8, 2**32, -(2**40)):
        assert program({"indices": np.array([2, wild], "int64")})["y"].tolist() == [3, 1]


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_a_scatter_leaves_out_an_index_of_the_device_out_of_range(context: pumice.Context, reduction: str) -> None:
    graph = pumice.Graph()
    indices = of_the_device(graph, graph.input("indices", "int64", [4, 1]), "found")
    operands = np.zeros(5, "float32"), indices, np.ones(4, "float32")
    graph.output("y", graph.add("ScatterND", *operands, reduction=reduction))
    made = graph.compile(context)({"indices": np.array([[5], [1], [-6], [2**32]], "int64")})
    assert made["y"].tolist() == [0, 1, 0, 0, 0]


def test_a_constant_index_out_of_range_is_rejected(context: pumice.Context) -> None:
    arrays = {"x": np.zeros(5, "int64"), "indices": np.array([[5]], "int64")}
    with pytest.raises(pumice.GraphError, match=r"index 5 at \[0, 0\]; expected -5 to 4"):
        run(context, "GatherND", arrays, ("x", "indices"))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "message"),
    [
        ("GatherND", [(3, 5), (2, 3)], {}, "addresses of 3 indices"),
        ("GatherND", [(3, 5), (2, 1)], {"batch_dims": 1}, "differ"),
        ("GatherElements", [(3, 5), (2,)], {}, "expected the same rank"),
        ("GatherElements", [(3, 5), (2, 6)], {}, "larger than"),
        ("ScatterND", [(3, 5), (2, 1), (2, 4)], {}, "expected"),
        ("ScatterElements", [(3, 5), (2, 1), (1, 1)], {}, "updates of shape"),
    ],
)
def test_indices_that_do_not_fit_are_rejected(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    descs = [pumice.TensorDesc("int64" if i == 1 else "float32", list(shape)) for i, shape in enumerate(shapes)]
    with pytest.raises(pumice.GraphError, match=message):
        pumice.Operator(op, descs, [pumice.TensorDesc("float32", [1])], **attributes)


@pytest.mark.parametrize("lacking", ["shaderBufferInt64Atomics", "shaderInt64"])
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_64_bits_are_combined_in_order_where_there_are_no_atomics(
    context: pumice.Context, dtype: str, lacking: str
) -> None:
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    random = np.random.default_rng(7)
    x, updates = (random.integers(-(2**63), 2**63 - 1, size).astype(dtype) for size in (5, 300))
    indices = random.integers(-5, 5, (300, 1))
    with pumice.Context(f"uuid:{context.info.uuid}", without=[lacking]) as other:
        for reduction, function in functions.items():
            expected = x.copy()
            with np.errstate(over="ignore"):
                function.at(expected, indices[:, 0], updates)
            given = {"x": x, "indices": indices, "updates": updates}
            np.testing.assert_array_equal(run(other, "ScatterND", given, reduction=reduction), expected)


def test_top_k_rejects_more_than_there_are(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="k is 6, and the axis has 5 elements"):
        graph = pumice.Graph()
        graph.add("TopK", graph.input("x", "float32", [5]), graph.constant(np.array([6])), outputs=2)


def test_an_operator_that_is_the_hosts_needs_a_graph() -> None:
    with pytest.raises(pumice.UnsupportedError, match="operator Size outside of a graph"):
        pumice.Operator("Size", [pumice.TensorDesc("float32", [5])], [pumice.TensorDesc("int64", [])])


def test_resize_rejects_scales_beside_sizes() -> None:
    graph = pumice.Graph()
    x, scales, sizes = (
        graph.input("x", "float32", [2, 3]),
        graph.constant(np.ones(2, "float32")),
        graph.constant(np.array([2, 3])),
    )
    with pytest.raises(pumice.GraphError, match="either scales or sizes"):
        graph.add("Resize", x, None, scales, sizes)


X = np.arange(12, dtype="float32").reshape(3, 4) * np.float32(0.5) - 2


@pytest.mark.parametrize(
    ("opset", "made", "constants", "expected"),
    [
        (7, node("Upsample", scales=[2.0, 1.0]), {}, np.repeat(X, 2, 0)),
        (9, node("Upsample", ["x", "s"]), {"s": np.array([1, 3], "float32")}, np.repeat(X, 3, 1)),
        (10, node("Resize", ["x", "s"]), {"s": np.array([1, 0.5], "float32")}, X[:, ::2]),
        (
            11,
            node("Resize", ["x", "r", "r", "s"]),
            {"r": np.zeros(0, "float32"), "s": np.array([6, 4])},
            np.repeat(X, 2, 0),
        ),
        (9, node("TopK", outputs=["y", "i"], k=2), {}, X[:, :1:-1]),
        (10, node("TopK", ["x", "k"], ["y", "i"], axis=0), {"k": np.array([1])}, X[2:]),
        (
            9,
            node("Scatter", ["x", "i", "u"]),
            {"i": np.array([[2]]), "u": np.ones((1, 1), "float32")},
            np.vstack([X[:2], [[1, *X[2, 1:]]]]),
        ),
        (
            9,
            node("OneHot", ["i", "d", "v"]),
            {"i": np.array([1]), "d": np.array([3]), "v": np.array([0, 1], "float32")},
            [[0, 1, 0]],
        ),
    ],
    ids=lambda one: one.op_type if isinstance(one, onnx.NodeProto) else None,
)
def test_nodes_of_old_operator_sets_run(
    context: pumice.Context, opset: int, made: onnx.NodeProto, constants: dict[str, Array], expected: Array
) -> None:
    file = model([made], [value("x", [3, 4])], constants=constants, opset=opset)
    with pumice.load(file, context) as loaded:
        np.testing.assert_array_equal(loaded(X), expected)


def test_float32_sums_concatenate_with_float16_constants(context: pumice.Context) -> None:
    graph = pumice.Graph()
    total = graph.add("ReduceSum", graph.input("x", "float32", [3, 5]), graph.constant(np.array([1])), keepdims=1)
    column = np.array([[1.5], [2.5], [-1]], "float32")
    graph.output("y", graph.add("Concat", total, graph.constant(column), axis=1))
    y = graph.compile(context, precision="fp16")({"x": np.ones((3, 5), "float32")})["y"]
    np.testing.assert_array_equal(y, np.hstack([np.full((3, 1), 5), column]))


@pytest.mark.parametrize("parts", [[1, 2, 4], None])
@pytest.mark.parametrize("read", [["b"], ["c"], ["a", "c"]])
def test_parts_of_a_split_that_nothing_reads_still_have_their_place(
    context: pumice.Context, parts: list[int] | None, read: list[str]
) -> None:
    x = np.arange(14, dtype=np.float32).reshape(2, 7)
    split = node(
        "Split", ["x", "k"] if parts else ["x"], ["a", "b", "c"], axis=1, **({} if parts else {"num_outputs": 3})
    )
    constants = {"k": np.array(parts)} if parts else {}
    loaded = pumice.load(model([split], [value("x", ["N", 7])], read, constants, opset=18), context)
    expected = dict(zip("abc", np.split(x, np.cumsum(parts or [3, 3, 1])[:-1], axis=1), strict=True))
    for name, result in zip(read, [loaded(x)] if len(read) == 1 else loaded(x), strict=True):
        np.testing.assert_array_equal(result, expected[name])
