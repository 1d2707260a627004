"""Image formats: uploads, reads and stores in kernels, and rejected formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

# Format: dtype of its array, channels, and type prefix in GLSL.
FORMATS: dict[str, tuple[str, int, str]] = {
    "r32f": ("float32", 1, ""), "rg32f": ("float32", 2, ""), "rgba32f": ("float32", 4, ""),
    "r16f": ("float16", 1, ""), "rg16f": ("float16", 2, ""), "rgba16f": ("float16", 4, ""),
    "r8": ("uint8", 1, ""), "rg8": ("uint8", 2, ""), "rgba8": ("uint8", 4, ""),
    "r32ui": ("uint32", 1, "u"), "rg32ui": ("uint32", 2, "u"), "rgba32ui": ("uint32", 4, "u"),
    "r16ui": ("uint16", 1, "u"), "r8ui": ("uint8", 1, "u"), "rgba8ui": ("uint8", 4, "u"),
    "r32i": ("int32", 1, "i"), "rg32i": ("int32", 2, "i"), "rgba32i": ("int32", 4, "i"),
    "r16i": ("int16", 1, "i"), "r8i": ("int8", 1, "i"),
}  # fmt: skip
EXTENDED = {"rg32f", "r16f", "rg16f", "r8", "rg8", "rg32ui", "r16ui", "r8ui", "rg32i", "r16i", "r8i"}
SHAPE = (3, 5)  # the bytes of a row are not a multiple of 4


def texels(name: str, seed: int = 0) -> Any:
    dtype, channels, _ = FORMATS[name]
    shape = SHAPE if channels == 1 else (*SHAPE, channels)
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return random.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("name", FORMATS)
def test_arrays_come_back_as_they_were(context: pumice.Context, name: str) -> None:
    given = texels(name)
    image = pumice.image(given, name, context)
    assert (image.format, image.dtype, image.dimensions) == (name, given.dtype, 2)
    np.testing.assert_array_equal(image.numpy(), given)
    other = texels(name, 1)
    image.upload(other)
    np.testing.assert_array_equal(image.numpy(), other)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_kernels_read_and_store_texels(context: pumice.Context, name: str, sampled: bool) -> None:
    if name in EXTENDED and not context.feature("shaderStorageImageExtendedFormats"):
        pytest.skip("the device lacks shaderStorageImageExtendedFormats")
    _, channels, prefix = FORMATS[name]
    kind = "float" if not prefix else {"u": "uint", "i": "int"}[prefix]
    read = f"uniform {prefix}sampler2D src" if sampled else f"uniform readonly {prefix}image2D src"
    text = f"""
layout(binding = 0{"" if sampled else ", " + name}) {read};
layout(binding = 1, {name}) uniform writeonly {prefix}image2D dst;
layout(binding = 2) buffer Y {{ {prefix}vec4 y[]; }};
void main() {{
  ivec2 p = ivec2(gl_GlobalInvocationID.xy);
  {prefix}vec4 v = {"texelFetch(src, p, 0)" if sampled else "imageLoad(src, p)"};
  y[p.y * 5 + p.x] = v;
  imageStore(dst, p, v);
}}
"""
    given = texels(name)
    dtype = {"float": "float32", "uint": "uint32", "int": "int32"}[kind]
    target, y = pumice.Image(context, name, given.shape), np.zeros((15, 4), dtype)
    pumice.Kernel(text, context)(src=pumice.image(given, name, context), dst=target, y=y, threads=(5, 3))
    np.testing.assert_array_equal(target.numpy(), given)
    expected = given.reshape(15, channels).astype(dtype)
    if given.dtype == np.uint8 and not prefix:
        expected /= np.float32(255)
    np.testing.assert_allclose(y[:, :channels], expected, rtol=1e-6)


def test_an_image_of_other_texels_is_rejected(context: pumice.Context) -> None:
    kernel = pumice.Kernel(
        "layout(binding = 0) uniform usampler2D src;\nlayout(binding = 1) buffer Y { uint y[]; };\n"
        "void main() { y[0] = texelFetch(src, ivec2(0), 0).x; }",
        context,
    )
    y = np.zeros(1, "uint32")
    kernel(src=pumice.image(texels("r8ui"), "r8ui", context), y=y, threads=1)
    assert y[0] == texels("r8ui")[0, 0]
    with pytest.raises(pumice.BindingError, match=r"texels are uint32.*one of r8, whose texels are float32") as refused:
        kernel(src=pumice.image(texels("r8"), "r8", context), y=y, threads=1)
    assert refused.value.rule == "K11"


def test_whole_numbers_have_no_border_and_no_filter(context: pumice.Context) -> None:
    for options, match in (({"address": "border"}, "border"), ({"filter": "linear"}, "linear filter")):
        given: dict[str, Any] = options
        with pytest.raises(pumice.UnsupportedError, match=match):
            pumice.image(texels("r32ui"), "r32ui", context, **given)
