"""Elements of 2, 4 and 8 bits: every code of every format, and numbers around each of them, against ml_dtypes and onnx's casts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.ops.op_cast import cast_to

import pumice
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
FLOATS = {
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "float8_e8m0fnu": TensorProto.FLOAT8E8M0,
    "float4_e2m1fn": TensorProto.FLOAT4E2M1,
}
INTEGERS = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "int2": TensorProto.INT2, "uint2": TensorProto.UINT2}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


BITS = {name: ml_dtypes.finfo(dtype_of(name)).bits for name in FLOATS}
BITS |= {name: ml_dtypes.iinfo(dtype_of(name)).bits for name in INTEGERS}


def codes(name: str) -> Array:
    """Return an array of all codes of the type."""
    return np.arange(1 << BITS[name], dtype=np.uint8).view(dtype_of(name))


def cast(context: pumice.Context, array: Array, to: int, **attributes: Any) -> Array:
    graph = pumice.Graph()
    x = graph.input("x", str(array.dtype), list(array.shape))
    graph.output("y", graph.add("Cast", x, to=to, **attributes))
    result: Array = graph.compile(context)({"x": array})["y"]
    return result


def around(name: str) -> Array:
    """Return every number, midpoints between neighbours, the float32 neighbours of both, and numbers far from any code."""
    with np.errstate(all="ignore"):
        numbers = np.unique(codes(name).astype(np.float64))
    numbers = numbers[np.isfinite(numbers)]
    middles = (numbers[1:] + numbers[:-1]) / 2
    far = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 1e30, -1e30, 65504.0, 3.3e38])
    with np.errstate(all="ignore"):
        exact = np.concatenate([numbers, middles, numbers * 4, far]).astype(np.float32)
        return np.concatenate([exact, *(np.nextafter(exact, np.float32(end)) for end in (np.inf, -np.inf))])


def same(one: Array, other: Array) -> None:
    """Compare bit by bit, with all NaNs equal."""
    assert one.dtype == other.dtype and one.shape == other.shape
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float32), other.astype(np.float32)
    wrong = (one.view(np.uint8) != other.view(np.uint8)) & ~(np.isnan(a) & np.isnan(b))
    assert not wrong.any(), (a[wrong][:5], b[wrong][:5])


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_every_code_as_float32(context: pumice.Context, name: str) -> None:
    given = codes(name)
    result = cast(context, given, TensorProto.FLOAT)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result.view(np.uint32) << 1, given.astype(np.float32).view(np.uint32) << 1)
        numbers = ~np.isnan(result)
        np.testing.assert_array_equal(np.signbit(result)[numbers], np.signbit(given.astype(np.float32))[numbers])


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("name", [name for name in FLOATS if name != "float8_e8m0fnu"])
def test_floats_are_rounded_to_nearest(context: pumice.Context, name: str, saturate: int) -> None:
    given = around(name)
    with np.errstate(all="ignore"):
        wanted = cast_to(given, FLOATS[name], saturate)
    same(cast(context, given, FLOATS[name], saturate=saturate), wanted)


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
def test_powers_of_two_are_rounded_as_asked(context: pumice.Context, round_mode: str) -> None:
    given = around("float8_e8m0fnu")
    given = given[(np.abs(given) >= np.finfo(np.float32).tiny) | (given == 0) | np.isnan(given)]  # exclude denormals
    for saturate in (0, 1):
        wanted = cast_to(given, FLOATS["float8_e8m0fnu"], bool(saturate), round_mode)
        same(cast(context, given, FLOATS["float8_e8m0fnu"], saturate=saturate, round_mode=round_mode), wanted)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(context: pumice.Context, name: str) -> None:
    """Floats are truncated first; integers keep their low bits."""
    info = ml_dtypes.iinfo(dtype_of(name))
    floats = np.linspace(-20, 20, 161, dtype=np.float32)
    whole = np.arange(-40, 41, dtype=np.int32)
    span = 1 << BITS[name]
    wrapped = (whole - info.min) % span + info.min
    np.testing.assert_array_equal(cast(context, whole, INTEGERS[name]).astype(np.int32), wrapped)
    truncated = (np.trunc(floats).astype(np.int32) - info.min) % span + info.min
    np.testing.assert_array_equal(cast(context, floats, INTEGERS[name]).astype(np.int32), truncated)
    back = cast(context, codes(name), TensorProto.INT64)
    np.testing.assert_array_equal(back, codes(name).astype(np.int64))


@pytest.mark.parametrize("other", ["float16", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float4_e2m1fn", "int4", "uint2"])
def test_other_types(context: pumice.Context, name: str, other: str) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(other))
    given = codes(name)
    given = given[np.isfinite(given.astype(np.float32))]
    if other.startswith("u"):
        given = given[(given.astype(np.float32) >= 0) & (given.astype(np.float32) < 256)]
    with np.errstate(all="ignore"):
        wide = given.astype(np.float32).astype(other)
    np.testing.assert_array_equal(cast(context, given, number), wide)
    to = {**FLOATS, **INTEGERS}[name]
    np.testing.assert_array_equal(
        cast(context, wide, to).astype(np.float32), wide.astype(np.float32).astype(dtype_of(name)).astype(np.float32)
    )


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("raw", [True, False])
def test_initializers_inputs_and_outputs(context: pumice.Context, tmp_path: Path, name: str, raw: bool) -> None:
    """The number of elements is odd, so that the last byte is only partly used."""
    held = np.resize(codes(name), (3, 7))
    number = {**FLOATS, **INTEGERS}[name]
    tensor = numpy_helper.from_array(held, "held")
    if not raw:
        data = np.frombuffer(tensor.raw_data, np.uint8)
        tensor = onnx.TensorProto(name="held", data_type=number, dims=held.shape, int32_data=data.tolist())
    nodes = [
        node("Cast", ["held"], ["wide"], to=TensorProto.FLOAT),
        node("Cast", ["x"], ["also"], to=TensorProto.FLOAT),
        node("CastLike", ["wide", "held"], ["again"]),
    ]
    proto = model(nodes, [value("x", [3, 7], number)], ["wide", "also", "again"], opset=25)
    proto.graph.initializer.append(tensor)
    path = tmp_path / "narrow.onnx"
    onnx.save(proto, path)
    for _ in range(2):  # the second time from the graph cache
        with pumice.load(path, context) as loaded:
            wide, also, again = loaded(held)
        np.testing.assert_array_equal(wide, held.astype(np.float32))
        np.testing.assert_array_equal(also, wide)
        same(again, wide.astype(dtype_of(name)))


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn", "int2", "uint2"]
)
@pytest.mark.parametrize("blocks", [False, True])
def test_quantised_weights(context: pumice.Context, name: str, blocks: bool) -> None:
    random = np.random.default_rng(5)
    x = (random.standard_normal((3, 6)) * 2).astype(np.float32)
    scale = (0.1 + random.random((3, 3 if blocks else 1))).astype(np.float32).reshape((3, 3) if blocks else 3)
    attributes: dict[str, Any] = {"axis": 1, "block_size": 2} if blocks else {"axis": 0}
    zero = np.zeros(scale.shape, dtype_of(name))
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attributes),
        node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **attributes),
    ]
    source = model(nodes, [value("x", [3, 6])], ["q", "y"], {"scale": scale, "zero": zero}, opset=25)
    with pumice.load(source, context) as loaded:
        q, y = loaded(x)
    wanted = onnx.reference.ReferenceEvaluator(source).run(None, {"x": x})
    same(q, wanted[0])
    np.testing.assert_allclose(y, wanted[1], rtol=1e-6)


def test_other_operators_reject_them_by_name(context: pumice.Context) -> None:
    source = model([node("Add", ["x", "x"])], [value("x", [3], TensorProto.FLOAT8E5M2)])
    with pytest.raises(pumice.UnsupportedError, match="input 'a' of Add as float8_e5m2"):
        pumice.load(source, context)


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_tensors_on_the_device(context: pumice.Context, name: str) -> None:
    held = np.resize(codes(name), 11)
    tensor = pumice.tensor(held, context=context)
    assert tensor.dtype == name
    same(tensor.numpy(), held)
