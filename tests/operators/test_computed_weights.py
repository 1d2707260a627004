"""Convolutions and GEMMs with weights, biases and zero points from inputs or other nodes instead of constants."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice
from conv_reference import convolved, transposed_convolved
from features import reason_of_refusal

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SAMPLES, PARTS = 120, 12
ALL_SAMPLES = 5120


class Case:
    """A graph under construction and its input values. All are small integers, so every sum is exact in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = pumice.Graph(f"case {seed}")
        self.inputs: dict[str, Array] = {}
        self.how: list[str] = []
        self.precision = self.random.choice(["fp32", "fp32", "fp16"])

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def elements(self, shape: Shape, dtype: str) -> Array:
        least = 0 if dtype.startswith("u") else -2
        return self.numbers.integers(least, 3, shape).astype(dtype)

    def input(self, array: Array, known: bool = True) -> pumice.Value:
        name = f"input{len(self.inputs)}"
        self.inputs[name] = array
        shape = list(array.shape) if known else [None] * array.ndim
        return self.graph.input(name, str(array.dtype), shape)

    def constant(self, array: Array) -> pumice.Value:
        return self.graph.constant(array)

    def add(self, op: str, *inputs: Any, **attributes: Any) -> Any:
        return self.graph.add(op, *inputs, **attributes)

    def source(self, array: Array) -> pumice.Value:
        """Return a value with these elements, from one of the sources below."""
        options = [one for one, fits in SOURCES if fits(array)]
        one = self.pick(*options)
        self.how.append(one.__name__)
        return one(self, array)


# ---- sources of weights


def constant(case: Case, array: Array) -> pumice.Value:
    return case.constant(array)


def given(case: Case, array: Array) -> pumice.Value:
    return case.input(array)


def given_of_unknown_sizes(case: Case, array: Array) -> pumice.Value:
    return case.input(array, known=False)


def transposed(case: Case, array: Array) -> pumice.Value:
    perm = list(range(array.ndim))
    case.random.shuffle(perm)
    return case.add("Transpose", case.input(np.transpose(array, np.argsort(perm)).copy()), perm=perm)


def reshaped(case: Case, array: Array) -> pumice.Value:
    return case.add("Reshape", case.input(array.reshape(-1)), np.array(array.shape, np.int64))


def negated(case: Case, array: Array) -> pumice.Value:
    return case.add("Neg", case.input(-array))


def cast(case: Case, array: Array) -> pumice.Value:
    number = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6}[str(array.dtype)]
    return case.add("Cast", case.input(array.astype(np.int64)), to=number)


def sliced(case: Case, array: Array) -> pumice.Value:
    axis = case.random.randrange(array.ndim)
    whole = np.concatenate([np.flip(array, axis), array], axis)
    size = array.shape[axis]
    return case.add("Slice", case.input(whole), np.array([size]), np.array([2 * size]), np.array([axis]))


def joined(case: Case, array: Array) -> pumice.Value:
    axis = case.random.randrange(array.ndim)
    cut = case.random.randrange(1, array.shape[axis])
    parts = [part.copy() for part in np.split(array, [cut], axis)]
    return case.add("Concat", *(case.source(part) for part in parts), axis=axis)


def split(case: Case, array: Array) -> pumice.Value:
    axis = case.random.randrange(array.ndim)
    whole = np.concatenate([array, array + 1], axis)
    sizes = np.array([array.shape[axis]] * 2)
    return case.add("Split", case.input(whole), sizes, outputs=2, axis=axis)[0]


def pooled(case: Case, array: Array) -> pumice.Value:
    """Return the array as the result of a MaxPool, which prefers channels-last layout."""
    return case.add("MaxPool", case.source(array), kernel_shape=[1] * (array.ndim - 2))


def convolved_before(case: Case, array: Array) -> pumice.Value:
    """Return the array as the result of an identity convolution, which prefers channels-last layout."""
    unit = np.eye(array.shape[1], dtype=array.dtype).reshape(array.shape[1], array.shape[1], *[1] * (array.ndim - 2))
    return case.add("Conv", case.source(array), case.source(unit))


