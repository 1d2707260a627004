"""Sources as written by other projects: versions, sets, implicit conversions, block arrays, sizes from constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from features import need_features

Y = "layout(binding = 0) buffer Y { float y[]; };\n"


def run(context: pumice.Context, text: str, n: int = 4, **arguments: Any) -> list[float]:
    y = np.zeros(n, "float32")
    pumice.Kernel(text, context)(y=y, threads=n, **arguments)
    return [float(one) for one in y]


CONVERSIONS = {
    "sqrt(n)": 3.0,
    "pow(n, 2)": 81.0,
    "max(n, 2.5)": 9.0,
    "mix(0, n, 0.5)": 4.5,
    "clamp(n, 0, 1.5)": 1.5,
    "sin(u - 9u)": 0.0,
    "length(ivec2(3, 4))": 5.0,
    "dot(vec2(n, 1), ivec2(1, 2))": 11.0,
    "mod(n, 4)": 1.0,
    "n / 2.0": 4.5,
    "max(abs(-n), u)": 9.0,
    "float(min(n, 4))": 4.0,
}


@pytest.mark.parametrize("expression", CONVERSIONS)
def test_integers_become_floats_where_glsl_says_so(context: pumice.Context, expression: str) -> None:
    text = f"{Y}void main() {{ int n = 9; uint u = 9u; y[gl_GlobalInvocationID.x] = {expression}; }}"
    np.testing.assert_allclose(run(context, text), [CONVERSIONS[expression]] * 4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "value", "feature"),
    [
        ("int64_t", "int64_t(1l << 40) >> 38", "shaderInt64"),
        ("uint64_t", "(1ul << 40) >> 38", "shaderInt64"),
        ("int16_t", "int16_t(4s)", "shaderInt16"),
        ("int8_t", "int8_t(4)", "shaderInt8"),
        ("u8vec4", "unpack8(0x04040404u)", "shaderInt8"),
    ],
)
def test_small_and_long_integers_need_no_extension_line(
    context: pumice.Context, kind: str, value: str, feature: str
) -> None:
    need_features(context, feature)
    part = ".x" if kind == "u8vec4" else ""
    text = f"{Y}void main() {{ {kind} v = {value}; y[gl_GlobalInvocationID.x] = float(v{part}); }}"
    assert run(context, text) == [4.0] * 4
    pasted = f"{Y}#define NAME(a) a ## _t\nvoid main() {{ NAME(int16) v = NAME(int16)(4); y[0] = float(v); }}"
    if context.feature("shaderInt16"):
        assert run(context, pasted)[0] == 4.0


@pytest.mark.parametrize("line", ["430", "440 core", "450", "460", "310 es", "320 es", "430 core"])
def test_versions_with_compute_shaders(context: pumice.Context, line: str) -> None:
    es = "precision highp float;\nprecision mediump int;\n" if "es" in line else ""
    text = f"#version {line}\n{es}{Y}void main() {{ highp float v = 2.5; y[gl_GlobalInvocationID.x] = v; }}"
    assert run(context, text) == [2.5] * 4


@pytest.mark.parametrize("line", ["420", "300 es", "450 compatibility", "470", "310"])
def test_other_versions_are_rejected(context: pumice.Context, line: str) -> None:
    with pytest.raises(pumice.ShaderCompileError, match=r"expected #version 430 to 460, 310 es, 320 es"):
        pumice.Kernel(f"#version {line}\n{Y}void main() {{ y[0] = 1.0; }}", context)


@pytest.mark.parametrize("debug", [False, True])
def test_descriptor_sets_are_one(context: pumice.Context, debug: bool) -> None:
    text = """
