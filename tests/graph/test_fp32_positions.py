"""Positions and angles are computed in float32: 16-bit floats have no odd position beyond 2,048 (float16) or 256 (bfloat16)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_models import model, node, value

FREQUENCIES = (1 / 10000 ** (np.arange(0, 64, 2) / 64)).astype("float32")
POSITIONS = np.array([[0, 1, 255, 257, 300, 1001, 2049, 4097, 40001, 70001]])
IDS = value("p", [1, "t"], TensorProto.INT64)
Arrays = tuple[Any, ...]


def cast(given: str, made: str, to: int = TensorProto.FLOAT) -> onnx.NodeProto:
    return node("Cast", [given], [made], to=to)


def rotary() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """RoPE as in Llama exports: the frequencies are expanded to the batch and multiplied with the positions by MatMul."""
    nodes = [
        node("Shape", ["p"], ["batch"], start=0, end=1),
        node("Concat", ["batch", "tail"], ["sizes"], axis=0),
        node("Expand", ["frequencies", "sizes"], ["expanded"]),
        node("Unsqueeze", ["p", "one"], ["u"]),
        cast("u", "f"),
        node("MatMul", ["expanded", "f"], ["angles"]),
        node("Transpose", ["angles"], ["turned"], perm=[0, 2, 1]),
        node("Concat", ["turned", "turned"], ["both"], axis=-1),
        node("Cos", ["both"], ["cos"]),
        node("Sin", ["both"], ["sin"]),
        node("Mul", ["cos", "half"], ["y"]),
    ]
    constants = {
        "frequencies": FREQUENCIES[None, :, None],
        "tail": np.array([32, 1]),
        "one": np.array([1]),
        "half": np.float32(0.5),
    }
    angles = POSITIONS[0, :, None] * FREQUENCIES.astype(float)
    both = np.concatenate([angles, angles], 1)[None]
    return model(nodes, [IDS], ["y", "sin"], constants), (POSITIONS,), [np.cos(both) * 0.5, np.sin(both)]


def time_steps(of_integers: bool) -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """Timestep embeddings as in diffusion models."""
    nodes = [
        cast("t", "f") if of_integers else node("Identity", ["t"], ["f"]),
        node("Unsqueeze", ["f", "one"], ["column"]),
        node("Mul", ["column", "frequencies"], ["angles"]),
        node("Sin", ["angles"], ["y"]),
    ]
    kind = TensorProto.INT64 if of_integers else TensorProto.FLOAT
    constants = {"frequencies": FREQUENCIES[None], "one": np.array([1])}
    steps = np.array([1, 500, 999], "int64" if of_integers else "float32")
    expected = np.sin(steps[:, None] * FREQUENCIES.astype(float))
    return model(nodes, [value("t", ["n"], kind)], ["y"], constants), (steps,), [expected]


def half_file() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """A float16 file, which casts positions to float16 immediately."""
    nodes = [
        cast("p", "f", TensorProto.FLOAT16),
        node("Div", ["f", "hundred"], ["angles"]),
        node("Sin", ["angles"], ["y"]),
    ]
    made = model(nodes, [IDS], ["y"], {"hundred": np.float16(128)})
    return made, (POSITIONS[:, :-1],), [np.sin(POSITIONS[:, :-1] / 128)]


def buckets() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """T5's relative position buckets: the logarithm of a distance becomes an index."""
    nodes = [
        cast("p", "f"),
        node("Max", ["f", "least"], ["positive"]),
        node("Log", ["positive"], ["log"]),
        node("Mul", ["log", "scale"], ["large"]),
        cast("large", "bucket", TensorProto.INT64),
        node("Gather", ["table", "bucket"], ["y"]),
        node("Identity", ["bucket"], ["index"]),
    ]
    table = np.arange(256, dtype="float32")
    constants = {"least": np.float32(1), "scale": np.float32(20.003), "table": table}
    index = (np.log(np.maximum(POSITIONS, 1)) * 20.003).astype("int64")
    return model(nodes, [IDS], ["y", "index"], constants), (POSITIONS,), [table[index], index]


