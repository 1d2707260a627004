"""Write the seeds of the fuzz targets to tests/fuzz/corpus: python tests/support/fuzz_seeds.py"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dv_samples
import pumice

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus"

# Shaders with constructs that reflection and the SPIR-V rewriters handle.
SHADERS = {
    "plain": """
layout(local_size_x = 64) in;
layout(binding = 0) buffer X { uint n; float x[]; };
layout(push_constant) uniform Push { float scale[4]; };
void main() { x[gl_GlobalInvocationID.x] = x[n] * scale[n]; }""",
    "buffers": """
layout(local_size_x_id = 0, local_size_y = 2) in;
layout(constant_id = 1) const uint SIZE = 8;
layout(constant_id = 2) const bool FLAG = true;
struct Light { vec3 colour; float weights[3]; mat2x3 turn; };
layout(push_constant) uniform Push { uint n; Light lights[2]; vec2 scale[2]; };
layout(binding = 0) readonly buffer X { uint count; Light x[]; };
layout(binding = 1) buffer Y { float y[]; };
layout(binding = 1) buffer Y4 { vec4 y4[]; };
layout(binding = 2) uniform U { mat4 u; ivec3 v; };
shared float part[SIZE * 2];
void main() {
  float local[4];
  uint i = gl_GlobalInvocationID.x;
  for (int k = 0; k < 4; ++k) local[k] = x[i].weights[k % 3] * float(k + int(n));
  part[gl_LocalInvocationID.x % SIZE] = local[i % 4];
  barrier();
  if (FLAG && i < count) y[i] = part[i % SIZE] + u[i % 4].x + lights[i % 2].colour.y + scale[i % 2].x;
  else y4[i] = vec4(v, 1);
}""",
    "wide": """
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const int64_t STEP = 5l;
layout(binding = 0) buffer X { int64_t x[]; };
layout(binding = 1) buffer V { u64vec3 v[]; };
layout(binding = 2) buffer F { float f[]; };
uint64_t mixed(uint64_t a, u64vec3 b) { return a * b.x + b[uint(a) % 3u]; }
void main() {
  uint i = gl_GlobalInvocationID.x;
  int64_t a = x[i] / STEP % 7l, b = -x[i + 1];
  u64vec3 w = v[i].zyx + u64vec3(1ul, 2ul, uint64_t(a));
  v[i] = w << 3;
  f[i] = float(a) + float(int64_t(f[i]));
  x[i] = a < b ? clamp(a, b, 9l) : int64_t(mixed(uint64_t(b), w));
}""",
    "images": """
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, r32f) readonly uniform image2D a;
layout(binding = 1, rgba8) writeonly uniform image3D b;
layout(binding = 2) uniform sampler2D t;
vec4 sampled(sampler2D s, vec2 at) { return textureLodOffset(s, at, 0.0, ivec2(1)) + textureGather(s, at); }
void main() {
  ivec2 at = ivec2(gl_GlobalInvocationID.xy);
  imageStore(b, ivec3(at, 0), imageLoad(a, at) + sampled(t, vec2(at)));
}""",
    "halves": """
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
layout(local_size_x = 32) in;
layout(binding = 0) buffer X { float16_t x[]; };
layout(binding = 1) buffer Y { int8_t y[]; };
layout(binding = 2) buffer Z { f16vec2 z[4]; float tail; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  [[unroll]] for (int k = 0; k < 100; ++k) x[i + k] = float16_t(float(x[i]) + float(int(y[k])));
  z[i % 4] = f16vec2(vec2(z[(i + 1) % 4]) * tail);
}""",
}


def shaders() -> Iterator[tuple[str, bytes]]:
    for name, text in SHADERS.items():
        yield name, pumice.compile(text).spirv
    yield "debugged", pumice.compile(SHADERS["plain"], pumice.ShaderOptions(debug=True)).spirv


def large(name: str, dtype: Any = np.float32, *, raw: bool = True) -> TensorProto:
    """Return a tensor just large enough to be left out of a skeleton."""
    array = np.zeros(1024 // np.dtype(dtype).itemsize, dtype)
    if raw:
        return numpy_helper.from_array(array, name)
    return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.tolist())


def serialized(nodes: list[Any], initializers: list[TensorProto], **given: Any) -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [256])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [256])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers, **given)
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    return data


def models() -> Iterator[tuple[str, bytes]]:
    add = helper.make_node("Add", ["x", "w"], ["y"])
    yield "initializer", serialized([add], [large("w")])
    yield "float_data", serialized([add], [large("w", raw=False), large("v", np.float64, raw=False)])
    yield "mixed", serialized([add], [large("w"), large("ids", np.int64), numpy_helper.from_array(np.ones(3), "s")])
    constant = helper.make_node("Constant", [], ["w"], value=large("w"))
    yield "attribute", serialized([constant, add], [])
    branch = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("w", TensorProto.FLOAT, [256])])
    yield "branches", serialized([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [])
    sparse = onnx.SparseTensorProto(values=large("w"), indices=large("i", np.int64), dims=[256])
    yield "sparse", serialized([add], [], sparse_initializer=[sparse])
    external = large("w")
    external.data_location = TensorProto.EXTERNAL
    external.external_data.add(key="location", value="weights")
    yield "external", serialized([add], [external])


def capsules() -> Iterator[tuple[str, bytes]]:
    """Yield inputs of tests/fuzz/dlpack.cpp, which documents their layout. Code 2 is float, 0 a signed integer."""
    cpu, cuda, versioned, has_strides, raw_address = (1, 0), (2, 0), 1, 4, 16

    def capsule(
        choice: int, numbers: list[int], *, device: tuple[int, int] = cpu, code: int = 2, offset: int = 0
    ) -> bytes:
        rank = len(numbers) // (2 if choice & has_strides else 1)
        head = struct.pack("<B2i2IQ2ii2BHQQ", choice, *device, 1, 0, 0, *device, rank, code, 32, 1, offset, 0)
        return head + struct.pack(f"<{len(numbers)}q", *numbers)

    yield "packed", capsule(0, [2, 3])
    yield "versioned", capsule(versioned, [4], code=0)
    yield "strided", capsule(versioned | has_strides, [2, 3, 4, 1], offset=64)
    yield "reversed", capsule(has_strides, [8, -1], offset=28)
    yield "empty", capsule(0, [3, 0])
    yield "scalar", capsule(0, [])
    yield "cuda", capsule(versioned | raw_address, [16], device=cuda)


def main() -> None:
    dv_samples.main()
    for target, seeds in (("spirv", shaders()), ("onnx_skeleton", models()), ("dlpack", capsules())):
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds:
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
