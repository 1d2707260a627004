"""The image processing unit and the maximizer of the dv interface against models in NumPy and exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pumice
from lesser_devices import SMALL, SMALL_GRID, lesser
from pumice import dv
from pumice.dv import commands

Bytes = NDArray[np.uint8]
Image = NDArray[np.int64]  # (height, width, red green blue alpha)
PIXEL = {commands.RGBA8888: 4, commands.RGB888: 3, commands.RGBFP16: 6, commands.LUT: 1}
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def noise(rng: np.random.Generator, size: int) -> Bytes:
    return rng.integers(0, 256, size).astype(np.uint8)


class Memories:
    """Memories filled with noise and checked afterwards."""

    def __init__(self, context: dv.Context, rng: np.random.Generator) -> None:
        self.context, self.rng = context, rng

    def holding(self, data: Bytes, offset: int = 0) -> dv.Memory:
        memory = self.context.memory(offset + data.nbytes + 16)
        content = noise(self.rng, memory.size)
        content[offset : offset + data.nbytes] = data
        memory.write(content)
        return memory

    def run(self, *lists_of: Any) -> None:
        for one in lists_of:
            with self.context.command_list() as commands_:
                commands_.add(one)
                commands_.commit()
                commands_.run(timeout=60)


def content(memory: dv.Memory) -> Bytes:
    return memory.read(np.uint8, memory.size)


# ---- maximizer


@SETTINGS
@given(
    shape=st.tuples(st.one_of(st.integers(2, 20), st.sampled_from([64, 255])), st.integers(1, 9), st.integers(1, 9)),
    offsets=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    special=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_first_largest_channel_wins_and_nothing_else_is_written(
    dv_context: dv.Context, shape: tuple[int, int, int], offsets: tuple[int, int], special: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, shape).astype(np.float16)  # many ties
    scores *= rng.choice([1, -1], shape).astype(np.float16)  # zeros of either sign are equal
    if special:
        scores[rng.random(shape) < 0.1] = rng.choice([np.inf, -np.inf, np.nan])
    classes, height, width = shape
    memories, (first, target) = Memories(dv_context, rng), (2 * offsets[0], 2 * offsets[1])
    scored = memories.holding(dv.to_whc8(scores).view(np.uint8), first)
    output = memories.holding(noise(rng, width * height), target)
    expected = content(output)
    expected[target : target + width * height] = scores.argmax(axis=0).T.ravel()
    memories.run(
        dv.Maximizer(input_buf=scored + first, output_buf=output + target, width=width, height=height, nclass=classes)
    )
    assert (content(output) == expected).all()


def test_a_large_image_of_classes(dv_context: dv.Context) -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((21, 300, 500)).astype(np.float16)
    memories = Memories(dv_context, rng)
    scored, output = memories.holding(dv.to_whc8(scores).view(np.uint8)), dv_context.memory(150000)
    memories.run(dv.Maximizer(input_buf=scored, output_buf=output, width=500, height=300, nclass=21))
    assert (scores.argmax(axis=0) == output.read(np.uint8, (500, 300)).T).all()


# ---- image processing unit: the model


def neighbours(size: int, texels: int) -> list[tuple[int, int, int]]:
    """Return, for each pixel of an axis, the two neighbouring texels and the second's weight in 256ths."""
    found = []
    for i in range(size):
        place = (i + Fraction(1, 2)) * Fraction(texels, size) - Fraction(1, 2)
        first = math.floor(place)
        clamped = [min(max(texel, 0), texels - 1) for texel in (first, first + 1)]
        found.append((*clamped, math.floor((place - first) * 256 + Fraction(1, 2))))
    return found


def scaled(texture: Image, width: int, height: int, bilinear: bool) -> Image:
    rows, columns = texture.shape[:2]
    if not bilinear:
        y = [math.floor((i + Fraction(1, 2)) * Fraction(rows, height)) for i in range(height)]
        x = [math.floor((i + Fraction(1, 2)) * Fraction(columns, width)) for i in range(width)]
        return texture[y][:, x]
    top, low, v = (np.array(part) for part in zip(*neighbours(height, rows), strict=True))
    left, right, u = (np.array(part) for part in zip(*neighbours(width, columns), strict=True))
    u, v = u[None, :, None], v[:, None, None]
    above = texture[top][:, left] * (256 - u) + texture[top][:, right] * u
    below = texture[low][:, left] * (256 - u) + texture[low][:, right] * u
    return (above * (256 - v) + below * v + 32768) >> 16


