"""Every name of the GLSL extension compiles in every mode and with any options; its macros describe the device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from glsl_kernel_sources import INTEGERS, LOADS, STORES, VEC8
from glsl_modes import (
    BF16,
    GENERATIONS,
    INTEGER_MODES,
    MODES,
    validate,
)

IMAGES = """
layout(local_size_x = 8) in;
layout(binding = 0) uniform unfp sampler$d t1;
layout(binding = 1) uniform unfp sampler$d t4;
layout(binding = 2, imfmtc1) writeonly uniform unfp image$d i1;
layout(binding = 3, imfmtc4) writeonly uniform unfp image$d i4;
#if !NCNN_image_shader
#error
#endif
void main() {
  const $p at = $p(gl_GlobalInvocationID);
  const afp a = image$l_ld1(t1, at);
  image$l_st1(i1, at + 1, a * afp(2));
  const afpvec4 b = image$l_ld4(t4, at);
  image$l_st4(i4, at + 1, b + afp(1));
  const afpvec8 c = image$l_ld8(t4, at);
  if (gl_GlobalInvocationID.x > 3u) image$l_st8(i4, at + 2, c); else image$l_cp8(i4, at, t4, at + 1);
  if (gl_GlobalInvocationID.x > 3u) image$l_cp1(i1, at, t1, at + 1); else image$l_cp4(i4, at, t4, at + 1);
}
"""


@pytest.mark.parametrize("path", pumice._pumice.embedded_shaders())
def test_no_source_of_the_engine_pastes_names(path: str) -> None:
    """A source with token pasting gets all device macros, which requires the device profile and slows compilation."""
    assert "##" not in pumice._pumice.embedded_shader(path)


@pytest.mark.parametrize("mode", MODES)
def test_images_compile(mode: str, tmp_path: Path) -> None:
    options = pumice.ShaderOptions(generation="2024", image_storage=True, **MODES[mode])
    for dimensions, position in (("1D", "int"), ("2D", "ivec2"), ("3D", "ivec3")):
        source = IMAGES.replace("$d", dimensions).replace("$p", position).replace("$l", dimensions.lower())
        source = source.replace("$p(gl_GlobalInvocationID)", "int(gl_GlobalInvocationID.x)")
        if dimensions == "1D":
            source = source.replace("int(gl_GlobalInvocationID)", "int(gl_GlobalInvocationID.x)")
        elif dimensions == "2D":
            source = source.replace("ivec2(gl_GlobalInvocationID)", "ivec2(gl_GlobalInvocationID.xy)")
        shader = pumice.compile(source, options)
        validate(shader, tmp_path)
        images = shader.interface["images"]
        assert [(image["name"], image["sampled"], image["dimensions"]) for image in images] == [
            (name, name.startswith("t"), int(dimensions[0])) for name in ("t1", "t4", "i1", "i4")
        ]


# --- Names


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_every_name_compiles_to_valid_spirv(mode: str, generation: str, tmp_path: Path) -> None:
    sources = [STORES, LOADS, VEC8] if generation == "2024" else [STORES, LOADS]
    for source in sources:
        shader = pumice.compile(source, pumice.ShaderOptions(generation=generation, **MODES[mode]))
        validate(shader, tmp_path)
        assert not shader.warnings


@pytest.mark.parametrize("mode", INTEGER_MODES)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_integer_name_compiles_to_valid_spirv(mode: str, generation: str, tmp_path: Path) -> None:
    shader = pumice.compile(INTEGERS, pumice.ShaderOptions(generation=generation, **INTEGER_MODES[mode]))
    validate(shader, tmp_path)
    needs_int16 = "Int16" in shader.interface["capabilities"]
    assert needs_int16 == (mode in ("storage", "packed"))


@pytest.mark.parametrize("mode", sorted({*MODES, "bf16"}))
def test_the_whole_preamble_compiles_where_names_are_pasted(mode: str) -> None:
    source = (
        "#define LOAD(n) buffer_ld ## n\nlayout(binding = 0) buffer X { sfp x[]; };\nvoid main() { LOAD(1)(x, 0); }"
    )
    for generation in GENERATIONS:
        options = {"storage": "bf16"} if mode == "bf16" else MODES[mode]
        chosen = pumice.ShaderOptions(generation=generation, image_storage=generation == "2024", **options)
        if mode == "bf16" and not BF16:
            with pytest.raises(pumice.UnsupportedError, match="storage bf16 needs the GLSL extension GL_EXT_bfloat16"):
                pumice.compile(source, chosen)
            assert "bfloat16_t" in chosen.preamble
        else:
            shader = pumice.compile(source, chosen)
            assert shader.preamble.count("\n") > 150


FLAGS = [
    "fp16_arithmetic", "fp16_uniform", "int8_storage", "int8_packed", "int8_arithmetic", "int8_uniform", "int16_storage",
    "int16_packed", "shader_local_memory", "int64", "int16", "int8", "storage_16bit", "fp16_rounds_to_even",
]  # fmt: skip
PROFILES = st.dictionaries(
    st.from_regex(r"ncnn_[a-zA-Z][a-zA-Z0-9_]{0,20}", fullmatch=True),
    st.one_of(st.integers(0, 2**32 - 1).map(str), st.integers(0, 2**64 - 1).map("{}ull".format), st.just("1.5e+00")),
    max_size=5,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    storage=st.sampled_from(["fp32", "fp16", "fp16_packed", "bf16_packed"]),
    flags=st.sets(st.sampled_from(FLAGS)),
    old=st.booleans(),
    profile=PROFILES,
)
def test_any_options_make_a_preamble_that_compiles(
    storage: str, flags: set[str], old: bool, profile: dict[str, str]
) -> None:
    chosen: dict[str, Any] = {flag: flag in flags for flag in FLAGS} | {"storage": storage, "profile": profile}
    if old:
        chosen |= {"generation": "2024", "image_storage": True, "subgroup": {"vote"}}
    options = pumice.ShaderOptions(**chosen)
    assert options == pumice.ShaderOptions(**chosen)
    assert options.preamble == pumice.ShaderOptions(**chosen).preamble
    pasted = (
        "#define LOAD(n) buffer_ld ## n\nlayout(binding = 0) buffer X { sfp x[]; };\nvoid main() { LOAD(1)(x, 0); }"
    )
    assert pumice.compile(pasted, options).spirv


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    storage=st.sampled_from(["fp32", "fp16", "fp16_packed", "bf16_packed"]),
    flags=st.sets(st.sampled_from(FLAGS)),
    generation=st.sampled_from(GENERATIONS),
    profile=PROFILES,
)
def test_every_name_compiles_to_valid_spirv_for_any_options(
    storage: str, flags: set[str], generation: str, profile: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every float and integer function, for devices that support everything except what the flags exclude."""
    chosen: dict[str, Any] = {flag: flag in flags for flag in FLAGS} | {"storage": storage, "profile": profile}
    options = pumice.ShaderOptions(generation=generation, **chosen)
    for source in [STORES, LOADS, INTEGERS, *([VEC8] if generation == "2024" else [])]:
        validate(pumice.compile(source, options), tmp_path_factory.mktemp("shader"))


