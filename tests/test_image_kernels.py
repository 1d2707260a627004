"""Images that kernels read and write: texels, samplers, hazards, refusals; the image functions of the older extension, bit for bit."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from process import python
from test_glsl_extension import (
    MODES,
    assert_same,
    convert,
    denormal_free,
    is_half,
    numbers,
    storage_of,
)

Array = npt.NDArray[Any]
FORMATS = {"r32f": ("float32", ()), "r16f": ("float16", ()), "rgba16f": ("float16", (4,)), "rgba32f": ("float32", (4,))}
SHAPES: list[tuple[int, ...]] = [(7,), (5, 7), (3, 5, 7)]


def texels(shape: tuple[int, ...], format: str, seed: int = 0) -> Array:
    dtype, channels = FORMATS[format]
    return np.random.default_rng(seed).standard_normal((*shape, *channels)).astype(dtype)


def storage_image(context: pumice.Context, format: str, shape: tuple[int, ...]) -> pumice.Image:
    """Skips where the device cannot store to images of this format."""
    if format == "r16f" and not context.feature("shaderStorageImageExtendedFormats"):
        pytest.skip("the device has no shaderStorageImageExtendedFormats, which r16f needs")
    return pumice.Image(context, format, (*shape, *FORMATS[format][1]))


# --- Texels


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


def test_elements_that_convert_exactly_are_taken_and_others_refused(context: pumice.Context) -> None:
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
        ({"format": "rgba8", "shape": (4, 4)}, "'rgba8'; there are r32f, r16f, rgba16f, rgba32f"),
        ({"format": "r32f", "shape": ()}, "1 to 3 dimensions, given 0"),
        ({"format": "r32f", "shape": (2, 2, 2, 2)}, "1 to 3 dimensions, given 4"),
        ({"format": "rgba32f", "shape": (4, 4, 3)}, "ends in the 4 channels"),
        ({"format": "rgba32f", "shape": (4,)}, "given 0"),
        ({"format": "r32f", "shape": (4, 0)}, "axis 1 has 0 texels"),
        ({"format": "r32f", "shape": (1 << 40, 4)}, "axis 0 has 1099511627776 texels, the device takes 1 to"),
        ({"format": "r32f", "shape": (4, 4), "filter": "cubic"}, "'cubic'; there are 'nearest', 'linear'"),
        ({"format": "r32f", "shape": (4, 4), "address": "wrap"}, "'wrap'; there are 'clamp', 'repeat', 'border'"),
        ({"format": "r32f", "shape": (4, 4), "address": "repeat", "normalized": False}, "coordinates in texels"),
        ({"format": "r32f", "shape": (4, 4, 4), "normalized": False}, "coordinates in texels"),
    ],
)
def test_images_that_cannot_be_are_refused(context: pumice.Context, arguments: dict[str, Any], text: str) -> None:
    gc.collect()  # images that earlier tests left in cycles
    before = context.memory.images
    with pytest.raises(pumice.UnsupportedError, match=text):
        pumice.Image(context, **arguments)
    assert context.memory.images == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"format": 3}, "argument 'format': expected a name; given 3"),
        ({"format": None}, "argument 'format': expected a name; given None"),
        ({"shape": None}, "argument 'shape': expected whole numbers; given None"),
        ({"shape": "44"}, "argument 'shape': expected whole numbers; given '44'"),
        ({"shape": (4, 4.5)}, "argument 'shape': expected whole numbers.*4.5"),
        ({"shape": (4, 1 << 70)}, "whole numbers of 64 bits"),
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
def test_what_has_no_texels_is_refused(context: pumice.Context, array: Any) -> None:
    with pytest.raises(pumice.BindingError) as caught:
        pumice.image(array, "r32f", context)
    assert caught.value.rule == "K5"


def test_a_size_past_the_device_names_both_numbers(context: pumice.Context) -> None:
    most = context.limit("maxImageDimension2D")
    with pytest.raises(pumice.UnsupportedError, match=rf"axis 0 has {8 * most} texels, the device takes 1 to \d+"):
        pumice.Image(context, "r32f", (8 * most, 1))
    assert pumice.Image(context, "r32f", (1, most)).shape == (1, most)


def test_an_image_of_too_many_bytes_is_refused(context: pumice.Context) -> None:
    most = context.limit("maxImageDimension3D")
    with pytest.raises((pumice.UnsupportedError, pumice.OutOfMemoryError), match=rf"{most**3 * 16}\b.* bytes"):
        pumice.Image(context, "rgba32f", (most, most, most, 4))
    assert pumice.Image(context, "rgba32f", (1, 1, 1, 4)).shape == (1, 1, 1, 4)


def test_images_are_counted_closed_and_freed(context: pumice.Context) -> None:
    gc.collect()  # what the errors of other tests hold
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


# --- Kernels

COPY = """
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, r32f) readonly uniform image2D x;
layout(binding = 1, r32f) writeonly uniform image2D y;
void main() {
  ivec2 p = ivec2(gl_GlobalInvocationID.xy);
  if (all(lessThan(p, imageSize(y)))) imageStore(y, p, imageLoad(x, p) + 1.0);
}
"""
POSITION = {1: ("int(i.x)", "w"), 2: ("ivec2(i.xy)", "w, h"), 3: ("ivec3(i)", "w, h, d")}
STORE = """
layout(local_size_x = 4, local_size_y = 4) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1, $f) writeonly uniform image$nD y;
layout(push_constant) uniform parameter { uint w, h, d; } p;
void main() {
  const uvec3 i = gl_GlobalInvocationID;
  if (i.x >= p.w || i.y >= p.h || i.z >= p.d) return;
  const uint at = ((i.z * p.h + i.y) * p.w + i.x) * $cu;
  imageStore(y, $p, vec4(x[at], x[at + ($cu > 1u ? 1u : 0u)], x[at + ($cu > 1u ? 2u : 0u)], x[at + ($cu > 1u ? 3u : 0u)]));
}
"""
LOAD = """
layout(local_size_x = 4, local_size_y = 4) in;
layout(binding = 0) $d;
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform parameter { uint w, h, d; } p;
void main() {
  const uvec3 i = gl_GlobalInvocationID;
  if (i.x >= p.w || i.y >= p.h || i.z >= p.d) return;
  const uint at = ((i.z * p.h + i.y) * p.w + i.x) * $cu;
  const vec4 v = $l;
  for (uint c = 0u; c < $cu; ++c) y[at + c] = v[c];
}
"""


def spelled(text: str, **words: object) -> str:
    for word, replacement in words.items():
        text = text.replace(f"${word}", str(replacement))
    return text


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_store_load_and_fetch_texels(context: pumice.Context, format: str, shape: tuple[int, ...]) -> None:
    given, n = texels(shape, format).astype("float32"), len(shape)
    channels = len(FORMATS[format][1]) * 3 + 1
    image = storage_image(context, format, shape)
    d, h, w = (1, 1, 1, *shape)[-3:]
    launch = {"w": w, "h": h, "d": d, "threads": (w, h, d)}
    position = POSITION[n][0]
    pumice.Kernel(spelled(STORE, f=format, nD=f"{n}D", p=position, c=channels), context)(x=given, y=image, **launch)
    np.testing.assert_array_equal(image.numpy(), given)
    for declared, load in (
        (f"readonly uniform image{n}D x", f"imageLoad(x, {position})"),
        (f"uniform sampler{n}D x", f"texelFetch(x, {position}, 0)"),
    ):
        source = spelled(LOAD, d=declared, l=load, c=channels)
        if "image" in declared:
            source = source.replace("binding = 0)", f"binding = 0, {format})")
        y = np.zeros(given.shape, "float32")
        pumice.Kernel(source, context)(x=image, y=y, **launch)
        np.testing.assert_array_equal(y, given, declared)


SAMPLE = """
layout(local_size_x = 8) in;
layout(binding = 0) uniform sampler2D t;
layout(binding = 1) readonly buffer P { vec2 p[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < p.length()) y[i] = textureLod(t, p[i], 0.0).r; }
"""


def sampled(picture: Array, points: Array, filter: str, address: str) -> Array:
    """What a sampler gives at points (x, y) in texels."""

    def texel(y: Array, x: Array) -> Array:
        h, w = picture.shape
        if address == "repeat":
            return picture[y % h, x % w]
        inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
        value = picture[y.clip(0, h - 1), x.clip(0, w - 1)]
        return value if address == "clamp" else np.where(inside, value, 0)

    if filter == "nearest":
        return texel(np.floor(points[:, 1]).astype(int), np.floor(points[:, 0]).astype(int))
    x, y = points[:, 0] - 0.5, points[:, 1] - 0.5
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    fx, fy = x - x0, y - y0
    upper = texel(y0, x0) * (1 - fx) + texel(y0, x0 + 1) * fx
    lower = texel(y0 + 1, x0) * (1 - fx) + texel(y0 + 1, x0 + 1) * fx
    return np.asarray(upper * (1 - fy) + lower * fy)


@pytest.mark.parametrize(
    ("address", "normalized"),
    [(a, n) for a in ("clamp", "repeat", "border") for n in (False, True, None) if (a, n) != ("repeat", False)],
)
@pytest.mark.parametrize("filter", ["nearest", "linear"])
def test_samplers_filter_and_address(
    context: pumice.Context, filter: str, address: str, normalized: bool | None
) -> None:
    picture = texels((4, 8), "r32f")
    image = pumice.image(picture, "r32f", context, filter=filter, address=address, normalized=normalized)
    assert (image.filter, image.address) == (filter, address)
    assert image.normalized == (address == "repeat" if normalized is None else normalized)
    points = np.random.default_rng(1).integers(-64, 192, (300, 2)).astype("float32") / 16 + np.float32(1 / 32)
    given = points / [8, 4] if image.normalized else points
    y = np.zeros(len(points), "float32")
    pumice.Kernel(SAMPLE, context)(t=image, p=given.astype("float32"), y=y, threads=len(points))
    expected = sampled(picture.astype("float64"), points.astype("float64"), filter, address)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=2e-2 if filter == "linear" else 0)  # weights have 8 bits


def test_a_dispatch_waits_for_the_image_that_another_writes(context: pumice.Context) -> None:
    shape = (40, 33)
    images = [pumice.image(np.zeros(shape, "float32"), "r32f", context) for _ in range(4)]
    kernel = pumice.Kernel(COPY, context)

    def recorded(*steps: tuple[int, int]) -> pumice.CommandList:
        commands = pumice.CommandList(context)
        for x, y in steps:
            commands.dispatch(kernel.bind(x=images[x], y=images[y], threads=shape[::-1]))
        commands.commit()
        return commands

    assert recorded((0, 1), (0, 2)).barriers == 0  # two readers
    assert recorded((0, 1), (2, 3)).barriers == 0  # nothing shared
    assert recorded((0, 1), (1, 2)).barriers == 1  # read after write
    assert recorded((0, 1), (2, 0)).barriers == 1  # write after read
    assert recorded((0, 1), (2, 1)).barriers == 1  # write after write
    chain = recorded((0, 1), (1, 2), (2, 3), (3, 0))
    assert chain.barriers == 3
    for _ in range(20):
        chain.exec()
    chain.wait(context.submitted)
    np.testing.assert_array_equal(images[0].numpy(), np.full(shape, 80))
    np.testing.assert_array_equal(images[3].numpy(), np.full(shape, 79))


def test_lists_wait_for_images_that_other_lists_write(context: pumice.Context) -> None:
    x, y = (pumice.image(np.zeros((16, 16), "float32"), "r32f", context) for _ in range(2))
    kernel = pumice.Kernel(COPY, context)
    lists = []
    for source, target in ((x, y), (y, x)):
        commands = pumice.CommandList(context)
        commands.dispatch(kernel.bind(x=source, y=target, threads=(16, 16)))
        commands.commit()
        lists.append(commands)
    for _ in range(30):
        for commands in lists:
            commands.exec()
    np.testing.assert_array_equal(x.numpy(), np.full((16, 16), 60))
    x.upload(np.zeros((16, 16), "float32"))
    lists[0].exec()
    np.testing.assert_array_equal(y.numpy(), np.ones((16, 16)))


IN_PLACE = """
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, $f) uniform image2D x;
layout(push_constant) uniform parameter { float factor; } p;
void main() {
  ivec2 at = ivec2(gl_GlobalInvocationID.xy);
  imageStore(x, at, imageLoad(x, at) * p.factor);
}
"""


def test_an_image_may_be_read_and_written(context: pumice.Context) -> None:
    image = pumice.image(np.ones((8, 8), "float32"), "r32f", context)
    kernel = pumice.Kernel(spelled(IN_PLACE, f="r32f"), context)
    for factor in (2, 3, 5):
        kernel(x=image, factor=factor, groups=1)
    np.testing.assert_array_equal(image.numpy(), np.full((8, 8), 30))


def test_an_image_that_declares_no_format_takes_all(context: pumice.Context) -> None:
    source = spelled(COPY.replace(", r32f) writeonly", ") writeonly"))
    assert pumice.compile(source).interface["images"][1]["format"] == ""
    if not context.feature("shaderStorageImageWriteWithoutFormat"):
        pytest.skip("the device has no shaderStorageImageWriteWithoutFormat")
    kernel = pumice.Kernel(source, context)
    x = pumice.image(np.arange(64, dtype="float32").reshape(8, 8), "r32f", context)
    y = pumice.Image(context, "rgba16f", (8, 8, 4))
    kernel(x=x, y=y, groups=1)
    np.testing.assert_array_equal(y.numpy()[..., 0], x.numpy() + 1)


# --- Refusals


@pytest.mark.parametrize(
    ("given", "rule", "text"),
    [
        (lambda c: np.zeros((8, 8), "float32"), "K11", r"pumice\.image\(array, format\).*given an array"),
        (lambda c: pumice.empty((8, 8), "float32", c), "K11", r"expected an Image of r32f with 2.*given an array"),
        (lambda c: 3, "K11", "given numbers"),
        (lambda c: pumice.Image(c, "rgba32f", (8, 8, 4)), "K11", "r32f with 2 dimensions; given one of rgba32f with 2"),
        (lambda c: pumice.Image(c, "r32f", (8,)), "K11", "r32f with 2 dimensions; given one of r32f with 1 dimension"),
        (lambda c: pumice.Image(pumice.Context(), "r32f", (8, 8)), "M3", "image of this context"),
    ],
)
def test_arguments_that_are_no_such_image_are_refused(
    context: pumice.Context, given: Any, rule: str, text: str
) -> None:
    kernel, x = pumice.Kernel(COPY, context), pumice.Image(context, "r32f", (8, 8))
    wrong = given(context)
    for use in (kernel, kernel.bind):
        with pytest.raises(pumice.BindingError, match=text) as caught:
            use(x=x, y=wrong, groups=1)
        assert caught.value.rule == rule and "'y'" in str(caught.value)


def test_names_and_kinds_of_arguments_are_checked(context: pumice.Context) -> None:
    image = pumice.Image(context, "r32f", (8, 8))
    kernel = pumice.Kernel(spelled(IN_PLACE, f="r32f"), context)
    with pytest.raises(pumice.BindingError, match="expected an Image of r32f with 2 dimensions; given nothing"):
        kernel(factor=1, groups=1)
    with pytest.raises(pumice.BindingError, match="x, factor"):
        kernel(x=image, z=image, factor=1, groups=1)
    with pytest.raises(pumice.BindingError, match="given an image"):
        kernel(x=image, factor=image, groups=1)
    buffers = pumice.Kernel("layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1.0; }", context)
    with pytest.raises(pumice.BindingError, match="expected an array of float32; given an image"):
        buffers(x=image, threads=1)


TEXELS = "layout(local_size_x = 1) in;\nlayout(binding = 0) uniform sampler2D t;\nlayout(binding = 1) buffer Y { float y[]; };\n"


@pytest.mark.parametrize(
    ("sample", "use"),
    [
        ("textureLodOffset(t, vec2(1.5), 0.0, ivec2(1))", "an offset"),
        ("textureGatherOffset(t, vec2(1.5), ivec2(1))", "an offset"),
        ("textureProjLod(t, vec3(1.5, 1.5, 1.0), 0.0)", "a projection"),
        ("inner(t)", "an offset"),
        ("textureLod(t, vec2(1.5), 0.0)", ""),
        ("texture(t, vec2(1.5))", ""),
        ("textureGather(t, vec2(1.5))", ""),
        ("textureGrad(t, vec2(1.5), vec2(0.0), vec2(0.0))", ""),
        ("texelFetchOffset(t, ivec2(0), 0, ivec2(1))", ""),
    ],
)
def test_what_a_sampler_of_texels_cannot_do_is_refused(context: pumice.Context, sample: str, use: str) -> None:
    functions = (
        "vec4 innermost(sampler2D s) { return textureLodOffset(s, vec2(1.5), 0.0, ivec2(1)); }\n"
        "vec4 inner(sampler2D s) { return innermost(s); }\n"
    )
    source = f"{TEXELS}{functions if 'inner' in sample else ''}void main() {{ y[0] = {sample}.r; }}"
    kernel, y = pumice.Kernel(source, context), np.zeros(1, "float32")
    (reflected,) = kernel.shader.interface["images"]
    assert reflected["normalized_for"] == use
    picture = texels((4, 8), "r32f")
    kernel(t=pumice.image(picture, "r32f", context, normalized=True), y=y, groups=1)
    in_texels = pumice.image(picture, "r32f", context, normalized=False)
    if use:
        with pytest.raises(
            pumice.BindingError, match=rf"normalized=True.*'t' with {use}; given one with coordinates in"
        ) as caught:
            kernel(t=in_texels, y=y, groups=1)
        assert caught.value.rule == "K11"
    else:
        kernel(t=in_texels, y=y, groups=1)
        assert y[0] in picture


def test_a_bias_is_refused_before_the_driver_sees_it() -> None:
    with pytest.raises(pumice.ShaderCompileError, match=r"'t' is sampled with a bias.*textureLod\(\)"):
        pumice.compile(f"{TEXELS}void main() {{ y[0] = texture(t, vec2(0.5), 1.0).r; }}")


def test_closed_images_are_refused_at_every_step(context: pumice.Context) -> None:
    kernel = pumice.Kernel(spelled(IN_PLACE, f="r32f"), context)
    image = pumice.Image(context, "r32f", (8, 8))
    bound = kernel.bind(x=image, factor=1, groups=1)
    committed, open_list = pumice.CommandList(context), pumice.CommandList(context)
    committed.dispatch(bound)
    committed.commit()
    committed.exec()
    open_list.dispatch(bound)
    image.close()
    for use in (committed.exec, open_list.commit, lambda: kernel(x=image, factor=1, groups=1)):
        with pytest.raises(pumice.StateError, match="closed"):
            use()


def test_a_list_of_another_context_is_refused(context: pumice.Context) -> None:
    with pumice.Context() as other:
        image = pumice.Image(other, "r32f", (8, 8))
        commands = pumice.CommandList(context)
        commands.dispatch(pumice.Kernel(spelled(IN_PLACE, f="r32f"), other).bind(x=image, factor=1, groups=1))
        with pytest.raises(pumice.BindingError, match="another"):
            commands.commit()


def test_formats_that_need_a_feature_are_refused_without_it() -> None:
    with pumice.Context(without=["shaderStorageImageExtendedFormats"]) as masked:
        with pytest.raises(
            pumice.UnsupportedError, match="shaderStorageImageExtendedFormats .StorageImageExtendedFormats"
        ):
            pumice.Kernel(spelled(IN_PLACE, f="r16f"), masked)
        image = pumice.image(np.ones((4, 4), "float16"), "r16f", masked)  # sampling it is fine
        y = np.zeros(1, "float32")
        pumice.Kernel(SAMPLE, masked)(t=image, p=np.ones((1, 2), "float32"), y=y, threads=1)
        assert y[0] == 1


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("uniform sampler2DArray t", "one to three dimensions"),
        ("uniform sampler2DShadow t", "one to three dimensions"),
        ("uniform samplerCube t", "one to three dimensions"),
        ("uniform texture2D t", "combined image and sampler"),
        ("uniform sampler2D t[2]", "combined image and sampler"),
        ("writeonly uniform image2DArray t", "one to three dimensions"),
    ],
)
def test_kinds_of_images_that_there_are_not_are_named(declared: str, text: str) -> None:
    with pytest.raises(pumice.UnsupportedError, match=f"'t'.*{text}"):
        pumice.compile(f"layout(local_size_x = 1) in;\nlayout(binding = 0) {declared};\nvoid main() {{}}\n")


def test_texels_of_integers_are_refused(context: pumice.Context) -> None:
    source = "layout(local_size_x = 1) in;\nlayout(binding = 0) uniform usampler2D t;\nvoid main() {}"
    with pytest.raises(pumice.UnsupportedError, match="'t' is declared with texels of uint32"):
        pumice.Kernel(source, context)(t=pumice.Image(context, "r32f", (4, 4)), groups=1)


def test_two_arguments_of_one_binding_are_refused(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="image '[xy]' has binding 0"):
        pumice.Kernel(COPY.replace("binding = 1", "binding = 0"), context)


def test_reflection_tells_what_an_image_is() -> None:
    images = pumice.compile(
        COPY.replace("binding = 0, r32f) readonly uniform image2D x;", "binding = 0, r32f) readonly uniform image2D x;\n"
                     "layout(binding = 2, rgba16f) uniform image3D z;\nlayout(binding = 3) uniform sampler1D t;")
    ).interface["images"]  # fmt: skip
    seen = [(i["name"], i["sampled"], i["dimensions"], i["access"], i["type"], i["format"]) for i in images]
    assert seen == [
        ("x", False, 2, "read", "float32", "r32f"),
        ("y", False, 2, "write", "float32", "r32f"),
        ("z", False, 3, "read_write", "float32", "rgba16f"),
        ("t", True, 1, "read", "float32", ""),
    ]


# --- The image functions of the extension's older generation, against a model of them

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
    """Of single elements and of vectors."""
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
        """`unfp` is mediump with fp16_packed: a device may make halves of the texels of r32f."""
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
