"""Programs: results, shapes, dtypes of inputs and outputs, fusion, precision and errors."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from pumice.testing import assert_close
from small_programs import BIAS, WEIGHT, add_one, compiled, conv2d, conv_relu, deep, random

# ---- results and shapes


def test_a_program_runs_for_every_shape_it_is_called_with(context: pumice.Context) -> None:
    program = compiled(context, conv_relu)
    for shape in ((1, 4, 5, 7), (2, 4, 9, 3), (1, 4, 5, 7), (3, 4, 1, 1)):
        x = random(*shape)
        assert_close(
            program({"x": x})["y"], np.maximum(conv2d(x, WEIGHT, BIAS), 0).astype("float32"), rtol=1e-4, atol=1e-4
        )


def test_more_shapes_than_are_remembered_still_run(context: pumice.Context) -> None:
    program = compiled(context, add_one)
    for n in [*range(1, 40), 1, 2]:
        np.testing.assert_array_equal(program.call((np.full(n, 3, "float32"),))[0], np.full(n, 4, "float32"))


def test_empty_tensors_run(context: pumice.Context) -> None:
    program = compiled(context, add_one)
    assert program.call((np.zeros(0, "float32"),))[0].shape == (0,)
    assert program.call((np.zeros(3, "float32"),))[0].shape == (3,)


def test_a_batch_of_zero_runs_through_fused_matmuls_and_inferred_sizes(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, 5, 32])
    sizes = graph.add("Concat", graph.add("Shape", x, start=0, end=2), graph.constant(np.array([4, -1])), axis=0)
    heads = graph.add("Reshape", x, sizes, allowzero=1)
    q = graph.add("Transpose", heads, perm=[0, 2, 1, 3])
    k = graph.add("Transpose", heads, perm=[0, 2, 3, 1])
    scores = graph.add("Div", graph.add("MatMul", q, k), graph.constant(np.array(8, "float32")))
    graph.output("y", graph.add("Relu", scores))
    program = graph.compile(context)
    assert program.call((np.zeros((0, 5, 32), "float32"),))[0].shape == (0, 4, 5, 5)
    ones = program.call((np.ones((2, 5, 32), "float32"),))[0]
    np.testing.assert_array_equal(ones, np.ones((2, 4, 5, 5)))
    with pytest.raises(pumice.GraphError, match=r"\[0, 5, 32\] reshaped"):
        bad = pumice.Graph()
        x = bad.input("x", "float32", [0, 5, 32])
        bad.output("y", bad.add("Reshape", x, bad.constant(np.array([0, 7, -1])), allowzero=1))
        bad.compile(context).call((np.zeros((0, 5, 32), "float32"),))


def test_a_scalar_runs(context: pumice.Context) -> None:
    program = compiled(context, lambda g: g.output("y", g.add("Exp", g.input("x", "float32", []))))
    assert_close(program({"x": np.float32(1)})["y"], np.exp(np.float32(1)))


def test_inputs_constants_and_one_value_under_two_names_can_be_outputs(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [2, 3])
        view = graph.add("Reshape", x, np.array([3, 2], "int64"))
        y = graph.add("Relu", view)
        for name, value in {
            "same": x,
            "view": view,
            "y": y,
            "again": y,
            "flat": graph.add("Flatten", y, axis=0),
        }.items():
            graph.output(name, value)
        graph.output("constant", graph.constant(np.arange(5, dtype="int64"), "c"))
        graph.output("sizes", graph.add("Shape", x))

    x = random(2, 3)
    for fuse in (True, False):
        result = compiled(context, build, fuse=fuse)({"x": x})
        np.testing.assert_array_equal(result["same"], x)
        np.testing.assert_array_equal(result["view"], x.reshape(3, 2))
        np.testing.assert_array_equal(result["y"], np.maximum(x.reshape(3, 2), 0))
        np.testing.assert_array_equal(result["again"], result["y"])
        np.testing.assert_array_equal(result["flat"], result["y"].reshape(1, 6))
        np.testing.assert_array_equal(result["constant"], np.arange(5))
        np.testing.assert_array_equal(result["sizes"], [2, 3])


def test_several_outputs_of_one_node(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        parts = graph.add(
            "Split", graph.input("x", "float32", [None, 7]), np.array([2, 4, 1], "int64"), outputs=3, axis=1
        )
        graph.output("b", parts[1])
        graph.output("a", parts[0])  # the third is unused

    x = random(3, 7)
    result = compiled(context, build)({"x": x})
    np.testing.assert_array_equal(result["a"], x[:, :2])
    np.testing.assert_array_equal(result["b"], x[:, 2:6])


@pytest.mark.parametrize("shape", [(1, 8, 5, 5), (1, 6, 3, 3), (2, 8, 5, 5), (2, 3, 3, 1)])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_concatenations_are_right_where_parts_lie_in_them_and_where_not(
    context: pumice.Context, shape: tuple[int, ...], precision: str
) -> None:
    """Kernel results, an input, a tensor used twice, and a Concat of Concats."""

    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", list(shape))
        a = graph.add("Relu", x)
        b = graph.add("Conv", x, random(5, shape[1], 1, 1, seed=3))
        inner = graph.add("Concat", a, b, axis=1)
        graph.output("whole", graph.add("Concat", inner, x, b, inner, axis=1))
        graph.output("more", graph.add("Neg", inner))
        graph.output("wide", graph.add("Concat", a, x, a, axis=3))

    x = random(*shape)
    a, b = np.maximum(x, 0), np.einsum("nchw,oc->nohw", x, random(5, shape[1], 1, 1, seed=3)[:, :, 0, 0])
    inner = np.concatenate([a, b], 1)
    result = compiled(context, build, precision=precision)({"x": x})
    tolerance = 1e-5 if precision == "fp32" else 1e-2
    assert_close(result["whole"], np.concatenate([inner, x, b, inner], 1), rtol=tolerance, atol=tolerance)
    assert_close(result["more"], -inner, rtol=tolerance, atol=tolerance)
    assert_close(result["wide"], np.concatenate([a, x, a], 3), rtol=tolerance, atol=tolerance)


ONNX_TYPE_CODES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11
}  # fmt: skip


@pytest.mark.parametrize("dtype", ONNX_TYPE_CODES)
def test_adjacent_slices_may_share_32_bit_words(context: pumice.Context, dtype: str) -> None:
    """Slices start and end within words or at word boundaries; the validation layer sees what each dispatch reads."""
    numbers = np.random.default_rng(3)
    graph, given, wanted = pumice.Graph(), {}, {}
    for case in range(24):
        images, height, width, *channels = (int(n) for n in numbers.integers(1, 7, 6))
        parts = []
        for k, count in enumerate(channels):
            shape = (images, count, height, width)
            part = numbers.integers(0, 2, shape).astype(dtype if k % 2 else "int32")
            value = graph.input(f"x{case}_{k}", str(part.dtype), list(part.shape))
            parts.append(value if k % 2 else graph.add("Cast", value, to=ONNX_TYPE_CODES[dtype]))
            given[f"x{case}_{k}"] = part
        graph.output(f"y{case}", graph.add("Transpose", graph.add("Concat", *parts, axis=1), perm=[0, 2, 3, 1]))
        whole = np.concatenate([given[f"x{case}_{k}"] for k in range(3)], axis=1)
        wanted[f"y{case}"] = whole.transpose(0, 2, 3, 1).astype(dtype)
    for fuse in (True, False):
        results = graph.compile(context, fuse=fuse)(given)
        for name, expected in wanted.items():
            np.testing.assert_array_equal(results[name], expected)
            assert results[name].dtype == expected.dtype


# ---- computed shapes


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_part_of_a_concatenation_is_read_from_where_it_begins(context: pumice.Context, precision: str) -> None:
    """The slice of eight channels starts at channel 4, which is not aligned for a load of eight float16."""
    random = np.random.default_rng(5)
    x = (random.integers(-64, 64, (1, 8, 40, 45)) / 64).astype("float32")
    weights = [(random.integers(-8, 8, (n, 8, 1, 1)) / 8).astype("float32") for n in (4, 8, 4, 24)]
    graph = pumice.Graph()
    value = graph.input("x", "float32", list(x.shape))
    parts = [graph.add("Conv", value, graph.constant(w)) for w in weights[:3]]
    graph.output(
        "whole",
        graph.add("Conv", graph.add("Concat", *parts, axis=1), graph.constant(np.ones((4, 16, 1, 1), "float32"))),
    )
    graph.output("part", graph.add("Conv", parts[1], graph.constant(weights[3])))
    result = graph.compile(context, precision=precision)({"x": x})
    made = [np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) for w in weights[:3]]
    tolerance = 1e-4 if precision == "fp32" else 2e-2
    whole = np.repeat(sum(part.sum(axis=1, keepdims=True) for part in made), 4, axis=1)
    assert_close(result["whole"], whole, rtol=tolerance, atol=10 * tolerance)
    assert_close(
        result["part"], np.einsum("nchw,oc->nohw", made[1], weights[3][:, :, 0, 0]), rtol=tolerance, atol=tolerance
    )


def test_shape_arithmetic_stays_on_the_host(context: pumice.Context) -> None:
    """Reshape x to [N, C, H * W] by the usual chain of Shape, Gather, Mul and Concat."""

    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [None, None, None, None])
        sizes = graph.add("Shape", x)
        pick = lambda i: graph.add("Gather", sizes, np.array([i], "int64"), axis=0)  # noqa: E731
        area = graph.add("Mul", pick(2), pick(3))
        graph.output("y", graph.add("Reshape", x, graph.add("Concat", pick(0), pick(1), area, axis=0)))

    program = compiled(context, build)
    for shape in ((1, 2, 3, 4), (2, 1, 5, 2)):
        x = random(*shape)
        np.testing.assert_array_equal(program({"x": x})["y"], x.reshape(shape[0], shape[1], -1))
    assert {row["note"] for row in program.report() if row["op"] in ("Shape", "Gather", "Mul", "Concat")} == {"host"}


def test_the_elements_of_an_input_can_decide_about_shapes(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x, target = graph.input("x", "float32", [12]), graph.input("target", "int64", [2])
        graph.output("y", graph.add("Neg", graph.add("Reshape", x, target)))

    program = compiled(context, build)
    x = random(12)
    for target in ((3, 4), (2, 6), (3, 4), (-1, 1)):
        np.testing.assert_array_equal(program({"x": x, "target": np.array(target, "int64")})["y"], -x.reshape(target))
    with pytest.raises(pumice.BindingError, match="target"):
        program.arena([[12], [2]])
    assert program.arena([[12], np.array([3, 4], "int64")])["dispatches"] >= 1
    with pytest.raises(pumice.GraphError):
        program({"x": x, "target": np.array([5, 5], "int64")})


def test_host_values_that_the_device_reads_go_up(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [None, 3])
        sizes = graph.add("Cast", graph.add("Shape", x), to=1)
        graph.output(
            "y",
            graph.add(
                "Div",
                graph.add("ReduceSum", x, np.array([1], "int64"), keepdims=0),
                graph.add("ReduceProd", sizes, keepdims=0),
            ),
        )

    x = random(5, 3)
    for fuse in (True, False):
        assert_close(compiled(context, build, fuse=fuse)({"x": x})["y"], x.sum(1) / np.float32(15), atol=1e-6)


def test_a_shape_that_only_the_device_knows_is_unsupported_and_named(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [6])
        largest = graph.add("Cast", graph.add("ReduceMax", graph.add("Relu", x), keepdims=1), to=7)
        graph.output(
            "y", graph.add("Reshape", x, graph.add("Concat", largest, np.array([-1], "int64"), axis=0), name="cut")
        )

    with pytest.raises((pumice.UnsupportedError, pumice.GraphError), match="cut"):
        compiled(context, build)({"x": np.arange(6, dtype="float32")})


# ---- precision


def test_fp16_is_close_to_fp32_and_keeps_the_dtypes_at_the_border(context: pumice.Context) -> None:
    x = random(2, 4, 8, 8)
    wide, narrow = (compiled(context, deep, precision=precision)({"x": x}) for precision in ("fp32", "fp16"))
    for name in ("logits", "probabilities"):
        assert narrow[name].dtype == np.float32
        assert_close(narrow[name], wide[name], rtol=1e-2, atol=1e-2)
    assert not np.array_equal(narrow["logits"], wide["logits"])


def test_integers_are_exact_at_every_precision(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "int64", [None])
        graph.output("y", graph.add("Add", graph.add("Mul", x, np.array(3, "int64")), np.array(2**40 + 1, "int64")))

    x = np.array([-(2**50), -1, 0, 7, 2**33], "int64")
    for precision in ("fp32", "fp16"):
        np.testing.assert_array_equal(compiled(context, build, precision=precision)({"x": x})["y"], x * 3 + 2**40 + 1)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_lowest_float32_of_a_mask_stays_finite_in_16_bit_types(context: pumice.Context, precision: str) -> None:
    def build(graph: pumice.Graph) -> None:
        mask = graph.input("mask", "float32", [4])
        lowest = np.finfo("float32").min
        unmasked = graph.add("Sub", graph.constant(np.array(1, "float32")), mask)
        bias = graph.add("Mul", unmasked, graph.constant(np.array(lowest, "float32")))
        filled = graph.add("ConstantOfShape", graph.add("Shape", mask), value=np.array([lowest], "float32"))
        graph.output("bias", bias)
        graph.output("none", graph.add("Mul", filled, graph.constant(np.zeros(4, "float32"))))

    result = compiled(context, build, precision=precision)({"mask": np.array([1, 0, 1, 0], "float32")})
    assert (result["bias"][1::2] < -60000).all()
    np.testing.assert_array_equal(result["bias"][::2], [0, 0])
    np.testing.assert_array_equal(result["none"], np.zeros(4))


def test_operators_that_overflow_stay_in_fp32_at_fp16(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [None, 256])
        total = graph.add("ReduceSum", graph.add("Relu", x), np.array([1], "int64"), keepdims=1, name="total")
        graph.output("share", graph.add("Div", x, total))
        graph.output("log", graph.add("Log", graph.add("Exp", graph.add("Neg", x), name="exp")))

    x = np.full((2, 256), -20, "float32")
    x[0] = 2000  # sums to 512,000; exp(20) is 4.9e8: both beyond the largest float16, 65,504
    result = compiled(context, build, precision="fp16")({"x": x})
    assert_close(result["share"][0], np.full(256, 2000 / 512000, "float32"), rtol=2e-3)
    assert_close(result["log"][1], np.full(256, 20, "float32"), rtol=2e-3)


def test_a_float16_model_runs(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float16", [None, 8])
        graph.output("y", graph.add("Relu", graph.add("MatMul", x, random(8, 5).astype("float16"))))

    x = random(3, 8).astype("float16")
    expected = np.maximum(x.astype("float32") @ random(8, 5).astype("float16").astype("float32"), 0)
    for precision in ("fp32", "fp16"):
        y = compiled(context, build, precision=precision)({"x": x})["y"]
        assert y.dtype == np.float16
        assert_close(y, expected.astype("float16"), rtol=2e-3, atol=2e-3)


# ---- fusion


def chain(graph: pumice.Graph) -> None:
    x = graph.input("x", "float32", [None, 4, 6, 6])
    conv = graph.add("Conv", x, WEIGHT, BIAS, pads=[1, 1, 1, 1], name="conv")
    scaled = graph.add("Mul", graph.add("Tanh", conv, name="tanh"), np.array(3, "float32"), name="scale")
    clipped = graph.add("Clip", scaled, np.array(-2, "float32"), np.array(2.5, "float32"), name="clip")
    shifted = graph.add("Add", clipped, random(8, 1, 1, seed=4), name="shift")  # separate kernel: reads another input
    graph.output("y", graph.add("Sub", shifted, graph.add("Sigmoid", clipped, name="sigmoid"), name="minus"))


def test_fusion_changes_the_dispatches_and_not_the_results(context: pumice.Context) -> None:
    x = random(2, 4, 6, 6)
    fused, plain = compiled(context, chain), compiled(context, chain, fuse=False)
    shape = [list(x.shape)]
    assert (plain.arena(shape)["dispatches"], fused.arena(shape)["dispatches"]) == (7, 2)
    assert_close(fused({"x": x})["y"], plain({"x": x})["y"], rtol=1e-5, atol=1e-6)
    notes = {row["node"]: row["note"] for row in fused.report()}
    assert [notes[name] for name in ("tanh", "scale", "clip")] == ["fused into conv"] * 3
    assert (notes["shift"], notes["sigmoid"]) == ("fused into minus", "fused into minus")


def test_a_value_that_is_an_output_is_not_fused_away(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [None, 4])
        before = graph.add("MatMul", x, random(4, 3))
        after = graph.add("Relu", before)
        graph.output("before", before)
        graph.output("after", after)
        graph.output("last", graph.add("Exp", after))

    x = random(2, 4)
    result = compiled(context, build)({"x": x})
    assert_close(result["before"], x @ random(4, 3), atol=1e-5)
    assert_close(result["after"], np.maximum(x @ random(4, 3), 0), atol=1e-5)
    assert_close(result["last"], np.exp(np.maximum(x @ random(4, 3), 0)), rtol=1e-5)


def test_maps_of_several_types_become_one(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        a, b = graph.input("a", "float32", [None]), graph.input("b", "float32", [None])
        less = graph.add("Less", a, b)
        both = graph.add("And", less, graph.add("Not", graph.add("IsNaN", a)))
        whole = graph.add("Cast", graph.add("Floor", a), to=6)
        graph.output(
            "y", graph.add("Where", both, graph.add("Cast", whole, to=1), graph.add("Mul", b, np.array(2, "float32")))
        )

    a, b = np.array([-1.5, 2.5, np.nan, 3, 4], "float32"), np.array([0, 2, 1, 4, np.inf], "float32")
    with np.errstate(invalid="ignore"):
        expected = np.where((a < b) & ~np.isnan(a), np.floor(a), b * 2)
    fused, plain = compiled(context, build), compiled(context, build, fuse=False)
    for program in (fused, plain):
        np.testing.assert_array_equal(program({"a": a, "b": b})["y"], expected)
    assert fused.arena([[5], [5]])["dispatches"] == 1


def test_a_broadcast_operand_is_not_computed_once_for_every_element(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        row, x = graph.input("row", "float32", [5]), graph.input("x", "float32", [7, 5])
        graph.output("y", graph.add("Add", x, graph.add("Exp", row)))

    program = compiled(context, build)
    assert program.arena([[5], [7, 5]])["dispatches"] == 2
    assert_close(program({"row": random(5), "x": random(7, 5)})["y"], random(7, 5) + np.exp(random(5)), rtol=1e-5)


def test_the_same_operand_twice_and_a_long_chain(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [None])
        for _ in range(12):  # inlining y * sigmoid(y) into itself doubles the source each time
            x = graph.add("Mul", x, graph.add("Sigmoid", x))
        graph.output("y", x)

    x = expected = np.linspace(-3, 6, 37).astype("float32")
    for _ in range(12):
        expected = expected / (1 + np.exp(-expected.astype("float64")))
    assert_close(compiled(context, build)({"x": x})["y"], expected.astype("float32"), rtol=1e-4, atol=1e-6)


def test_constants_are_folded_and_dead_nodes_dropped(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [3])
        two = graph.add("Add", np.ones(3, "float32"), np.ones(3, "float32"), name="two")
        graph.add("Exp", x, name="dead")
        graph.output("y", graph.add("Mul", x, two, name="mul"))

    program = compiled(context, build)
    np.testing.assert_array_equal(program({"x": np.arange(3, dtype="float32")})["y"], [0, 2, 4])
    assert {row["node"]: row["note"] for row in program.report()} == {"two": "folded", "dead": "not needed", "mul": ""}


def test_keep_all_makes_every_value_an_output(context: pumice.Context) -> None:
    program = compiled(context, chain, keep_all=True, fuse=False)
    x = random(1, 4, 6, 6)
    result = program({"x": x})
    assert len(result) == 7
    assert_close(result["tanh:0"], np.tanh(result["conv:0"]), atol=1e-5)
    np.testing.assert_array_equal(result["clip:0"], np.clip(result["scale:0"], -2, 2.5))


# ---- arguments


@pytest.mark.parametrize(
    ("inputs", "rule", "text"),
    [
        ({}, "K3", "'x'"),
        ({"x": random(1, 4, 2, 2), "z": random(1)}, "K4", "'z'"),
        ({"x": random(1, 4, 2, 2).astype("float64")}, "K5", "float32.*float64"),
        ({"x": random(1, 3, 2, 2)}, "K10", r"\[.*4.*\].*\[1, 3, 2, 2\]"),
        ({"x": random(4, 2, 2)}, "K10", r"\[4, 2, 2\]"),
        ({"x": random(1, 4, 2, 2).astype(">f4")}, "K5", "byte order"),
    ],
)
def test_wrong_arguments_are_rejected_by_name_and_the_program_stays_usable(
    context: pumice.Context, inputs: dict[str, np.ndarray], rule: str, text: str
) -> None:
    program = compiled(context, conv_relu)
    with pytest.raises(pumice.BindingError, match=text) as caught:
        program(inputs)
    assert caught.value.rule == rule
    assert program({"x": random(1, 4, 2, 2)})["y"].shape == (1, 8, 2, 2)


def test_the_number_of_arrays_is_checked(context: pumice.Context) -> None:
    program = compiled(context, add_one)
    for wrong in ((), (random(2), random(2))):
        with pytest.raises(pumice.BindingError, match="1 array"):
            program.call(wrong)


def test_sizes_of_one_name_have_to_agree(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        a, b = (graph.input(name, "float32", [None, None], ["N", ""]) for name in "ab")
        graph.output("y", graph.add("Concat", a, b, axis=1))

    program = compiled(context, build)
    assert program({"a": random(2, 3), "b": random(2, 1)})["y"].shape == (2, 4)
    with pytest.raises(pumice.BindingError, match="'b'.*N = 2"):
        program({"a": random(2, 3), "b": random(3, 1)})


def test_strided_reversed_and_broadcast_arrays_arrive_right(context: pumice.Context) -> None:
    program = compiled(context, lambda g: g.output("y", g.add("Neg", g.input("x", "float32", [None, None]))))
    base = random(6, 8)
    for x in (base.T, base[::-1], base[:, ::3], np.broadcast_to(base[0], (5, 8)), np.asfortranarray(base)):
        np.testing.assert_array_equal(program({"x": x})["y"], -x)


def test_results_are_new_arrays(context: pumice.Context) -> None:
    program = compiled(context, add_one)
    first = program.call((np.zeros(4, "float32"),))[0]
    second = program.call((np.ones(4, "float32"),))[0]
    np.testing.assert_array_equal(first, np.ones(4))
    np.testing.assert_array_equal(second, np.full(4, 2))
    first[:] = 7  # writable, and independent of the result


def test_inputs_and_outputs_are_described(context: pumice.Context) -> None:
    program = compiled(context, conv_relu)
    (x,), (y,) = program.inputs, program.outputs
    assert (x.name, x.dtype, x.shape) == ("x", "float32", (None, 4, None, None))
    assert (y.name, y.dtype, y.shape) == ("y", "float32", (None, 8, None, None))
