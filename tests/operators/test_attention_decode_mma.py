"""Decode attention (few queries) on real or emulated cooperative matrices: windows, softcap, masks, KV lengths, partial tiles, and
split-K chosen from lengths on the device.
"""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from attention_cases import Case
from benchmarks import attention_decode, attention_decode_tilings
from pumice.testing import assert_close

KERNEL = "attention_decode_mma.comp"


CASES = [
    Case(4, 2, 1, 400, 32, batch=3, counts=(0, 1, 257)),
    Case(4, 1, 1, 600, 32, counts=(513,), causal=True, before=200),
    Case(19, 1, 1, 70, 16, batch=2, counts=(70, 33)),
    Case(6, 2, 3, 70, 40, 24, causal=True, before=1, cap=2.0),
    Case(4, 2, 1, 77, 40, mask="bool"),
    Case(4, 2, 1, 77, 40, batch=2, mask="float16", mask_axes="bk", mask_keys=35),
]
MORE = [
    Case(1, 1, 1, 1, 8),
    Case(4, 1, 1, 50, 32),
    Case(2, 2, 1, 16, 64),
    Case(2, 2, 1, 17, 64, then="Relu"),
    Case(8, 2, 1, 300, 64, batch=2, counts=(300, 17)),
    Case(4, 2, 3, 90, 32, batch=2, counts=(90, 41), causal=True),
    Case(16, 1, 1, 77, 16),
    Case(4, 4, 1, 77, 24, 136),
    Case(4, 2, 1, 77, 40, mask="float16", cap=1.5),
    Case(2, 1, 1, 40, 256, 8),
    Case(4, 2, 1, 33, 16, scale=-0.5),
]


def check(case: Case, context: pumice.Context) -> None:
    """Check accuracy and determinism; a run with other inputs is interleaved."""
    program, given, others = case.program(context), case.given(), case.given(seed=1)
    (step,) = program.plan([array.shape for array in given])
    assert step["kernel"] == KERNEL
    first = program.call(tuple(given))[0]
    assert_close(first, case.expected(given), rtol=2e-3, atol=2e-3)
    assert_close(program.call(tuple(others))[0], case.expected(others), rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(program.call(tuple(given))[0], first)


# The driver needs ten seconds or more to compile the emulation.
EMULATED = [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)]


@pytest.mark.slow
@pytest.mark.parametrize("case", EMULATED, ids=str)
def test_rows_are_right_with_emulated_tensor_cores(case: Case, emulating: pumice.Context) -> None:
    check(case, emulating)


LONG = [
    Case(32, 8, 1, 5000, 128, batch=2, counts=(5000, 129)),
    Case(32, 32, 1, 3001, 128),
    Case(32, 8, 1, 4097, 64, counts=(4000,), causal=True, before=1023),
    Case(32, 8, 4, 4097, 64, counts=(4097,), causal=True),
    Case(71, 1, 1, 2000, 64),
    Case(20, 1, 4, 900, 128, counts=(800,), causal=True),
    Case(8, 1, 1, 900, 256),
    Case(16, 1, 1, 900, 128),
]


@pytest.mark.parametrize("case", CASES + MORE + LONG, ids=str)
def test_rows_are_right_on_real_tensor_cores(case: Case, units: pumice.Context) -> None:
    """The same on a device with cooperative matrices; skipped on others."""
    check(case, units)


EMULATED = [
    *(tiling for tiling in attention_decode.TILINGS_ON_SOFTWARE if isinstance(tiling, attention_decode.MmaTiling)),
    *(tiling for tiling in attention_decode_tilings.TILINGS_ON_SOFTWARE if tiling.macros != attention_decode.EMULATED),
]


@pytest.mark.parametrize("tiling", EMULATED, ids=str)
def test_benchmarked_tilings_are_right(tiling: attention_decode.MmaTiling, pumice_context: pumice.Context) -> None:
    """Splits of unequal size."""
    shape = attention_decode.Shape(2, 4, 2, 250, 32)
    assert attention_decode.error_of(tiling, shape, 8, pumice_context) < 4e-3


def test_small_weights_are_not_lost(emulating: pumice.Context) -> None:
    """All keys but the first have weights that underflow in fp16, and only their values are nonzero."""
    case = Case(1, 1, 1, 2048, 8, scale=1.0)
    q, k, v = (np.zeros(shape, np.float16) for shape in case.shapes)
    q[..., 0] = 1
    k[:, :, 1:, 0] = -16.0  # e^-16 is below half of the smallest fp16 number, 2^-24
    v[:, :, 1:] = 1.0
    expected = 2047 * np.exp(-16.0) / (1 + 2047 * np.exp(-16.0))
    made = case.program(emulating).call((q, k, v))[0].astype(np.float64)
    assert np.abs(made / expected - 1).max() < 0.02


@pytest.mark.parametrize(
    ("case", "precision"),
    [
        pytest.param(Case(4, 2, 1, 40, 12), "fp16", id="no eights"),
        pytest.param(Case(4, 1, 5, 40, 16), "fp16", id="many rows"),
        pytest.param(Case(9, 1, 1, 40, 136), "fp16", id="many rows of long heads"),
        pytest.param(Case(4, 2, 1, 40, 16), "fp32", id="floats"),
    ],
)
def test_others_are_left_to_other_kernels(case: Case, precision: str, emulating: pumice.Context) -> None:
    steps = case.program(emulating, precision).plan([list(shape) for shape in case.shapes])
    assert all(step["kernel"] != KERNEL for step in steps)


MANY = {"attention of 3 rows": "attention_mma"}


def test_few_queries_use_the_prefill_kernel_on_request(units: pumice.Context) -> None:
    case = Case(6, 2, 3, 70, 40, 24, causal=True, before=1, cap=2.0)
    program, given = case.program(units, measured=MANY), case.given()
    (step,) = program.plan([array.shape for array in given])
    assert step["kernel"] == "attention_mma.comp"
    assert "attention_mma for attention_decode_mma" in program.report()[0]["note"]
    assert_close(program.call(tuple(given))[0], case.expected(given), rtol=4e-3, atol=4e-3)


def test_a_kernel_that_cannot_be_taken_is_named(emulating: pumice.Context) -> None:
    """The first name is unknown; software devices lack the prefill kernel."""
    for name in ("nothing", *(["attention_mma"] if emulating.info.kind == "software" else [])):
        case = Case(6, 2, 3, 70, 40, 24)
        program = case.program(emulating, measured={"attention of 3 rows": name})
        (step,) = program.plan([list(shape) for shape in case.shapes])
        assert step["kernel"] == KERNEL
        assert f"cannot take {name}" in program.report()[0]["note"]
    (step,) = case.program(emulating, measured={"attention of 4 rows": "nothing"}).plan(case.shapes)
    assert "choice" not in step


def test_scores_that_are_wanted_are_made_by_other_kernels(emulating: pumice.Context) -> None:
    case = Case(4, 2, 1, 40, 16)
    graph = pumice.Graph()
    inputs = [graph.input(name, "float16", shape) for name, shape in zip("qkv", case.shapes, strict=True)]
    y, _, _, scores = graph.add("Attention", *inputs, qk_matmul_output_mode=3, outputs=4)
    graph.output("y", y)
    graph.output("scores", scores)
    given = case.given()
    made = graph.compile(emulating, "fp16").call(tuple(given))
    assert_close(made[0], case.expected(given), rtol=4e-3, atol=4e-3)
    assert_close(made[1].sum(-1, dtype=np.float64), np.ones((1, 4, 1)), rtol=4e-3)
