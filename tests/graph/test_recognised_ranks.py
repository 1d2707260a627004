"""Fused nodes keep their output shape, whatever the ranks of constants and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = ((), (3,), (2, 4), (2, 3, 4), (1, 2, 3, 4))
ONES: tuple[Shape, ...] = ((), (1,), (1, 1), (1, 1, 1))


class Written:
    """A graph with scalars as one-element constants of the given shape."""

    def __init__(self, ones: Shape, known: bool) -> None:
        self.graph = pumice.Graph()
        self.ones, self.known = ones, known
        self.inputs: dict[str, Array] = {}
        self.random = np.random.default_rng(0)

    def input(self, shape: Shape, dtype: str = "float32") -> pumice.Value:
        name = f"input{len(self.inputs)}"
        self.inputs[name] = self.random.standard_normal(shape).astype(dtype)
        return self.graph.input(name, dtype, list(shape) if self.known else [None] * len(shape))

    def number(self, value: float, dtype: str = "float32") -> pumice.Value:
        return self.graph.constant(np.full(self.ones, value, dtype))

    def array(self, *shape: int) -> pumice.Value:
        return self.graph.constant(self.random.standard_normal(shape).astype(np.float32))

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def add(*operands: Any, **attributes: Any) -> Any:
            given = [self.number(one) if isinstance(one, int | float) else one for one in operands]
            return self.graph.add(op, *given, **attributes)

        return add


# ---- decomposed operators


def gelu(g: Written, x: Any) -> Any:
    return g.Mul(g.Mul(x, g.Add(g.Erf(g.Div(x, 1.4142135)), 1)), 0.5)


def gelu_of_a_share(g: Written, x: Any) -> Any:
    return g.Mul(x, g.Mul(g.Add(g.Erf(g.Mul(x, 0.70710678)), 1), 0.5))


def gelu_by_tanh(g: Written, x: Any) -> Any:
    inner = g.Mul(g.Add(x, g.Mul(g.Pow(x, 3), 0.044715)), 0.7978845)
    return g.Mul(g.Mul(x, 0.5), g.Add(g.Tanh(inner), 1))


def gelu_by_squares(g: Written, x: Any) -> Any:
    inner = g.Mul(g.Mul(x, 0.7978845), g.Add(g.Mul(g.Mul(x, x), 0.044715), 1))
    return g.Mul(x, g.Mul(g.Add(g.Tanh(inner), 1), 0.5))


def swish(g: Written, x: Any) -> Any:
    return g.Mul(x, g.Sigmoid(x))


def swish_with_a_factor(g: Written, x: Any) -> Any:
    return g.Mul(x, g.Sigmoid(g.Mul(x, 1.702)))


def normalised(g: Written, x: Any) -> Any:
    centred = g.Sub(x, g.ReduceMean(x, np.array([-1])))
    deviation = g.Sqrt(g.Add(g.ReduceMean(g.Pow(centred, 2), np.array([-1])), 1e-5))
    return g.Div(centred, deviation)


def layer_normalization(g: Written, x: Any) -> Any:
    return g.Add(g.Mul(normalised(g, x), g.array(x.shape[-1] or 4)), g.array(x.shape[-1] or 4))


def layer_normalization_without_a_bias(g: Written, x: Any) -> Any:
    return g.Mul(normalised(g, x), g.array(x.shape[-1] or 4))


def rms_normalization(g: Written, x: Any) -> Any:
    deviation = g.Sqrt(g.Add(g.ReduceMean(g.Pow(x, 2), np.array([-1])), 1e-5))
    return g.Mul(g.Mul(x, g.Div(1, deviation)), g.array(x.shape[-1] or 4))


def mapped(g: Written, x: Any) -> Any:
    return g.Clip(
        g.Sub(g.Max(g.Mul(g.Add(g.Relu(x), 0.5), 2), 0.25), 1), np.array(-1, np.float32), np.array(4, np.float32)
    )


def chosen(g: Written, x: Any) -> Any:
    return g.Where(g.Less(x, 0), 0.5, g.Mul(x, 3))


def powers(g: Written, x: Any) -> Any:
    return g.Pow(g.Abs(x), 2)


def reduced(g: Written, x: Any) -> Any:
    return g.Add(g.Mul(g.ReduceSum(x, keepdims=0), 2), 1)


def product(g: Written, x: Any) -> Any:
    return g.Relu(g.Add(g.Mul(g.MatMul(x, g.array(x.shape[-1] or 4, 5)), 2), 1))


def product_of_vectors(g: Written, x: Any) -> Any:
    return g.Add(g.Mul(g.MatMul(x, g.array(x.shape[-1] or 4)), 2), 1)


def product_with_a_bias(g: Written, x: Any) -> Any:
    return g.Add(g.MatMul(x, g.array(x.shape[-1] or 4, 5)), g.array(5))


def quantised(g: Written, x: Any) -> Any:
    """Quantise a value with a scale and a zero point of the ranks that `g` gives to scalars."""
    scale, zero = g.number(0.05), g.number(3, "int8")
    return g.DequantizeLinear(g.QuantizeLinear(g.Mul(x, 2), scale, zero), scale, zero)


ANY_RANK = (gelu, gelu_of_a_share, gelu_by_tanh, gelu_by_squares, swish, swish_with_a_factor)
MORE_OF_ANY_RANK = (mapped, chosen, powers, reduced)
ROWS = (layer_normalization, layer_normalization_without_a_bias, rms_normalization)
PRODUCTS = (product, product_of_vectors, product_with_a_bias)


def agree(context: pumice.Context, build: Callable[[Written, Any], Any], shape: Shape, ones: Shape) -> None:
    """Compare fused and unfused programs, with known and unknown sizes; the shape matches the one the graph infers."""
    made: list[Array] = []
    about = f"{build.__name__} of {shape} with numbers of {ones}"
    for known in (True, False):
        g = Written(ones, known)
        value = build(g, g.input(shape))
        g.graph.output("y", value)
        for fuse in (True, False):
            with g.graph.compile(context, fuse=fuse) as program:
                made.append(program(g.inputs)["y"])
        assert value.shape is None or len(value.shape) == made[-1].ndim, about
    assert {one.shape for one in made} == {made[1].shape}, f"{about}: {[one.shape for one in made]}"
    for one in made:
        np.testing.assert_allclose(one, made[1], rtol=1e-4, atol=2e-5, err_msg=about)


@pytest.mark.parametrize("build", [*ANY_RANK, *MORE_OF_ANY_RANK, *ROWS, *PRODUCTS], ids=lambda one: str(one.__name__))
def test_what_is_recognised_keeps_its_shape(context: pumice.Context, build: Callable[[Written, Any], Any]) -> None:
    for ones in ONES:
        for shape in SHAPES:
            if build in (*ROWS, *PRODUCTS) and (not shape or (shape[-1] != 4 and shape != (3,))):
                continue
            agree(context, build, shape if build not in (*ROWS, *PRODUCTS) or len(shape) > 1 else (4,), ones)


def test_what_is_quantised_by_one_scale_keeps_its_shape(context: pumice.Context) -> None:
    for shape in SHAPES:
        agree(context, quantised, shape, ())


def test_a_scalar_with_numbers_of_one_axis_has_one_axis(context: pumice.Context) -> None:
    g = Written((1,), True)
    value = gelu(g, g.input(()))
    g.graph.output("y", value)
    with g.graph.compile(context) as program:
        assert program(g.inputs)["y"].shape == value.shape == (1,)
        assert not [row for row in program.report() if row["fusion"] == "gelu"]
    g = Written((1,), True)
    g.graph.output("y", gelu(g, g.input((3,))))
    with g.graph.compile(context) as program:
        assert [row for row in program.report() if row["fusion"] == "gelu"], "a number of one axis is one for a vector"


# ---- attention


def attention(g: Written, shape: Shape, guarded: bool, filled: bool, divided: bool) -> Any:
    q, k, v = (g.input(shape) for _ in range(3))
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    scores = g.MatMul(q, g.Transpose(k, perm=order))
    scores = g.Div(scores, 2) if divided else g.Mul(scores, 0.5)
    if filled:
        hidden = np.tril(np.ones((shape[-2],) * 2)).astype(bool)
        scores = g.Where(hidden, scores, g.number(-1e9))
    shares = g.Softmax(scores, axis=-1)
    if guarded:
        shares = g.Where(g.IsNaN(shares), 0, shares)
    return g.MatMul(shares, v)


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 5, 4)], ids=str)
def test_attention_keeps_its_shape(context: pumice.Context, shape: Shape) -> None:
    for ones in ONES:
        for kind in range(8):
            guarded, filled, divided = bool(kind & 1), bool(kind & 2), bool(kind & 4)
            made = []
            for fuse in (True, False):
                g = Written(ones, True)
                value = attention(g, shape, guarded, filled, divided)
                g.graph.output("y", value)
                with g.graph.compile(context, fuse=fuse) as program:
                    made.append(program(g.inputs)["y"])
            about = f"{shape} with numbers of {ones}, kind {kind}"
            assert made[0].shape == made[1].shape == value.shape, about
            np.testing.assert_allclose(made[0], made[1], rtol=1e-4, atol=1e-5, err_msg=about)