def test_a_shader_gets_only_what_it_names() -> None:
    source = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1.0; }"
    shader = pumice.compile(source, pumice.ShaderOptions(storage="fp16_packed", profile={"ncnn_vendorID": "4318"}))
    assert {line.split()[0] for line in shader.preamble.splitlines()} == {"#version", "#extension"}
    shader = pumice.compile("// ncnn_vendorID\n" + source, pumice.ShaderOptions(profile={"ncnn_vendorID": "4318"}))
    assert "#define ncnn_vendorID 4318\n" in shader.preamble


# --- Macros

FEATURE_MACROS = {
    "fp16_storage": {"storage": "fp16"},
    "fp16_packed": {"storage": "fp16_packed"},
    "bf16_packed": {"storage": "bf16_packed"},
    "fp16_arithmetic": {"fp16_arithmetic": True},
    "fp16_uniform": {"fp16_uniform": True},
    "int8_storage": {"int8_storage": True, "int8_packed": True},
    "int8_packed": {"int8_packed": True},
    "int8_arithmetic": {"int8_arithmetic": True},
    "int8_uniform": {"int8_uniform": True},
    "int16_storage": {"int16_storage": True, "int16_packed": True},
    "int16_packed": {"int16_packed": True},
    "shader_local_memory": {"shader_local_memory": True},
    "image_shader": {"generation": "2024", "image_storage": True},
    "subgroup_basic": {"generation": "2024", "subgroup": {"basic"}},
    "subgroup_vote": {"generation": "2024", "subgroup": {"vote"}},
    "subgroup_ballot": {"generation": "2024", "subgroup": {"ballot"}},
    "subgroup_shuffle": {"generation": "2024", "subgroup": {"shuffle"}},
}


