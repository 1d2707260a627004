"""User kernels as operators of a model: planned, fused around, profiled and validated like any node."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import pumice
from binding_tables import execute
from custom_models import SOFTCAP, X, loaded, model, node, product, softcap, top
from described_operators import MARGIN, placed
from lesser_devices import garbage, lesser, taken


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 4e-3), ("bf16", 3e-2)])
def test_a_node_runs_the_kernel_at_every_precision(context: pumice.Context, precision: str, tolerance: float) -> None:
    given = model([helper.make_node("Relu", ["x"], ["r"]), node("Softcap", "r", cap=5.0)])
    one = loaded(context, given, precision, Softcap=softcap())
    expected = 5 * np.tanh(np.maximum(X, 0) / 5)
    np.testing.assert_allclose(one(X), expected, rtol=tolerance, atol=tolerance)
    wider = np.tile(X, (30, 1))  # sizes are unknown at load time
    np.testing.assert_allclose(one(wider), np.tile(expected, (30, 1)), rtol=tolerance, atol=tolerance)
    assert one(X[:0]).shape == (0, 3)
    report = str(one.report())
    assert "my.domain::Softcap" in report and "pumice::Kernel" not in report


def test_maps_around_it_are_fused_and_profiled(context: pumice.Context) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Sqrt", ["a"], ["b"]),
        node("Softcap", "b", "c", "cap_it"),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Abs", ["d"], ["y"]),
    ]
    one = loaded(context, model(nodes), Softcap=softcap())
    assert "5 nodes before, 3 after" in str(one.report())
    np.testing.assert_allclose(one(X), 2 * np.tanh(np.sqrt(np.maximum(X, 0)) / 2), rtol=1e-5)
    with pumice.profile() as told:
        one(X)
    assert "cap_it" in str(told)


def test_several_inputs_and_a_constant_weight(context: pumice.Context) -> None:
    weight = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    nodes = [node("Product", "x w", "h", "first", scale=0.5), node("Product", "h w2", "y", "second")]
    weights = {"w": weight, "w2": weight.T.copy()}
    for precision, tolerance in (("fp32", 1e-5), ("fp16", 2e-2)):
        one = loaded(context, model(nodes, weights=weights), precision, Product=product())
        np.testing.assert_allclose(one(X), X @ weight * 0.5 @ weight.T, rtol=tolerance, atol=tolerance)
        assert pumice.validate(one, [X], progress=None).ok


def test_rules_as_functions_say_the_same(context: pumice.Context) -> None:
    by_text = loaded(context, model([node("Product", "x w")], weights={"w": X[:3]}), Product=product())
    rules = product(
        shape=lambda a, b: [a.shape[0], *b.shape[1:]],
        numbers={
            "rows": lambda c: c.shape[0],
            "columns": lambda b: b.shape[-1],
            "depth": lambda a, **_: a.size // a.shape[0],
        },
        threads=lambda c: (c.shape[1], c.shape[0]),
    )
    by_function = loaded(context, model([node("Product", "x w")], weights={"w": X[:3]}), Product=rules)
    assert (by_text(X) == by_function(X)).all()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_several_outputs_of_several_types(context: pumice.Context, precision: str) -> None:
    """The arrays are float32 at any precision: fp16 values are converted."""
    shuffled = X.copy()
    shuffled[:, [0, 2]] = shuffled[:, [2, 0]]
    one = loaded(context, model([node("Top", "x", "value place")], outputs="value place"), precision, Top=top())
    value, place = one(shuffled)
    np.testing.assert_allclose(value, shuffled.max(1), rtol=1e-3)
    assert (place == 0).all() and place.dtype == np.int32
    alone = loaded(context, model([node("Top", "x", "value place")], outputs="place"), precision, Top=top())
    assert (alone(shuffled) == 0).all(), "an output that nobody reads is made beside the other"
    assert pumice.validate(one, [X], progress=None).ok


def test_attributes_are_specialization_constants_too_and_lists(context: pumice.Context) -> None:
    text = """
