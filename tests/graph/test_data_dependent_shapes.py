"""Shapes that depend on device results: the plan is split at a host sync point, where the host reads back what it needs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_models import model, node, subgraph, value
from sync_point_models import Array, check, cuts, read_backs, sparse
from tensor_arrays import ramp

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


# NonZero and Compress


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "bool", "int8", "int16", "int32", "int64", "uint64"]
)
def test_non_zero_of_every_width(context: pumice.Context, dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model([node("Identity", ["x"], ["i"]), node("NonZero", ["i"])], [value("x", ["A", "B", "C"], kind)])
    arrays = [
        sparse(count, *shape, dtype=dtype) for count, shape in ((5, (3, 5, 7)), (0, (2, 3, 1)), (4000, (17, 300, 2)))
    ]
    if dtype == "int64":
        arrays[0] *= 1 << 40
    if dtype.startswith("float"):
        arrays[0][0, 0, :3] = [-0.0, np.nan, -np.inf]
    check(context, proto, *({"x": array} for array in arrays))


def test_non_zero_of_an_input_is_read_by_the_device(context: pumice.Context) -> None:
    proto = model([node("NonZero", ["x"])], [value("x", ["N"])])
    loaded = check(context, proto, {"x": sparse(3, 10)}, {"x": sparse(10, 10)}, {"x": np.zeros(0, np.float32)})
    assert read_backs(loaded, x=sparse(3, 10)) == 1


def test_non_zero_of_shape_values_needs_no_sync_point(context: pumice.Context) -> None:
    """Exporters counted positions this way before Range existed."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("ConstantOfShape", ["n"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.int64))),
        node("NonZero", ["ones"], ["found"]),
        node("Transpose", ["found"], ["columns"]),
        node("Squeeze", ["columns", "one"], ["places"]),
        node("Gather", ["x", "places"], ["y"]),
    ]
    proto = model(nodes, constants={"zero": np.array([0]), "one": np.array([1])})
    loaded = check(context, proto, {"x": ramp(3, 4)}, {"x": ramp(5000, 4)})
    assert not cuts(loaded)
    assert loaded.program.plan([(3, 4)])  # a single command list


def gathered() -> onnx.ModelProto:
    """Select the rows with a positive sum."""
    nodes = [
        node("ReduceSum", ["x", "one"], ["sums"], keepdims=0),
        node("Relu", ["sums"], ["positive"]),
        node("NonZero", ["positive"], ["found"], name="where"),
        node("Reshape", ["found", "flat"], ["places"]),
        node("Gather", ["x", "places"], ["rows"]),
        node("Mul", ["rows", "two"], ["y"]),
    ]
    constants = {"one": np.array([1]), "flat": np.array([-1]), "two": np.array(2, np.float32)}
    return model(nodes, constants=constants)


def test_rows_that_a_condition_finds(context: pumice.Context) -> None:
    random = np.random.default_rng(5)
    cases = [{"x": random.standard_normal((n, 4)).astype(np.float32)} for n in (1, 7, 300, 7)]
    loaded = check(context, gathered(), *cases, {"x": -np.ones((3, 4), np.float32)})
    for case in cases:
        assert read_backs(loaded, **case) == 1
    ((region, note),) = cuts(loaded).items()
    assert region == "region 1"
    assert note == "the host reads 'where/count:0' of 'where/count' for the shape of 'where'"


def test_the_same_shapes_with_other_counts(context: pumice.Context) -> None:
    loaded = pumice.load(gathered(), context)
    for count in [*range(40), *range(40)]:
        x = np.full((40, 4), -1, np.float32)
        x[:count] = 1 + count
        np.testing.assert_array_equal(loaded(x), 2 * x[:count])


