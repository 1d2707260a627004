"""Images and their texels: round trips, conversion, memory accounting, lifetime."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import pumice
from image_samples import COPY, FORMATS, SHAPES, Array, texels
from process import python


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_texels_survive_the_trip_through_an_image(context: pumice.Context, format: str, shape: tuple[int, ...]) -> None:
    given = texels(shape, format)
    image = pumice.image(given, format, context)
    assert (image.shape, image.dimensions, image.dtype) == (given.shape, len(shape), given.dtype)
    np.testing.assert_array_equal(image.numpy(), given)
    np.testing.assert_array_equal(np.asarray(image), given)
    other = texels(shape, format, 1)
    image.upload(other[::-1][::-1])
    np.testing.assert_array_equal(image.numpy(), other)


def test_elements_that_convert_exactly_are_taken_and_others_rejected(context: pumice.Context) -> None:
    image = pumice.Image(context, "r32f", (2, 3))
    for dtype in ("float16", "uint8", "int16", "bool", ">f4"):
        given = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
        image.upload(given)
        np.testing.assert_array_equal(image.numpy(), given)
    for wrong in (
        np.zeros((2, 3)),
        np.zeros((2, 3), "int32"),
        np.zeros((3, 2), "float32"),
        np.zeros((2, 3, 1), "float32"),
    ):
        with pytest.raises(pumice.BindingError, match=r"expected .*float32.*2, 3") as caught:
            image.upload(wrong)
        assert caught.value.rule == "K5"
    with pytest.raises(pumice.BindingError, match="float16"):
        pumice.image(np.zeros(4, "float32"), "r16f", context)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"format": "rgba9", "shape": (4, 4)}, "'rgba9'; supported: r32f, r16f, rgba16f, rgba32f"),
        ({"format": "r32f", "shape": ()}, "1 to 3 dimensions, given 0"),
        ({"format": "r32f", "shape": (2, 2, 2, 2)}, "1 to 3 dimensions, given 4"),
        ({"format": "rgba32f", "shape": (4, 4, 3)}, "the last axis must be the 4 channels"),
        ({"format": "rgba32f", "shape": (4,)}, "given 0"),
        ({"format": "r32f", "shape": (4, 0)}, "axis 1 has 0 texels"),
        ({"format": "r32f", "shape": (1 << 40, 4)}, "axis 0 has 1099511627776 texels; the device supports 1 to"),
        ({"format": "r32f", "shape": (4, 4), "filter": "cubic"}, "'cubic'; supported: 'nearest', 'linear'"),
        ({"format": "r32f", "shape": (4, 4), "address": "wrap"}, "'wrap'; supported: 'clamp', 'repeat', 'border'"),
        ({"format": "r32f", "shape": (4, 4), "address": "repeat", "normalized": False}, "coordinates in texels"),
        ({"format": "r32f", "shape": (4, 4, 4), "normalized": False}, "coordinates in texels"),
    ],
)
def test_images_that_cannot_be_are_rejected(context: pumice.Context, arguments: dict[str, Any], text: str) -> None:
    gc.collect()  # frees images that earlier tests left in reference cycles
    before = context.memory.images
    with pytest.raises(pumice.UnsupportedError, match=text):
        pumice.Image(context, **arguments)
    assert context.memory.images == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"format": 3}, "argument 'format': expected a name; given 3"),
        ({"format": None}, "argument 'format': expected a name; given None"),
        ({"shape": None}, "argument 'shape': expected integers; given None"),
        ({"shape": "44"}, "argument 'shape': expected integers; given '44'"),
        ({"shape": (4, 4.5)}, "argument 'shape': expected 64-bit integers.*4.5"),
        ({"shape": (4, 1 << 70)}, "64-bit integers"),
        ({"filter": 1}, "argument 'filter': expected a name; given 1"),
        ({"address": ["clamp"]}, "argument 'address': expected a name"),
        ({"normalized": "no"}, "argument 'normalized': expected True, False or None; given 'no'"),
    ],
)
def test_arguments_of_another_type_are_named(context: pumice.Context, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(pumice.BindingError, match=text) as caught:
        pumice.Image(context, **{"format": "r32f", "shape": (4, 4), **arguments})
    assert caught.value.rule == "K5"


def test_sizes_may_be_numpys(context: pumice.Context) -> None:
    for shape in (np.array([4, 4]), [np.int64(4), 4], (4, np.uint8(4))):
        assert pumice.Image(context, "r32f", shape).shape == (4, 4)
    assert pumice.Image(context, "r32f", np.int32(4)).shape == (4,)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.array([1j]), np.zeros(2, [("x", "f4")]), [[1], [2, 3]]], ids=repr
)
def test_what_has_no_texels_is_rejected(context: pumice.Context, array: Any) -> None:
    with pytest.raises(pumice.BindingError) as caught:
        pumice.image(array, "r32f", context)
    assert caught.value.rule == "K5"


def test_a_size_past_the_device_names_both_numbers(context: pumice.Context) -> None:
    most = context.limit("maxImageDimension2D")
    with pytest.raises(pumice.UnsupportedError, match=rf"axis 0 has {8 * most} texels; the device supports 1 to \d+"):
        pumice.Image(context, "r32f", (8 * most, 1))
    assert pumice.Image(context, "r32f", (1, most)).shape == (1, most)


def test_an_image_of_too_many_bytes_is_rejected(context: pumice.Context) -> None:
    most = context.limit("maxImageDimension3D")
    with pytest.raises((pumice.UnsupportedError, pumice.OutOfMemoryError), match=rf"{most**3 * 16}\b.* bytes"):
        pumice.Image(context, "rgba32f", (most, most, most, 4))
    assert pumice.Image(context, "rgba32f", (1, 1, 1, 4)).shape == (1, 1, 1, 4)


def test_images_are_counted_closed_and_freed(context: pumice.Context) -> None:
    gc.collect()  # frees images held by errors of other tests
    before = context.memory.images, context.memory.image_bytes
    held = [pumice.Image(context, "r32f", (n, n)) for n in range(1, 40)]
    assert context.memory.images == before[0] + 39 and context.memory.image_bytes > before[1]
    del held
    assert (context.memory.images, context.memory.image_bytes) == before
    with pumice.image(np.ones(4, "float32"), "r32f", context) as image:
        assert "r32f [4]" in repr(image)
    assert image.closed and "closed" in repr(image)
    image.close()
    for use in (image.numpy, lambda: image.upload(np.ones(4, "float32"))):
        with pytest.raises(pumice.StateError, match="closed"):
            use()
    assert context.memory.images == before[0]


def test_images_and_buffers_share_memory_without_harm(context: pumice.Context) -> None:
    random = np.random.default_rng(3)
    made: list[tuple[pumice.Image | pumice.Tensor, Array]] = []
    for n in range(1, 60):
        array = random.standard_normal((n % 7 + 1, n)).astype("float32")
        made.append((pumice.image(array, "r32f", context) if n % 2 else pumice.tensor(array, context), array))
        if n % 5 == 0:
            made.pop(n % len(made))
    for one, array in made:
        np.testing.assert_array_equal(one.numpy(), array)


def test_a_process_may_end_with_images_alive_and_work_in_flight() -> None:
    code = f"""
import numpy as np, pumice
kernel = pumice.Kernel({COPY!r})
x = pumice.image(np.ones((64, 64), "float32"), "r32f")
y = pumice.Image(pumice.default_context(), "r32f", (64, 64))
commands = pumice.CommandList(pumice.default_context())
commands.dispatch(kernel.bind(x=x, y=y, threads=(64, 64)))
commands.commit()
submission = commands.exec()
x.close()
print(pumice.default_context().memory.images)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1"


def test_images_outlive_their_context_and_say_so() -> None:
    context = pumice.Context()
    image = pumice.image(np.ones((2, 2), "float32"), "r32f", context)
    context.close()
    with pytest.raises(pumice.StateError, match="Context is closed"):
        image.numpy()
    with pytest.raises(pumice.StateError, match="Context is closed"):
        pumice.Image(context, "r32f", (2, 2))
    image.close()
