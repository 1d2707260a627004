"""Load image files as model input arrays. Needs Pillow (`pip install pumice[image]`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..base.atomic_files import convert_read_errors
from ..base.element_types import Array
from ..base.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

COLOR_MODES = ("RGB", "BGR", "L", "Y")
FITS = ("crop", "stretch")
RESAMPLES = ("nearest", "bilinear", "bicubic", "lanczos", "box")
INVERTS = ("never", "always", "auto")
LAYOUTS = ("NCHW", "NHWC", "CHW", "HWC", "NHW", "HW")
_BRIGHT_THRESHOLD = 128


def _import_pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError("images need Pillow: pip install 'pumice[image]'") from None
    return Image, ImageOps


def _open_image(path: str | os.PathLike[str], mode: str) -> Image.Image:
    image_module, operations = _import_pillow()
    with convert_read_errors(path, kind="an image"), image_module.open(path) as image:
        oriented: Image.Image = operations.exif_transpose(image)
        return _to_8_bit(oriented, path).convert("L" if mode == "L" else "RGB")


def _to_8_bit(image: Image.Image, path: str | os.PathLike[str]) -> Image.Image:
    """Convert the image to 8 bits. 16-bit grey is rounded, because Pillow would clip it at 255.

    Raise InputError for floats or values beyond 16 bits.
    """
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        raise InputError(f"'{os.fspath(path)}': expected an image of 8 or 16 bits, given one of mode '{image.mode}'")
    image_module, _ = _import_pillow()
    rounded: Image.Image = image_module.fromarray(((values.astype("uint32") + 128) // 257).astype("uint8"))
    return rounded


def _resize(image: Image.Image, size: tuple[int, int] | None, fit: str, resample: str) -> Image.Image:
    if size is None:
        return image
    image_module, operations = _import_pillow()
    method = getattr(image_module.Resampling, resample.upper())
    target = (size[1], size[0])
    if fit == "crop":
        cropped: Image.Image = operations.fit(image, target, method)
        return cropped
    return image.resize(target, method)


def _to_channels(image: Image.Image, mode: str) -> Array:
    """Return the pixels as uint8 of shape [height, width, channels]."""
    if mode == "Y":
        return np.asarray(image.convert("YCbCr"))[:, :, :1]
    values = np.asarray(image)
    if mode == "L":
        return values[:, :, None]
    return values[:, :, ::-1] if mode == "BGR" else values


def _invert(values: Array, invert: str) -> Array:
    if invert == "never" or (invert == "auto" and values[0, 0].mean() < _BRIGHT_THRESHOLD):
        return values
    inverted: Array = 255 - values
    return inverted


def _scale(values: Array, scale: str | float) -> Array:
    """Multiply the values by a factor, or divide them: by 255 for "1/255", by the image's maximum for "1/max".

    Raise InputError if `scale` is none of these."""
    text = str(scale)
    try:
        divisor = values.max() if text == "1/max" else np.float32(text.removeprefix("1/"))
    except ValueError:
        raise InputError(f"scale: expected a number, 1/NUMBER or 1/max, given '{text}'") from None
    divides = text.startswith("1/")
    if divides and divisor == 0:
        divisor = np.float32(1)
    scaled: Array = values / divisor if divides else values * divisor
    return scaled


def _normalize(values: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    """Return (v - mean) / std per channel, in float64. Raise InputError for a wrong number of values or a std of 0."""
    num_channels = values.shape[-1]
    for name, numbers in (("mean", mean), ("std", std)):
        if len(numbers) not in (0, 1, num_channels):
            raise InputError(f"{name}: expected 1 or {num_channels} numbers, given {len(numbers)}")
    if any(number == 0 for number in std):
        raise InputError("std: expected nonzero numbers")
    if not mean and not std:
        return values
    normalised: Array = (values.astype(np.float64) - np.asarray(mean or [0.0])) / np.asarray(std or [1.0])
    return normalised


def _apply_layout(values: Array, layout: str) -> Array:
    if "C" not in layout:
        if values.shape[-1] != 1:
            raise InputError(f"layout {layout}: expected one colour, given {values.shape[-1]}")
        values = values[:, :, 0]
    elif layout.endswith("CHW"):
        values = values.transpose(2, 0, 1)
    return values[None] if layout.startswith("N") else values


def _check_choice(value: str, choices: Sequence[str], option: str) -> None:
    if value not in choices:
        raise InputError(f"{option}: expected one of {', '.join(choices)}, given '{value}'")


def load_image(
    path: str | os.PathLike[str],
    *,
    mode: str = "RGB",
    size: int | tuple[int, int] | None = None,
    fit: str = "crop",
    resample: str = "bilinear",
    invert: str = "never",
    scale: str | float = 1,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    layout: str = "NCHW",
    dtype: npt.DTypeLike = "float32",
) -> Array:
    """Load an image file as an array; the options are applied in parameter order.

    mode: "RGB", "BGR", "L" (grey) or "Y" (the luma of YCbCr). size: (height, width), one number for both, or None for the image's own;
    fit: "crop" crops the centre to the aspect ratio of size, then resamples; "stretch" only resamples. invert: replace v with 255 - v
    "always", "never", or "auto" (if the first pixel is bright). scale: a factor, "1/255" (a division) or "1/max". mean and std: (v - mean)
    / std per channel. layout: "NCHW", "NHWC", "CHW", "HWC", "NHW" or "HW".

    Raise InputError for an invalid option or a file that is not an image, FileNotFoundError.
    """
    _check_choice(mode, COLOR_MODES, "mode")
    _check_choice(fit, FITS, "fit")
    _check_choice(resample, RESAMPLES, "resample")
    _check_choice(invert, INVERTS, "invert")
    _check_choice(layout, LAYOUTS, "layout")
    target_size = (size, size) if isinstance(size, int) else size
    values = _invert(_to_channels(_resize(_open_image(path, mode), target_size, fit, resample), mode), invert)
    if np.dtype(dtype).kind == "f":
        values = _normalize(_scale(values.astype(np.float32), scale), mean, std)
    elif str(scale) != "1" or mean or std:
        raise InputError(f"scale, mean and std: expected an input of floats, given {np.dtype(dtype)}")
    return np.ascontiguousarray(_apply_layout(values, layout).astype(dtype, copy=False))
