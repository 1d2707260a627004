"""Tensor descriptions: pure arithmetic, checked in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pumice

SIZES = [
    ("float32", [1, 1, 32768, 32768], [0, 0, 32768, 1], 4294967296),
    ("float32", [1, 1, 32768, 32769], [0, 0, 32769, 1], 4295098368),
    ("float32", [1, 8, 28, 28], [8, 1, 0, 0], 32),
    ("float16", [1, 3, 5, 5], None, 152),
    ("float16", [1, 1, 1, 3], None, 8),
    ("float32", [2, 3], [5, 1], 32),
    ("float32", [], None, 4),
    ("float32", [], [], 4),
    ("uint8", [1], None, 4),
    ("bool", [5], None, 8),
    ("int4", [3], None, 4),
    ("uint4", [9], None, 8),
    ("int64", [3], None, 24),
    ("bfloat16", [8, 8], None, 128),
    ("float32", [0], [1], 0),
    ("float32", [2, 0], [4, 1], 0),
    ("float32", [0, 4294967295, 4294967295], None, 0),
]


@pytest.mark.parametrize(("dtype", "shape", "strides", "expected"), SIZES)
def test_buffer_size(dtype: str, shape: list[int], strides: list[int] | None, expected: int) -> None:
    assert pumice.buffer_size(dtype, shape, strides) == expected
    assert pumice.TensorDesc(dtype, shape, strides).bytes == expected


REFUSALS = [
    ("uint8", [1, 1, 65536, 65537], [0, 0, 65537, 1], "4295032832 elements"),
    ("float32", [4294967295, 4294967295, 2], None, "does not fit in 64 bits"),
    ("float32", [65536, 65536], None, "4294967296 elements"),
    ("float32", [2, 2], [1 << 62, 1 << 62], "does not fit in 64 bits"),
    ("float32", [3], [1 << 61], "does not fit in 64 bits"),
    ("float32", [2, 3, 4, 5], [1, 1, 1], "3 strides for a shape of rank 4"),
    ("float32", [1] * 9, None, "rank 9"),
    ("float32", [-1], None, "negative size"),
    ("float32", [2], [-1], "negative stride"),
]


@pytest.mark.parametrize(("dtype", "shape", "strides", "message"), REFUSALS)
def test_what_cannot_be_described_is_rejected(
    dtype: str, shape: list[int], strides: list[int] | None, message: str
) -> None:
    for describe in (pumice.buffer_size, pumice.TensorDesc):
        with pytest.raises(pumice.GraphError, match=message) as caught:
            describe(dtype, shape, strides)
        assert caught.value.rule == "R8"


def test_an_unknown_dtype_is_rejected_with_those_there_are() -> None:
    with pytest.raises(pumice.GraphError, match="unknown dtype 'float8'.*float64, float32, float16"):
        pumice.TensorDesc("float8", [1])


@pytest.mark.parametrize(("alignment", "dtype"), [(24, "float32"), (2, "float32"), (1, "float16"), (4, "int64")])
def test_an_alignment_that_is_no_power_of_two_or_splits_elements_is_rejected(alignment: int, dtype: str) -> None:
    with pytest.raises(pumice.GraphError, match=f"given {alignment}") as caught:
        pumice.TensorDesc(dtype, [4], alignment=alignment)
    assert caught.value.rule == "R4"


@pytest.mark.parametrize("alignment", [0, 4, 64, 1 << 40])
def test_an_alignment_is_kept(alignment: int) -> None:
    assert pumice.TensorDesc("float32", [4], alignment=alignment).alignment == alignment


LAYOUTS = [
    ([2, 3, 4, 5], "NCHW", (60, 20, 5, 1)),
    ([2, 3, 4, 5], "NHWC", (60, 1, 15, 3)),
    ([1, 1, 3, 5], "NHWC", (15, 1, 5, 1)),
    ([2, 3, 4, 5, 6], "NCDHW", (360, 120, 30, 6, 1)),
    ([2, 3, 4, 5, 6], "NDHWC", (360, 1, 90, 18, 3)),
    ([1, 1, 1, 1], "NCHW", (1, 1, 1, 1)),
    ([2, 3, 4], "NWC", (12, 1, 3)),
    ([2, 0, 4], "NCW", (4, 4, 1)),
]


@pytest.mark.parametrize(("shape", "layout", "expected"), LAYOUTS)
def test_strides_of_a_layout(shape: list[int], layout: str, expected: tuple[int, ...]) -> None:
    assert pumice.strides(shape, layout) == expected


@pytest.mark.parametrize("layout", ["NCH", "NCHX", "NCHH", "nchw", ""])
def test_an_unknown_layout_is_rejected(layout: str) -> None:
    with pytest.raises(pumice.GraphError, match=f"'{layout}'"):
        pumice.strides([2, 3, 4, 5], layout)


def test_a_description_returns_its_arguments() -> None:
    desc = pumice.TensorDesc(np.float16, [2, 3], strides=[4, 1], owned=True, scale=0.5, zero_point=-3)
    assert (desc.dtype, desc.shape, desc.strides, desc.owned) == ("float16", (2, 3), (4, 1), True)
    assert (desc.scale, desc.zero_point, desc.rank, desc.elements, desc.bytes) == (0.5, -3, 2, 6, 16)
    assert desc.packed_strides() == (3, 1)
    assert not desc.is_packed
    assert "float16[2, 3]" in repr(desc)


def test_descriptions_are_equal_where_all_they_say_is() -> None:
    desc = pumice.TensorDesc("float32", [2, 3])
    assert desc == pumice.TensorDesc("float32", [2, 3], [3, 1])
    assert desc != "float32 [2, 3]"
    assert desc != pumice.TensorDesc("float32", [3, 2])
    assert desc != pumice.TensorDesc("int32", [2, 3])
    assert desc != pumice.TensorDesc("float32", [2, 3], owned=True)


shapes = st.lists(st.integers(0, 7), max_size=8)


@given(shapes)
def test_packed_descriptions_are_as_numpy_lays_arrays_out(shape: list[int]) -> None:
    array = np.empty(shape, np.float32)
    desc = pumice.TensorDesc("float32", shape)
    assert desc.bytes == array.nbytes
    if array.size:
        assert [4 * stride for stride in desc.strides] == list(array.strides)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 50)), max_size=8))
def test_a_strided_tensor_ends_after_the_last_element_that_an_index_reaches(axes: list[tuple[int, int]]) -> None:
    shape, strides = [size for size, _ in axes], [stride for _, stride in axes]
    last = sum((size - 1) * stride for size, stride in axes)
    assert pumice.buffer_size("uint8", shape, strides) == (last + 1 + 3) // 4 * 4


BROADCAST_LAYOUTS = [
    ([1, 8, 28, 28], "NCHW", [0, 0, 1, 1], (8, 1, 0, 0), 32),
    ([2, 3, 4, 5], "NHWC", [0, 1, 0, 0], (20, 0, 5, 1), 160),
    ([2, 3, 4, 5], "NCHW", [1, 1, 1, 1], (0, 0, 0, 0), 4),
    ([2, 3, 4, 5], "NHWC", [1, 1, 1, 1], (0, 0, 0, 0), 4),
    ([1, 1, 1, 1], "NCHW", [0, 0, 0, 0], (1, 1, 1, 1), 4),
    ([1, 1, 1, 1], "NCHW", [1, 0, 0, 0], (0, 1, 1, 1), 4),
    ([2, 3, 4, 5, 6], "NDHWC", [0, 0, 1, 0, 0], (90, 1, 0, 18, 3), 720),
]


@pytest.mark.parametrize(("shape", "layout", "broadcast", "expected", "size"), BROADCAST_LAYOUTS)
def test_broadcast_axes_of_a_layout_are_of_size_1_in_memory(
    shape: list[int], layout: str, broadcast: list[bool], expected: tuple[int, ...], size: int
) -> None:
    assert pumice.strides(shape, layout, broadcast) == expected
    desc = pumice.TensorDesc.with_layout("float32", shape, layout, broadcast)
    assert (desc.strides, desc.bytes) == (expected, size)
    assert desc.physical_shape == tuple(
        1 if marked else length for length, marked in zip(shape, broadcast, strict=True)
    )


def test_marks_of_another_rank_are_rejected() -> None:
    with pytest.raises(pumice.GraphError, match="3 marks for a shape of rank 4"):
        pumice.strides([2, 3, 4, 5], "NCHW", [True, False, False])


def test_the_spans_of_huge_tensors_are_exact_to_64_bits() -> None:
    """The tensors have few elements, but their sizes in bytes exceed 32 bits."""
    assert pumice.buffer_size("float32", [2, 2], [1 << 40, 1]) == ((1 << 40) + 2) * 4
    assert pumice.buffer_size("uint8", [4294967295]) == 4294967296
    assert pumice.buffer_size("float64", [4294967295]) == 4294967295 * 8
    assert pumice.buffer_size("uint4", [4294967295]) == 2147483648


@pytest.mark.parametrize("layout", ["abcdefgh", "hgfedcba", "badcfehg"])
def test_letters_name_the_axes_of_any_rank(layout: str) -> None:
    shape = [2, 3, 2, 3, 2, 3, 2, 3]
    order = [ord(letter) - ord("a") for letter in layout]
    memory = np.empty([shape[axis] for axis in order], np.int8)
    expected = memory.transpose(np.argsort(order)).strides
    assert pumice.strides(shape, layout) == expected
    assert pumice.TensorDesc("int8", shape, expected).layout == layout


NAMES = [
    ([2, 3, 4, 5], (60, 20, 5, 1), "NCHW"),
    ([2, 3, 4, 5], (60, 1, 15, 3), "NHWC"),
    ([2, 3, 4, 5], (1, 40, 10, 2), "CHWN"),
    ([2, 3, 4, 5, 6], (360, 1, 90, 18, 3), "NDHWC"),
    ([1, 8, 28, 28], (8, 1, 0, 0), "NCHW"),
    ([2, 3, 4, 5], (20, 0, 5, 1), "NCHW"),
    ([1, 1, 3, 5], (15, 1, 5, 1), "NCHW"),
    ([1, 1, 3, 5], (7, 9, 5, 1), "NCHW"),
    ([2, 3, 4], (12, 1, 3), "NWC"),
    ([2, 3], (1, 2), "ba"),
    ([5], (1,), "a"),
    ([], (), ""),
    ([2, 0, 4], (9, 9, 9), "NCW"),
    ([2, 3, 4, 5], (64, 20, 5, 1), None),
    ([5], (2,), None),
    ([2, 2], (1, 1), None),
]


@pytest.mark.parametrize(("shape", "strides", "name"), NAMES)
def test_strides_determine_the_layout(shape: list[int], strides: tuple[int, ...], name: str | None) -> None:
    assert pumice.TensorDesc("float32", shape, strides).layout == name


@given(
    st.permutations("NCDHW"),
    st.lists(st.integers(1, 5), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_a_layout_found_from_strides_gives_these_strides(axes: list[str], shape: list[int], marks: list[bool]) -> None:
    strides = pumice.strides(shape, "".join(axes), marks)
    told = pumice.TensorDesc("float32", shape, strides).layout
    assert told is not None
    again = pumice.strides(shape, told, marks)
    assert [a for a, size in zip(again, shape, strict=True) if size > 1] == [
        s for s, size in zip(strides, shape, strict=True) if size > 1
    ]


@given(st.lists(st.integers(0, 5), max_size=6), st.data())
def test_permuted_and_broadcast_descriptions_are_as_numpys(shape: list[int], data: st.DataObject) -> None:
    array = np.empty(shape, np.int8)
    if not array.size:
        array = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), shape, pumice.TensorDesc("int8", shape).strides)
    axes = data.draw(st.permutations(range(len(shape))))
    desc = pumice.TensorDesc("int8", shape).permute(axes)
    assert (desc.shape, desc.strides) == (array.transpose(axes).shape, array.transpose(axes).strides)
    target = [*data.draw(st.lists(st.integers(0, 3), max_size=2)), *desc.shape]
    wide, view = desc.broadcast_to(target), np.broadcast_to(array.transpose(axes), target)
    assert wide.shape == view.shape
    assert [s for s, n in zip(wide.strides, target, strict=True) if n > 1] == [
        s for s, n in zip(view.strides, target, strict=True) if n > 1
    ]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 7)), max_size=4))
def test_the_last_byte_and_shared_elements_are_those_of_numpys_indices(axes: list[tuple[int, int]]) -> None:
    shape, strides = [size for size, _ in axes], [stride for _, stride in axes]
    memory = np.arange(sum((size - 1) * stride for size, stride in axes) + 1, dtype=np.int64)
    view = np.lib.stride_tricks.as_strided(memory, shape, [8 * stride for stride in strides])
    desc = pumice.TensorDesc("int64", shape, strides)
    assert desc.bytes == (view.max() + 1) * 8
    assert desc.overlaps == (np.unique(view).size < view.size)
    assert desc.is_packed == view.flags.c_contiguous
    assert desc.physical_shape == tuple(1 if stride == 0 else size for size, stride in axes)


PADDED = [
    ([2, 3, 5], None, 4, (24, 8, 1)),
    ([2, 3, 5], None, 1, (15, 5, 1)),
    ([4, 5], (1, 4), 8, (1, 8)),
    ([2, 3, 4, 5], (60, 1, 15, 3), 4, (80, 1, 20, 4)),
    ([3, 1, 5], (5, 0, 1), 8, (8, 0, 1)),
    ([5], None, 8, (1,)),
    ([], None, 8, ()),
]


@pytest.mark.parametrize(("shape", "strides", "multiple", "expected"), PADDED)
def test_padded_rows_start_at_multiples(
    shape: list[int], strides: tuple[int, ...] | None, multiple: int, expected: tuple[int, ...]
) -> None:
    desc = pumice.TensorDesc("float32", shape, strides).pad_rows(multiple)
    assert desc.strides == expected
    assert desc.packed() == pumice.TensorDesc("float32", shape)


def test_padding_is_rejected_below_1_and_beyond_64_bits() -> None:
    desc = pumice.TensorDesc("float32", [2, 3])
    for multiple, text in ((0, "at least 1"), (-4, "given|at least 1"), (1 << 62, "64 bits")):
        with pytest.raises(pumice.GraphError, match=text):
            desc.pad_rows(multiple)


@pytest.mark.parametrize(("alignment", "required"), [(0, 16), (4, 16), (16, 16), (64, 64)])
def test_the_required_alignment_is_16_or_what_is_guaranteed(alignment: int, required: int) -> None:
    assert pumice.TensorDesc("float32", [4], alignment=alignment).required_alignment == required


def test_views_of_a_description_keep_what_else_it_says() -> None:
    desc = pumice.TensorDesc("int8", [2, 3], owned=True, alignment=64, scale=[1, 2, 3], zero_point=5, channel_axis=-1)
    assert (desc.scale, desc.zero_point, desc.channel_axis) == ((1, 2, 3), 5, 1)
    turned = desc.permute([1, 0])
    assert (turned.scale, turned.zero_point, turned.channel_axis) == ((1, 2, 3), 5, 0)
    assert (turned.owned, turned.alignment) == (True, 64)
    assert desc.broadcast_to([4, 2, 3]).channel_axis == 2
    assert desc.pad_rows(4).scale == (1, 2, 3)


QUANTIZATIONS: list[tuple[dict[str, object], str]] = [
    ({"scale": [1, 2]}, "expected one if no channel_axis is given; given 2"),
    ({"scale": [1, 2], "channel_axis": 1}, "each of the 3 channels of axis 1; given 2"),
    ({"channel_axis": 1}, "each of the 3 channels of axis 1; given 0"),
    ({"scale": [1, 2, 3], "channel_axis": 2}, "a tensor of rank 2 has no axis 2"),
    ({"scale": 0.0}, "greater than 0"),
    ({"scale": float("nan")}, "greater than 0"),
    ({"scale": float("inf")}, "finite"),
]


@pytest.mark.parametrize(("given", "text"), QUANTIZATIONS)
def test_scales_that_fit_no_channels_are_rejected(given: dict[str, object], text: str) -> None:
    with pytest.raises(pumice.GraphError, match=text):
        pumice.TensorDesc("int8", [2, 3], **given)  # type: ignore[arg-type]


PERMUTATIONS = [
    ([0], "1 axes for a tensor of rank 2"),
    ([0, 0], "axis 0 is named twice"),
    ([0, 2], "a tensor of rank 2 has no axis 2"),
]


@pytest.mark.parametrize(("axes", "text"), PERMUTATIONS)
def test_what_is_no_permutation_is_rejected(axes: list[int], text: str) -> None:
    with pytest.raises(pumice.GraphError, match=text):
        pumice.TensorDesc("float32", [2, 3]).permute(axes)


def test_what_does_not_broadcast_is_rejected_with_both_shapes() -> None:
    desc = pumice.TensorDesc("float32", [2, 3])
    for target in ([3], [2, 4], [3, 2]):
        with pytest.raises(
            pumice.GraphError, match=rf"\[2, 3\] does not broadcast to \[{', '.join(map(str, target))}\]"
        ):
            desc.broadcast_to(target)
    with pytest.raises(pumice.GraphError, match="elements; the limit is 4294967295"):
        desc.broadcast_to([1 << 31, 2, 3])
