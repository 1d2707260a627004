"""Device features and limits required by kernels: errors name them before the driver sees the shader."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import pumice

HEAD = "layout(binding = 0) buffer Y { float y[]; };\n"


def expect_error(source: str, context: pumice.Context, **options: Any) -> str:
    with pytest.raises(pumice.UnsupportedError) as caught:
        pumice.Kernel(source, context, **options)
    return str(caught.value)


# --- Features

NEEDED = {
    "shaderBufferInt64Atomics": (
        "#extension GL_EXT_shader_atomic_int64 : require\nlayout(binding = 1) buffer Z { uint64_t z[]; };",
        "atomicAdd(z[0], 1ul);",
        "Int64Atomics",
    ),
    "shaderInt16": ("#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require", "y[0] = float(int16_t(y[1]));", "Int16"),
    "shaderInt8": ("#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require", "y[0] = float(int8_t(y[1]));", "Int8"),
    "shaderFloat64": ("", "y[0] = float(double(y[1]) * 2.0lf);", "Float64"),
    "storageBuffer16BitAccess": (
        "#extension GL_EXT_shader_16bit_storage : require\nlayout(binding = 1) buffer Z { float16_t z[]; };",
        "y[0] = float(z[0]);",
        "StorageBuffer16BitAccess",
    ),
    "storageBuffer8BitAccess": (
        "#extension GL_EXT_shader_8bit_storage : require\nlayout(binding = 1) buffer Z { uint8_t z[]; };",
        "y[0] = float(uint(z[0]));",
        "StorageBuffer8BitAccess",
    ),
    "subgroupBasic": ("#extension GL_KHR_shader_subgroup_basic : require", "if (subgroupElect()) y[0] = 1.0;", "GroupNonUniform"),
    "subgroupArithmetic": (
        "#extension GL_KHR_shader_subgroup_arithmetic : require",
        "y[0] = subgroupAdd(y[0]);",
        "GroupNonUniformArithmetic",
    ),
    "subgroupShuffleRelative": (
        "#extension GL_KHR_shader_subgroup_shuffle_relative : require",
        "y[0] = subgroupShuffleUp(y[0], 1u);",
        "GroupNonUniformShuffleRelative",
    ),
    "shaderStorageImageExtendedFormats": (
        "layout(binding = 1, r16f) writeonly uniform image2D z;",
        "imageStore(z, ivec2(0), vec4(1.0));",
        "StorageImageExtendedFormats",
    ),
    "shaderStorageImageWriteWithoutFormat": (
        "layout(binding = 1) writeonly uniform image2D z;",
        "imageStore(z, ivec2(0), vec4(1.0));",
        "StorageImageWriteWithoutFormat",
    ),
    "shaderBufferFloat32AtomicAdd": (
        "#extension GL_EXT_shader_atomic_float : require",
        "atomicAdd(y[0], 1.0);",
        "AtomicFloat32AddEXT",
    ),
    "shaderRoundingModeRTEFloat32": (
        "#extension GL_EXT_spirv_intrinsics : require\nspirv_execution_mode(capabilities = [4467], 4462, 32);",
        "y[0] = y[1] * y[2];",
        "RoundingModeRTE",
    ),
    "roundingModeRTEFloat16": (
        "#extension GL_EXT_spirv_intrinsics : require\nspirv_execution_mode(capabilities = [4467], 4462, 16);",
        "y[0] = y[1] * y[2];",
        "RoundingModeRTE",
    ),
    "shaderDenormPreserveFloat32": (
        "#extension GL_EXT_spirv_intrinsics : require\nspirv_execution_mode(capabilities = [4464], 4459, 32);",
        "y[0] = y[1] * y[2];",
        "DenormPreserve",
    ),
}  # fmt: skip


def source_of(feature: str) -> str:
    declared, body, _ = NEEDED[feature]
    return f"{declared}\nlayout(local_size_x = 32) in;\n{HEAD}void main() {{ {body} }}\n"


@pytest.mark.parametrize("feature", NEEDED)
def test_a_kernel_names_the_features_it_needs_and_is_rejected_without(context: pumice.Context, feature: str) -> None:
    source, capability = source_of(feature), NEEDED[feature][2]
    interface = pumice.compile(source).interface
    assert feature in interface["features"] and capability in interface["capabilities"]
    if context.feature(feature):
        pumice.Kernel(source, context)
    with pumice.Context(f"uuid:{context.info.uuid}", without=[feature]) as masked:
        text = expect_error(source, masked)
    assert f"needs the feature {feature} ({capability})" in text and context.info.name in text


def module(*capabilities: int) -> bytes:
    """Return an empty shader that declares these capabilities."""
    words = struct.unpack(
        f"<{len(plain := pumice.compile('layout(local_size_x = 1) in; void main() {}').spirv) // 4}I", plain
    )
    declared = [word for number in capabilities for word in (2 << 16 | 17, number)]
    return struct.pack(f"<{len(words) + len(declared)}I", *words[:5], *declared, *words[5:])


def test_each_feature_has_one_name_in_the_reflection_and_on_the_device() -> None:
    """Reflection and device use the same feature names. Features that the engine cannot enable are named in the error."""
    interface = pumice.reflect(module(*range(1, 100), *range(4400, 6300)))
    known = set(pumice.devices()[0].features)
    used = [feature for feature in interface["features"] if not feature.startswith("capability ")]
    assert len(used) == len(set(used))
    assert {"shaderInt64", "storagePushConstant8", "subgroupQuad", "vulkanMemoryModelDeviceScope"} <= known & {*used}
    never = {feature for feature in used if feature not in known}
    assert not {feature for feature in never if feature.startswith(("storageBuffer", "uniformAndStorageBuffer"))}
    assert "OpenCL" in never and "VK_NV_cooperative_matrix" in never
    assert pumice.reflect(module(9999))["features"] == ["capability 9999"]
    assert pumice.reflect(module(1, 43, 50))["features"] == []  # Shader, Sampled1D, ImageQuery


def test_everything_that_is_missing_is_listed_at_once(context: pumice.Context) -> None:
    features = ["shaderFloat64", "shaderInt16"]
    source = "\n".join(NEEDED[feature][0] for feature in features) + (
        f"\nlayout(local_size_x = 32) in;\n{HEAD}shared float s[1 << 20];\n"
        "void main() { s[0] = y[2]; y[0] = float(double(y[1])) + float(int16_t(y[1])) + s[0]; }"
    )
    with (
        pumice.Context(f"uuid:{context.info.uuid}", without=features) as masked,
        pytest.raises(pumice.UnsupportedError) as caught,
    ):
        pumice.Kernel(source, masked)
    assert len(caught.value.items) == 3
    for item, name in zip(caught.value.items, [*features, "maxComputeSharedMemorySize"], strict=True):
        assert name in item


# --- Limits


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_local_size_past_the_device_is_rejected(context: pumice.Context, axis: int) -> None:
    limit = context.limit(f"maxComputeWorkGroupSize_{axis}")
    letter = "xyz"[axis]
    source = f"layout(local_size_{letter}_id = 7) in;\n{HEAD}void main() {{ y[gl_GlobalInvocationID.{letter}] = 1.0; }}"
    text = expect_error(source, context, spec={f"local_size_{letter}": limit + 1})
    assert f"has {limit + 1} invocations per workgroup on axis {letter}" in text
    assert f"takes {limit} (maxComputeWorkGroupSize_{axis})" in text
    most = min(limit, context.limit("maxComputeWorkGroupInvocations"))
    y = np.zeros(most, "float32")
    pumice.Kernel(source, context, spec={f"local_size_{letter}": most})(y=y, groups=1)
    assert y.all()


def test_a_workgroup_with_too_many_invocations_is_rejected(context: pumice.Context) -> None:
    limit = context.limit("maxComputeWorkGroupInvocations")
    source = f"layout(local_size_x_id = 0, local_size_y_id = 1) in;\n{HEAD}void main() {{ y[0] = 1.0; }}"
    half = limit // 2
    text = expect_error(source, context, spec={"local_size_x": half, "local_size_y": 3})
    assert (
        f"has {half * 3} invocations per workgroup; " in text
        and f"takes {limit} (maxComputeWorkGroupInvocations)" in text
    )
    pumice.Kernel(source, context, spec={"local_size_x": half, "local_size_y": 2})
    with pytest.raises(pumice.BindingError, match="at least 1"):
        pumice.Kernel(source, context, spec={"local_size_x": 0})


SHARED = """
layout(local_size_x_id = 9) in;
layout(constant_id = 0) const int ROWS = 4;
layout(constant_id = 1) const bool WIDE = false;
const int COLUMNS = (WIDE ? ROWS * 2 : ROWS + 0) - 1;
layout(binding = 0) buffer Y { float y[]; };
struct Cell { vec2 a; float b; };
shared float square[ROWS][COLUMNS];
shared Cell cells[gl_WorkGroupSize.x / 2u];
shared mat4 m;
void main() {
  square[ROWS - 1][COLUMNS - 1] = y[0];
  cells[gl_WorkGroupSize.x / 2u - 1u].b = y[1];
  m[3][3] = y[2];
  barrier();
  y[3] = square[ROWS - 1][COLUMNS - 1] + cells[gl_WorkGroupSize.x / 2u - 1u].b + m[3][3];
}
"""


def shared_bytes(rows: int, wide: bool, local: int) -> int:
    return rows * ((rows * 2 if wide else rows) - 1) * 4 + local // 2 * 12 + 64


def test_shared_memory_is_counted_with_the_constants_of_the_call(context: pumice.Context) -> None:
    interface = pumice.compile(SHARED).interface
    assert interface["shared_bytes"] == shared_bytes(4, False, interface["local_size"][0])
    limit = context.limit("maxComputeSharedMemorySize")
    for wide in (False, True):
        fits = next(rows for rows in range(2, 4096) if shared_bytes(rows + 1, wide, 64) > limit * 0.9)
        y = np.array([1, 20, 300, 0], "float32")
        spec = {"ROWS": fits, "WIDE": wide, "local_size_x": 64}
        pumice.Kernel(SHARED, context, spec=spec)(y=y, groups=1)
        assert y[3] == 321
        over = next(rows for rows in range(fits, 4096) if shared_bytes(rows, wide, 64) > limit)
        text = expect_error(SHARED, context, spec=spec | {"ROWS": over})
        assert f"has {shared_bytes(over, wide, 64)} bytes of shared memory" in text
        assert f"takes {limit} (maxComputeSharedMemorySize)" in text


def test_shared_memory_without_constants_is_counted_too(context: pumice.Context) -> None:
    limit = context.limit("maxComputeSharedMemorySize")
    source = f"layout(local_size_x = 1) in;\n{HEAD}shared float s[COUNT];\nvoid main() {{ s[0] = y[0]; y[1] = s[0]; }}"
    pumice.Kernel(source, context, macros={"COUNT": str(limit // 4)})
    text = expect_error(source, context, macros={"COUNT": str(limit // 4 + 1)})
    assert f"has {limit + 4} bytes of shared memory" in text and f"takes {limit}" in text


def test_sizes_that_double_at_each_level_take_no_time(context: pumice.Context) -> None:
    sizes = "\n".join(f"const int N{n} = N{n - 1} / 2 + N{n - 1} / 2;" for n in range(1, 60))
    source = f"layout(local_size_x = 1) in;\nlayout(constant_id = 0) const int N0 = 8;\n{sizes}\n{HEAD}shared float s[N59];\n"
    source += "void main() { s[0] = y[0]; y[1] = s[0]; }"
    limit = context.limit("maxComputeSharedMemorySize")
    pumice.Kernel(source, context)
    assert f"has {4 * limit} bytes" in expect_error(source, context, spec={"N0": limit})


def test_types_that_double_at_each_level_take_no_time() -> None:
    """Such deep nesting never comes from a compiler."""
    plain = pumice.compile(
        f"layout(local_size_x = 1) in;\n{HEAD}shared float s;\nvoid main() {{ s = y[0]; y[1] = s; }}"
    ).spirv
    words = list(struct.unpack(f"<{len(plain) // 4}I", plain))
    at = next(
        i for i in range(5, len(words)) if words[i] == 4 << 16 | 32 and words[i + 2] == 4
    )  # pointer to shared memory
    first, element = words[3], words[at + 3]
    levels = [4 << 16 | 30, first, element, element]
    for n in range(1, 34):
        levels += [4 << 16 | 30, first + n, first + n - 1, first + n - 1]
    words[3] += 34
    words[at + 3] = first + 33
    words[at:at] = levels
    assert pumice.reflect(struct.pack(f"<{len(words)}I", *words))["shared_bytes"] == 4 << 34


def test_push_constants_past_the_device_are_rejected(context: pumice.Context) -> None:
    limit = context.limit("maxPushConstantsSize")
    source = (
        "layout(local_size_x = 1) in;\nlayout(push_constant) uniform parameter { float v[COUNT]; } p;\n"
        f"{HEAD}void main() {{ y[0] = p.v[COUNT - 1]; }}"
    )
    count = limit // 4
    y = np.zeros(1, "float32")
    pumice.Kernel(source, context, macros={"COUNT": str(count)})(y=y, v=list(range(count)), groups=1)
    assert y[0] == count - 1
    text = expect_error(source, context, macros={"COUNT": str(count + 1)})
    assert f"has {limit + 4} bytes of push constants" in text and f"takes {limit} (maxPushConstantsSize)" in text


DESCRIPTORS = {
    "maxPerStageDescriptorStorageBuffers": ("buffer B{i} {{ float b{i}[]; }};", "y += b{i}[0];", "storage buffers"),
    "maxPerStageDescriptorUniformBuffers": ("uniform B{i} {{ vec4 b{i}; }};", "y += b{i}.x;", "uniform buffers"),
    "maxPerStageDescriptorStorageImages": (
        "layout(r32f) readonly uniform image2D b{i};",
        "y += imageLoad(b{i}, ivec2(0)).r;",
        "storage images",
    ),
    "maxPerStageDescriptorSamplers": ("uniform sampler2D b{i};", "y += texelFetch(b{i}, ivec2(0), 0).r;", "samplers"),
}


@pytest.mark.parametrize("limit", DESCRIPTORS)
def test_arguments_past_the_device_are_rejected(context: pumice.Context, limit: str) -> None:
    declared, used, what = DESCRIPTORS[limit]
    most = context.limit(limit)
    if most > 4096:
        pytest.skip(f"{limit} is {most}: no shader has so many")

    def source(count: int) -> str:
        lines = [f"layout(binding = {i}) " + declared.format(i=i) for i in range(count)]
        body = "\n".join(used.format(i=i) for i in range(count))
        return "\n".join(
            [
                "layout(local_size_x = 1) in;",
                *lines,
                "shared float s;",
                f"void main() {{ float y = 0.0; {body} s = y; }}",
            ]
        )

    text = expect_error(source(most + 1), context)
    assert f"has {most + 1} {what}" in text and f"takes {most} ({limit})" in text
    pumice.Kernel(source(min(most, context.limit("maxPerStageResources"))), context)


def test_a_large_workgroup_may_exchange_within_subgroups(context: pumice.Context) -> None:
    """Full subgroups are only requested if the device allows that many subgroups in a workgroup."""
    most = min(512, context.limit("maxComputeWorkGroupInvocations"), context.limit("maxComputeWorkGroupSize_0"))
    source = f"""#version 450
    #extension GL_KHR_shader_subgroup_basic : require
    #extension GL_KHR_shader_subgroup_shuffle : require
    layout(local_size_x = {most}) in;
    layout(binding = 0) buffer Y {{ uint y[]; }};
    void main() {{
      uint first = subgroupShuffle(gl_LocalInvocationIndex, 0u);
      if (gl_LocalInvocationIndex - first < gl_SubgroupSize) atomicAdd(y[0], 1u);
    }}"""
    y = np.zeros(1, "uint32")
    pumice.Kernel(source, context)(y=y, groups=1)
    assert y[0] == most
