"""KV caches left-padded with zeros, with new rows appended after the rows in use: unused rows are never read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from lesser_devices import SMALL_GRID, lesser
from pumice.base.element_types import get_numpy_dtype

Array = npt.NDArray[Any]
STORED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
PAST = (0, 5, 9, 70, -3, 1 << 40)
# Head sizes that are multiples of 16 bytes, of four, of two, and odd; as many new rows as the cache has, and a cache of one row.
SHAPES = ((3, 9, 2, 64), (2, 9, 1, 12), (1, 8, 3, 6), (2, 7, 2, 5), (2, 3, 3, 8), (1, 1, 0, 16), (1, 1, 1, 1))


def given(shape: tuple[int, ...], dtype: str, in_int8: bool) -> list[Array]:
    """Return a cache whose unused rows are NaN (int8: their scales), the new rows, the rows in use, and int8 scales."""
    heads, room, more, size = shape
    random, kind = np.random.default_rng(0), get_numpy_dtype(dtype)
    sizes = (len(PAST), heads, room, size)
    cache = random.integers(-127, 128, sizes).astype(np.int8) if in_int8 else random.standard_normal(sizes).astype(kind)
    scales = random.uniform(0.5, 2, sizes[:3]).astype(kind)
    for image, used in enumerate(PAST):
        (scales if in_int8 else cache)[image, :, max(used, 0) :] = np.nan
    rows = random.standard_normal((len(PAST), more, heads, size)).astype(kind)
    return [cache, rows, np.array(PAST, np.int64), *([scales] if in_int8 else [])]


def expected(arrays: list[Array]) -> Array:
    cache, rows, past = arrays[:3]
    floats = cache.astype(np.float32)
    if len(arrays) > 3:
        floats = floats * arrays[3].astype(np.float32)[..., None]
    new = rows.transpose(0, 2, 1, 3)
    made = np.zeros(floats.shape, rows.dtype)
    for image, given in enumerate(past.tolist()):
        room = cache.shape[2] - new.shape[2]
        used = min(max(given, 0), room)
        made[image, :, room - used : room] = floats[image, :, :used].astype(rows.dtype)
        made[image, :, room:] = new[image]
    return made


def program(arrays: list[Array], context: pumice.Context, precision: str) -> pumice.Program:
    graph = pumice.Graph()
    cache, rows, *others = (graph.input(f"i{i}", str(one.dtype), list(one.shape)) for i, one in enumerate(arrays))
    by_heads = graph.add("Transpose", rows, perm=[0, 2, 1, 3])
    graph.output("y", graph.add("pumice::JoinedRows", cache, by_heads, *others))
    return graph.compile(context, precision)


def check(shape: tuple[int, ...], context: pumice.Context, precision: str, in_int8: bool) -> None:
    arrays = given(shape, STORED[precision], in_int8)
    made = program(arrays, context, precision)
    assert [step["kernel"] for step in made.plan([one.shape for one in arrays])] == ["left_padded_cache.comp"]
    bits = np.uint32 if precision == "fp32" else np.uint16
    (y,) = made.call(tuple(arrays))
    np.testing.assert_array_equal(y.view(bits), expected(arrays).view(bits))


@pytest.fixture(scope="module")
def narrow(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    with lesser(pumice_context, SMALL_GRID) as made:
        yield made


@pytest.mark.parametrize("precision", STORED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_in_use_and_new_rows_are_there_bit_by_bit(
    shape: tuple[int, ...], precision: str, context: pumice.Context
) -> None:
    check(shape, context, precision, False)


@pytest.mark.parametrize("precision", STORED)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[3] % 4 == 0], ids=str)
def test_int8_caches_are_recognised_by_their_scales(
    shape: tuple[int, ...], precision: str, context: pumice.Context
) -> None:
    check(shape, context, precision, True)


@pytest.mark.parametrize("in_int8", [False, True])
def test_grids_that_a_device_does_not_take_are_folded(in_int8: bool, narrow: pumice.Context) -> None:
    check((3, 40, 2, 64), narrow, "fp32", in_int8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: (2, 3, 4, 12)}, "expected a cache and rows with the same number and size of heads"),
        ({1: (2, 2, 1, 8)}, "expected a cache and rows with the same number and size of heads"),
        ({1: (2, 3, 5, 8)}, "expected at most as many rows as the cache, 4; given 5"),
        ({2: (3,)}, r"expected past of shape \[2\]; given \[3\]"),
        ({3: (2, 3, 4)}, "expected scales if and only if the cache is int8"),
    ],
)
def test_what_does_not_fit_is_rejected(change: dict[int, tuple[int, ...]], message: str) -> None:
    graph = pumice.Graph()
    shapes = {0: (2, 3, 4, 8), 1: (2, 3, 1, 8), 2: (2,)} | change
    inputs = [graph.input(f"i{i}", "int64" if i == 2 else "float32", list(shape)) for i, shape in shapes.items()]
    with pytest.raises(pumice.GraphError, match=message):
        graph.add("pumice::JoinedRows", *inputs)


def test_caches_of_int8_that_do_not_fit_are_rejected() -> None:
    for size, scales, message in ((6, (2, 3, 4), "a multiple of 4"), (8, (2, 3, 5), "scales of shape")):
        graph = pumice.Graph()
        cache, rows = graph.input("c", "int8", [2, 3, 4, size]), graph.input("r", "float32", [2, 3, 1, size])
        past, each = graph.input("p", "int64", [2]), graph.input("s", "float32", list(scales))
        with pytest.raises(pumice.GraphError, match=message):
            graph.add("pumice::JoinedRows", cache, rows, past, each)