@pytest.mark.parametrize("name", FEATURE_MACROS)
def test_a_feature_macro_is_one_or_undefined(name: str) -> None:
    lines = [
        f"#if {'!' if other != name else ''}defined(NCNN_{other})\n#else\n#error {other}\n#endif"
        for other in FEATURE_MACROS
    ]
    lines.append(f"#if NCNN_{name} != 1 || ncnn_glsl_version != 1\n#error value\n#endif\nvoid main() {{}}\n")
    pumice.compile("\n".join(lines), pumice.ShaderOptions(**FEATURE_MACROS[name]))


def test_options_that_contradict_the_generation_are_rejected() -> None:
    for wrong in ({"image_storage": True}, {"subgroup": {"vote"}}, {"generation": "2023"}):
        with pytest.raises(pumice.UnsupportedError, match="expected"):
            pumice.ShaderOptions(**wrong)
    with pytest.raises(pumice.UnsupportedError, match="unknown subgroup operation 'jump'"):
        pumice.ShaderOptions(generation="2024", subgroup={"jump"})


def test_device_macros_describe_the_device(context: pumice.Context) -> None:
    macros = pumice.device_macros(context)
    info = context.info
    assert macros["ncnn_vendorID"] == str(info.vendor_id)
    assert macros["ncnn_subgroupSize"] == str(info.limits["subgroupSize"])
    assert macros["ncnn_maxComputeWorkGroupSize_0"] == str(info.limits["maxComputeWorkGroupSize_0"])
    assert macros["ncnn_shaderInt64"] == str(int(info.features["shaderInt64"]))
    assert float(macros["ncnn_timestampPeriod"]) > 0 and "e" in macros["ncnn_timestampPeriod"]
    assert macros["ncnn_bufferImageGranularity"].endswith("ull") == info.features["shaderInt64"]
    assert {f"ncnn_{name}" for name in info.extensions} <= macros.keys()
    assert all(macros[f"ncnn_subgroup_{name}"] in "01" for name in ("basic", "vote", "rotate", "partitioned"))
    assert ("ncnn_nullDescriptor" in macros) == ("VK_EXT_robustness2" in info.extensions)
    withheld = pumice.compile("void main() {}", profile=macros).report
    uses = "\n".join(f"x[0] += float({n});" for n in macros if n not in withheld)
    declared = "#if ncnn_bufferImageGranularity < 1\n#error\n#endif\nlayout(binding = 0) buffer X { float x[]; };\n"
    shader = pumice.compile(declared + "void main() {\n" + uses + "\n}\n", profile=macros)
    assert shader.options.profile == macros
    narrow = pumice.compile(
        "\n".join(macros).join(("/*", "*/ void main() {}\n")), pumice.ShaderOptions(int64=False, profile=macros)
    )
    assert not re.search(r"[0-9]ul", narrow.preamble) and "#define ncnn_vendorID" in narrow.preamble


