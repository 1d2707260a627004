"""Images in kernels: sampling, loads and stores, hazards, rejected arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from features import need_features
from image_samples import COPY, FORMATS, SHAPES, Array, spelled, storage_image, texels

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
    """Return the expected samples at points (x, y), in texel units."""

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
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=2e-2 if filter == "linear" else 0)  # 8-bit weights


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
    need_features(context, "shaderStorageImageWriteWithoutFormat")
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
def test_arguments_that_are_no_such_image_are_rejected(
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
def test_what_a_sampler_of_texels_cannot_do_is_rejected(context: pumice.Context, sample: str, use: str) -> None:
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


def test_a_bias_is_rejected_before_the_driver_sees_it() -> None:
    with pytest.raises(pumice.ShaderCompileError, match=r"'t' is sampled with a bias.*textureLod\(\)"):
        pumice.compile(f"{TEXELS}void main() {{ y[0] = texture(t, vec2(0.5), 1.0).r; }}")


def test_closed_images_are_rejected_at_every_step(context: pumice.Context) -> None:
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


def test_a_list_of_another_context_is_rejected(context: pumice.Context) -> None:
    with pumice.Context() as other:
        image = pumice.Image(other, "r32f", (8, 8))
        commands = pumice.CommandList(context)
        commands.dispatch(pumice.Kernel(spelled(IN_PLACE, f="r32f"), other).bind(x=image, factor=1, groups=1))
        with pytest.raises(pumice.BindingError, match="another"):
            commands.commit()


def test_formats_that_need_a_feature_are_rejected_without_it() -> None:
    with pumice.Context(without=["shaderStorageImageExtendedFormats"]) as masked:
        with pytest.raises(
            pumice.UnsupportedError, match="shaderStorageImageExtendedFormats .StorageImageExtendedFormats"
        ):
            pumice.Kernel(spelled(IN_PLACE, f="r16f"), masked)
        image = pumice.image(np.ones((4, 4), "float16"), "r16f", masked)  # it can still be sampled
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


def test_texels_of_integers_are_rejected(context: pumice.Context) -> None:
    source = "layout(local_size_x = 1) in;\nlayout(binding = 0) uniform usampler2D t;\nvoid main() {}"
    with pytest.raises(pumice.BindingError, match="'t': expected an Image whose texels are uint32"):
        pumice.Kernel(source, context)(t=pumice.Image(context, "r32f", (4, 4)), groups=1)


def test_two_arguments_of_one_binding_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="image '[xy]' has binding 0"):
        pumice.Kernel(COPY.replace("binding = 1", "binding = 0"), context)


def test_reflection_reports_what_an_image_is() -> None:
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
