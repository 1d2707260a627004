"""Python operators on Tensors match NumPy: values, dtypes, shapes, errors; in-place operators write to the tensor's memory."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, currently_in_test_context, given, reject, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pumice
from features import reason_of_refusal
from tensor_arrays import NUMPY_DTYPES, Array

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift")
}
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
IN_PLACE = {name: getattr(operator, f"i{name.rstrip('_')}") for name in BINARY}
UNARY = {"neg": operator.neg, "pos": operator.pos, "abs": operator.abs, "invert": operator.invert}
DTYPES = [np.dtype(name) for name in NUMPY_DTYPES]
REFUSALS = (TypeError, OverflowError, ValueError)  # NumPy's errors for unsupported operands
POWER_ULP = {"float64": 8, "float32": 4, "float16": 1, "bfloat16": 1}
POWERS = ("pow",)

# Values of each kind: extremes, zeros of both signs, halves, overflow, remainders.
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -7.0, 1e3, 0.1, np.inf, -np.inf, np.nan]


def elements(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        near = [n for n in (0, 1, 2, 3, -1, -2, -3, 7, limits.min, limits.max) if limits.min <= n <= limits.max]
        return st.sampled_from(near) | st.integers(int(limits.min), int(limits.max))
    widths = {2: 16, 4: 32, 8: 64}
    numbers = st.floats(width=widths[dtype.itemsize], allow_subnormal=False)  # type: ignore[arg-type]
    return st.sampled_from([float(np.array(x, dtype)) for x in REALS]) | numbers


def array_strategy(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    return arrays.arrays(dtype, shape, elements=elements(dtype), fill=st.nothing())


# A Python number, or an array of the given shape.
def operand_strategy(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    of_dtype = st.sampled_from(DTYPES).flatmap(lambda dtype: array_strategy(dtype, shape))
    numbers = st.sampled_from(
        [0, 1, 2, -1, 3, 300, -129, 2**31, -(2**63), 2**64 - 1, 2**70, 0.5, -1.0, 2.0, 1.5, True, False]
    )
    return of_dtype | of_dtype | numbers


PAIRS = arrays.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=5, min_side=0).flatmap(
    lambda shapes: st.tuples(
        st.sampled_from(DTYPES).flatmap(lambda dtype: array_strategy(dtype, shapes.input_shapes[0])),
        operand_strategy(shapes.input_shapes[1]),
    )
)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the class of its exception. Reject examples that need a missing device feature."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return call()
    except REFUSALS as error:
        return next(kind for kind in REFUSALS if isinstance(error, kind))
    except pumice.UnsupportedError as error:
        if currently_in_test_context() and reason_of_refusal(str(error), pumice.default_context()):
            reject()
        raise


def ordered(values: Array) -> Array:
    """Map floats to integers in the same order, with a distance of one between neighbours."""
    bits = values.view({2: np.int16, 4: np.int32, 8: np.int64}[values.itemsize]).astype(object)
    return np.where(bits < 0, -(bits + 2 ** (8 * values.itemsize - 1)), bits)


def assert_same(actual: Any, expected: Any, name: str) -> None:
    if isinstance(expected, type):
        assert actual is expected
        return
    assert isinstance(actual, pumice.Tensor)
    expected = np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    given = actual.numpy()
    if name in POWERS and expected.dtype.kind in "fV":
        finite = np.isfinite(expected) & np.isfinite(given)
        off = np.abs(ordered(given[finite]) - ordered(expected[finite]))
        assert (off <= POWER_ULP[str(expected.dtype)]).all(), (given, expected)
        # At the limits, one step leads from the largest number to infinity, or from the smallest to 0.
        given, expected = given[~finite & ~edge(given, expected)], expected[~finite & ~edge(given, expected)]
    if expected.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):  # bfloat16 warns when it compares NaN
            flushed = (given == 0) & (np.abs(expected) < ml_dtypes.finfo(expected.dtype).smallest_normal)
        expected = np.where(flushed, given, expected)  # denormals may be flushed
    if expected.dtype.kind == "V":  # NumPy does not recognise NaN of ml_dtypes
        given, expected = given.astype("float32"), expected.astype("float32")
    np.testing.assert_array_equal(given, expected)
    if expected.dtype.kind == "f":
        number = ~np.isnan(expected.astype("float64"))
        signs = np.signbit(given[number].astype("float64")) == np.signbit(expected[number].astype("float64"))
        assert signs.all(), (given, expected)


def edge(given: Array, expected: Array) -> Array:
    largest = float(ml_dtypes.finfo(expected.dtype).max)
    a, b = np.abs(given.astype("float64")), np.abs(expected.astype("float64"))
    return np.where(np.isinf(a), b >= largest * (1 - 1e-6), np.isinf(b) & (a >= largest * (1 - 1e-6)))


def viewed(context: pumice.Context, array: Array, how: str) -> pumice.Tensor:
    """Return a tensor of these elements: contiguous, transposed, or as every other element of a longer axis."""
    if how == "transposed":
        return pumice.tensor(array.T.copy(), context).T
    if how == "spread" and array.ndim > 0:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
        wide[..., 1::2] = array
        return pumice.tensor(wide, context)[..., 1::2]
    return pumice.tensor(array, context)


def other_operand(context: pumice.Context, value: Any, how: str) -> Any:
    return viewed(context, value, how) if isinstance(value, np.ndarray) and how != "array" else value


LAYOUTS = st.sampled_from(["packed", "transposed", "spread"])


def check_binary(
    context: pumice.Context, name: str, pair: tuple[Array, Any], left: str, right: str, swap: bool
) -> None:
    call = {**BINARY, **COMPARISONS}[name]
    x, y = pair
    assume(name not in POWERS or not (is_root_of_infinity(y, x) if swap else is_root_of_infinity(x, y)))
    a, b = viewed(context, x, left), other_operand(context, y, right)
    if isinstance(y, np.ndarray) and y.ndim == 0:
        b = pumice.tensor(y, context)  # NumPy scalars are tested below
    if swap:
        assert_same(outcome(lambda: call(b, a)), outcome(lambda: call(y, x)), name)
    else:
        assert_same(outcome(lambda: call(a, b)), outcome(lambda: call(x, y)), name)


def is_root_of_infinity(x: Any, y: Any) -> bool:
    """NumPy computes x**0.5 as sqrt only for a scalar exponent: -inf becomes NaN, otherwise infinity."""
    one = np.asarray(y)
    is_half = one.ndim == 0 and one.dtype.kind == "f" and float(one) == 0.5
    return bool(is_half and np.asarray(x).dtype.kind == "f" and np.isneginf(x).any())


def check_in_place(context: pumice.Context, name: str, pair: tuple[Array, Any], left: str) -> None:
    x, y = pair
    assume(name not in POWERS or not is_root_of_infinity(x, y))
    a, expected = viewed(context, x, left), x.copy()
    whole = a

    def numpys() -> Any:
        result = expected
        return IN_PLACE[name](result, y)

    wanted = outcome(numpys)
    given_result = outcome(lambda: IN_PLACE[name](a, other_operand(context, y, "packed")))
    if isinstance(wanted, type):
        assert given_result is wanted
        assert_same(whole, x, "")
    else:
        assert given_result is whole
        assert_same(whole, expected, name)


GIVEN_BINARY = given(
    name=st.sampled_from([*BINARY, *COMPARISONS]),
    pair=PAIRS,
    left=LAYOUTS,
    right=LAYOUTS | st.just("array"),
    swap=st.booleans(),
)
QUICK = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))


@GIVEN_BINARY
@QUICK
def test_two_operands_give_what_numpy_gives(
    pumice_context: pumice.Context, name: str, pair: tuple[Array, Any], left: str, right: str, swap: bool
) -> None:
    check_binary(pumice_context, name, pair, left, right, swap)


@pytest.mark.parametrize("name", ["mod", "floordiv"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact_however_far_apart_the_operands_are(
    pumice_context: pumice.Context, dtype: str, name: str
) -> None:
    """Quotients of any exponent: each needs a different number of reduction steps."""
    if dtype == "float64" and not pumice_context.info.features.get("shaderFloat64"):
        pytest.skip("the device lacks shaderFloat64")
    random, facts = np.random.default_rng(11), np.finfo(dtype)
    exponents = random.integers(facts.minexp, facts.maxexp, (2, 20000))
    a, b = np.ldexp(1 + random.random((2, 20000)), exponents).astype(dtype)
    b[:2000] = facts.smallest_subnormal * random.integers(1, 1 << 20, 2000)  # denormal divisors
    a[:100], a[100:200] = facts.max, b[100:200]
    a *= random.choice([-1, 1], a.size).astype(dtype)
    if any(quirk.name == "flushed_denormals" for quirk in pumice_context.driver_quirks):
        # On this device a denormal remainder is zero, so floor has nothing to subtract.
        a, b = a[2000:], b[2000:]
        rest = np.abs(np.fmod(a, b))
        a, b = (one[(rest == 0) | (rest >= facts.smallest_normal)] for one in (a, b))
    with np.errstate(all="ignore"):
        expected = BINARY[name](a, b)
    normal = (np.abs(expected) >= facts.smallest_normal) | (expected == 0)  # denormals may be flushed
    given = BINARY[name](pumice.tensor(a, context=pumice_context), pumice.tensor(b, context=pumice_context)).numpy()
    np.testing.assert_array_equal(given[normal], expected[normal])


@pytest.mark.slow
@GIVEN_BINARY
@LONG
def test_two_operands_give_what_numpy_gives_many_times(
    pumice_context: pumice.Context, name: str, pair: tuple[Array, Any], left: str, right: str, swap: bool
) -> None:
    check_binary(pumice_context, name, pair, left, right, swap)


@given(name=st.sampled_from([*BINARY]), pair=PAIRS, left=LAYOUTS)
@settings(QUICK, max_examples=60)
def test_in_place_the_tensors_own_memory_is_written_or_the_operands_are_rejected(
    pumice_context: pumice.Context, name: str, pair: tuple[Array, Any], left: str
) -> None:
    check_in_place(pumice_context, name, pair, left)


@pytest.mark.slow
@given(name=st.sampled_from([*BINARY]), pair=PAIRS, left=LAYOUTS)
@LONG
def test_in_place_many_times(pumice_context: pumice.Context, name: str, pair: tuple[Array, Any], left: str) -> None:
    check_in_place(pumice_context, name, pair, left)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_one_operand_gives_what_numpy_gives(context: pumice.Context, name: str, dtype: np.dtype[Any]) -> None:
    values = np.array([0, 1, 1, 0], dtype) if dtype.kind == "b" else np.array([0, 1, 2, 100], dtype)
    if dtype.kind == "i":
        values = np.array([0, 1, -1, 5, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    if dtype.kind == "f":
        values = np.array(REALS, dtype)
    assert_same(
        outcome(lambda: UNARY[name](pumice.tensor(values, context))), outcome(lambda: UNARY[name](values)), name
    )


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
def test_bfloat16_is_a_float_like_the_others(context: pumice.Context, name: str) -> None:
    """ml_dtypes promotes bfloat16 with other arrays; a Python number takes the tensor's dtype, as for every float."""
    call = {**BINARY, **COMPARISONS}[name]
    x = np.array([1.5, -2.25, 0.0, 3.0, 100.0, -0.0], ml_dtypes.bfloat16)
    y = np.array([0.5, 2.0, 4.0, -3.0, 7.0, 1.0], ml_dtypes.bfloat16)
    t = pumice.tensor(x, context)
    for other in (y, y.astype("float32"), np.array([1, 2, 3, 4, 5, 6], "int8"), np.array([1, 2, 3, 4, 5, 6], "int32")):
        assert_same(outcome(lambda o=other: call(t, o)), outcome(lambda o=other: call(x, o)), name)  # type: ignore[misc]
    weak = outcome(lambda: call(t, 1.5))
    assert_same(weak, outcome(lambda: call(x, ml_dtypes.bfloat16(1.5))), name)