def blocks() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """Positions from a mask by CumSum, in blocks of seven, compared with a Range."""
    nodes = [
        cast("p", "f"),
        node("CumSum", ["f", "last"], ["total"]),
        node("Div", ["total", "seven"], ["quotient"]),
        node("Floor", ["quotient"], ["block"]),
        cast("block", "y", TensorProto.INT64),
        node("Range", ["start", "end", "step"], ["range"]),
        node("Equal", ["total", "range"], ["same"]),
    ]
    ones = np.ones((1, 3000), "int64")
    constants = {
        "last": np.array(1),
        "seven": np.float32(7),
        "start": np.float32(1),
        "end": np.float32(3001),
        "step": np.float32(1),
    }
    return model(nodes, [IDS], ["y", "same"], constants), (ones,), [np.cumsum(ones, 1) // 7, np.ones((1, 3000), bool)]


def float_ids() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """Token ids that a model takes as floats."""
    table = np.arange(6000, dtype="float32")[:, None] % 7
    nodes = [
        cast("x", "i", TensorProto.INT64),
        node("Gather", ["table", "i"], ["y"]),
        node("Identity", ["i"], ["index"]),
    ]
    ids = np.float32([[5, 257, 2049, 4097, 5999]])
    made = model(nodes, [value("x", [1, "t"])], ["y", "index"], {"table": table})
    return made, (ids,), [table[ids.astype(int)], ids.astype("int64")]


def angles(*nodes: onnx.NodeProto, **constants: Any) -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """Return the sine of positions times frequencies; `nodes` compute the angles `a` [t, 32] from positions `f` [1, t]."""
    proto = model([cast("p", "f"), *nodes, node("Sin", ["a"], ["y"])], [IDS], constants=constants)
    return proto, (POSITIONS,), [np.sin(POSITIONS[0, :, None] * FREQUENCIES.astype(float))]


def einsum() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    nodes = [node("Einsum", ["f", "w"], ["e"], equation="bi,j->bij"), node("Squeeze", ["e", "zero"], ["a"])]
    return angles(*nodes, w=FREQUENCIES, zero=np.array([0]))


def linear() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    """MatMul with K = 1 and a bias."""
    nodes = [node("Transpose", ["f"], ["c"]), node("MatMul", ["c", "w"], ["m"]), node("Add", ["m", "b"], ["a"])]
    return angles(*nodes, w=FREQUENCIES[None], b=np.zeros(32, "float32"))


def gemm_of_depth_1() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    return angles(node("Gemm", ["f", "w", "b"], ["a"], transA=1), w=FREQUENCIES[None], b=np.zeros(32, "float32"))


def through_double() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    nodes = [
        cast("p", "d", TensorProto.DOUBLE),
        cast("d", "e"),
        node("Transpose", ["e"], ["c"]),
        node("Mul", ["c", "w"], ["a"]),
    ]
    return angles(*nodes, w=FREQUENCIES[None])


def selections() -> tuple[onnx.ModelProto, Arrays, list[Any]]:
    ids = np.array([[4096, 4097, 4098, 4091]])
    nodes = [
        cast("p", "f"),
        node("ArgMax", ["f"], ["y"], axis=1),
        node("TopK", ["f", "k"], ["top", "i"]),
        cast("top", "t", TensorProto.INT64),
        node("ReduceMean", ["f"], ["mean"]),
        node("Floor", ["mean"], ["m"]),
    ]
    proto = model(nodes, [IDS], ["y", "t", "m"], {"k": np.array([2])})
    return proto, (ids,), [np.array([[2]]), np.array([[4098, 4097]]), np.array([[4095]])]


CHAINS: dict[str, Callable[[], tuple[onnx.ModelProto, Arrays, list[Any]]]] = {
    "rotary": rotary,
    "time steps": lambda: time_steps(True),
    "time steps in float32": lambda: time_steps(False),
    "float16 file": half_file,
    "buckets": buckets,
    "blocks": blocks,
    "float ids": float_ids,
    "einsum": einsum,
    "linear": linear,
    "gemm": gemm_of_depth_1,
    "through double": through_double,
    "selections": selections,
}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("chain", CHAINS)
def test_positions_are_as_exact_as_in_float32(chain: str, precision: str, fuse: bool, context: pumice.Context) -> None:
    proto, given, expected = CHAINS[chain]()
    with pumice.load(proto, context, precision=precision, fuse=fuse) as loaded:
        made = loaded(*given)
        assert re.search("float32: (computes|reads) positions", str(loaded.report()))
    for actual, right in zip([made] if len(expected) == 1 else made, expected, strict=True):
        if right.dtype.kind == "f":
            rounding = 2.0**-11 if precision == "fp16" else 2.0**-8
            np.testing.assert_allclose(actual.astype(float), right, rtol=rounding, atol=4e-3 if right.max() <= 1 else 0)
        else:
            np.testing.assert_array_equal(actual, right)
    # At multiples of 7, floor(n / 7) is undecided: a division may be off by 2.5 ULP.
    allowed = chain == "blocks"
    report = pumice.validate(proto, [given], precision=precision, context=context, allow_unchecked=allowed)
    assert report.ok, report.summary


def masked() -> onnx.ModelProto:
    """An additive mask is not a position."""
    nodes = [
        cast("p", "f"),
        node("Sub", ["one", "f"], ["hidden"]),
        node("Mul", ["hidden", "least"], ["bias"]),
        node("Add", ["scores", "bias"], ["sum"]),
        node("Softmax", ["sum"], ["y"]),
    ]
    constants = {"one": np.float32(1), "least": np.float32(-10000)}
    return model(nodes, [IDS, value("scores", [4, "t"])], constants=constants)


def tabular() -> onnx.ModelProto:
    """A layer on numbers that were integers is not a position either."""
    nodes = [cast("p", "f"), node("MatMul", ["f", "w"], ["a"]), node("Floor", ["a"], ["y"])]
    return model(nodes, [value("p", [1, 4], TensorProto.INT64)], constants={"w": np.ones((4, 3), "float32")})


@pytest.mark.parametrize("make", [masked, tabular])
def test_other_numbers_are_not(make: Callable[[], onnx.ModelProto], context: pumice.Context) -> None:
    with pumice.load(make(), context, precision="fp16") as loaded:
        assert "positions" not in str(loaded.report())


MOVED = {
    "scaled at once": [node("Mul", ["f", "scale"], ["y"])],
    "reshaped": [node("Reshape", ["f", "shape"], ["r"]), node("Mul", ["r", "scale"], ["y"])],
    "transposed": [node("Transpose", ["f"], ["r"], perm=[1, 0]), node("Div", ["r", "divisor"], ["y"])],
    "sliced": [node("Slice", ["f", "zero", "two"], ["r"]), node("Mul", ["r", "scale"], ["y"])],
}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("moved", MOVED)
def test_integers_beyond_float16_are_scaled_before_they_are_rounded(
    moved: str, fuse: bool, context: pumice.Context
) -> None:
    """Sums of int8 products, as in dynamic quantisation."""
    constants = {
        "scale": np.float32(1e-4),
        "divisor": np.float32(1e4),
        "shape": np.array([8, 4]),
        "zero": np.array([0]),
        "two": np.array([2]),
    }
    used = {name for one in MOVED[moved] for name in one.input}
    constants = {name: array for name, array in constants.items() if name in used}
    x = np.arange(4 * 8, dtype="int32").reshape(4, 8) * 5001
    nodes = [node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), *MOVED[moved]]
    proto = model(nodes, [value("x", [4, 8], TensorProto.INT32)], constants=constants)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    with pumice.load(proto, context, precision="fp16", fuse=fuse) as loaded:
        np.testing.assert_allclose(loaded(x), expected, rtol=2e-3, atol=2e-3)