layout(set = 1, binding = 0) readonly buffer A { float a[]; };
layout(set = 0, binding = 3) readonly buffer B { float b[]; };
layout(set = 2, binding = 0) uniform sampler2D image;
layout(set = 1, binding = 1) buffer Y { float y[]; };
layout(set = 1, binding = 0) readonly buffer A4 { vec4 a4[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  y[i] = a[i] + 10.0 * b[i] + 100.0 * a4[0][i] + 1000.0 * texelFetch(image, ivec2(0), 0).x;
}
"""
    kernel = pumice.Kernel(text, context, debug=debug)
    image = pumice.image(np.full((1, 1), 3, "float32"), "r32f", context)
    a, b, y = np.arange(4, dtype="float32"), np.full(4, 2, "float32"), np.zeros(4, "float32")
    kernel(a=a, b=b, image=image, y=y, threads=4)
    np.testing.assert_array_equal(y, a + 20 + 100 * a + 3000)


ARRAYS = """
layout(binding = 1) readonly buffer A { float a[]; } src[3];
layout(binding = 0) buffer Y { float y[]; };
layout(binding = 2) uniform U { float k; } scale[2];
layout(push_constant) uniform P { int which; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  y[i] = src[which].a[i] * scale[1].k + scale[0].k + src[0].a.length();
}
"""


def test_arrays_of_blocks_take_lists(context: pumice.Context) -> None:
    need_features(context, "shaderStorageBufferArrayDynamicIndexing")
    kernel = pumice.Kernel(ARRAYS, context)
    a = [np.full(4, i + 1, "float32") for i in range(3)]
    k = [np.full(1, value, "float32") for value in (0.5, 2.0)]
    for which in range(3):
        y = np.zeros(4, "float32")
        kernel(src=a, scale=k, y=y, which=which, threads=4)
        assert y.tolist() == [(which + 1) * 2 + 0.5 + 4] * 4
    given = {f"src[{i}]": a[i] for i in range(3)} | {"scale[0]": k[0], "scale[1]": k[1]}
    kernel({**given, "y": y, "which": 1}, threads=4)
    assert y.tolist() == [8.5] * 4
    with pytest.raises(pumice.BindingError, match=r"3 arrays, one for each block"):
        kernel(src=a[:2], scale=k, y=y, which=0, threads=4)
    with pytest.raises(pumice.BindingError, match=r"src\[1\]"):
        kernel({"src[0]": a[0], "src[2]": a[2], "scale": k, "y": y, "which": 1}, threads=4)


@pytest.mark.parametrize(
    ("declaration", "match"),
    [
        ("readonly buffer A { float a[]; } src[2][2]", r"array of arrays of blocks"),
        ("readonly buffer A { float a[]; } src[N]", r"a length that is a constant number"),
    ],
)
def test_other_arrays_of_blocks_are_rejected(context: pumice.Context, declaration: str, match: str) -> None:
    text = f"layout(constant_id = 0) const int N = 2;\nlayout(binding = 1) {declaration};\n{Y}void main() {{ y[0] = 1.0; }}"
    with pytest.raises((pumice.UnsupportedError, pumice.ShaderCompileError), match=match):
        pumice.Kernel(text, context)


def test_debug_rejects_arrays_of_blocks(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match=r"debug=True.*array of blocks"):
        pumice.Kernel(ARRAYS, context, debug=True)


@pytest.mark.parametrize("where", ["shared", "local", "global", "block", "push"])
@pytest.mark.parametrize("debug", [False, True])
def test_arrays_sized_by_expressions_of_specialization_constants(
    context: pumice.Context, where: str, debug: bool
) -> None:
    head = "layout(constant_id = 3) const uint N = 2;\nconst uint M = 2u * N + 1u;\n"
    fill = "for (uint i = 0u; i < M; ++i) s[i] = float(i); y[0] = s[M - 1u]; y[1] = float(M);"
    size = "layout(local_size_x = 1) in;\n"
    text = {
        "shared": f"{size}{head}shared float s[M];\n{Y}void main() {{ {fill} }}",
        "local": f"{size}{head}{Y}void main() {{ float s[M]; {fill} }}",
        "global": f"{size}{head}float s[M];\n{Y}void main() {{ {fill} }}",
        "block": f"{size}{head}layout(binding = 1) buffer S {{ float s[M]; }};\n{Y}void main() {{ {fill} }}",
        "push": f"{size}{head}layout(push_constant) uniform P {{ float p[M]; }};\n{Y}"
        "void main() { y[0] = p[M - 1u]; y[1] = float(M); }",
    }[where]
    for spec, m in (({}, 5), ({"N": 4}, 9), ({"N": 1}, 3)):
        given: dict[str, Any] = {"block": {"s": np.zeros(m, "float32")}, "push": {"p": [float(i) for i in range(m)]}}
        y = np.zeros(2, "float32")
        if where == "push":
            with pytest.raises(pumice.UnsupportedError, match=r"push constant 'p'.*specialization constant"):
                pumice.Kernel(text, context, spec=spec, debug=debug)
            continue
        pumice.Kernel(text, context, spec=spec, debug=debug)(y=y, groups=1, **given.get(where, {}))
        assert y.tolist() == [m - 1, m]


def test_a_broadcast_from_a_computed_invocation(context: pumice.Context) -> None:
    need_features(context, "subgroupBroadcastDynamicId", "subgroupBallot")
    text = """
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x = 64) in;
layout(binding = 0) buffer Y { float y[]; };
layout(push_constant) uniform P { uint lane; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  y[i] = subgroupBroadcast(float(gl_SubgroupInvocationID) + 1.0, lane);
}
"""
    y = np.zeros(64, "float32")
    pumice.Kernel(text, context)(y=y, lane=2, threads=64)
    assert y.tolist() == [3.0] * 64