def is_wide(array: Array) -> bool:
    return str(array.dtype) == "float32"


def always(array: Array) -> bool:
    return True


def is_whole(array: Array) -> bool:
    return bool(np.array_equal(array, np.rint(array)))


def has_axis_of_two(array: Array) -> bool:
    return array.ndim > 0 and min(array.shape) > 1


def is_image(array: Array) -> bool:
    return is_wide(array) and 3 <= array.ndim <= 5


def can_be_negated(array: Array) -> bool:
    return str(array.dtype) != "uint8"


SOURCES: tuple[tuple[Callable[[Case, Array], pumice.Value], Callable[[Array], bool]], ...] = (
    (constant, always),
    (given, always),
    (given_of_unknown_sizes, always),
    (transposed, always),
    (reshaped, always),
    (negated, can_be_negated),
    (cast, is_whole),
    (sliced, lambda array: array.ndim > 0),
    (split, lambda array: array.ndim > 0),
    (joined, has_axis_of_two),
    (pooled, is_image),
    (convolved_before, is_image),
)


# ---- consumers of weights


def geometry(case: Case, axes: int) -> dict[str, Any]:
    sides: dict[str, Any] = {
        "strides": [case.pick(1, 1, 2) for _ in range(axes)],
        "dilations": [case.pick(1, 1, 2) for _ in range(axes)],
        "pads": [case.pick(0, 1) for _ in range(2 * axes)],
    }
    return sides


def image_sizes(case: Case) -> tuple[list[int], list[int]]:
    """Draw an image size and a dilated kernel size that fits."""
    axes = case.pick(1, 2, 2, 2, 3)
    kernel = [case.pick(1, 2, 3) for _ in range(axes)]
    return [case.pick(*range(2 * size, 2 * size + 4)) for size in kernel], kernel


def conv_operands(case: Case, dtype: str, turned: bool = False) -> tuple[Array, Array, dict[str, Any]]:
    image, kernel = image_sizes(case)
    group = case.pick(1, 1, 1, 2, 4)
    channels, made = group * case.pick(1, 3, 4, 4, 8, 8), group * case.pick(1, 3, 4, 4, 8, 8)
    x = case.elements((case.pick(1, 2), channels, *image), dtype)
    outer = (channels, made // group) if turned else (made, channels // group)
    return x, case.elements((*outer, *kernel), dtype), {"group": group, **geometry(case, len(kernel))}


def conv(case: Case) -> tuple[pumice.Value, Array]:
    x, w, attributes = conv_operands(case, "float32")
    bias = case.elements((w.shape[0],), "float32")
    y = convolved(x, w, **attributes) + bias.reshape(-1, *[1] * (w.ndim - 2))
    return case.add("Conv", case.source(x), case.source(w), case.source(bias), **attributes), y


def conv_transpose(case: Case) -> tuple[pumice.Value, Array]:
    x, w, attributes = conv_operands(case, "float32", turned=True)
    attributes["pads"] = [0] * len(attributes["pads"])
    if case.pick(True, False):
        bias = case.elements((w.shape[1] * attributes["group"],), "float32")
        y = transposed_convolved(x, w, **attributes) + bias.reshape(-1, *[1] * (w.ndim - 2))
        return case.add("ConvTranspose", case.source(x), case.source(w), case.source(bias), **attributes), y
    return case.add("ConvTranspose", case.source(x), case.source(w), **attributes), transposed_convolved(
        x, w, **attributes
    )


def integers(case: Case) -> tuple[str, str]:
    return case.pick("uint8", "int8"), case.pick("uint8", "int8")


def conv_integer(case: Case) -> tuple[pumice.Value, Array]:
    x, w, attributes = conv_operands(case, "int8")
    kinds = integers(case)
    x, w = abs(x).astype(kinds[0]), abs(w).astype(kinds[1])
    zeros = [np.array(case.pick(0, 1), kinds[0]), np.array(case.pick(0, 1), kinds[1])]
    y = convolved(x.astype(np.int64) - zeros[0], w.astype(np.int64) - zeros[1], **attributes)
    operands = [case.source(array) for array in (x, w, *zeros)]
    return case.add("ConvInteger", *operands, **attributes), y.astype(np.int32)


def qlinear_conv(case: Case) -> tuple[pumice.Value, Array]:
    x, w, attributes = conv_operands(case, "int8")
    kind = case.pick("uint8", "int8")
    x, w = abs(x).astype(kind), abs(w).astype(case.pick("uint8", "int8"))
    each = case.pick(True, False)
    zeros = [np.array(1, x.dtype), np.array(1, w.dtype), np.array(case.pick(0, 3), x.dtype)]
    scales = [np.array(0.5, np.float32), np.full(w.shape[0] if each else (), 2, np.float32), np.array(4, np.float32)]
    if each:
        zeros[1] = np.ones(w.shape[0], w.dtype)
    bias = case.elements((w.shape[0],), "int32")
    sums = convolved(x.astype(np.int64) - zeros[0], w.astype(np.int64) - zeros[1].reshape(-1)[0], **attributes)
    sums += bias.reshape(-1, *[1] * (w.ndim - 2))
    limits = np.iinfo(x.dtype)
    y = np.clip(np.rint(sums * 0.25) + zeros[2], limits.min, limits.max).astype(x.dtype)
    arrays = (x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2], bias)
    return case.add("QLinearConv", *(case.source(array) for array in arrays), **attributes), y