def places(ipu: dv.Ipu, channels: int) -> list[int]:
    given_places = [ipu.ridx, ipu.gidx, ipu.bidx, ipu.aidx][:channels]
    return [sorted(given_places).index(place) for place in given_places]


def texture_colours(ipu: dv.Ipu, pixels: Bytes) -> Image:
    if ipu.fmt_tex == commands.LUT:
        palette = np.array([[colour >> 8 * i & 255 for i in range(4)] for colour in ipu.lut])
        return palette[pixels[:, :, 0] % 32]
    opaque = np.full((*pixels.shape[:2], 4 - pixels.shape[2]), 255)
    return np.concatenate([pixels.astype(np.int64), opaque], axis=2)


def blitted(ipu: dv.Ipu, texture: Bytes, background: Bytes) -> Bytes:
    """Return the bytes of each row that is written."""
    shape = (ipu.rect_height, ipu.rect_width)
    back = np.full((*shape, 4), 255, np.int64)
    back[:, :, : background.shape[2]] = background[:, :, places(ipu, background.shape[2])]
    over = back.copy()
    if ipu.use_tex:
        colours = texture_colours(ipu, texture)
        over = scaled(colours.transpose(1, 0, 2) if ipu.transpose else colours, *shape[::-1], bool(ipu.blf))
    alpha = np.full(shape, ipu.alpha) if ipu.use_const_alpha else over[:, :, 3].copy()
    if ipu.use_tex and ipu.use_rd:
        over[:, :, 3] = 255
        weight = alpha[:, :, None]
        over = (2 * (over * weight + back * (255 - weight)) + 255) // 510
    else:
        over[:, :, 3] = alpha
    channels = 4 if ipu.fmt_wr == commands.RGBA8888 else 3
    ordered = np.empty((*shape, channels), np.int64)
    ordered[:, :, places(ipu, channels)] = over[:, :, :channels]
    if ipu.fmt_wr != commands.RGBFP16:
        return ordered.astype(np.uint8).reshape(shape[0], -1)
    subtracted = np.empty(3, np.int64)
    subtracted[places(ipu, 3)] = ipu.cnv_param
    halves = ordered / 255 if ipu.cnv_type == commands.CNV_FP16_DIV_255 else ordered - subtracted
    return np.ascontiguousarray(halves.astype(np.float16)).view(np.uint8).reshape(shape[0], -1)


# ---- image processing unit: tests


class Rows:
    """Layout of an image's rows in a memory."""

    def __init__(self, row_bytes: int, rows: int, gap: int, offset: int, upwards: bool) -> None:
        self.row_bytes, self.rows, pitch = row_bytes, rows, row_bytes + gap
        self.stride = -pitch if upwards else pitch
        offset += (offset + pitch * (rows - 1) * upwards) % 2  # images start at even addresses
        self.first = offset + (pitch * (rows - 1) if upwards else 0)
        self.bytes = offset + pitch * (rows - 1) + row_bytes

    def of(self, data: Bytes) -> list[Bytes]:
        begins = [self.first + self.stride * row for row in range(self.rows)]
        return [data[begin : begin + self.row_bytes] for begin in begins]


