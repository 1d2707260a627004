"""Kernels from Python: push constants of every shape, calls with arrays."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pumice

SHAPES = """
layout(local_size_x = 18) in;
struct Light { vec3 colour; float power; ivec2 cell; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(push_constant) uniform parameter {
  vec3 scale;
  uint count[3];
  mat2x3 basis;
  Light lights[2];
} p;
void main() {
  uint i = gl_GlobalInvocationID.x;
  float v[] = float[](
    p.scale.x, p.scale.y, p.scale.z,
    float(p.count[0]), float(p.count[1]), float(p.count[2]),
    p.basis[0].x, p.basis[0].y, p.basis[0].z, p.basis[1].x, p.basis[1].y, p.basis[1].z,
    p.lights[0].colour.y, p.lights[0].power, float(p.lights[0].cell.y),
    p.lights[1].colour.z, p.lights[1].power, float(p.lights[1].cell.x)
  );
  y[i] = v[i];
}
"""

LIGHTS = [
    {"colour": (0.1, 0.2, 0.3), "power": 4, "cell": [5, -6]},
    {"colour": np.array([0.7, 0.8, 0.9], "float32"), "power": np.float64(10.5), "cell": (11, 12)},
]
ARGUMENTS = {"scale": (1.5, 2, np.float32(3)), "count": np.array([4, 5, 6], "uint8"), "basis": [[1, 2, 3], [4, 5, 6]]}
EXPECTED = [1.5, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 0.2, 4, -6, 0.9, 10.5, 11]


def test_vectors_arrays_matrices_and_structures_arrive(context: pumice.Context) -> None:
    y = np.zeros(18, "float32")
    pumice.Kernel(SHAPES, context)(y=y, **ARGUMENTS, lights=LIGHTS, groups=1)
    np.testing.assert_allclose(y, EXPECTED, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "rule", "text"),
    [
        ({"scale": (1, 2)}, "K5", "expected 3 numbers .float32.*given 2 numbers"),
        ({"scale": 1}, "K5", "given a number"),
        ({"count": [1, 2, -3]}, "K6", "uint32.*-3"),
        ({"count": [1, 2, "x"]}, "K5", "str"),
        ({"lights": LIGHTS[:1]}, "K3", r"lights\[1\]\.colour"),
        ({"lights": [*LIGHTS, LIGHTS[0]]}, "K4", r"lights\[2\]"),
        ({"lights": [{**LIGHTS[0], "size": 1}, LIGHTS[1]]}, "K4", r"lights\[0\]\.size"),
        ({"lights": LIGHTS[0]}, "K4", "lights.colour"),
    ],
)
def test_push_constants_of_another_shape_are_rejected(
    context: pumice.Context, change: dict[str, object], rule: str, text: str
) -> None:
    arguments = {**ARGUMENTS, "lights": LIGHTS, **change}
    with pytest.raises(pumice.BindingError, match=text) as caught:
        pumice.Kernel(SHAPES, context)(y=np.zeros(18, "float32"), groups=1, **arguments)
    assert caught.value.rule == rule


SCALE = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform parameter { float factor; } p;
void main() { uint i = gl_GlobalInvocationID.x; y[i] += x[i] * p.factor; }
"""


def test_calls_with_arrays_are_right_again_and_again(context: pumice.Context) -> None:
    """Sizes, values and contents change; nothing cached for one call may affect another."""
    kernel = pumice.Kernel(SCALE, context)
    random = np.random.default_rng(0)
    for n in [*range(1, 14), 5, 5, 7, 1000, 5]:
        x, y = random.standard_normal((2, n)).astype("float32")
        expected = y + x * np.float32(n % 3)
        kernel(x=x, y=y, factor=n % 3, threads=n)
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def test_a_strided_array_gets_its_results_and_its_gaps_are_left_alone(context: pumice.Context) -> None:
    wide = np.ones((6, 8), "float32")
    pumice.Kernel(SCALE, context)(x=np.arange(24, dtype="float32"), y=wide[:, ::2], factor=2, threads=24)
    np.testing.assert_array_equal(wide[:, ::2].ravel(), 1 + 2 * np.arange(24))
    np.testing.assert_array_equal(wide[:, 1::2], 1)


def test_a_read_only_array_that_would_be_written_is_rejected_at_every_call(context: pumice.Context) -> None:
    kernel, x, y = pumice.Kernel(SCALE, context), np.ones(4, "float32"), np.zeros(4, "float32")
    kernel(x=x, y=y, factor=1, threads=4)
    y.flags.writeable = False
    x.flags.writeable = False
    for _ in range(2):
        with pytest.raises(pumice.BindingError, match="read-only") as caught:
            kernel(x=x, y=y, factor=1, threads=4)
        assert caught.value.rule == "K9"
    kernel(x=x, y=np.zeros(4, "float32"), factor=1, threads=4)  # it can still be read


def test_threads_may_share_a_kernel(context: pumice.Context) -> None:
    kernel = pumice.Kernel(SCALE, context)

