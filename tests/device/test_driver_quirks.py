"""Driver quirks: the trial kernels that detect them, and the engine's workarounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto

import driver_points
import pumice
from elementwise_epilogues import MAPS
from random_expressions import Maker

Array = npt.NDArray[Any]
F32 = np.float32
CORRECTED = {
    "as it is": [],
    "corrected": ["inexact_division", "inexact_square_root"],
    "corrected without fma": ["inexact_division", "inexact_square_root", "unfused_multiply_add"],
}


@pytest.fixture(scope="module")
def made(pumice_context: pumice.Context) -> Iterator[Callable[[list[str]], pumice.Context]]:
    """Return a function that creates contexts with simulated quirks."""
    contexts: dict[tuple[str, ...], pumice.Context] = {}

    def context_with(quirks: list[str]) -> pumice.Context:
        key = tuple(quirks)
        if key not in contexts:
            contexts[key] = pumice.Context(f"uuid:{pumice_context.info.uuid}", quirks=quirks)
        return contexts[key]

    yield context_with
    for context in contexts.values():
        context.close()


def compute(context: pumice.Context, op: str, *arrays: Array, precision: str = "fp32", **attributes: Any) -> Array:
    graph = pumice.Graph(op)
    names = [f"x{k}" for k in range(len(arrays))]
    values = [graph.input(name, str(a.dtype), list(a.shape)) for name, a in zip(names, arrays, strict=True)]
    graph.output("y", graph.add(op, *values, **attributes))
    program = graph.compile(context, precision=precision)
    return np.asarray(program(dict(zip(names, arrays, strict=True)))["y"])


def hard_quotients() -> tuple[Array, Array]:
    """Return random quotients, near-midpoints of two floats, denormals, the limits of the range, and special values."""
    random = np.random.default_rng(5)
    odd = random.integers(2**24, 2**25, 20000).astype(np.float64)
    b = random.integers(2**23, 2**24, 20000).astype(F32)
    middles = (odd * b).astype(F32)
    beside = np.nextafter(middles, np.where(random.random(20000) < 0.5, F32(0), F32(1e38)))
    scale = np.ldexp(F32(1), random.integers(-100, 100, 20000)).astype(F32)
    any_bits = random.integers(0, 2**32, (2, 20000), dtype=np.uint32).view(F32)
    small = np.ldexp(random.random(20000).astype(F32), random.integers(-126, -100, 20000)).astype(F32)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.4e38, 1.2e-38, 1e-45, -1e-40], F32)
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    with np.errstate(all="ignore"):
        numerators = np.concatenate([middles, beside, b * scale, any_bits[0], small, pairs[0]])
        denominators = np.concatenate([b, b, b[::-1], any_bits[1], b / F32(2**20), pairs[1]])
    return numerators.astype(F32), denominators.astype(F32)


def flushes(context: pumice.Context) -> bool:
    return any(quirk.name == "flushed_denormals" for quirk in context.driver_quirks)


def wrong(given: Array, expected: Array, context: pumice.Context, *operands: Array) -> Array:
    """Return the indices at which the bits differ; NaNs are equal, and denormals may be zero if the device flushes them."""
    least = np.finfo(F32).tiny
    same = driver_points.same_bits(given, expected)
    if flushes(context):
        for x in (expected, *operands):
            same |= (np.abs(x) < 2 * least) & (x != 0)
    return np.flatnonzero(~same)


@pytest.mark.parametrize("way", CORRECTED)
def test_quotients_are_the_nearest_numbers(made: Callable[[list[str]], pumice.Context], way: str) -> None:
    context = made(CORRECTED[way])
    a, b = hard_quotients()
    with np.errstate(all="ignore"):
        expected = a / b
    given = compute(context, "Div", a, b)
    at = wrong(given, expected, context, a, b)
    assert not at.size, (
        f"{at.size} of {a.size}: {a[at[0]]!r} / {b[at[0]]!r} is {given[at[0]]!r}, not {expected[at[0]]!r}"
    )


@pytest.mark.parametrize("way", CORRECTED)
def test_roots_are_the_nearest_numbers(made: Callable[[list[str]], pumice.Context], way: str) -> None:
    context = made(CORRECTED[way])
    a, b = hard_quotients()
    odd = np.random.default_rng(6).integers(2**24, 2**25, 20000).astype(np.float64)
    x = np.concatenate(
        [a, b, (odd * odd).astype(F32), np.arange(5000, dtype=F32), np.nextafter((odd * odd).astype(F32), F32(0))]
    )
    with np.errstate(all="ignore"):
        expected = np.sqrt(x)
    given = compute(context, "Sqrt", x)
    at = wrong(given, expected, context, x)
    assert not at.size, f"{at.size} of {x.size}: the root of {x[at[0]]!r} is {given[at[0]]!r}, not {expected[at[0]]!r}"


def test_integers_are_found_by_the_bits_where_the_drivers_rounding_is_not_trusted(
    made: Callable[[list[str]], pumice.Context],
) -> None:
    assert not list(driver_points.wrong_points(made(["inexact_rounding"])))


@pytest.mark.parametrize("quirks", [[], ["inexact_unsigned"]], ids=["as it is", "by halves"])
def test_unsigned_integers_become_the_nearest_floats(
    made: Callable[[list[str]], pumice.Context], quirks: list[str]
) -> None:
    random = np.random.default_rng(8)
    any_bits = random.integers(0, 2**32, 20000, dtype=np.uint32) >> random.integers(0, 32, 20000).astype(np.uint32)
    odd = random.integers(2**24, 2**25, 5000).astype(np.uint64)  # midpoints of two floats, and their neighbours
    scaled = odd << random.integers(0, 8, 5000).astype(np.uint64)
    middles = np.concatenate([scaled, scaled - 1, scaled + 1]).astype(np.uint32)
    ends = np.array([0, 1, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 1], np.uint32)
    x = np.concatenate([any_bits, middles, ends])
    given = compute(made(quirks), "Cast", x, to=TensorProto.FLOAT)
    at = np.flatnonzero(given != x.astype(F32))
    assert not at.size, f"{at.size} of {x.size}: {x[at[0]]} is {given[at[0]]!r}, not {x[at[0]].astype(F32)!r}"


def test_unrolled_loops_keep_the_order_of_operations(context: pumice.Context) -> None:
    """A user kernel: `precise` expressions keep their rounding in a loop with [[unroll]]."""
    source = """