layout(constant_id = 3) const int power = 1;
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
layout(push_constant) uniform P { uint x_size; uint x_shape[2]; vec2 line; float each; } p;
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= x.length() || i >= p.x_size) return;
  float value = float(buffer_ld1(x, i));
  for (int k = 1; k < power; ++k) value *= value;
  buffer_st1(y, i, afp(p.line.x * value + p.line.y + float(p.x_shape[0]) + p.each));
}
"""
    each = pumice.kernel_operator(
        text,
        attributes={"power": None, "line": [2.0, 1.0]},
        numbers={"each": "1 / x.shape[1]"},
        threads="max(x.size, 1000)",
    )
    nodes = [node("Each", "x", "a", power=2), node("Each", "a", power=1, line=[1.0, 0.0])]
    expected = 2 * X * X + 1 + 4 + 1 / 3
    np.testing.assert_allclose(loaded(context, model(nodes), Each=each)(X), expected + 4 + 1 / 3, rtol=1e-5)


def test_groups_shared_memory_and_macros_of_a_kernel(context: pumice.Context) -> None:
    text = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
shared float parts[WIDTH];
void main() {
  uint i = gl_LocalInvocationID.x;
  parts[i] = i < 3 ? x[gl_WorkGroupID.x * 3 + i] : 0;
  barrier();
  if (i == 0) y[gl_WorkGroupID.x] = parts[0] + parts[1] + parts[2];
}
"""
    kernel = pumice.Kernel(text, context, name="sum of three", macros={"WIDTH": 8}, local_size=8)
    sums = pumice.kernel_operator(
        kernel, shape="(x.shape[0], 1)", groups="x.shape[0]", reference=lambda x: x.sum(1, keepdims=True)
    )
    one = loaded(context, model([node("Sums")]), Sums=sums)
    np.testing.assert_allclose(one(X), X.sum(1, keepdims=True), rtol=1e-6)
    assert "sum of three" in str(one.report())
    assert pumice.validate(one, [X], progress=None).ok


def test_a_source_alone_returns_an_output_like_its_input(context: pumice.Context) -> None:
    body = pumice.Kernel.from_body("buffer_st1(y, i, buffer_ld1(x, i) * afp(3));", {"x": "sfp"}, {"y": "sfp"}, context)
    for kernel in (body, body.source):
        one = loaded(context, model([node("Triple")]), Triple=kernel)
        assert (one(X) == 3 * X).all()
    named = pumice.kernel_operator(body, inputs=["x"], outputs=["y"], shape=lambda x: x.shape)
    unranked = loaded(context, model([node("Triple")], shape=None), Triple=named)
    assert (unranked(X[0]) == 3 * X[0]).all()


def test_parts_of_other_tensors_and_transposed_ones(context: pumice.Context) -> None:
    """User kernels get no offset or strides: slices and transposed inputs are made contiguous first."""
    wide = np.random.default_rng(1).normal(size=(12, 7)).astype("float32")
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], axis=0),
        node("Triple", "b", "d"),
        helper.make_node("Transpose", ["c"], ["t"]),
        node("Triple", "t", "u"),
        helper.make_node("Transpose", ["u"], ["e"]),
        helper.make_node("Concat", ["a", "d", "e"], ["y"], axis=0),
    ]
    text = SOFTCAP.replace("p.cap * tanh(float(buffer_ld1(x, i)) / p.cap)", "p.cap * float(buffer_ld1(x, i))")
    triple = pumice.kernel_operator(text, attributes={"cap": 3.0})
    for precision, tolerance in (("fp32", 0), ("fp16", 2e-3)):
        one = loaded(context, model(nodes, shape=[12, 7]), precision, Triple=triple)
        np.testing.assert_allclose(one(wide), wide * np.float32(np.repeat([1, 3, 3], 4))[:, None], rtol=tolerance)


def test_devices_that_bind_at_coarse_boundaries_get_copies(context: pumice.Context) -> None:
    with lesser(context, {"minStorageBufferOffsetAlignment": 256}) as coarse:
        test_parts_of_other_tensors_and_transposed_ones(coarse)
        test_several_outputs_of_several_types(coarse, "fp16")


def test_devices_without_float16_in_memory_pack_them(context: pumice.Context) -> None:
    with lesser(context, {}, ["storageBuffer16BitAccess", "shaderInt64"]) as packed:
        test_parts_of_other_tensors_and_transposed_ones(packed)
        for precision, tolerance in (("fp16", 4e-3), ("bf16", 3e-2)):
            test_a_node_runs_the_kernel_at_every_precision(packed, precision, tolerance)