@pytest.mark.parametrize("axis", [0, 1, -2, None])
def test_compress(context: pumice.Context, axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    nodes = [node("Cast", ["c"], ["kept"], to=BOOL), node("Compress", ["x", "kept"], **attributes)]
    proto = model(nodes, [value("x", ["A", "B"]), value("c", ["K"], INT64)])
    for shape in ((3, 4), (130, 70)):
        size = shape[0] * shape[1] if axis is None else shape[axis]
        cases = [{"x": ramp(*shape), "c": sparse(count, size, dtype="int64")} for count in (0, 1, size // 2, size)]
        loaded = check(context, proto, *cases, {"x": ramp(*shape), "c": np.ones(2, np.int64)})
        assert read_backs(loaded, **cases[1]) == 1
    with pytest.raises(pumice.GraphError, match=r"compress.y.*condition of shape \[1000000\]"):
        loaded(ramp(3, 4), np.ones(1000000, np.int64))


# Computed sizes


def sized(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], **constants: Array) -> onnx.ModelProto:
    """Prepend nodes that compute `n`, int64[1], as the maximum of x."""
    first = [node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["n0"], to=INT64)]
    first.append(node("Reshape", ["n0", "single"], ["n"]))
    return model([*first, *nodes], inputs, constants={"single": np.array([1]), **constants})


ONE = np.array([1])
SIZED: dict[str, tuple[list[onnx.NodeProto], dict[str, Array]]] = {
    "Range": ([node("Range", ["from", "n0", "step"])], {"from": np.array(1), "step": np.array(2)}),
    "Reshape": (
        [node("Concat", ["n", "rest"], ["shape"], axis=0), node("Reshape", ["x", "shape"])],
        {"rest": np.array([-1])},
    ),
    "Expand": (
        [node("Concat", ["n", "rest"], ["shape"], axis=0), node("Expand", ["one", "shape"])],
        {"rest": np.array([3]), "one": ramp(1, 3)},
    ),
    "Slice": ([node("Slice", ["x", "zero", "n", "zero"])], {"zero": np.array([0])}),
    "Tile": (
        [node("Concat", ["n", "rest"], ["counts"], axis=0), node("Tile", ["x", "counts"])],
        {"rest": np.array([2])},
    ),
    "ConstantOfShape": ([node("ConstantOfShape", ["n"])], {}),
    "Pad": (
        [node("Concat", ["n", "n", "rest"], ["pads"], axis=0), node("Pad", ["x", "pads"])],
        {"rest": np.array([0, 1])},
    ),
    "TopK": ([node("TopK", ["x", "n"], ["y", "places"], axis=0)], {}),
    "Resize": (
        [
            node("Concat", ["rest", "n"], ["sizes"], axis=0),
            node(
                "Resize",
                ["x", "", "", "sizes"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            ),
        ],
        {"rest": np.array([2])},
    ),
    "Unsqueeze": ([node("Sub", ["n", "one"], ["axis"]), node("Unsqueeze", ["x", "axis"])], {"one": np.array([3])}),
    "CumSum": ([node("Sub", ["n0", "n0"], ["axis"]), node("CumSum", ["x", "axis"])], {}),
    "OneHot": (
        [node("Cast", ["x"], ["i"], to=INT64), node("OneHot", ["i", "n0", "pair"], axis=-1)],
        {"pair": np.array([0.5, 2], np.float32)},
    ),
    "Split": (
        [
            node("Sub", ["six", "n"], ["rest"]),
            node("Concat", ["n", "rest"], ["parts"], axis=0),
            node("Split", ["x", "parts"], ["y", "z"]),
        ],
        {"six": np.array([18])},
    ),
}


@pytest.mark.parametrize("op", SIZED)
@pytest.mark.parametrize("rows", [18, "N"])
def test_a_size_that_the_device_computes(context: pumice.Context, op: str, rows: int | str) -> None:
    nodes, constants = SIZED[op]
    proto = sized(nodes, [value("x", [rows, 4])], **constants)
    cases = []
    for largest in (3, 2, 3, 4):
        x = np.minimum(np.arange(72, dtype=np.float32), largest).reshape(18, 4)
        cases.append({"x": x[::-1].copy()})
    loaded = check(context, proto, *cases)
    assert read_backs(loaded, **cases[0]) == 1
    ((_, note),) = cuts(loaded).items()
    assert note.endswith(f"for the shape of '{nodes[-1].name}'")


def test_what_several_nodes_need_is_read_at_once(context: pumice.Context) -> None:
    nodes = [
        node("Range", ["zero", "n0", "step"], ["r"]),
        node("ReduceMin", ["x"], ["least"], keepdims=0),
        node("Cast", ["least"], ["m0"], to=INT64),
        node("Reshape", ["m0", "single"], ["m"]),
        node("Slice", ["r", "m", "far"], name="slice"),
    ]
    proto = sized(nodes, [value("x", ["N"])], zero=np.array(0), step=np.array(1), far=np.array([1 << 31]))
    loaded = check(context, proto, {"x": np.array([9, 2, 4], np.float32)}, {"x": np.array([5, 1], np.float32)})
    assert read_backs(loaded, x=np.array([9, 2, 4], np.float32)) == 1


def test_consecutive_sync_points(context: pumice.Context) -> None:
    """Select the positive elements, then the elements above their mean, and return as many twos as the maximum."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["i"], name="first"),
        node("Reshape", ["i", "flat"], ["places"]),
        node("Gather", ["r", "places"], ["kept"]),
        node("ReduceMean", ["kept"], ["mean"], keepdims=0),
        node("Greater", ["kept", "mean"], ["above"]),
        node("Compress", ["kept", "above"], ["rest"], axis=0, name="second"),
        node("ReduceMax", ["rest"], ["top"], keepdims=0),
        node("Cast", ["top"], ["n"], to=INT64),
        node("Reshape", ["n", "flat"], ["shape"]),
        node("Expand", ["two", "shape"], ["y"], name="third"),
    ]
    proto = model(nodes, [value("x", ["N"])], ["rest", "y"], {"flat": np.array([-1]), "two": np.array(2, np.float32)})
    random = np.random.default_rng(0)
    cases = [{"x": (9 * random.standard_normal(n)).astype(np.float32)} for n in (30, 700, 30)]
    loaded = check(context, proto, *cases)
    assert read_backs(loaded, **cases[0]) == 3
    assert list(cuts(loaded)) == ["region 1", "region 2", "region 3"]


def test_a_size_that_a_symbolic_one_limits(context: pumice.Context) -> None:
    """Slice up to 50 columns: the value that crosses the sync point has its actual size."""
    nodes = [
        node("Slice", ["x", "zero", "fifty", "one"], ["s"]),
        node("Relu", ["s"], ["r"]),
        node("NonZero", ["r"], ["i"]),
        node("Transpose", ["i"], ["places"]),
        node("GatherND", ["r", "places"]),
    ]
    constants = {"zero": np.array([0]), "fifty": np.array([50]), "one": np.array([1])}
    check(context, model(nodes, [value("x", [2, "N"])], constants=constants), {"x": ramp(2, 20)}, {"x": ramp(2, 90)})


# Sync points in control flow


def typed(proto: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    for output in proto.graph.output:
        output.type.tensor_type.elem_type = kind
    return proto


def test_in_an_if(context: pumice.Context) -> None:
    found = subgraph(
        [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["t"], name="where")], [], [value("t", None, INT64)]
    )
    shape = subgraph(
        [node("Shape", ["x"], ["s"]), node("Unsqueeze", ["s", "zero"], ["e"])],
        [],
        [value("e", None, INT64)],
        zero=np.array([0]),
    )
    nodes = [node("If", ["c"], ["i"], name="if", then_branch=found, else_branch=shape), node("Neg", ["i"])]
    proto = typed(model(nodes, [value("x"), value("c", [], BOOL)]), INT64)
    loaded = check(context, proto, *({"x": ramp(n, 4), "c": np.array(c)} for n in (2, 5) for c in (True, False)))
    assert list(cuts(loaded)) == ["if.then/region 1"]


def test_in_a_loop_that_the_host_drives(context: pumice.Context) -> None:
    """Each iteration drops the non-positive elements and lowers the rest."""
    nodes = [
        node("Relu", ["v"], ["r"]),
        node("NonZero", ["r"], ["i"], name="where"),
        node("Reshape", ["i", "flat"], ["places"]),
        node("Gather", ["r", "places"], ["kept"]),
        node("Sub", ["kept", "one"], ["w"]),
        node("Size", ["w"], ["left"]),
        node("Identity", ["go_on"], ["still"]),
    ]
    body = subgraph(
        nodes,
        [value("number", [], INT64), value("go_on", [], BOOL), value("v", ["M"])],
        [value("still", [], BOOL), value("w", ["K"]), value("left", [], INT64)],
        flat=np.array([-1]),
        one=np.array(1, np.float32),
    )
    nodes = [node("Loop", ["m", "", "x"], ["y", "sizes"], name="loop", body=body)]
    proto = model(nodes, [value("x", ["N"]), value("m", [], INT64)], ["y", "sizes"])
    proto.graph.output[1].type.tensor_type.elem_type = INT64
    proto.graph.output[0].type.tensor_type.elem_type = FLOAT
    loaded = pumice.load(proto, context)
    for trips in (0, 1, 4):
        v, sizes = np.arange(6, dtype=np.float32), []
        for _ in range(trips):
            v = v[v > 0] - 1
            sizes.append(v.size)
        y, left = loaded(np.arange(6, dtype=np.float32), np.array(trips))
        np.testing.assert_array_equal(y, v)
        np.testing.assert_array_equal(left, np.array(sizes, np.int64))
    execution = loaded.program.execution()
    execution.set("x", np.arange(6, dtype=np.float32))
    execution.set("m", np.array(4))
    execution.compute()
    (loop,) = execution.report["loops"]
    assert (loop["kind"], loop["trips"]) == ("host", 4)
    assert execution.report["read_backs"] == 4
    assert list(cuts(loaded)) == ["loop.body/region 1"]


def test_a_trip_count_that_the_device_computes_sizes_the_results(context: pumice.Context) -> None:
    nodes = [node("Add", ["v", "v"], ["w"]), node("Identity", ["go_on"], ["still"])]
    inputs = [value("number", [], INT64), value("go_on", [], BOOL), value("v", [2])]
    body = subgraph(nodes, inputs, [value("still", [], BOOL), value("w", [2]), value("w", [2])])
    proto = sized([node("Loop", ["n", "", "x"], ["y", "rows"], name="loop", body=body)], [value("x", [2])])
    proto.graph.output.append(value("rows", None))
    y, rows = pumice.load(proto, context)(np.array([3, 1], np.float32))
    np.testing.assert_array_equal(y, [24, 8])
    np.testing.assert_array_equal(rows, [[6, 2], [12, 4], [24, 8]])


# Interaction with the rest of the engine


def test_builder_graphs_have_sync_points_too(context: pumice.Context) -> None:
    graph = pumice.Graph("cut")
    x = graph.input("x", "float32", [None, 3])
    where = graph.add("NonZero", graph.add("Relu", x), name="where")
    assert (where.dtype, where.shape) == ("int64", (2, None))
    shape = graph.add("Cast", graph.add("ReduceMax", where, np.array([1]), keepdims=0), to=INT64)
    ones = graph.add("ConstantOfShape", shape, value=np.ones(1, "float32"))
    assert ones.shape == (None, None)
    graph.output("ones", ones)
    program = graph.compile(context)
    x = np.array([[-1, 2, -3], [0, 0, 7], [-1, 0, 0]], "float32")
    assert program({"x": x})["ones"].shape == (1, 2)
    with pytest.raises(
        pumice.UnsupportedError, match="'where/count:0' of 'where/count'.* arena\\(\\) supports only programs"
    ):
        program.arena([(3, 3)])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_validation_goes_node_by_node(context: pumice.Context, precision: str) -> None:
    report = pumice.validate(gathered(), [ramp(9, 4), ramp(3, 4)], context=context, precision=precision)
    report.raise_if_failed()
    assert {"where", "gather.rows", "mul.y"} <= {row.node for row in report.rows}


def test_several_threads_run_one_program(context: pumice.Context) -> None:
    from concurrent.futures import ThreadPoolExecutor

    loaded = pumice.load(gathered(), context)

    def run(count: int) -> None:
        x = np.full((20, 4), -1, np.float32)
        x[:count] = count
        for _ in range(5):
            np.testing.assert_array_equal(loaded(x), 2 * x[:count])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(8)))


def test_a_compiled_operator_has_no_sync_points(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("NonZero", graph.add("Relu", graph.input("x", "float32", [4])), name="where"))
    with pytest.raises(pumice.UnsupportedError, match="'where'"):
        graph.compile_operator(context)


def test_a_shape_that_was_known_by_chance_is_not_taken_for_a_constant(context: pumice.Context) -> None:
    """Exactly one number in range(n) is below 1, except if n is 0."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["i"]),
        node("Shape", ["i"], ["n1"], start=1),
        node("Squeeze", ["n1", "zero"], ["n"]),
        node("Range", ["none", "n", "step"], ["all"]),
        node("Less", ["all", "step"], ["below"]),
        node("Compress", ["all", "below"], ["first"]),
        node("Size", ["first"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "none": np.array(0), "step": np.array(1)}
    proto = model(nodes, [value("x", ["N"])], constants=constants)
    check(context, proto, {"x": ramp(9)}, {"x": -np.ones(9, np.float32)}, {"x": ramp(0)})


@pytest.mark.parametrize("op", ["NonZero", "Compress"])
def test_elements_that_only_some_trials_of_sizes_know_fit_their_count(context: pumice.Context, op: str) -> None:
    """Trials fold the mask of ones at small sizes only; a count from another trial size once caused a buffer overflow."""
    graph = pumice.Graph("mask")
    x = graph.input("x", "float32", [None, 4, None, None])
    mask = graph.add("Cast", graph.add("Expand", graph.constant(np.array(1, "float32")), graph.add("Shape", x)), to=9)
    found = graph.add(op, mask) if op == "NonZero" else graph.add(op, x, graph.add("Reshape", mask, np.array([-1])))
    graph.output("found", found)
    program = graph.compile(context)
    for shape in ((1, 4, 3, 3), (2, 4, 1, 5), (1, 4, 96, 40), (0, 4, 2, 2)):
        ones = np.ones(shape, "float32")
        expected = np.stack(np.nonzero(ones)) if op == "NonZero" else ones.reshape(-1)
        np.testing.assert_array_equal(program({"x": ones})["found"], expected)