    def work(factor: int) -> bool:
        for n in (16, 32, 16):
            x, y = np.full(n, factor, "float32"), np.zeros(n, "float32")
            for _ in range(10):
                kernel(x=x, y=y, factor=factor, threads=n)
            if not np.array_equal(y, np.full(n, 10 * factor * factor)):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))


def test_what_a_kernel_keeps_for_its_calls_goes_with_it() -> None:
    with pumice.Context() as own:
        kernel = pumice.Kernel(SCALE, own)
        before = own.memory.buffers
        for n in range(1, 40):
            kernel(x=np.ones(n, "float32"), y=np.zeros(n, "float32"), factor=1, threads=n)
        assert own.memory.buffers - before <= 8 * 2 * 3  # eight cached calls of two arrays, each with a staging buffer
        del kernel
        gc.collect()
        assert own.memory.buffers == before


# ---- kernels of a body alone


def test_a_body_makes_a_kernel_that_returns_its_output(context: pumice.Context) -> None:
    kernel = pumice.Kernel.from_body(
        "y[i] = factor * x[i] + (negative ? -1.0 : float(offset));",
        inputs={"x": "float32", "factor": float, "offset": int, "negative": bool},
        outputs={"y": ("float32", (3, 5))},
        context=context,
    )
    assert "readonly buffer pm_x { float x[]; }" in kernel.source
    x = np.arange(15, dtype="float32")
    y = kernel(x=x, factor=0.5, offset=3, negative=False)
    assert isinstance(y, np.ndarray)
    np.testing.assert_array_equal(y, (0.5 * x + 3).reshape(3, 5))
    given = np.zeros(15, "float32")
    assert kernel(x=x, factor=0.5, offset=3, negative=True, y=given) is None
    np.testing.assert_array_equal(given, 0.5 * x - 1)


def test_shapes_are_constants_of_a_body_and_several_outputs_a_dict(context: pumice.Context) -> None:
    x = np.arange(12, dtype="int32").reshape(3, 4)
    kernel = pumice.Kernel.from_body(
        """
        uint row = i / x_shape[1], column = i % x_shape[1];
        t[column * x_shape[0] + row] = x[i];
        big[i] = twice(x[i]) > int(x_size) ? uint8_t(1) : uint8_t(0);
        """,
        inputs={"x": x},
        outputs={"t": ("int32", (4, 3)), "big": (bool, (3, 4))},
        header="int twice(int v) { return 2 * v; }",
        context=context,
    )
    results = kernel(x=x)
    assert isinstance(results, dict)
    np.testing.assert_array_equal(results["t"], x.T)
    np.testing.assert_array_equal(results["big"], 2 * x > 12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_body_of_the_storage_type_takes_the_dtype_of_its_arrays(context: pumice.Context, dtype: str) -> None:
    element = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    kernel = pumice.Kernel.from_body(
        "buffer_st1(y, i, buffer_ld1(x, i) * afp(2));", {"x": "sfp"}, {"y": "sfp"}, context
    )
    x, y = np.arange(-9, 10).astype(element), np.zeros(19, element)
    kernel(x=x, y=y)
    np.testing.assert_array_equal(y.astype("float32"), 2 * x.astype("float32"))


def test_an_error_in_a_body_has_the_bodys_line(context: pumice.Context) -> None:
    with pytest.raises(pumice.ShaderCompileError, match=r"kernel:3") as caught:
        pumice.Kernel.from_body("uint k = i;\nk += 1u;\ny[i] = nothing[k];", {}, {"y": "float32"}, context)
    assert "y[i] = nothing[k];" in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ({"gl_x": "float32"}, {"y": "float32"}, "'gl_x': names that start with gl_"),
        ({"pm_x": "float32"}, {"y": "float32"}, "'pm_x'"),
        ({"a__b": "float32"}, {"y": "float32"}, "'a__b': names with two underscores"),
        ({"_x": "float32"}, {"y": "float32"}, "starts with a letter"),
        ({"i": "float32"}, {"y": "float32"}, "'i' is taken: it is the invocation's number"),
        ({"p": "float32"}, {"y": "float32"}, "'p' is taken"),
        ({"threads": int}, {"y": "float32"}, "'threads' is taken"),
        ({"groups": "float32"}, {"y": "float32"}, "'groups' is taken"),
        ({"self": "float32"}, {"y": "float32"}, "'self' is taken"),
        ({"x": "float32"}, {"buffer": "float32"}, "'buffer' is a reserved word"),
        ({"vec3": "float32"}, {"y": "float32"}, "'vec3' is a reserved word"),
        ({"sfp": "float32"}, {"y": "float32"}, "'sfp' is a reserved word"),
        ({"lambda": "float32"}, {"y": "float32"}, "'lambda' is a keyword of Python"),
        ({"y_size": "float32"}, {"y": ("float32", (3,))}, "'y_size' is taken: the shape of 'y'"),
        ({"x": ("float32", 3)}, {"x_shape": "float32"}, "'x_shape' is taken"),
        ({"x": "complex64"}, {"y": "float32"}, "'x': expected one of float32.*given complex64"),
        ({"x": None}, {"y": "float32"}, "'x': expected a dtype; given None"),
        ({"x": "foo"}, {"y": "float32"}, "given 'foo'"),
        ({"x": 3}, {"y": "float32"}, "given 3"),
        ({"x": ("float32", (2, -1))}, {"y": "float32"}, "non-negative sizes"),
        ({"x": ("float32", (2, 1.5))}, {"y": "float32"}, "shape of integers"),
        ({"x": ("float32", "ab")}, {"y": "float32"}, "shape of integers; given 'ab'"),
        ({"x": ("float32", (1 << 20, 1 << 20))}, {"y": "float32"}, "at most 4294967295 elements"),
        ({"x": "float32"}, {"x": "float32"}, "no input has"),
        ({"x": "float32"}, {"y": float}, "expected an array"),
    ],
)
def test_names_and_dtypes_that_glsl_has_not_are_rejected(
    context: pumice.Context, inputs: dict[str, object], outputs: dict[str, object], text: str
) -> None:
    with pytest.raises(pumice.GraphError, match=text) as caught:
        pumice.Kernel.from_body("", inputs, outputs, context)
    assert caught.value.node in {*inputs, *outputs}


