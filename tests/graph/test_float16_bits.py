"""BitCast of values that a program stores in another dtype than declared: the bits are the declared dtype's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import pumice
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
FLOATS = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype("float32")}
INTEGERS = {2: "int16", 4: "int32"}


def number(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_of_a_computed_value_are_those_of_its_dtype(
    context: pumice.Context, dtype: str, known: bool, precision: str
) -> None:
    """BitCast of an input, a node's result and a constant; of integers to floats that a node reads; and a round trip."""
    x = np.array([1, -2.5, 0.0, 96, -0.125, 3], FLOATS[dtype])
    whole = INTEGERS[x.itemsize]
    nodes = [
        node("BitCast", ["x"], ["of_input"], to=number(whole)),
        node("Neg", ["x"], ["n"]),
        node("BitCast", ["n"], ["of_made"], to=number(whole)),
        node("BitCast", ["c"], ["of_constant"], to=number(whole)),
        node("BitCast", ["bits"], ["floats"], to=number(x.dtype)),
        node("Add", ["floats", "x"], ["sum"]),
        node("BitCast", ["of_made"], ["back"], to=number(x.dtype)),
        node("BitCast", ["back"], ["again"], to=number(whole)),
    ]
    names = ["of_input", "of_made", "of_constant", "floats", "sum", "again"]
    shape = [6] if known else [None]
    inputs = [value("x", shape, number(x.dtype)), value("bits", shape, number(whole))]
    loaded = pumice.load(model(nodes, inputs, names, {"c": x}, opset=26), context, precision=precision, progress=False)
    bits = (x * 2).view(whole)
    made = dict(zip(names, loaded(x=x, bits=bits), strict=True))
    for name, expected in (
        ("of_input", x.view(whole)),
        ("of_made", (-x).view(whole)),
        ("of_constant", x.view(whole)),
        ("floats", x * 2),
        ("sum", x * 2 + x),
        ("again", (-x).view(whole)),
    ):
        assert made[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(made[name], expected, err_msg=name)


def test_bits_of_a_value_are_rounded_to_its_dtype_first(context: pumice.Context) -> None:
    """1/3 is 0x3555 in float16."""
    nodes = [node("Reciprocal", ["x"], ["r"]), node("BitCast", ["r"], ["y"], to=number("uint16"))]
    loaded = pumice.load(model(nodes, [value("x", [2], number("float16"))], opset=26), context, progress=False)
    assert loaded(np.array([3, -3], "float16")).tolist() == [0x3555, 0xB555]