def test_a_python_number_gives_way_to_the_tensors_type(context: pumice.Context) -> None:
    x = np.array([1, 2, 3], "int8")
    t = pumice.tensor(x, context)
    for number in (2, 2.5, True):
        for made, wanted in (((t + number), x + number), ((number * t), number * x), ((t / number), x / number)):
            assert made.dtype == wanted.dtype
    assert_same(t / 300, x / 300, "")  # a quotient is a float, so any number fits
    assert_same(2**70 / t, 2**70 / x, "")
    half = pumice.tensor(x.astype("float16"), context)
    assert (half + 0.1).dtype == (0.1 - half).dtype == (half**2).dtype == np.float16
    assert (pumice.tensor(x > 1, context) + 1).dtype == np.int64
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        _ = t + 300
    assert (t < 300).tolist() == [True] * 3
    assert (t == 2**70).tolist() == [False] * 3
    assert (t > -(2**70)).tolist() == [True] * 3


def test_arrays_and_numpys_scalars_make_tensors_on_either_side(context: pumice.Context) -> None:
    x, y = np.arange(6, dtype="float32").reshape(2, 3), np.arange(3, dtype="float64")
    t = pumice.tensor(x, context)
    for made, wanted in (
        (y - t, y - x),
        (t - y, x - y),
        (np.float32(2) * t, np.float32(2) * x),
        (np.int64(7) // t[1:], np.int64(7) // x[1:]),
        (y < t, y < x),
        (operator.add([1, 2, 3], t), operator.add([1, 2, 3], x)),
        (t % (2, 3, 4), x % (2, 3, 4)),
    ):
        assert_same(made, wanted, "")
    np.testing.assert_array_equal(np.add(t, y), x + y)  # a ufunc runs in NumPy, on the host
    given = x
    x += pumice.tensor(y, context)  # NumPy defers to the tensor, and the name is rebound to its result
    assert_same(x, given + y, "")


def test_powers_follow_numpys_own_ways(context: pumice.Context) -> None:
    x = np.array([0.0, -0.0, 4.0, np.inf, -np.inf, 2.25, -1.0], "float32")
    t = pumice.tensor(x, context)
    for exponent in (0.5, -1, -1.0, 2, 0, 1, 3, 0.5 * 3):
        assert_same(outcome(lambda e=exponent: t**e), outcome(lambda e=exponent: x**e), "pow")  # type: ignore[misc]
    whole = pumice.tensor(np.array([2, -3], "int32"), context)
    assert (whole**3).tolist() == [8, -27]
    for refused in (lambda: whole**-1, lambda: whole ** np.array([1, -1]), lambda: 2 ** (whole - 5)):
        with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
            refused()
    quotient, rest = divmod(pumice.tensor(x[4:], context), 2)
    with np.errstate(invalid="ignore"):
        assert_same(quotient, x[4:] // 2, "")
        assert_same(rest, x[4:] % 2, "")


def test_powers_of_doubles_are_within_a_few_units_in_the_last_place(context: pumice.Context) -> None:
    rng = np.random.default_rng(3)
    x = np.exp(rng.uniform(-700, 700, 20000))
    y = rng.uniform(-1, 1, 20000) * 700 / np.maximum(np.abs(np.log(x)), 1e-3)
    x[:5000], y[:5000] = 1 + rng.uniform(-1, 1, 5000) * 1e-8, rng.uniform(-1e10, 1e10, 5000)
    with np.errstate(all="ignore"):
        wanted = x**y
    made = (pumice.tensor(x, context) ** y).numpy()
    assert np.abs(ordered(made) - ordered(wanted)).max() <= POWER_ULP["float64"]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_signed_and_unsigned_integers_are_compared_as_numbers(context: pumice.Context, name: str, dtype: str) -> None:
    """No dtype can represent both int64 and uint64; a smaller integer's sign must be preserved as well."""
    x = np.array([-1, 0, 1, 5, -7, 100], dtype)
    for other in (np.array([0, 0, 2, 5, 2**64 - 7, 2**64 - 1], "uint64"), np.array([0, 1, 2**63, 5, 2, 99], "uint64")):
        a, b = pumice.tensor(x, context), pumice.tensor(other, context)
        assert_same(COMPARISONS[name](a, b), COMPARISONS[name](x, other), "")
        assert_same(COMPARISONS[name](b, a), COMPARISONS[name](other, x), "")


def test_in_place_other_views_of_the_memory_see_it(context: pumice.Context) -> None:
    t = pumice.tensor(np.arange(12, dtype="int32").reshape(3, 4), context)
    row, same = t[1], t
    t *= 2
    assert t is same
    assert row.tolist() == [8, 10, 12, 14]
    row += t[0]
    assert t[1].tolist() == [8, 12, 16, 20]
    line = pumice.tensor(np.arange(6), context)
    line[1:] += line[:-1]  # operands are read before anything is written, as in NumPy
    assert line.tolist() == [0, 1, 3, 5, 7, 9]
    with pytest.raises(TypeError, match="Cannot cast 'divide' output from float64 to int32"):
        t /= 2
    with pytest.raises(ValueError, match=r"cannot hold a result of shape \[2, 4\]"):
        row -= pumice.tensor(np.ones((2, 4), "int32"), context)
    with pytest.raises(pumice.GraphError, match="share memory"):
        repeated = row.broadcast_to((3, 4))
        repeated += 1


def test_truth_and_numbers_are_those_of_arrays(context: pumice.Context) -> None:
    scalar = pumice.tensor(np.array(2.75, "float32"), context)
    assert (float(scalar), int(scalar), bool(scalar), complex(scalar)) == (2.75, 2, True, 2.75 + 0j)
    assert bool(pumice.zeros((1, 1), context=context)) is False
    assert bool(pumice.tensor(np.array([np.nan]), context)) is True
    for tensor in (pumice.zeros(1, context=context), pumice.zeros((2, 3), context=context)):
        for convert in (float, int):
            with pytest.raises(TypeError, match="only tensors of rank 0"):
                convert(tensor)
    with pytest.raises(ValueError, match="more than one element is ambiguous: use any"):
        bool(pumice.zeros(2, context=context))
    with pytest.raises(ValueError, match="empty tensor is ambiguous"):
        bool(pumice.zeros(0, context=context))
    with pytest.raises(ValueError, match="ambiguous"):
        assert pumice.zeros(2, context=context) == pumice.zeros(2, context=context)


def test_iteration_gives_views_of_the_first_axis(context: pumice.Context) -> None:
    t = pumice.tensor(np.arange(6).reshape(3, 2), context)
    assert [row.tolist() for row in t] == [[0, 1], [2, 3], [4, 5]]
    assert len(t) == 3
    for row in t:
        row += 1
    assert t.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert list(pumice.zeros((0, 2), context=context)) == []
    for call in (iter, len):
        with pytest.raises(TypeError):
            call(t[0, 0])  # type: ignore[operator]
    assert 5 in t
    assert 7 not in t
    assert np.int8(5) in t
    assert None not in t


def test_any_and_all_count_what_is_not_zero(context: pumice.Context) -> None:
    for dtype in [*DTYPES, np.dtype(ml_dtypes.bfloat16)]:
        values = np.zeros((5, 7), dtype)
        t = pumice.tensor(values, context)
        assert (t.any(), t.all()) == (False, False)
        t[2, 3] = 1
        assert (t.any(), t.all()) == (True, False)
        assert (t.T[1:].any(), t[:2].any()) == (True, False)
        t.fill(1)
        assert (t.any(), t.all(), t[:, ::2].all()) == (True, True, True)
    assert (pumice.zeros(0, context=context).any(), pumice.zeros(0, context=context).all()) == (False, True)
    assert pumice.tensor(np.array([np.nan, -0.0]), context).any()


def test_tensors_have_no_hash_and_are_not_equal_to_what_is_no_number(context: pumice.Context) -> None:
    t = pumice.zeros(2, context=context)
    with pytest.raises(TypeError, match="unhashable"):
        hash(t)
    for other in (None, "text", object(), {}):
        assert (t == other) is False
        assert (t != other) is True
        with pytest.raises(TypeError):
            _ = t < other  # type: ignore[operator]
        with pytest.raises(TypeError):
            _ = t + other
    with pytest.raises(TypeError):
        _ = t @ t  # type: ignore[operator]
    with pytest.raises(pumice.BindingError):
        _ = t + np.array(["a", "b"])


def test_what_cannot_be_computed_is_rejected_by_name(context: pumice.Context) -> None:
    truth = pumice.tensor(np.array([True, False]), context)
    with pytest.raises(TypeError, match="numpy boolean subtract"):
        _ = truth - truth
    with pytest.raises(TypeError):
        _ = pumice.zeros(2, context=context) & 1
    few = pumice.tensor(np.array([1, 2], ml_dtypes.int4), context)
    with pytest.raises(pumice.UnsupportedError, match="'add' of int4 and int4"):
        _ = few + few
    with pytest.raises(pumice.GraphError, match=r"\[2\]"):
        _ = truth & pumice.tensor(np.ones(3, bool), context)
    with pumice.Context(f"uuid:{context.info.uuid}") as other, pytest.raises(pumice.BindingError) as caught:
        _ = truth | pumice.tensor(np.ones(2, bool), other)
    assert caught.value.rule == "M3"
    with (
        pumice.Context(f"uuid:{context.info.uuid}", without=["shaderFloat64"]) as narrow,
        pytest.raises(pumice.UnsupportedError, match="shaderFloat64|float64"),
    ):
        _ = pumice.tensor(np.ones(2, "int32"), narrow) / 2


def test_operators_are_compiled_once_and_kept(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as own:
        a, b = pumice.ones((3, 4), context=own), pumice.ones((3, 4), context=own)
        total = a + b
        before = own.pipelines_created
        for number in range(20):
            total = total + b
            total *= number + 2
            total *= 1 / (number + 2)
        made = own.pipelines_created
        assert made <= before + 2  # multiplication only: its scalars need no new pipelines
        for size in range(1, 300):  # more shapes than the plan cache has entries
            assert (pumice.ones(size, context=own) + 1).shape == (size,)
        assert own.pipelines_created <= made + 4
        np.testing.assert_allclose(total.numpy(), 22, rtol=1e-5)
        assert own.memory.buffers < 50


@pytest.mark.parametrize(
    "mask", [["shaderInt64"], ["storageBuffer16BitAccess", "shaderFloat16"], ["storageBuffer8BitAccess", "shaderInt8"]]
)
def test_devices_that_lack_a_type_compute_the_others(context: pumice.Context, mask: list[str]) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}", without=mask) as masked:
        for dtype in ("float32", "float16", "int8", "uint16", "int32", "int64", "uint64", "bool"):
            x, y = np.array([1, 0, 1, 1], dtype), np.array([1, 1, 0, 1], dtype)
            a, b = pumice.tensor(x, masked), pumice.tensor(y, masked)
            assert_same(a == b, x == y, "")
            assert_same(a * b, x * y, "")
