"""Image functions of the 2024 GLSL extension against a NumPy model, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from glsl_modes import (
    MODES,
    assert_same,
    convert,
    denormal_free,
    is_half,
    numbers,
    storage_of,
)
from image_samples import FORMATS, Array, spelled, storage_image

FUNCTIONS = """
layout(local_size_x = 8, local_size_y = 4, local_size_z = 2) in;
layout(binding = 0) uniform unfp sampler$D t1;
layout(binding = 1) uniform unfp sampler$D t4;
layout(binding = 2, imfmtc1) writeonly uniform unfp image$D i1;
layout(binding = 3, imfmtc4) writeonly uniform unfp image$D i4;
layout(binding = 4, imfmtc4) writeonly uniform unfp image$D i8;
layout(binding = 5, imfmtc1) writeonly uniform unfp image$D c1;
layout(binding = 6, imfmtc4) writeonly uniform unfp image$D c4;
layout(binding = 7, imfmtc4) writeonly uniform unfp image$D c8;
layout(binding = 8) readonly buffer X { float x[]; };
layout(binding = 9) writeonly buffer L1 { float l1[]; };
layout(binding = 10) writeonly buffer L4 { vec4 l4[]; };
layout(binding = 11) writeonly buffer L8 { mat2x4 l8[]; };
layout(push_constant) uniform parameter { uint w, h, d; } p;
#if !NCNN_image_shader
#error
#endif
void main() {
  const uvec3 i = gl_GlobalInvocationID;
  if (i.x >= p.w || i.y >= p.h || i.z >= p.d) return;
  const $p at = $p($i), back = $p($b);
  const uint n = (i.z * p.h + i.y) * p.w + i.x;
  l1[n] = float(image$d_ld1(t1, at));
  l4[n] = vec4(image$d_ld4(t4, at));
  image$d_st1(i1, at, x[n]);
  image$d_st4(i4, at, vec4(x[n * 4u], x[n * 4u + 1u], x[n * 4u + 2u], x[n * 4u + 3u]));
  if (n == 0xffffffffu) image$d_st1(i1, at, 0.0); else image$d_cp1(c1, back, t1, at);
  image$d_cp4(c4, back, t4, at);
  if (i.x * 2u + 1u >= p.w) return;
  l8[(i.z * p.h + i.y) * (p.w / 2u) + i.x] = mat2x4(image$d_ld8(t4, at));
  mat2x4 m;
  const uint first = ((i.z * p.h + i.y) * p.w + i.x * 2u) * 4u;
  for (uint k = 0u; k < 8u; ++k) m[k >> 2][k & 3u] = x[first + k];
  image$d_st8(i8, at, m);
  image$d_cp8(c8, $p($q), t4, at);
}
"""
AXES = {
    1: {"D": "1D", "d": "1d", "p": "int", "i": "i.x", "b": "p.w - 1u - i.x", "q": "p.w / 2u - 1u - i.x"},
    2: {"D": "2D", "d": "2d", "p": "ivec2", "i": "i.xy", "b": "p.w - 1u - i.x, i.y", "q": "p.w / 2u - 1u - i.x, i.y"},
    3: {"D": "3D", "d": "3d", "p": "ivec3", "i": "i", "b": "p.w - 1u - i.x, i.yz", "q": "p.w / 2u - 1u - i.x, i.yz"},
}
EXTENTS = {1: (8192,), 2: (128, 1024), 3: (16, 64, 128)}


def image_formats(mode: str) -> tuple[str, str]:
    """Return the image formats for scalars and for vectors."""
    storage = storage_of(mode)
    return ("r16f" if storage == "fp16" else "r32f", "rgba16f" if storage.startswith("fp16") else "rgba32f")


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_image_functions(mode: str, dimensions: int, context: pumice.Context) -> None:
    options = pumice.ShaderOptions(generation="2024", image_storage=True, **MODES[mode])
    source = spelled(FUNCTIONS, **AXES[dimensions])
    shape = EXTENTS[dimensions]
    format1, format4 = image_formats(mode)
    count = int(np.prod(shape))
    x = np.resize(denormal_free(numbers()), count * 4)
    singles = convert(x[:count], FORMATS[format1][0]).reshape(shape)
    vectors = convert(x, FORMATS[format4][0]).reshape(*shape, 4)
    t1, t4 = pumice.image(singles, format1, context), pumice.image(vectors, format4, context)
    written = {
        name: storage_image(context, format1 if "1" in name else format4, shape)
        for name in ("i1", "i4", "i8", "c1", "c4", "c8")
    }
    l1, l4, l8 = np.zeros(count, "float32"), np.zeros(count * 4, "float32"), np.zeros(count * 4, "float32")
    d, h, w = (1, 1, 1, *shape)[-3:]
    kernel = pumice.Kernel(source, context, options=options)
    kernel(t1=t1, t4=t4, x=x, l1=l1, l4=l4, l8=l8, w=w, h=h, d=d, threads=(w, h, d), **written)
    arithmetic = np.float16 if is_half(mode) else np.float32

    def seen(values: Array) -> Array:
        return convert(convert(values, arithmetic), np.float32).ravel()

    found = {name: image.numpy().ravel() for name, image in written.items()}

    def assert_same_single(values: Array, expected: Array, what: str) -> None:
        """Compare single texels. With fp16_packed, `unfp` is mediump, so a device may convert r32f texels to fp16."""
        if format1 == "r32f" and storage_of(mode) == "fp16_packed":
            halves = convert(convert(expected, np.float16), np.float32)
            values = np.where(values.view("uint32") == halves.view("uint32"), expected, values)
        assert_same(values, expected, what)

    assert_same_single(l1, seen(singles), "ld1")
    assert_same(l4, seen(vectors), "ld4")
    assert_same(l8, seen(vectors), "ld8")
    assert_same_single(found["i1"], singles.ravel(), "st1")
    assert_same(found["i4"], vectors.ravel(), "st4")
    assert_same(found["i8"], vectors.ravel(), "st8")
    assert_same_single(found["c1"], singles[..., ::-1].ravel(), "cp1")
    assert_same(found["c4"], vectors[..., ::-1, :].ravel(), "cp4")
    pairs = vectors.reshape(*shape[:-1], w // 2, 8)
    assert_same(found["c8"], pairs[..., ::-1, :].ravel(), "cp8")


STORES = """
layout(binding = 0, imfmtc4) writeonly uniform unfp image2D y;
layout(binding = 1) readonly buffer X { vec4 x[]; };
void main() { const uint i = gl_GlobalInvocationID.x; image2d_st4(y, ivec2(i, 0), x[i]); }
"""


def test_numbers_beyond_float16_are_rounded_to_one_just_beyond(context: pumice.Context) -> None:
    """Test the workaround for a driver that stores NaN for values above the fp16 maximum; other drivers store infinity or that maximum.
    NaN inputs are excluded, because they are correct only on the affected driver.
    """
    x = np.array([np.inf, 1.5, -np.inf, 0.0, 1e6, 65504.0, -3e38, -0.0, 65520.0, 131071.0, -65536.0, 6e-8], "float32")
    options = pumice.ShaderOptions(generation="2024", image_storage=True, storage="fp16_packed")
    with pumice.Context(f"uuid:{context.info.uuid}", quirks=["texel_overflow"]) as assumed:
        y = storage_image(assumed, "rgba16f", (1, x.size // 4))
        kernel = pumice.Kernel(STORES, assumed, options=options)
        kernel(x=x, y=y, threads=x.size // 4)
        given, expected = y.numpy().ravel(), convert(x, np.float16)
    largest = np.isinf(expected) & (np.abs(given) == np.finfo(np.float16).max)
    assert_same(np.where(largest, np.copysign(np.float16(np.inf), given), given), expected, "st4")
