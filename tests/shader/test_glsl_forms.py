"""Shader forms that the GLSL extension must accept: user-defined vec8 structures, vendor matrix types, unterminated sources."""

from __future__ import annotations

from pathlib import Path

import pytest

import pumice
from glsl_modes import GENERATIONS, MODES, validate

OWN_STRUCTURE = """
#version 450
#if NCNN_fp16_storage
#extension GL_EXT_shader_16bit_storage: require
#endif
#if NCNN_fp16_storage && !NCNN_fp16_arithmetic
struct sfpvec8 { f16vec4 abcd; f16vec4 efgh; };
#endif
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer X { sfpvec8 x[]; };
layout(binding = 1) writeonly buffer Y { sfpvec8 y[]; };
void main() {
  afpvec8 v = buffer_ld8(x, gl_GlobalInvocationID.x);
  v[0] = max(v[0], afp(0.0));
  v[1] = max(v[1], afp(0.0));
  buffer_st8(y, gl_GlobalInvocationID.x, v);
}"""


@pytest.mark.parametrize("mode", MODES)
def test_shaders_of_2024_may_declare_their_own_vec8_structure(mode: str, tmp_path: Path) -> None:
    validate(pumice.compile(OWN_STRUCTURE, pumice.ShaderOptions(generation="2024", **MODES[mode])), tmp_path)


# Shaders of 2024 also declare the structure with fp16 arithmetic, and do not use it then.
OWN_STRUCTURE_ALWAYS = OWN_STRUCTURE.replace(
    "#if NCNN_fp16_storage && !NCNN_fp16_arithmetic\n", "#if NCNN_fp16_storage\n"
).replace(
    "layout(local_size_x = 1) in;",
    "#if NCNN_fp16_arithmetic\n#extension GL_EXT_shader_explicit_arithmetic_types_float16: require\n#endif\n"
    "layout(local_size_x = 1) in;",
)


@pytest.mark.parametrize("local_size", ["layout(local_size_x = 1) in;", ""])
@pytest.mark.parametrize("mode", MODES)
def test_the_vec8_structure_may_be_declared_with_fp16_arithmetic(mode: str, local_size: str, tmp_path: Path) -> None:
    for text in (
        OWN_STRUCTURE_ALWAYS,
        OWN_STRUCTURE_ALWAYS.replace("sfpvec8", "sfpvec8 ").replace("struct", "struct\n"),
    ):
        source = text.replace("layout(local_size_x = 1) in;", local_size)
        shader = pumice.compile(source, pumice.ShaderOptions(generation="2024", **MODES[mode]))
        validate(shader, tmp_path)
        assert shader.interface["guarded"] == (not local_size)


@pytest.mark.parametrize("debug", [False, True])
def test_arrays_of_vendor_matrices_are_read(debug: bool) -> None:
    if not pumice._pumice.glslang_accepts("GL_NV_cooperative_matrix"):
        pytest.skip("this glslang lacks GL_NV_cooperative_matrix")
    source = """
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(binding = 0) readonly buffer X { float16_t x[]; };
layout(binding = 1) writeonly buffer Y { float16_t y[]; };
void main() {
  fcoopmatNV<16, gl_ScopeSubgroup, 16, 8> sums[2][4];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) coopMatLoadNV(sums[i][j], x, 128 * (4 * i + j), 8, false);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) coopMatStoreNV(sums[i][j] * float16_t(2), y, 128 * (4 * i + j), 8, false);
}"""
    options = pumice.ShaderOptions(storage="fp16", vulkan_minor=2, debug=debug)
    for text, local_size in (("layout(local_size_x = 32) in;" + source, None), (source, 32), (source, None)):
        interface = pumice.compile(text, options, local_size=local_size).interface
        assert [binding["name"] for binding in interface["bindings"] if binding["name"] in "xy"] == ["x", "y"]
        assert "CooperativeMatrixNV" in interface["capabilities"] and not interface["guarded"]


@pytest.mark.parametrize(
    "text", ["void main() {}", "layout(local_size_x = 1) in; void main() {}", "#version 450\nvoid main() {} // end"]
)
def test_the_last_line_needs_no_end(text: str) -> None:
    assert pumice.compile(text).spirv


def test_a_packed_scalar_has_the_size_of_its_generation() -> None:
    source = "layout(binding = 0) buffer X { sfp x[]; };\nvoid main() { buffer_st1(x, 0, afp(1)); }\n"
    kinds = {}
    for generation in GENERATIONS:
        options = pumice.ShaderOptions(storage="fp16_packed", generation=generation)
        kinds[generation] = pumice.compile(source, options).interface["bindings"][0]["type"]
    assert kinds == {"current": "uint32", "2024": "float32"}
