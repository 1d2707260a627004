"""Layouts of the dv interface: WHC8 against the formula, and the inverse conversion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pumice
from pumice import dv


def formula(n: int, c: int, y: int, x: int, shape: tuple[int, int, int]) -> int:
    channels, height, width = shape
    group = c & ~7
    return (
        n * width * height * channels
        + group * width * height
        + (x * height + y) * min(8, channels - group)
        + (c - group)
    )


def slow_whc8(images: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the elements of an NCHW array in WHC8 order, one by one from the formula."""
    flat = np.empty(images.size, images.dtype)
    for n, c, y, x in np.ndindex(*images.shape):
        flat[formula(n, c, y, x, images.shape[1:])] = images[n, c, y, x]
    return flat


LAYOUTS = ["".join(axes) for axes in (*itertools.permutations("NCHW"), *itertools.permutations("CHW"))]


@settings(deadline=None, max_examples=80)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(1, 5), st.integers(1, 5)),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(["uint8", "float16", "int16", "float32", "float64", ">f2"]),
)
def test_arrays_of_every_layout_become_whc8_and_come_back(
    shape: tuple[int, int, int, int], layout: str, dtype: str
) -> None:
    batch = "N" in layout
    images = np.arange(np.prod(shape)).astype(dtype).reshape(shape)[: None if batch else 1]
    names, source = ("NCHW", images) if batch else ("CHW", images[0])
    array = source.transpose([names.index(axis) for axis in layout])
    flat = dv.to_whc8(array, layout)
    assert flat.shape == (images.size,) and flat.dtype == images.dtype.newbyteorder("=")
    assert (flat == slow_whc8(images)).all()
    back = dv.from_whc8(flat, array.shape, layout)
    assert back.shape == array.shape and (back == array).all()


def test_the_layout_follows_the_rank_where_none_is_named() -> None:
    image = np.arange(10 * 3 * 2, dtype="float16").reshape(10, 3, 2)
    assert (dv.to_whc8(image) == dv.to_whc8(image, "CHW")).all()
    assert (dv.to_whc8(image[None]) == dv.to_whc8(image, "CHW")).all()
    assert (dv.from_whc8(dv.to_whc8(image), image.shape) == image).all()


def test_up_to_eight_channels_are_an_image_with_x_and_y_exchanged() -> None:
    image = np.arange(4 * 5 * 3, dtype="uint8").reshape(4, 5, 3)
    assert (dv.to_whc8(image, "HWC") == image.transpose(1, 0, 2).ravel()).all()


def test_the_index_is_that_of_the_formula() -> None:
    shape = (19, 3, 4)
    for c, y, x in np.ndindex(*shape):
        assert dv.whc8_index(shape, c, y, x) == formula(0, c, y, x, shape)
    assert dv.whc8_index((65535, 65535, 65535), 65534, 65534, 65534) == 65535**3 - 1
    with pytest.raises(pumice.BindingError, match=r"\[D6\] index: expected one inside"):
        dv.whc8_index(shape, 19, 0, 0)


def test_views_are_read_in_place_and_unaligned_ones_too() -> None:
    image = np.arange(9 * 6 * 8, dtype="float32").reshape(9, 6, 8)
    turned = image[:, ::-1, ::2]
    assert (dv.to_whc8(turned) == dv.to_whc8(turned.copy())).all()
    unaligned = np.frombuffer(b"x" + image.tobytes(), "uint8")[1:].view("float32").reshape(image.shape)
    assert not unaligned.flags.aligned
    assert (dv.to_whc8(unaligned) == dv.to_whc8(image)).all()


def test_what_has_no_whc8_is_rejected_by_name() -> None:
    image = np.zeros((2, 3, 4), "float16")
    refusals = {
        r"layout: expected the letters C, H and W": lambda: dv.to_whc8(image, "CHWW"),
        r"layout: .* given 'CH'": lambda: dv.to_whc8(image[0], "CH"),
        r"layout: .* given 'NHW'": lambda: dv.to_whc8(image, "NHW"),
        r"shape: expected 4 axes, to match 'NCHW'; given \[2, 3\]": lambda: dv.to_whc8(image[..., 0]),
        r"shape: expected 3 axes": lambda: dv.to_whc8(image[None], "HWC"),
        r"values: expected one axis of 24 elements, .*; given shape \[2, 12\]": lambda: dv.from_whc8(
            image.reshape(2, 12), image.shape
        ),
        r"values: expected one axis of 24 elements, .*; given shape \[25\]": lambda: dv.from_whc8(
            np.zeros(25), image.shape
        ),
        r"shape: expected sizes that fit in 32 bits": lambda: dv.from_whc8(np.zeros(1), (-1, 1, -1)),
        r"array: expected an array without a mask": lambda: dv.to_whc8(np.ma.masked_array(image, image == 0)),
    }
    for message, refused in refusals.items():
        with pytest.raises(pumice.BindingError, match=message):
            refused()
    for unsupported in (image.astype("complex128"), image.astype(object)):
        with pytest.raises(pumice.UnsupportedError, match="in WHC8"):
            dv.to_whc8(unsupported)
