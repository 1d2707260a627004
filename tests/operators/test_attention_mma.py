"""Prefill attention with every tiling, on real or emulated cooperative matrices: partial row tiles, key counts around the K tile,
windows, masks, KV lengths, grouped heads, and scores that grow from key to key.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pumice
from attention_cases import Case
from benchmarks.attention_prefill import TILINGS, Tiling
from pumice.testing import assert_close

KERNEL = "attention_mma.comp"
PLAIN, SHORT = Tiling(2, 32, 1, together=1), Tiling(4, 16, 1, together=4)
STRIPS = Tiling(1, 16, 2, together=2)
LARGE = Tiling(4, 64, 2, together=2)
SHARED, SHARED_WIDE = Tiling(4, 16, 1, together=2, shares=2), Tiling(4, 32, 1, together=1, shares=2)
CASES = [
    (PLAIN, Case(3, 1, 37, 70, 24, 40, causal=True)),
    (SHORT, Case(5, 5, 33, 65, 32, causal=True, before=20)),
    (STRIPS, Case(4, 2, 31, 90, 16, batch=2, counts=(90, 41), causal=True)),
    (STRIPS, Case(3, 1, 65, 63, 40, mask="float16", cap=1.5)),
    (STRIPS, Case(2, 1, 66, 17, 32, 24, causal=True)),
    (SHORT, Case(2, 2, 37, 45, 24, batch=2, mask="float16", mask_axes="bk")),
    (STRIPS, Case(2, 1, 33, 37, 16, batch=2, mask="bool", mask_axes="hk", mask_keys=19)),
    (PLAIN, Case(2, 2, 33, 70, 16, mask="float16", mask_axes="rk", mask_keys=37, causal=True)),
    (LARGE, Case(2, 1, 130, 80, 32, 24, causal=True)),
    (SHARED, Case(2, 1, 37, 70, 24, 40, causal=True)),
    (SHARED, Case(2, 1, 33, 37, 16, batch=2, mask="float16", mask_axes="hk", mask_keys=19)),
    (SHARED_WIDE, Case(3, 1, 34, 65, 32, causal=True, before=20)),
    (PLAIN, Case(2, 1, 70, 64, 24, 40)),  # keys fill all K tiles and are visible to all rows
    (STRIPS, Case(2, 2, 33, 48, 40, 24, mask="float16", mask_axes="bk")),
]
MORE = [
    (STRIPS, Case(2, 2, 31, 77, 40, mask="bool")),
    (STRIPS, Case(1, 1, 17, 1, 8, scale=-0.5)),
    (STRIPS, Case(3, 1, 65, 63, 40, mask="float16", mask_axes="k", cap=1.5)),
    (PLAIN, Case(2, 2, 31, 77, 40, mask="bool", mask_axes="bhk")),
    (STRIPS, Case(1, 1, 64, 16, 64, then="Relu")),
    (STRIPS, Case(3, 3, 47, 97, 128, batch=2, causal=True)),
    (PLAIN, Case(2, 1, 33, 33, 16, counts=(0,))),
    (SHARED, Case(2, 1, 33, 33, 16, counts=(0,))),
    (SHARED_WIDE, Case(2, 2, 31, 77, 40, mask="bool")),
    (SHARED, Case(2, 1, 37, 64, 24, cap=1.5)),
]
LONG = [
    Case(5, 5, 1009, 1009, 128, causal=True),
    Case(4, 2, 257, 1023, 64, batch=2),
    Case(32, 8, 127, 129, 128, causal=True),
    Case(3, 1, 255, 2047, 64, counts=(2000,), causal=True, before=700),
    Case(2, 2, 129, 300, 128, mask="bool"),
    Case(2, 2, 131, 300, 64, mask="float16", cap=2.0),
    Case(2, 2, 129, 300, 128, mask="bool", mask_axes="bk"),
    Case(12, 12, 128, 128, 64, batch=8, mask="float16", mask_axes="bk"),
    Case(2, 2, 131, 300, 64, mask="float16", mask_axes="k", mask_keys=201),
    Case(2, 2, 130, 256, 64),
    Case(2, 1, 129, 256, 128, cap=2.0),
]


def told(case: Case, tiling: Tiling) -> dict[str, str]:
    return {f"attention of {case.rows} rows": f"attention_mma {tiling}"}


def check(case: Case, tiling: Tiling, context: pumice.Context) -> None:
    """Check that the kernel is selected, accurate and deterministic."""
    program, given, others = case.program(context, measured=told(case, tiling)), case.given(), case.given(seed=1)
    step, *more = program.plan([array.shape for array in given])
    assert step["kernel"] == KERNEL
    assert step["choice"]["refused"] == ""
    # The engine may choose split-K for its default tiling.
    assert [one["kernel"] for one in more] in (
        [],
        ["attention_combine.comp"] * (step["choice"]["taken"] == step["choice"]["own"]),
    )
    first = program.call(tuple(given))[0]
    assert_close(first, case.expected(given), rtol=4e-3, atol=4e-3)
    assert_close(program.call(tuple(others))[0], case.expected(others), rtol=4e-3, atol=4e-3)
    np.testing.assert_array_equal(program.call(tuple(given))[0], first)


EMULATED = [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]


@pytest.mark.parametrize(("tiling", "case"), EMULATED, ids=str)
def test_tilings_are_right_with_emulated_tensor_cores(tiling: Tiling, case: Case, emulating: pumice.Context) -> None:
    check(case, tiling, emulating)


@pytest.mark.parametrize(("tiling", "case"), CASES + MORE, ids=str)
def test_tilings_are_right_on_real_tensor_cores(tiling: Tiling, case: Case, units: pumice.Context) -> None:
    check(case, tiling, units)


@pytest.mark.parametrize("case", LONG, ids=str)
def test_all_benchmarked_tilings_are_right(case: Case, units: pumice.Context) -> None:
    for tiling in TILINGS[case.size]:
        for together in (1, 2, 8):
            check(case, replace(tiling, together=together), units)


@pytest.mark.parametrize("tiling", [PLAIN, STRIPS], ids=str)
@pytest.mark.parametrize("growth", [0.25, 3.0, -3.0])
def test_scores_that_grow_are_taken_relative_to_the_largest_so_far(
    growth: float, tiling: Tiling, emulating: pumice.Context
) -> None:
    """Scores grow by this exponent per key: within a K tile, across K tiles, or falling from the first key."""
    case = Case(1, 1, 20, 90, 8, scale=1.0)
    q, k, v = case.given()
    q[...] = 0
    q[..., 0] = 1
    k[..., 0] = (growth * np.arange(90)).astype(np.float16)
    made = case.program(emulating, measured=told(case, tiling)).call((q, k, v))[0]
    assert_close(made, case.expected([q, k, v]), rtol=4e-3, atol=4e-3)


def test_fully_masked_key_ranges_get_no_weight(units: pumice.Context) -> None:
    """The first rows see no key of the last splits; all scores are so low that their exponentials vanish next to a score of zero."""
    case = Case(1, 1, 512, 512, 64, causal=True)
    q, k, v = case.given()
    q[...], k[...] = 4.25, -4.25
    made = case.program(units).call((q, k, v))[0]
    assert_close(made, case.expected([q, k, v]), rtol=4e-3, atol=4e-3)


def test_a_tiling_without_enough_shared_memory_is_named(emulating: pumice.Context) -> None:
    case = Case(2, 2, 40, 40, 256)
    program = case.program(emulating, measured=told(case, Tiling(4, 64, 2, together=1)))
    program.plan([list(shape) for shape in case.shapes])
    assert "cannot take attention_mma 4 x 64 x 2" in program.report()[0]["note"]
    (step,) = program.plan([list(shape) for shape in case.shapes])
    assert step["choice"]["taken"] == step["choice"]["own"]


@pytest.mark.parametrize(("heads", "rows", "strips"), [(32, 8192, 2), (1, 100, 1)])
def test_subgroups_have_two_query_tiles_on_a_full_device(
    heads: int, rows: int, strips: int, units: pumice.Context
) -> None:
    """Head size 64, one dispatch, no split-K."""
    case = Case(heads, heads, rows, rows, 64)
    plan = case.program(units, measured={f"attention of {rows} rows": "nothing"}).plan(
        [list(shape) for shape in case.shapes]
    )
    own = plan[0]["choice"]["own"]
    if strips == 2:
        assert own == "attention_mma 4 x 64 x 2, 1 together"
        assert len(plan) == 1
    else:
        assert " x 2" not in own


def test_causal_heads_go_together_where_their_keys_fit_the_cache(units: pumice.Context) -> None:
    """All heads are grouped with 2,048 keys of size 128, four with 16,384 keys, and none without a causal mask."""
    for keys, causal, together in ((2048, True, 32), (16384, True, 4), (2048, False, 1)):
        case = Case(32, 32, keys, keys, 128, causal=causal)
        kind = {f"attention of {keys} rows": "nothing"}
        (step,) = case.program(units, measured=kind).plan([list(shape) for shape in case.shapes])
        assert step["choice"]["own"].endswith(f", {together} together")