@st.composite
def blits(draw: st.DrawFn) -> tuple[dv.Ipu, Rows, Rows, int, int]:
    """A blit without its memories, the rows of the source and target images, the texture's offset, a seed."""
    tex, wr = draw(st.sampled_from([0, 1, 7])), draw(st.sampled_from([0, 1, 2]))
    rd, uses = draw(st.sampled_from([0, 1])), draw(st.sampled_from([(1, 0), (0, 1), (1, 1)]))
    side, flag, byte = st.integers(1, 10), st.integers(0, 1), st.integers(0, 255)
    order = draw(st.permutations(range(4 if wr == commands.RGBA8888 else 3)))
    seed = draw(st.integers(0, 1000))
    lut = [int(colour) for colour in np.random.default_rng(seed).integers(0, 1 << 32, 32)]
    ipu = dv.Ipu(
        **dict(zip(("fmt_tex", "fmt_rd", "fmt_wr", "use_tex", "use_rd"), (tex, rd, wr, *uses), strict=True)),
        **{name: draw(side) for name in ("tex_width", "tex_height", "rect_width", "rect_height")},
        **{name: draw(flag) for name in ("blf", "transpose", "use_const_alpha", "cnv_type")},
        **dict(zip(("ridx", "gidx", "bidx", "aidx"), order, strict=False)),
        lut=lut,
        ncolor_lut=32,
        alpha=draw(byte),
        cnv_param=draw(st.tuples(byte, byte, byte)),
    )
    rows = [
        Rows(
            ipu.rect_width * PIXEL[form], ipu.rect_height, draw(st.integers(0, 9)), draw(st.integers(0, 20)), draw(flag)
        )
        for form in (rd, wr)
    ]
    ipu.stride_rd, ipu.stride_wr = (one.stride for one in rows)
    return ipu, *rows, 2 * draw(st.integers(0, 10)), seed


def run_blit(context: dv.Context, ipu: dv.Ipu, rd: Rows, wr: Rows, tex_offset: int, seed: int, in_place: bool) -> None:
    rng = np.random.default_rng(seed)
    memories = Memories(context, rng)
    texture = noise(rng, ipu.tex_width * ipu.tex_height * PIXEL[ipu.fmt_tex])
    written = memories.holding(noise(rng, wr.bytes))
    read = written if in_place else memories.holding(noise(rng, rd.bytes))
    ipu.tex, ipu.rd, ipu.wr = memories.holding(texture, tex_offset) + tex_offset, read + rd.first, written + wr.first
    background = np.stack(rd.of(content(read))).reshape(ipu.rect_height, ipu.rect_width, -1)
    expected = content(written)
    rows = blitted(ipu, texture.reshape(ipu.tex_height, ipu.tex_width, -1), background)
    for row, target in zip(rows, wr.of(expected), strict=True):
        target[...] = row
    memories.run(ipu)
    assert (content(written) == expected).all()


@SETTINGS
@given(blits())
def test_blits_are_those_of_the_model_and_write_nothing_else(
    dv_context: dv.Context, blit: tuple[dv.Ipu, Rows, Rows, int, int]
) -> None:
    run_blit(dv_context, *blit, in_place=False)


@SETTINGS
@given(blits(), st.sampled_from([commands.RGBA8888, commands.RGB888]))
def test_an_image_is_blended_where_it_is(
    dv_context: dv.Context, blit: tuple[dv.Ipu, Rows, Rows, int, int], form: int
) -> None:
    ipu, _, wr, tex_offset, seed = blit
    ipu.fmt_rd = ipu.fmt_wr = form
    ipu.use_rd = 1
    ipu.ridx, ipu.gidx, ipu.bidx, ipu.aidx = 2, 1, 0, 3
    rows = Rows(ipu.rect_width * PIXEL[form], ipu.rect_height, 3, wr.first % 5, bool(seed % 2))
    ipu.stride_rd = ipu.stride_wr = rows.stride
    run_blit(dv_context, ipu, rows, rows, tex_offset, seed, in_place=True)


@pytest.mark.parametrize("bilinear", [0, 1])
def test_the_largest_images_are_scaled_exactly(dv_context: dv.Context, bilinear: int) -> None:
    ipu = dv.Ipu(fmt_tex=1, fmt_wr=1, use_tex=1, blf=bilinear, tex_width=4095, tex_height=2)
    ipu.rect_width, ipu.rect_height = 4094, 3
    rows = Rows(4094 * 3, 3, 1, 1, False)
    ipu.stride_wr = rows.stride
    run_blit(dv_context, ipu, rows, rows, 2, 5, in_place=False)


