"""int8 KV caches with a scale per row: stored contents, and attention that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from pumice.base.element_types import get_numpy_dtype
from pumice.testing import assert_close

Array = npt.NDArray[Any]
LEVELS = 127
STORED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
EPSILON = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}  # half an ulp, relative
PLACES = 40


@dataclass(frozen=True)
class Case:
    """firsts: first cache row written for each sequence; before: size of the attention window before a row."""

    heads: int
    groups: int
    rows: int
    room: int
    size: int
    firsts: tuple[int, ...] = (0,)
    before: int = -1
    cap: float = 0.0
    turns: bool = True

    @property
    def batch(self) -> int:
        return len(self.firsts)

    def given(self, precision: str, seed: int = 0) -> dict[str, Array]:
        """Return rows of very different magnitudes, one of them zero."""
        random, dtype = np.random.default_rng(seed), get_numpy_dtype(STORED[precision])

        def rows(heads: int, count: int) -> Array:
            made = random.standard_normal((self.batch, heads, count, self.size))
            return (made * 2.0 ** random.integers(-2, 3, (self.batch, heads, count, 1))).astype(dtype)

        shape = (self.batch, self.groups, self.room)
        made = {"q": rows(self.heads, self.rows), "k": rows(self.groups, self.rows), "v": rows(self.groups, self.rows)}
        made["v"][0, 0, 0] = 0
        for name in ("keys", "values"):
            made[name] = random.integers(-LEVELS, LEVELS + 1, (*shape, self.size)).astype(np.int8)
        for name in ("key_scales", "value_scales"):
            made[name] = (random.uniform(0.5, 2, shape) / LEVELS).astype(dtype)
        made["firsts"] = np.array(self.firsts, np.int64)
        if self.turns:
            angles = random.uniform(0, 3, (PLACES, self.size // 2))
            made |= {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
            made["places"] = random.integers(0, PLACES, (self.batch, self.rows))
        return made

    def program(self, context: pumice.Context, precision: str) -> pumice.Program:
        graph = pumice.Graph("quantized")
        arrays = self.given(precision)
        given = {name: graph.input(name, str(one.dtype), list(one.shape)) for name, one in arrays.items()}
        made = graph.add("pumice::QuantizedCaches", *given.values(), outputs=5)
        seen = graph.add("Add", given["firsts"], np.array([self.rows]))
        more = {"is_causal": 1, "left_window_size": self.before, "softcap": self.cap}
        graph.output("y", graph.add("pumice::QuantizedAttention", *made, seen, **more))
        for name, value in zip(("turned", "keys", "values", "key_scales", "value_scales"), made, strict=True):
            graph.output(f"new_{name}", value)
        return graph.compile(context, precision)


def turned(case: Case, given: dict[str, Array], name: str) -> Array:
    x = given[name].astype(np.float64)
    if not case.turns or name == "v":
        return x
    cosines, sines = (given[one].astype(np.float64)[given["places"]][:, None] for one in ("cos", "sin"))
    first, second = np.split(x, 2, -1)
    return np.concatenate([cosines * first - sines * second, sines * first + cosines * second], -1)


def attention(case: Case, q: Array, keys: Array, values: Array) -> Array:
    """Return attention in float64 on dequantised caches."""
    keys, values = (one.repeat(case.heads // case.groups, 1) for one in (keys, values))
    scores = q @ keys.transpose(0, 1, 3, 2) * case.size**-0.5
    if case.cap:
        scores = case.cap * np.tanh(scores / case.cap)
    place = np.array(case.firsts)[:, None, None] + np.arange(case.rows)[None, :, None]
    key = np.arange(case.room)[None, None]
    sees = (key <= place) & (key >= (place - case.before if case.before >= 0 else 0))
    scores = np.where(sees[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ values)


def floats(made: dict[str, Array], name: str) -> Array:
    """Return the dequantised keys or values of the cache."""
    levels, scales = (made[f"new_{name}{one}"].astype(np.float64) for one in ("s", "_scales"))
    with np.errstate(invalid="ignore"):  # level 0 of a row whose scale is infinite
        return np.asarray(levels * scales[..., None])


def check_rows(case: Case, given: dict[str, Array], made: dict[str, Array], precision: str) -> None:
    """Check that new rows are within half a quantisation step plus the rounding of their scale, and all others are unchanged."""
    for name, source in (("key", "k"), ("value", "v")):
        rows, old = turned(case, given, source), given[f"{name}s"].copy()
        for image, first in enumerate(case.firsts):
            told = floats(made, name)[image, :, first : first + case.rows]
            scales = np.abs(rows[image]).max(-1, keepdims=True) / LEVELS
            slack = LEVELS * EPSILON[precision] + (1e-4 if source == "k" else 0)  # RoPE is applied to keys in fp32
            assert (np.abs(told - rows[image]) <= scales * (0.5 + slack)).all()
            old[image, :, first : first + case.rows] = made[f"new_{name}s"][image, :, first : first + case.rows]
        np.testing.assert_array_equal(made[f"new_{name}s"], old)
        assert np.abs(made[f"new_{name}s"].astype(int)).max() == LEVELS


def check(case: Case, context: pumice.Context, precision: str, kernel: str) -> None:
    given, program = case.given(precision), case.program(context, precision)
    made = program(given)
    check_rows(case, given, made, precision)
    q = turned(case, given, "q")
    expected = attention(case, q, floats(made, "key"), floats(made, "value"))
    error = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}[precision]
    assert_close(made["y"].astype(np.float64), expected, rtol=error, atol=error * np.abs(expected).max())
    plan = program.plan([list(one.shape) for one in given.values()])
    assert kernel in {step["kernel"] for step in plan}
    np.testing.assert_array_equal(program(given)["y"], made["y"])


FEW = [
    Case(4, 2, 1, 33, 8, (0, 32, 7)),
    Case(6, 2, 3, 50, 64, (40, 5)),
    Case(4, 1, 1, 300, 128, (280,), before=100),
    Case(2, 2, 2, 20, 12, (9,), cap=2.0, turns=False),
]
MANY = [
    Case(4, 2, 20, 60, 16, (0, 35)),
    Case(2, 1, 70, 100, 64, (30,), before=20),
    Case(2, 2, 33, 40, 20, (2,), cap=3.0),
]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_few_rows_read_the_bytes(case: Case, precision: str, context: pumice.Context) -> None:
    kernel = (
        "attention_row"
        if context.info.matrices and precision == "fp16" and case.size % 8 == 0
        else "attention_decode.comp"
    )
    program = case.program(context, precision)
    names = {step["kernel"] for step in program.plan([list(one.shape) for one in case.given(precision).values()])}
    assert not any(name == "dequantize_kv_cache.comp" for name in names)
    check(case, context, precision, next(name for name in names if name.startswith(kernel)))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("case", MANY, ids=str)
def test_many_rows_have_them_unpacked(case: Case, precision: str, context: pumice.Context) -> None:
    check(case, context, precision, "dequantize_kv_cache.comp")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("case", [*FEW, *MANY], ids=str)
def test_caches_are_right_by_the_kernels_of_gpus(case: Case, precision: str, gpu_kernels: pumice.Context) -> None:
    check(case, gpu_kernels, precision, "dequantize_kv_cache.comp" if case in MANY else "attention_decode.comp")


@pytest.mark.parametrize(
    "case",
    [
        Case(4, 2, 1, 33, 8, (0, 32, 7)),
        Case(6, 2, 3, 90, 40, (80, 5)),
        Case(19, 1, 1, 300, 64, (280,), before=100),
        pytest.param(Case(2, 1, 1, 40, 256, (33,)), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_rows_are_right_on_tensor_cores(case: Case, emulating: pumice.Context) -> None:
    """Cooperative matrices are emulated if the device has none."""
    check(case, emulating, "fp16", "attention_decode_mma.comp")


LONG = [
    Case(32, 8, 1, 5000, 128, (4990, 129)),
    Case(32, 8, 4, 4097, 64, (4000,)),
    Case(32, 8, 1, 4097, 64, (4000,), before=1023),
    Case(20, 1, 3, 900, 128, (800,)),
    Case(8, 1, 1, 900, 256, (850,)),
]


@pytest.mark.parametrize("case", LONG, ids=str)
def test_long_caches_are_right_on_real_tensor_cores(case: Case, context: pumice.Context) -> None:
    """With real cooperative matrices; skipped on other devices."""
    quirks = {quirk.name for quirk in context.driver_quirks}
    if not context.info.matrices or context.info.limits["subgroupSize"] != 32 or "other_matrix_layout" in quirks:
        pytest.skip("needs fp16 cooperative matrices with the fragment layout the kernels assume")
    check(case, context, "fp16", "attention_decode_mma.comp")


@pytest.mark.parametrize("rows", [1, 20])
def test_the_error_is_that_of_rounding_to_levels(rows: int, context: pumice.Context) -> None:
    """Check the error bound. Key elements are off by half a step, and a score by that times the L1 norm of the query. Weights change by
    at most exp of twice that, and values are off by half a step themselves. Queries are small so that the values' error matters.
    """
    case = Case(4, 2, rows, 80, 32, (0,), turns=False)
    given = case.given("fp32")
    given["q"] /= 64
    made = case.program(context, "fp32")(given)
    keys, values = (np.zeros((1, 2, 80, 32)) for _ in range(2))
    keys[:, :, :rows], values[:, :, :rows] = given["k"], given["v"]
    expected = attention(case, given["q"].astype(np.float64), keys, values)
    half = {name: np.abs(given[name]).max() / LEVELS / 2 for name in "kv"}
    moved = np.abs(given["q"]).sum(-1).max() * half["k"] * case.size**-0.5
    assert np.expm1(2 * moved) < 0.1
    bound = np.expm1(2 * moved) * np.abs(given["v"]).max() + half["v"]
    error = np.abs(made["y"] - expected)
    assert error.max() <= bound * (1 + 1e-4)
    if rows > 1:
        return
    own = np.abs(given["v"]).max(-1).repeat(2, 1)[..., None] / LEVELS / 2  # with one key, a head's result is its value
    assert (error <= own * (1 + 1e-4)).all()
    assert error.max() > own.max() / 2, "values are rounded"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-3, 1e-4, 1e-5])
def test_elements_are_off_by_half_a_level_at_most(size: float, precision: str, context: pumice.Context) -> None:
    """The bound is 1/254 of the row maximum, plus the rounding of the scale to its type. For fp16 the latter is at least the subnormal
    spacing.
    """
    case = Case(2, 2, 30, 30, 64, turns=False)
    given = case.given(precision)
    for name in "kv":
        given[name] = (given[name].astype(np.float64) * size).astype(given[name].dtype)
    made = case.program(context, precision)(given)
    for name, source in (("key", "k"), ("value", "v")):
        rows = given[source].astype(np.float64)
        scales = np.abs(rows).max(-1, keepdims=True) / LEVELS
        stored = scales * (1 + EPSILON[precision]) + (2.0**-24 if precision == "fp16" else 0)
        assert (np.abs(floats(made, name) - rows) <= stored / 2 * (1 + 1e-6)).all()
        assert (made[f"new_{name}_scales"].astype(np.float64) <= stored[..., 0] * (1 + 1e-6)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_nan_rows_have_a_nan_scale(bad: float, precision: str, context: pumice.Context) -> None:
    case = Case(2, 2, 5, 9, 8, (2,))
    given = case.given(precision)
    given["k"][0, 1, 3, 6], given["v"][0, 0, 4, 0] = bad, bad
    made = case.program(context, precision)(given)
    for name, place in (("key", (0, 1, 5)), ("value", (0, 0, 6))):
        finite = np.isfinite(made[f"new_{name}_scales"].astype(np.float64))
        assert not finite[place] and finite.sum() == finite.size - 1
        assert not np.isfinite(floats(made, name)[place]).any()
    assert not np.isfinite(made["y"][0, :, 4].astype(np.float64)).any()


def test_what_is_no_number_stays_none(context: pumice.Context) -> None:
    case = Case(2, 1, 1, 9, 8, (3,), turns=False)
    for bad in (np.nan, np.inf):
        given = case.given("fp32")
        given["v"][0, 0, 0, 5] = bad
        assert not np.isfinite(case.program(context, "fp32")(given)["y"]).any()


def test_rows_past_the_end_of_a_cache_are_left_out(context: pumice.Context) -> None:
    case = Case(2, 1, 3, 9, 8, (3,))
    given, program = case.given("fp32"), case.program(context, "fp32")
    # The low words of some are valid rows.
    for first in (-1, 8, 100, 2**31 - 2, 2**31 + 1, 2**32 + 3, 5 * 2**32, 3 - 2**32):
        given["firsts"][:] = first
        made = program(given)
        kept = [row for row in range(case.room) if not first <= row < first + case.rows]
        np.testing.assert_array_equal(made["new_keys"][:, :, kept], given["keys"][:, :, kept])
        np.testing.assert_array_equal(made["new_value_scales"][:, :, kept], given["value_scales"][:, :, kept])


def test_shapes_that_do_not_fit_are_rejected() -> None:
    def add(**changes: list[int]) -> None:
        graph = pumice.Graph()
        shapes = {"q": [1, 2, 1, 8], "k": [1, 1, 1, 8], "v": [1, 1, 1, 8], "keys": [1, 1, 9, 8], "values": [1, 1, 9, 8]}
        shapes |= {"key_scales": [1, 1, 9], "value_scales": [1, 1, 9], "firsts": [1], **changes}
        dtypes = {"keys": "int8", "values": "int8", "firsts": "int64"}
        given = [graph.input(name, dtypes.get(name, "float32"), shape) for name, shape in shapes.items()]
        graph.add("pumice::QuantizedCaches", *given, outputs=5)

    add()
    with pytest.raises(pumice.GraphError, match=r"expected scales of shape \[1, 1, 9\]"):
        add(key_scales=[1, 1, 8])
    with pytest.raises(pumice.GraphError, match="a head size that is a multiple of 4; given 6"):
        add(**{name: [1, 1, 1, 6] for name in "kv"}, q=[1, 2, 1, 6], keys=[1, 1, 9, 6], values=[1, 1, 9, 6])
    with pytest.raises(pumice.GraphError, match="caches of one shape"):
        add(values=[1, 1, 8, 8])