#extension GL_EXT_control_flow_attributes : require
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() {
  const uint i = gl_GlobalInvocationID.x;
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    precise float large = x[4u * i + k] + 12582912.0, whole = large - 12582912.0;
    y[4u * i + k] = whole;
  }
}
"""
    x = np.linspace(-40, 40, 4 * 64, dtype="float32") + F32(0.125)
    y = pumice.empty(x.size, "float32", context)
    pumice.Kernel(source, context)(x=x, y=y, threads=x.size // 4)
    np.testing.assert_array_equal(np.asarray(y), np.rint(x))


def test_expressions_keep_their_bits_where_loops_are_not_unrolled(made: Callable[[list[str]], pumice.Context]) -> None:
    maker = Maker(np.random.default_rng(11), doubles=False)
    for k in range(8):
        maker.expression(f"y{k}")
    assert not maker.wrong(made(["unrolled_contraction"]), fuse=True)


def test_long_loops_are_rejected_where_the_driver_ends_them(made: Callable[[list[str]], pumice.Context]) -> None:
    """An integer MatMul is a single loop over K."""
    a, b = np.ones((1, 70000), "int32"), np.ones((70000, 1), "int32")
    with pytest.raises(pumice.UnsupportedError, match="would loop 70000 times"):
        compute(made(["loop_limit"]), "MatMul", a, b)
    context = made([])
    if not any(quirk.name == "loop_limit" for quirk in context.driver_quirks):
        assert compute(context, "MatMul", a, b).item() == 70000


# ---- denormal numbers


def denormals() -> Array:
    positive = np.array([1e-45, 1e-40, 2e-40, 1.1754942e-38], F32)
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("quirks", [[], ["flushed_denormals"]], ids=["as it is", "flushed"])
def test_a_denormal_number_counts_as_itself_or_as_zero(
    made: Callable[[list[str]], pumice.Context], quirks: list[str]
) -> None:
    """Each result is right for the denormal itself or for zero; the host's result for a constant is the reference."""
    context = made(quirks)
    x = denormals()
    graph, constants = pumice.Graph("denormals"), pumice.Graph("by the host")
    value, constant = graph.input("x", "float32", [x.size]), constants.constant(x)
    for name, build in MAPS.items():
        graph.output(name, build(graph, value))
        constants.output(name, build(constants, constant))
    program = graph.compile(context)
    of_values, of_zeros = program({"x": x}), program({"x": np.copysign(F32(0), x)})
    expected = constants.compile(context)({})
    for name in MAPS:
        given, zero, value = of_values[name], of_zeros[name], expected[name]
        as_zero = driver_points.same_bits(given, zero) | (given == zero)
        with np.errstate(all="ignore"):
            as_value = np.abs(given - value) <= np.abs(value) * 2e-6 + F32(3e-45)
            as_value |= driver_points.same_bits(given, value)
        third = np.flatnonzero(~(as_zero | as_value))
        assert not third.size, (
            f"{name} of {x[third[0]]!r}: {given[third[0]]!r}, not {value[third[0]]!r} nor {zero[third[0]]!r}, that of zero"
        )