def product_operands(case: Case, dtype: str) -> tuple[Array, Array]:
    rows, depth, columns = (case.pick(1, 2, 3, 4, 7, 8, 17) for _ in range(3))
    batch = [case.pick(1, 2, 3) for _ in range(case.pick(0, 0, 1, 2))]
    of_a = [case.pick(size, 1) for size in batch] if case.pick(True, False) else batch
    a = case.elements((*of_a, rows, depth), dtype)
    return a, case.elements((*batch[case.random.randrange(len(batch) + 1) :], depth, columns), dtype)


def matmul(case: Case) -> tuple[pumice.Value, Array]:
    a, b = product_operands(case, "float32")
    return case.add("MatMul", case.source(a), case.source(b)), np.matmul(a, b)


def gemm(case: Case) -> tuple[pumice.Value, Array]:
    rows, depth, columns = (case.pick(1, 2, 3, 4, 7, 8, 17) for _ in range(3))
    turned = [case.pick(0, 1), case.pick(0, 1)]
    a, b = case.elements((rows, depth), "float32"), case.elements((depth, columns), "float32")
    c = case.elements(case.pick((), (columns,), (rows, 1), (1, 1), (rows, columns)), "float32")
    y = 2 * (a @ b) + c
    operands = [m.T.copy() if turn else m for m, turn in zip((a, b), turned, strict=True)]
    sources = [case.source(array) for array in (*operands, c)]
    return case.add("Gemm", *sources, alpha=2.0, transA=turned[0], transB=turned[1]), y


def matmul_integer(case: Case) -> tuple[pumice.Value, Array]:
    a, b = product_operands(case, "int8")
    kinds = integers(case)
    a, b = abs(a).astype(kinds[0]), abs(b).astype(kinds[1])
    zeros = [np.array(1, kinds[0]), np.array(1, kinds[1])]
    y = np.matmul(a.astype(np.int64) - 1, b.astype(np.int64) - 1).astype(np.int32)
    return case.add("MatMulInteger", *(case.source(array) for array in (a, b, *zeros))), y


def qlinear_matmul(case: Case) -> tuple[pumice.Value, Array]:
    a, b = product_operands(case, "int8")
    kinds = integers(case)
    a, b = abs(a).astype(kinds[0]), abs(b).astype(kinds[1])
    zeros = [np.array(1, kinds[0]), np.array(1, kinds[1]), np.array(3, kinds[0])]
    scales = [np.array(scale, np.float32) for scale in (0.5, 2, 4)]
    sums = np.matmul(a.astype(np.int64) - 1, b.astype(np.int64) - 1)
    limits = np.iinfo(kinds[0])
    y = np.clip(np.rint(sums * 0.25) + 3, limits.min, limits.max).astype(kinds[0])
    arrays = (a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2])
    return case.add("QLinearMatMul", *(case.source(array) for array in arrays)), y