@pytest.fixture(scope="module", params=[SMALL, SMALL_GRID], ids=["64", "2"])
def small_grids(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[dv.Context]:
    """Devices limited to 64 or 2 workgroups per grid axis."""
    with lesser(pumice_context, request.param) as device, dv.Context(device) as made:
        yield made


@pytest.mark.parametrize(("width", "height"), [(67, 401), (401, 67), (9, 1), (130, 131)])
@pytest.mark.parametrize("blends", [0, 1])
def test_images_of_more_rows_than_a_grid_has_are_whole(
    width: int, height: int, blends: int, small_grids: dv.Context
) -> None:
    ipu = dv.Ipu(fmt_tex=0, fmt_rd=1, fmt_wr=1, use_tex=1, use_rd=blends, blf=1, tex_width=31, tex_height=29)
    ipu.rect_width, ipu.rect_height = width, height
    read, written = Rows(width * 3, height, 2, 4, False), Rows(width * 3, height, 5, 1, True)
    ipu.stride_rd, ipu.stride_wr = read.stride, written.stride
    run_blit(small_grids, ipu, read, written, 2, width + height, in_place=False)


@pytest.mark.parametrize(("width", "height"), [(83, 61), (401, 67), (1, 1)])
@pytest.mark.parametrize("classes", [2, 21])
def test_classes_of_more_pixels_than_a_grid_has_are_all_found(
    width: int, height: int, classes: int, small_grids: dv.Context
) -> None:
    rng = np.random.default_rng(classes)
    scores = rng.standard_normal((classes, height, width)).astype(np.float16)
    memories = Memories(small_grids, rng)
    scored = memories.holding(dv.to_whc8(scores).view(np.uint8))
    output = memories.holding(noise(rng, width * height))
    expected = content(output)
    expected[: width * height] = scores.argmax(axis=0).T.ravel()
    memories.run(dv.Maximizer(input_buf=scored, output_buf=output, width=width, height=height, nclass=classes))
    assert (content(output) == expected).all()


def test_a_picture_becomes_the_input_of_a_network(dv_context: dv.Context) -> None:
    """Transposed and without gaps, three fp16 channels are in WHC8 order."""
    rng = np.random.default_rng(1)
    picture = noise(rng, 20 * 30 * 3).reshape(20, 30, 3)
    memories = Memories(dv_context, rng)
    output = dv_context.memory(20 * 30 * 6)
    ipu = dv.Ipu(fmt_tex=1, fmt_wr=2, use_tex=1, transpose=1, tex_width=30, tex_height=20)
    ipu.rect_width, ipu.rect_height, ipu.cnv_param = 20, 30, (104, 117, 123)
    ipu.tex, ipu.wr = memories.holding(picture.ravel()), output
    memories.run(ipu)
    expected = dv.to_whc8((picture - np.array([104.0, 117.0, 123.0])).astype(np.float16), "HWC")
    assert (output.read(np.float16, expected.shape) == expected).all()


@pytest.mark.parametrize(("shift", "form"), [(0, 2), (2, 1), (34, 1), (-30, 0)])
def test_images_that_overlap_are_read_before_they_are_written(dv_context: dv.Context, shift: int, form: int) -> None:
    rng = np.random.default_rng(4)
    data = noise(rng, 4096)
    memory = Memories(dv_context, rng).holding(data)
    ipu = dv.Ipu(fmt_tex=0, fmt_rd=1, fmt_wr=form, use_tex=1, use_rd=1, tex_width=9, tex_height=8, blf=1)
    ipu.rect_width, ipu.rect_height, ipu.stride_rd = 10, 12, 30
    ipu.tex, ipu.rd, ipu.wr = memory + 200, memory + 100, memory + (100 + shift)
    texture, background = data[200 : 200 + 9 * 8 * 4], data[100 : 100 + 360]
    rows = blitted(ipu, texture.reshape(8, 9, 4), background.reshape(12, 10, 3)).ravel()
    data[100 + shift : 100 + shift + rows.size] = rows
    Memories(dv_context, rng).run(ipu)
    assert (memory.read(np.uint8, 4096) == data).all()


def test_scores_that_the_classes_overlap_are_read_first(dv_context: dv.Context) -> None:
    rng = np.random.default_rng(6)
    scores = rng.standard_normal((3, 40, 50)).astype(np.float16)
    memories = Memories(dv_context, rng)
    memory = memories.holding(dv.to_whc8(scores).view(np.uint8))
    memories.run(dv.Maximizer(input_buf=memory, output_buf=memory, width=50, height=40, nclass=3))
    assert (scores.argmax(axis=0) == memory.read(np.uint8, (50, 40)).T).all()


@pytest.mark.parametrize(
    ("slot", "fields"),
    [
        ("use_tex, use_rd", {"use_tex": 0, "use_rd": 0}),
        ("fmt_wr", {"fmt_wr": commands.LUT}),
        ("fmt_rd", {"fmt_rd": commands.RGBFP16}),
        ("fmt_tex", {"fmt_tex": commands.RGBFP16}),
        *((side, {side: 0}) for side in ("tex_width", "tex_height", "rect_width", "rect_height")),
        ("stride_rd", {"stride_rd": 0}),
        ("stride_wr", {"stride_wr": 31}),
        ("stride_wr", {"stride_wr": -31}),
        ("ridx", {"ridx": 4}),
        ("gidx", {"gidx": 0}),
        ("bidx", {"bidx": -1}),
        ("aidx", {"aidx": 1}),
        ("ncolor_lut", {"ncolor_lut": 33}),
        ("cnv_type", {"fmt_wr": commands.RGBFP16, "cnv_type": 2, "stride_wr": 48}),
        ("tex.mem", {"tex": None}),
        ("rd.mem", {"rd": None}),
        ("wr.mem", {"wr": None}),
        ("tex", {"tex_width": 64, "tex_height": 17}),
        ("wr", {"stride_wr": 700}),
        ("rd", {"stride_rd": 700}),
        ("wr.offs", {"stride_wr": -500}),
        ("wr.offs", {"stride_wr": -(1 << 31)}),
    ],
)
def test_what_is_no_blit_is_rejected_by_field(dv_context: dv.Context, slot: str, fields: dict[str, Any]) -> None:
    memory = dv_context.memory(4096)
    given_fields: dict[str, Any] = {"use_tex": 1, "use_rd": 1, "tex": memory, "rd": memory, "wr": memory + 2048}
    given_fields |= dict.fromkeys(("tex_width", "tex_height", "rect_width", "rect_height"), 8)
    given_fields |= {"stride_rd": 32, "stride_wr": 32}
    with dv_context.command_list() as commands_:
        commands_.add(dv.Ipu(**given_fields))
        with pytest.raises(pumice.BindingError) as refused:
            commands_.add(dv.Ipu(**given_fields | fields))
    assert refused.value.slot == slot


def test_a_single_row_needs_no_stride(dv_context: dv.Context) -> None:
    memory = dv_context.memory(4096)
    with dv_context.command_list() as commands_:
        ipu = dv.Ipu(fmt_rd=0, fmt_wr=1, use_rd=1, rect_width=10, rect_height=1, stride_rd=40, stride_wr=-29)
        ipu.rd, ipu.wr = memory, memory + 2048
        commands_.add(ipu)


def test_a_palette_holds_until_the_next_one(pumice_context: pumice.Context) -> None:
    first, second = [int(colour) for colour in np.random.default_rng(2).integers(0, 1 << 32, 32)], [0x01020304]
    indices = np.arange(32, dtype=np.uint8)
    with dv.Context(pumice_context) as context:
        memories = Memories(context, np.random.default_rng(3))
        texture, output = memories.holding(indices), context.memory(128)

        def shown(lut: list[int]) -> list[int]:
            ipu = dv.Ipu(fmt_tex=commands.LUT, fmt_wr=0, use_tex=1, tex_width=32, tex_height=1, tex=texture, wr=output)
            ipu.rect_width, ipu.rect_height, ipu.lut, ipu.ncolor_lut = 32, 1, lut, len(lut)
            memories.run(ipu)
            return output.read(np.uint32, 32).tolist()

        assert shown([]) == [0] * 32
        assert shown(first) == first
        assert shown([]) == first
        assert shown(second) == second + first[1:]
        assert shown([]) == second + first[1:]