def test_arrays_have_the_declared_shapes(context: pumice.Context) -> None:
    kernel = pumice.Kernel.from_body(
        "y[i] = x[i];", {"x": ("float32", (3, 5))}, {"y": ("float32", (3, 5)), "z": ("int32", 2)}, context
    )
    x = np.arange(15, dtype="float32")
    for good in (x, x.reshape(3, 5), pumice.tensor(x.reshape(3, 5), context)):
        results = kernel(x=good)
        assert isinstance(results, dict)
        np.testing.assert_array_equal(results["y"], x.reshape(3, 5))
        assert results["z"].shape == (2,)
    tensors = {name: pumice.empty(n, d, context) for name, n, d in (("y", 15, "float32"), ("z", 2, "int32"))}
    for wrong in (x.reshape(5, 3), x[:14], np.zeros((3, 5, 2), "float32"), x[:1]):
        for use in (kernel, lambda **given: kernel.bind(**given, **tensors, threads=15)):
            with pytest.raises(
                pumice.BindingError, match=r"argument 'x': expected an array of shape \(3, 5\); given"
            ) as caught:
                use(x=wrong)
            assert caught.value.rule == "K5"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"source": b"void main() {}"}, "source: expected the source of a shader.*given bytes"),
        ({"context": "llvmpipe"}, "context: expected a Context; given str"),
        ({"name": 3}, "name: expected text; given int"),
        ({"macros": "N=1"}, "macros: expected a mapping of names to text or numbers; given str"),
        ({"macros": {"N": None}}, r"macros\['N'\]: expected .*given NoneType"),
        ({"macros": {1: "N"}}, "macros: 1: expected a name; given int"),
        ({"spec": [("N", 1)]}, "spec: expected a mapping of names to numbers; given list"),
        ({"includes": {"a": 1}}, r"includes\['a'\]: expected a mapping of names to text; given int"),
        ({"options": "fp16"}, "options: expected ShaderOptions or a mapping .*; given str"),
        ({"include_dirs": "/folder"}, "include_dirs: expected a sequence of paths; given one path, '/folder'"),
        ({"include_dirs": [1]}, "include_dirs: expected a sequence of paths; given int"),
        ({"message_bytes": "1"}, "message_bytes: expected a number of bytes; given str"),
    ],
)
def test_a_wrong_argument_of_a_kernel_is_named(context: pumice.Context, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=f"Kernel: {said}"):
        pumice.Kernel(**{"source": SCALE, "context": context, **arguments})


def test_a_number_of_bytes_below_zero_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match="message_bytes"):
        pumice.Kernel(SCALE, context, message_bytes=-1)


def test_macros_may_be_numbers(context: pumice.Context) -> None:
    source = "layout(binding = 0) buffer Y { float y[]; };\nvoid main() { y[0] = float(N) + F; y[1] = float(ON); }"
    y = np.zeros(2, "float32")
    pumice.Kernel(source, context, macros={"N": np.int64(4), "F": 0.5, "ON": True})(y=y, threads=1)
    assert y.tolist() == [4.5, 1]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_array_holds_at_least_what_its_block_declares(context: pumice.Context, dtype: str) -> None:
    """Six elements of type `sfp`, whatever the storage."""
    kernel = pumice.Kernel(
        "layout(local_size_x = 6) in;\nlayout(binding = 0) buffer X { sfp x[6]; };\n"
        "void main() { buffer_st1(x, gl_LocalInvocationIndex, buffer_ld1(x, gl_LocalInvocationIndex) + afp(1)); }",
        context,
    )
    element = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    size = np.dtype(element).itemsize
    x = np.zeros(6, element)
    kernel(x=x, groups=1)
    assert (x == 1).all()
    with pytest.raises(pumice.BindingError, match=rf"at least the {6 * size} bytes .*given {5 * size} bytes") as caught:
        kernel(x=np.zeros(5, element), groups=1)
    assert caught.value.rule == "K5"