@pytest.mark.parametrize("quirks", [[], ["flushed_denormals"]], ids=["as it is", "flushed"])
@pytest.mark.parametrize("op", ["Max", "Min", "Less", "Greater", "Equal", "Add", "Sub", "Mul", "Div", "PRelu"])
def test_two_denormal_numbers_count_as_themselves_or_as_zeros(
    made: Callable[[list[str]], pumice.Context], op: str, quirks: list[str]
) -> None:
    numbers = np.concatenate([denormals(), np.array([0.0, -0.0, 1.0, -1.0], F32)])
    a, b = (one.ravel() for one in np.meshgrid(numbers, numbers))
    functions: dict[str, Callable[[Array, Array], Array]] = {
        "Max": np.maximum,
        "Min": np.minimum,
        "Less": np.less,
        "Greater": np.greater,
        "Equal": np.equal,
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
        "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    }
    given = compute(made(quirks), op, a, b)
    least = np.finfo(F32).tiny
    with np.errstate(all="ignore"):
        flushed = [np.where(np.abs(one) < least, np.copysign(F32(0), one), one) for one in (a, b)]
        allowed = [
            functions[op](*pair) for pair in ((a, b), (flushed[0], flushed[1]), (a, flushed[1]), (flushed[0], b))
        ]
        right = np.zeros(a.shape, bool)
        for one in allowed:
            right |= (given == one) | ((given != given) & (one != one))
            if one.dtype == F32:
                right |= (np.abs(one) < least) & (given == 0)
    at = np.flatnonzero(~right)
    assert not at.size, f"{op} of {a[at[0]]!r} and {b[at[0]]!r}: {given[at[0]]!r}"


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "MaxPool"])
@pytest.mark.parametrize("quirks", [[], ["flushed_denormals"]], ids=["as it is", "flushed"])
def test_folds_of_denormal_numbers_choose_among_values_or_among_zeros(
    made: Callable[[list[str]], pumice.Context], op: str, quirks: list[str]
) -> None:
    random = np.random.default_rng(3)
    x = random.choice(np.concatenate([denormals(), np.array([0.0, -0.0], F32)]), (40, 64)).astype(F32)
    zeros = np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32(0), x), x)
    if op == "MaxPool":
        given = compute(made(quirks), op, x.reshape(1, 40, 1, 64), kernel_shape=[1, 64]).ravel()
        allowed = [x.max(1), zeros.max(1)]
    elif op.startswith("Arg"):
        given = compute(made(quirks), op, x, axis=1, keepdims=0)
        function = np.argmax if op == "ArgMax" else np.argmin
        allowed = [function(x, 1), function(zeros, 1)]
    else:
        graph = pumice.Graph(op)
        axes = graph.constant(np.array([1]))
        graph.output("y", graph.add(op, graph.input("x", "float32", [40, 64]), axes, keepdims=0))
        given = graph.compile(made(quirks))({"x": x})["y"]
        function = np.max if op == "ReduceMax" else np.min
        allowed = [function(x, 1), function(zeros, 1)]
    assert ((given == allowed[0]) | (given == allowed[1])).all(), given


# ---- NaN


@pytest.mark.parametrize("quirks", [[], ["number_of_nan"]], ids=["as it is", "told apart"])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ReduceLogSumExp"])
@pytest.mark.parametrize("size", [3, 8, 1000])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinity_make_nan_of_what_is_relative_to_all(
    made: Callable[[list[str]], pumice.Context], op: str, size: int, axis: int, quirks: list[str]
) -> None:
    """Rows and columns, some of which contain NaN, infinity or both."""
    x = np.random.default_rng(size).standard_normal((8, size)).astype(F32)
    x[1, 2] = x[2, 1] = np.nan
    x[2, 0] = x[3, size - 1] = np.inf
    x[5, 0] = -np.inf
    with np.errstate(all="ignore"):
        total = np.log(np.exp(x.astype(np.float64)).sum(1, keepdims=True))
        expected = total[:, 0] if op == "ReduceLogSumExp" else x - total
    if op == "Softmax":
        expected = np.exp(expected)
    if op == "ReduceLogSumExp":
        expected[3] = np.inf
        given = compute(made(quirks), op, x if axis else x.T.copy(), np.array([axis]), keepdims=0)
    else:
        expected[3] = np.nan  # the maximum is infinite, and inf - inf is NaN
        given = compute(made(quirks), op, x if axis else x.T.copy(), axis=axis)
        given = given if axis else given.T
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


# ---- matrices


