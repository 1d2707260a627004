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
def test_what_cannot_be_described_is_refused(
    dtype: str, shape: list[int], strides: list[int] | None, message: str
) -> None:
    for describe in (pumice.buffer_size, pumice.TensorDesc):
        with pytest.raises(pumice.GraphError, match=message) as caught:
            describe(dtype, shape, strides)
        assert caught.value.rule == "R8"


def test_an_unknown_dtype_is_refused_with_those_there_are() -> None:
    with pytest.raises(pumice.GraphError, match="unknown dtype 'float8'.*float64, float32, float16"):
        pumice.TensorDesc("float8", [1])


@pytest.mark.parametrize(("alignment", "dtype"), [(24, "float32"), (2, "float32"), (1, "float16"), (4, "int64")])
def test_an_alignment_that_is_no_power_of_two_or_splits_elements_is_refused(alignment: int, dtype: str) -> None:
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
def test_an_unknown_layout_is_refused(layout: str) -> None:
    with pytest.raises(pumice.GraphError, match=f"'{layout}'"):
        pumice.strides([2, 3, 4, 5], layout)


def test_a_description_tells_what_it_was_given() -> None:
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