def test_masked_features_and_extensions_read_as_absent() -> None:
    with pumice.Context(without=["shaderInt64", "VK_KHR_8bit_storage"]) as context:
        macros = pumice.device_macros(context)
    assert macros["ncnn_shaderInt64"] == "0"
    assert not any(value.endswith("ull") for value in macros.values())
    assert "ncnn_VK_KHR_8bit_storage" not in macros and "ncnn_storagePushConstant8" not in macros


def test_kernels_see_the_macros_of_their_device(context: pumice.Context) -> None:
    source = """
    layout(binding = 0) writeonly buffer Y { uint y[]; };
    void main() { y[0] = uint(ncnn_vendorID); y[1] = uint(ncnn_subgroupSize); }
    """
    y = np.zeros(2, np.uint32)
    pumice.Kernel(source, context=context)(y=y, threads=1)
    assert y.tolist() == [context.info.vendor_id, context.info.limits["subgroupSize"]]


def test_macros_that_this_glslang_cannot_keep_are_withheld_and_reported() -> None:
    profile = {
        "ncnn_VK_KHR_shader_bfloat16": "1",
        "ncnn_shaderBFloat16Type": "1",
        "ncnn_subgroup_rotate": "1",
        "ncnn_integerDotProduct16BitSignedAccelerated": "1",
        "ncnn_VK_KHR_cooperative_matrix": "2",
        "ncnn_driverID": "13",
    }
    source = """
    #if defined(ncnn_VK_KHR_shader_bfloat16) || ncnn_shaderBFloat16Type
    #error bfloat16
    #endif
    #if ncnn_VK_KHR_cooperative_matrix != 2 || ncnn_driverID != 13
    #error kept
    #endif
    #if !defined(ncnn_subgroup_rotate) || ncnn_subgroup_rotate
    #error always there
    #endif
    void main() {}
    """
    accepts = pumice._pumice.glslang_accepts
    if accepts("GL_EXT_bfloat16") or accepts("GL_KHR_shader_subgroup_rotate"):
        pytest.skip("a newer glslang")
    shader = pumice.compile(source, profile=profile)
    assert "GL_EXT_bfloat16" in shader.report["ncnn_VK_KHR_shader_bfloat16"]
    assert shader.report.keys() == profile.keys() - {"ncnn_VK_KHR_cooperative_matrix", "ncnn_driverID"}
    assert pumice.compile(
        source, profile={"ncnn_VK_KHR_cooperative_matrix": "2", "ncnn_driverID": "13", "ncnn_subgroup_rotate": "0"}
    )
    plain = pumice.compile("void main() {}", profile={})
    assert plain.report == {} and plain.options.profile == {}
    other = pumice.compile("void main() {}", profile=profile)  # the same source with another profile
    assert other.report.keys() == shader.report.keys()


@pytest.mark.parametrize("name, text", [("a b", "1"), ("", "1"), ("f(x)", "x"), ("x", "1\n#error")])
def test_a_profile_holds_macros_only(name: str, text: str) -> None:
    with pytest.raises(pumice.ShaderCompileError, match="profile's macro"):
        pumice.ShaderOptions(profile={name: text})


PSC = """
layout(constant_id = 0) const int n = 0;
layout(constant_id = 1) const int m = 0;
layout(binding = 0) writeonly buffer Y { int y[]; };
layout(push_constant) uniform parameter { int n; int m; } p;
void main() { y[0] = psc(n) * 10 + psc(m); }
"""


def test_psc_takes_the_constant_unless_it_is_zero(context: pumice.Context) -> None:
    y = np.zeros(1, np.int32)
    pumice.Kernel(PSC, context=context, spec={"n": 4})(y=y, n=7, m=8, threads=1)
    assert y[0] == 48
