"""Kernels from Python: push constants of every shape, calls with arrays."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

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
def test_push_constants_of_another_shape_are_refused(
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
    """Sizes, numbers and contents change; what was kept for one call must not show in another."""
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


def test_a_read_only_array_that_would_be_written_is_refused_at_every_call(context: pumice.Context) -> None:
    kernel, x, y = pumice.Kernel(SCALE, context), np.ones(4, "float32"), np.zeros(4, "float32")
    kernel(x=x, y=y, factor=1, threads=4)
    y.flags.writeable = False
    x.flags.writeable = False
    for _ in range(2):
        with pytest.raises(pumice.BindingError, match="read-only") as caught:
            kernel(x=x, y=y, factor=1, threads=4)
        assert caught.value.rule == "K9"
    kernel(x=x, y=np.zeros(4, "float32"), factor=1, threads=4)  # reading it is fine


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
        assert own.memory.buffers - before <= 8 * 2 * 3  # eight calls of two arrays, each with its host's part
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
        ({"gl_x": "float32"}, {"y": "float32"}, "gl_x"),
        ({"i": "float32"}, {"y": "float32"}, "'i'"),
        ({"x": "complex64"}, {"y": "float32"}, "complex64"),
        ({"x": "float32"}, {"x": "float32"}, "no input has"),
        ({"x": "float32"}, {"y": float}, "expected an array"),
    ],
)
def test_names_and_dtypes_that_glsl_has_not_are_refused(
    context: pumice.Context, inputs: dict[str, object], outputs: dict[str, object], text: str
) -> None:
    with pytest.raises(pumice.GraphError, match=text):
        pumice.Kernel.from_body("", inputs, outputs, context)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_array_holds_at_least_what_its_block_declares(context: pumice.Context, dtype: str) -> None:
    """Whatever the storage: six elements, one `sfp` each."""
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