def attention_reference(q: Array, k: Array, v: Array, scale: float, seen: Array, added: Array, cap: float) -> Array:
    """Return attention in float64: [heads, seq_len, head_dim]; neighbouring query heads share keys and values (GQA)."""
    share = q.shape[0] // k.shape[0]
    k, v = (np.repeat(one.astype(np.float64), share, axis=0) for one in (k, v))
    scores = q.astype(np.float64) @ k.transpose(0, 2, 1) * scale
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = np.where(seen, scores + added, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


@pytest.mark.parametrize("quirks", [[], ["other_matrix_layout"]], ids=["as it is", "through shared memory"])
@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ((4, 2, 65, 67, 64, 64), {}),
        ((4, 4, 128, 128, 64, 64), {"is_causal": 1}),
        ((2, 1, 130, 257, 64, 64), {"is_causal": 1, "mask": True}),
        ((2, 2, 129, 1030, 128, 128), {"softcap": 1.5}),
        ((2, 2, 17, 2050, 128, 128), {"scale": -0.5}),
        ((1, 1, 200, 200, 128, 64), {"scale": 0.0, "is_causal": 1}),
        ((2, 1, 70, 90, 256, 136), {"left_window_size": 20, "right_window_size": 3}),
        ((1, 1, 97, 63, 8, 16), {"mask": True}),
        ((40, 8, 33, 300, 72, 72), {}),
    ],
    ids=str,
)
def test_attention_is_right_wherever_matrices_have_their_components(
    made: Callable[[list[str]], pumice.Context], shape: tuple[int, ...], more: dict[str, Any], quirks: list[str]
) -> None:
    heads, shared, rows, keys, size, v_size = shape
    random = np.random.default_rng(sum(shape))
    q, k, v = (
        random.standard_normal(one).astype(np.float16)
        for one in ((1, heads, rows, size), (1, shared, keys, size), (1, shared, keys, v_size))
    )
    attributes = {name: value for name, value in more.items() if name != "mask"}
    place, key = np.arange(rows)[:, None], np.arange(keys)[None, :]
    left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    right = 0 if attributes.get("is_causal") else right
    seen = ((left < 0) | (key >= place - left)) & ((right < 0) | (key <= place + right))
    inputs = [q, k, v]
    added = np.zeros((rows, keys))
    if more.get("mask"):
        mask = random.standard_normal((rows, keys)).astype(np.float16)
        mask[:, 1::7] = -65504  # the lowest fp16, which exporters use as a mask
        inputs, added = [*inputs, mask], mask.astype(np.float64)
    scale = attributes.get("scale", size**-0.5)
    given = compute(made(quirks), "Attention", *inputs, precision="fp16", **attributes)
    expected = attention_reference(q[0], k[0], v[0], scale, seen, added, attributes.get("softcap", 0.0))
    np.testing.assert_allclose(given[0], expected, rtol=2e-3, atol=2e-3)


# ---- trial kernels and the table of quirks


def test_a_trial_of_the_driver_finds_what_the_engine_answers(context: pumice.Context) -> None:
    quirks = context.driver_quirks
    assert all(quirk.summary.endswith(".") and quirk.workaround.endswith(".") for quirk in quirks)
    assert not [quirk for quirk in quirks if quirk.name == "inexact_arithmetic"]


LONG_LOOP = """
layout(binding = 0) buffer Y { uint y[]; };
layout(push_constant) uniform parameter { uint turns; } p;
void main() {
  uint odd = 0u;
  for (uint i = 0u; i < p.turns; ++i) odd += (y[1] ^ i) & 1u;
  y[0] = odd;
}
"""


def test_a_driver_that_ends_long_loops_is_known_by_its_trial(context: pumice.Context) -> None:
    """Lavapipe of Mesa 22 has the quirk and that of Mesa 25 does not, although name and version are the same."""
    y = np.zeros(2, "uint32")
    shown = [quirk.detected for quirk in context.driver_quirks if quirk.name == "loop_limit"]
    if shown:
        with pytest.raises(pumice.UnsupportedError, match="ended its loops silently"):
            pumice.Kernel(LONG_LOOP, context)(y=y, turns=200_000, threads=1)
        assert shown == [True]
    else:
        pumice.Kernel(LONG_LOOP, context)(y=y, turns=200_000, threads=1)
        assert y[0] == 100_000


def test_sums_that_are_not_the_nearest_numbers_are_rejected_by_name(
    made: Callable[[list[str]], pumice.Context],
) -> None:
    x = np.ones(4, F32)
    with pytest.raises(
        pumice.UnsupportedError,
        match=r"driver '.*', inexact_arithmetic: Does not round a sum, a product or a conversion to nearest",
    ):
        compute(made(["inexact_arithmetic"]), "Add", x, x)


def test_a_quirk_that_nobody_knows_is_rejected() -> None:
    with pytest.raises(
        pumice.UnsupportedError, match=r"quirks: expected names among unrolled_contraction, .* given 'slow'"
    ):
        pumice.Context(quirks=["slow"])