@pytest.mark.parametrize("boundary", [16, 256])
def test_a_tensor_may_begin_where_any_operators_may(context: pumice.Context, boundary: int) -> None:
    """Tensors may start at any multiple of 16 bytes; if the device requires a coarser binding offset, they are copied."""
    with lesser(context, {"minStorageBufferOffsetAlignment": boundary}) as made:
        compiled = loaded(made, model([node("Softcap")]), Softcap=softcap()).program.compiled([[4, 3]])
        desc = pumice.TensorDesc("float32", (4, 3))
        for offset in (0, 16, 48):
            begin = -MARGIN % 256 + offset
            source, target = placed(made, desc, begin, X), placed(made, desc, begin)
            execute(
                made, compiled, [source], [target], None, garbage(made, compiled.binding_properties.temporary_bytes)
            )
            np.testing.assert_allclose(taken(target, desc, X), 2 * np.tanh(X / 2), rtol=1e-5)


def test_it_runs_in_branches_and_loops(context: pumice.Context) -> None:
    value = helper.make_tensor_value_info
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Softcap", "x", f"{name}_y", cap=cap)], name, [], [value(f"{name}_y", TensorProto.FLOAT, ["n", 3])]
        )
        for name, cap in (("then", 1.0), ("else", 4.0))
    }
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["m", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    one = loaded(context, model(nodes), Softcap=softcap())
    np.testing.assert_allclose(one(X), np.tanh(X), rtol=1e-5)
    np.testing.assert_allclose(one(-abs(X)), 4 * np.tanh(-abs(X) / 4), rtol=1e-5)
    body = helper.make_graph(
        [node("Softcap", "s", "s2"), helper.make_node("Identity", ["c_in"], ["c_out"])],
        "body",
        [
            value("k", TensorProto.INT64, []),
            value("c_in", TensorProto.BOOL, []),
            value("s", TensorProto.FLOAT, ["n", 3]),
        ],
        [value("c_out", TensorProto.BOOL, []), value("s2", TensorProto.FLOAT, ["n", 3])],
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    looped = loaded(context, model(nodes, weights={"count": np.array(3)}), Softcap=softcap())
    expected = X
    for _ in range(3):
        expected = 2 * np.tanh(expected / 2)
    np.testing.assert_allclose(looped(X), expected, rtol=1e-5)
    assert pumice.validate(looped, [X], progress=None).ok


def _capped(x: Any, cap: float) -> Any:
    return cap * np.tanh(x / cap)


def test_a_model_with_kernels_is_pickled_and_cached(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(model([node("Softcap")]), tmp_path / "m.onnx")
    one = pumice.load(tmp_path / "m.onnx", context, kernels={"my.domain::Softcap": softcap(reference=_capped)})
    expected = one(X)
    again = pickle.loads(pickle.dumps(one))
    assert (again(X) == expected).all() and again.kernels["my.domain::Softcap"].reference is _capped
    other = pumice.load(tmp_path / "m.onnx", context, kernels={"my.domain::Softcap": softcap(attributes={"cap": 1.0})})
    np.testing.assert_allclose(other(X), np.tanh(X), rtol=1e-5)


@pytest.mark.parametrize("launch", [lambda x: x.shape, lambda y: y.shape, "x.shape", "y.shape"])
def test_a_launch_may_be_a_shape(context: pumice.Context, launch: Any) -> None:
    text = SOFTCAP.replace("gl_GlobalInvocationID.x", "gl_GlobalInvocationID.x * 3 + gl_GlobalInvocationID.y")
    one = loaded(context, model([node("Softcap")]), Softcap=softcap(kernel=text, threads=launch))
    np.testing.assert_allclose(one(X), 2 * np.tanh(X / 2), rtol=1e-5)


def test_numbers_may_be_those_of_numpy(context: pumice.Context) -> None:
    def value(**options: Any) -> Any:
        return loaded(context, model([node("Softcap")]), Softcap=softcap(**options))(X)

    for two in (np.float64(2), np.float32(2), np.int64(2), np.array(2.0)):
        assert (value(attributes={"cap": two}) == value()).all()
        for rule in (lambda x, two=two: two, lambda x, two=two: two * (x.shape[1] / x.shape[1])):
            assert (value(attributes={}, numbers={"cap": rule}, reference=None) == value()).all()
        assert (value(attributes={}, numbers={"cap": two}, reference=None) == value()).all()
    half = value(attributes={}, numbers={"cap": lambda x: x.shape[1] * np.sqrt(0.25)}, reference=None)
    assert (half == value(attributes={"cap": 1.5})).all()
    assert value(shape=lambda x: (x.shape[0], np.int64(3))).shape == (4, 3)
    assert value(threads=lambda x: np.int64(4) * x.shape[1]).shape == (4, 3)
    assert value(threads=lambda x: np.array([12])).shape == (4, 3)
    assert softcap(attributes={"cap": 1.0, "line": np.arange(3)}).attributes["line"] == [0, 1, 2]


def test_a_constant_is_given_once(context: pumice.Context) -> None:
    text = SOFTCAP.replace("void main", "layout(constant_id = 3) const int N = 1;\nvoid main").replace("p.cap *", "N *")
    kernel = pumice.Kernel(text, context, spec={"N": 4})
    one = loaded(context, model([node("Softcap")]), Softcap=softcap(kernel=kernel))
    np.testing.assert_allclose(one(X), 4 * np.tanh(X / 2), rtol=1e-5)
    for what, given in (("attributes", {"cap": 2.0, "N": 5}), ("numbers", {"N": "x.shape[0]"})):
        with pytest.raises(pumice.Error, match=f"{what}: 'N': expected one value of the constant; given spec="):
            softcap(kernel=kernel, **{what: given})


def test_loading_leaves_the_callers_operator_as_it_is(context: pumice.Context) -> None:
    mine = softcap()
    nodes = [node("Softcap", "x", "a"), node("Other", "a", "y")]
    one = loaded(context, model(nodes), Softcap=mine, Other=mine)
    assert [kernel.text["kernel"] for kernel in one.kernels.values()] == ["my.domain::Softcap", "my.domain::Other"]
    assert mine.text["kernel"] == "kernel"


# ---- validation


def test_validation_finds_a_wrong_kernel(context: pumice.Context) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        node("Softcap", "r", "s", "cap_it"),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    for precision in ("fp32", "fp16"):
        right = loaded(context, model(nodes), precision, Softcap=softcap())
        assert pumice.validate(right, [X], progress=None).ok
        wrong = softcap(kernel=SOFTCAP.replace("tanh(float", "sin(float"))
        found = pumice.validate(loaded(context, model(nodes), precision, Softcap=wrong), [X], progress=None)
        assert not found.ok and found.first_divergence.node == "cap_it"
        assert (
            pumice.validate(
                loaded(context, model(nodes), precision, Softcap=wrong), [X], mode="bisect"
            ).first_divergence.node
            == "cap_it"
        )


def test_validation_finds_one_wrong_element_of_many(context: pumice.Context) -> None:
    """The error is at the edge, where the last workgroup has no bounds check."""
    wrong = softcap(kernel=SOFTCAP.replace("p.cap * tanh", "(i == 1000 ? 1.01 : 1.0) * p.cap * tanh"))
    given = np.random.default_rng(2).normal(size=(500, 3)).astype("float32")
    found = pumice.validate(loaded(context, model([node("Softcap")]), Softcap=wrong), [given], progress=None)
    assert not found.ok and found.first_divergence.local.at == (333, 1)


def test_without_a_reference_nothing_is_green(context: pumice.Context) -> None:
    one = loaded(context, model([node("Softcap", name="cap_it")]), Softcap=softcap(reference=None))
    found = pumice.validate(one, [X], progress=None)
    assert not found.ok and "not checked" in str(found)
    assert all(row.verdict == "unproved" for row in found.rows)
    allowed = ["my.domain::Softcap"]
    assert not pumice.validate(one, [X], allow_unchecked=allowed, progress=None).ok  # nothing else was checked
    nodes = [node("Softcap", outputs="s", name="cap_it"), helper.make_node("Neg", ["s"], ["y"], "neg")]
    more = loaded(context, model(nodes), Softcap=softcap(reference=None))
    assert pumice.validate(more, [X], allow_unchecked=allowed, progress=None).ok


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (lambda x: x.missing, "AttributeError"),
        (lambda x: [x, x], "gives 2 outputs"),
        (lambda x: {"z": x}, "does not return 'y'"),
        (lambda x: (x, -np.ones_like(x)), "a negative bound"),
    ],
)
def test_a_reference_that_fails_proves_nothing(context: pumice.Context, reference: Any, told: str) -> None:
    one = loaded(context, model([node("Softcap")]), Softcap=softcap(reference=reference))
    found = pumice.validate(one, [X], progress=None)
    assert not found.ok and any(row.verdict == "unproved" for row in found.rows) and told in str(found)


def test_a_reference_may_give_its_bounds(context: pumice.Context) -> None:
    def exact(x: Any, cap: float) -> Any:
        made = cap * np.tanh(x / cap)
        return made, 4e-7 * np.abs(made) + 1e-12

    off = softcap(kernel=SOFTCAP.replace("p.cap * tanh", "1.00001 * p.cap * tanh"), reference=exact)
    assert not pumice.validate(loaded(context, model([node("Softcap")]), Softcap=off), [X], progress=None).ok
    off.reference = _capped
    assert pumice.validate(loaded(context, model([node("Softcap")]), Softcap=off), [X], progress=None).ok
    off.tolerance = 1e-6
    assert not pumice.validate(loaded(context, model([node("Softcap")]), Softcap=off), [X], progress=None).ok


def test_a_wrong_kernel_is_reduced_to_its_node(context: pumice.Context) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        node("Softcap", "r", "s", "cap_it"),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    wrong = softcap(kernel=SOFTCAP.replace("tanh(float", "sin(float"))
    made = pumice.reduce(loaded(context, model(nodes), Softcap=wrong), [X])
    assert [one.op_type for one in made.proto.graph.node] == ["Softcap"]


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "void main() { x }"}, "syntax error|undeclared"),
        ({"inputs": ["z"]}, "inputs: expected different names of x, y; given 'z'"),
        ({"outputs": ["x", "y"]}, "as one input or one output"),
        ({"numbers": {"wide": "1"}}, "numbers: expected constants of the kernel, cap, .*; given 'wide'"),
        ({"attributes": {"x": 1}}, "names that no array has; given 'x'"),
        ({"attributes": {"cap": object()}}, "'cap': expected a number, a list of numbers, or text"),
        (
            {"attributes": {"modes": ["a"]}},
            "attributes: 'modes': expected .* a list of numbers, or text; given \\['a'\\]",
        ),
        ({"inputs": ["y"], "outputs": ["x"]}, "inputs: expected arrays that the kernel only reads; given 'y'"),
        (
            {"inputs": [], "outputs": ["x", "y"], "shape": "4"},
            "outputs: expected arrays that the kernel writes; given 'x'",
        ),
        ({"threads": "1", "groups": "1"}, "threads or groups, given both"),
        ({"reference": 3}, "reference: expected a function, given int"),
        ({"tolerance": -1}, "tolerance: expected a non-negative number"),
    ],
)
def test_what_is_no_operator_is_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pumice.Error, match=message):
        softcap(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": "(z.shape[0],)"}, "shape: expected one of x, cap; given 'z'"),
        ({"shape": "x.shape["}, "shape: expected an expression"),
        ({"shape": "x.shape[7]"}, "'x.shape\\[7\\]': "),
        ({"shape": "open(x)"}, "expected min, max or len"),
        ({"shape": "x.__class__"}, "a tensor has shape, rank"),
        ({"shape": "(x.shape[0] / 2,)"}, "expected integers as sizes"),
        ({"shape": lambda z: z}, "expected parameters of x, cap; given 'z'"),
        ({"shape": lambda x: (x.shape[0] if x.shape[0] > 3 else 3,)}, "branches on a size"),
        ({"shape": lambda x: 1 // 0}, "it raises ZeroDivisionError"),
        ({"shape": lambda x: None}, "expected sizes, given None"),
        ({"shape": lambda x: {"z": x.shape}}, "expected one for each of y; given z"),
        ({"dtype": "float12"}, "dtype: expected a dtype or the name of an input; given 'float12'"),
        ({"threads": "()"}, "threads: expected one to three numbers"),
        ({"threads": "'wide'"}, "threads: expected sizes, given 'wide'"),
        (
            {"numbers": {"cap": "x.shape[0] / x.shape[1] > 1"}},
            "'x.shape\\[0\\] / x.shape\\[1\\] > 1': .*'x.shape\\[0\\] > ",
        ),
        (
            {"shape": "(4 if x.shape[0] > 2.5 else 3,)"},
            "shape: 'x.shape\\[0\\] > 2.5': sizes are compared as integers",
        ),
        ({"threads": "(1, 1, 1, 1)"}, "threads: expected one to three numbers"),
        ({"shape": "(x.shape[0] - 100,)"}, "the shape rule gives \\[-96\\]"),
        ({"threads": "x.shape[0] - 100"}, "the size of the launch is -96"),
        ({"numbers": {"cap": "'wide'"}}, "numbers\\['cap'\\]: expected numbers, given 'wide'"),
        ({"attributes": {}}, "argument 'cap'"),
        ({"attributes": {"cap": [1.0, 2.0]}}, "argument 'cap'"),
        ({"dtype": "int32"}, "argument 'y': expected an array of float32"),
    ],
)
def test_rules_that_do_not_fit_name_node_and_kernel(
    context: pumice.Context, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(pumice.GraphError, match=message) as raised:
        loaded(context, model([node("Softcap", name="cap_it")]), Softcap=softcap(**arguments))(X)
    assert "cap_it" in str(raised.value) and "my.domain::Softcap" in str(raised.value)


def test_models_that_do_not_fit_are_rejected(context: pumice.Context) -> None:
    def refused(given: ModelProto, message: str, **kernels: Any) -> None:
        with pytest.raises(pumice.Error, match=message):
            loaded(context, given, **(kernels or {"Softcap": softcap()}))

    refused(model([helper.make_node("Relu", ["x"], ["y"])]), "no node of 'custom' is of this operator")
    refused(model([node("Softcap", "x x", name="both")]), "'both'.*expected 1 inputs \\(x\\) and 1 outputs")
    refused(model([node("Softcap", "x", "y z")]), "given 1 and 2")
    refused(model([node("Softcap", wide=1)]), "attribute 'wide': expected attributes .*: cap")
    refused(model([node("Softcap")]), "'cap' is missing and has no default", Softcap=softcap(attributes={"cap": None}))
    refused(model([node("Softcap", cap=["a"])]), "'cap': expected a number, given ")
    by_shape = softcap(threads=lambda x: x.shape)
    refused(model([node("Softcap")], shape=None), "threads: the rule depends on the rank of 'x'", Softcap=by_shape)
    refused(
        model([node("Softcap")], shape=None),
        "depends on the rank of 'x', which is not known",
        Softcap=softcap(shape="(x.shape[0],)"),
    )
    with pytest.raises(pumice.Error, match="your own domain"):
        pumice.load(model([node("Softcap")]), context, kernels={"Softcap": softcap()})
    with pytest.raises(pumice.Error, match="operators and kernels in a dict"):
        pumice.load(model([node("Softcap")]), context, kernels=[softcap()])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a Kernel or GLSL text; given int"):
        pumice.load(model([node("Softcap")]), context, kernels={"my.domain::Softcap": 3})  # type: ignore[dict-item]


def test_no_file_brings_a_kernel_of_its_own(context: pumice.Context) -> None:
    """Otherwise a model could name files to be read."""
    made = helper.make_node("Kernel", ["x"], ["y"], domain="pumice", source=SOFTCAP, operator="a::b", kernel="k")
    with pytest.raises(pumice.UnsupportedError, match="pumice::Kernel"):
        pumice.load(model([made]), context)


def test_a_kernel_that_chooses_its_own_storage_is_rejected(context: pumice.Context) -> None:
    for options in ({"options": pumice.ShaderOptions()}, {"debug": True}):
        with pytest.raises(pumice.Error, match="without options= and debug="):
            pumice.kernel_operator(pumice.Kernel(SOFTCAP, context, **options))
