"""Images and kernels for the image tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import pumice
from features import need_features

Array = npt.NDArray[Any]
FORMATS = {"r32f": ("float32", ()), "r16f": ("float16", ()), "rgba16f": ("float16", (4,)), "rgba32f": ("float32", (4,))}
SHAPES: list[tuple[int, ...]] = [(7,), (5, 7), (3, 5, 7)]


def texels(shape: tuple[int, ...], format: str, seed: int = 0) -> Array:
    dtype, channels = FORMATS[format]
    return np.random.default_rng(seed).standard_normal((*shape, *channels)).astype(dtype)


def storage_image(context: pumice.Context, format: str, shape: tuple[int, ...]) -> pumice.Image:
    """Create a storage image; skip the test if the device cannot store this format."""
    if format == "r16f":
        need_features(context, "shaderStorageImageExtendedFormats")
    return pumice.Image(context, format, (*shape, *FORMATS[format][1]))


COPY = """
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, r32f) readonly uniform image2D x;
layout(binding = 1, r32f) writeonly uniform image2D y;
void main() {
  ivec2 p = ivec2(gl_GlobalInvocationID.xy);
  if (all(lessThan(p, imageSize(y)))) imageStore(y, p, imageLoad(x, p) + 1.0);
}
"""


def spelled(text: str, **words: object) -> str:
    for word, replacement in words.items():
        text = text.replace(f"${word}", str(replacement))
    return text
