"""Descriptions and devices are values: they are compared, hashed and pickled."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from pumice import TensorDesc


@st.composite
def descs(draw: st.DrawFn) -> TensorDesc:
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = draw(st.sampled_from(["float32", "float16", "int8", "int4", "bool", "float8_e4m3fn"]))
    given_strides = st.lists(st.integers(0, 40), min_size=len(shape), max_size=len(shape))
    strides = draw(st.none() | given_strides)
    options: dict[str, Any] = {"owned": draw(st.booleans()), "alignment": draw(st.sampled_from([0, 16, 64]))}
    if shape and draw(st.booleans()):
        options |= {
            "channel_axis": 0,
            "scale": [0.5 + i for i in range(shape[0])],
            "zero_point": draw(st.integers(-8, 7)),
        }
    elif draw(st.booleans()):
        options |= {"scale": draw(st.floats(0.125, 4, width=32))}
    desc = TensorDesc(dtype, shape, strides, **options)
    if draw(st.booleans()):
        desc = TensorDesc(dtype, shape, strides, total_bytes=desc.bytes + 64, **options)
    return desc


@given(one=descs(), other=descs())
@settings(max_examples=200, deadline=None)
def test_descriptions_are_compared_hashed_and_pickled(one: TensorDesc, other: TensorDesc) -> None:
    for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert again == one
        assert hash(again) == hash(one)
        for name in ("dtype", "shape", "strides", "owned", "alignment", "scale", "zero_point", "channel_axis", "bytes"):
            assert getattr(again, name) == getattr(one, name)
    assert (one == other) is not (one != other)
    assert one != "TensorDesc"
    if one == other:
        assert hash(one) == hash(other)
    assert len({one, other, copy.copy(one)}) == (1 if one == other else 2)


def test_devices_are_compared_hashed_and_pickled(context: pumice.Context) -> None:
    for info in [*pumice.devices(), context.info]:
        again = pickle.loads(pickle.dumps(info))
        assert again == info
        assert hash(again) == hash(info)
        for name in dir(type(info)):
            if not name.startswith("_"):
                assert getattr(again, name) == getattr(info, name) or callable(getattr(again, name))
        assert {info: "here"}[again] == "here"
        for matrix in info.matrices:
            assert pickle.loads(pickle.dumps(matrix)) == matrix
    with pumice.Context(f"uuid:{context.info.uuid}", without=["shaderFloat64"]) as masked:
        assert masked.info != context.info or not context.feature("shaderFloat64")
    devices = pumice.devices()
    assert pickle.loads(pickle.dumps(devices)) == devices
    with pytest.raises(ValueError, match="another version"):
        TensorDesc.__new__(TensorDesc).__setstate__((1, 2))  # type: ignore[attr-defined]