def einsum(case: Case) -> tuple[pumice.Value, Array]:
    a, b = case.elements((2, 3, 8, 4), "float32"), case.elements((2, 3, 4, 5), "float32")
    return case.add("Einsum", case.source(a), case.source(b), equation="bhik,bhkj->bhij"), a @ b


def batch_normalization(case: Case) -> tuple[pumice.Value, Array]:
    shape = (2, case.pick(3, 4, 8), 5, 4)
    x = case.elements(shape, "float32")
    scale, bias, mean = (case.elements(shape[1:2], "float32") for _ in range(3))
    variance = np.full(shape[1:2], 0.25, np.float32)
    every = (-1, 1, 1)
    y = (x - mean.reshape(every)) * 2 * scale.reshape(every) + bias.reshape(every)
    arrays = (x, scale, bias, mean, variance)
    return case.add("BatchNormalization", *(case.source(array) for array in arrays), epsilon=0.0), y


def recurrence(case: Case) -> tuple[pumice.Value, Array]:
    case.precision = "fp32"  # sums are exact in fp32
    steps, batch, size, hidden = 3, case.pick(1, 2), case.pick(1, 4), case.pick(1, 4, 8)
    x, w, r, b = (
        case.elements(shape, "float32")
        for shape in ((steps, batch, size), (1, hidden, size), (1, hidden, hidden), (1, 2 * hidden))
    )
    state, y = np.zeros((batch, hidden), np.float32), []
    for step in range(steps):
        state = np.maximum(x[step] @ w[0].T + state @ r[0].T + b[0].reshape(2, hidden).sum(0), 0)
        y.append(state[None])
    sources = [case.source(array) for array in (x, w, r, b)]
    return case.add("RNN", *sources, hidden_size=hidden, activations=["Relu"]), np.array(y)


def convolution_of_itself(case: Case) -> tuple[pumice.Value, Array]:
    """The same value is image and weights."""
    size = case.pick(1, 4, 8)
    x = case.elements((size, size, case.pick(1, 3), 2), "float32")
    value = case.source(x)
    return case.add("Conv", value, value, pads=[1, 1, 1, 1]), convolved(x, x, pads=[1, 1, 1, 1])


READERS = (
    *(conv, conv, conv_transpose, conv_integer, qlinear_conv, matmul, gemm, matmul_integer, qlinear_matmul, einsum),
    *(batch_normalization, recurrence, convolution_of_itself),
)


def check(context: pumice.Context, seed: int) -> str:
    """Check one model. Return why the device refuses it; empty if it does not."""
    case = Case(seed)
    reader = case.pick(*READERS)
    value, expected = reader(case)
    if case.pick(True, False) and expected.dtype == np.float32:
        value, expected = case.add("Relu", value), np.maximum(expected, 0)
    case.graph.output("y", value)
    about = f"seed {seed}: {reader.__name__} in {case.precision} of {case.how}"
    try:
        with case.graph.compile(context, precision=case.precision) as program:
            y = program(case.inputs)["y"]
    except pumice.Error as error:
        if reason := reason_of_refusal(str(error), context):
            return reason
        raise AssertionError(f"{about}: {error}") from error
    np.testing.assert_array_equal(y, expected.astype(y.dtype), err_msg=about)
    assert y.shape == expected.shape, about
    return ""


def check_all(context: pumice.Context, seeds: range) -> None:
    """Check the models of all seeds. Skip the test, at its end, if the device refuses any."""
    if refused := [reason for seed in seeds if (reason := check(context, seed))]:
        pytest.skip(refused[0])


@pytest.mark.parametrize("part", range(PARTS))
def test_convolutions_and_matmuls_take_weights_that_are_computed(context: pumice.Context, part: int) -> None:
    check_all(context, range(part, SAMPLES, PARTS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_convolutions_and_matmuls_take_weights_that_are_computed(
    context: pumice.Context, part: int
) -> None:
    check_all(context, range(SAMPLES + part, ALL_SAMPLES, 20))
