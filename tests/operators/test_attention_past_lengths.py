"""No attention kernel reads keys and values past a sequence's length: their contents, even NaN, change no bit. (Keys hidden by a mask or
by causality do: in ONNX's formula their weight of zero times NaN is NaN.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from pumice.base.element_types import get_numpy_dtype

Array = npt.NDArray[Any]
STORED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Case:
    """counts: KV length of each sequence; mask: its dtype."""

    rows: int
    counts: tuple[int, ...]
    keys: int = 300
    heads: int = 4
    groups: int = 2
    size: int = 32
    causal: bool = True
    before: int = -1
    cap: float = 0.0
    mask: str = ""
    in_int8: bool = False

    def given(self, precision: str, behind: float) -> list[Array]:
        """Return random inputs. behind: fill value of keys, values, scales and mask past the length."""
        random, dtype = np.random.default_rng(0), get_numpy_dtype(STORED[precision])
        batch, shape = len(self.counts), (len(self.counts), self.groups, self.keys)
        q = random.standard_normal((batch, self.heads, self.rows, self.size)).astype(dtype)
        if self.in_int8:
            caches = [random.integers(-127, 128, (*shape, self.size)).astype(np.int8) for _ in range(2)]
            caches += [random.uniform(0.5, 2, shape).astype(dtype) for _ in range(2)]
        else:
            caches = [random.standard_normal((*shape, self.size)).astype(dtype) for _ in range(2)]
        filled = list(caches[2:] or caches)
        if self.mask:
            sizes = (batch, self.heads, self.rows, self.keys)
            hides = random.random(sizes) < 0.3
            mask = (
                ~hides if self.mask == "bool" else np.where(hides, -np.inf, random.standard_normal(sizes)).astype(dtype)
            )
            caches.append(mask)
        for image, count in enumerate(self.counts):
            for one in filled:
                one[image, :, count:] = behind
            if self.mask:
                caches[-1][image, ..., count:] = behind
        return [q, *caches, np.array(self.counts, np.int64)]

    def program(self, context: pumice.Context, precision: str) -> pumice.Program:
        graph = pumice.Graph("lengths")
        arrays = self.given(precision, 0)
        inputs = [graph.input(f"i{i}", str(one.dtype), list(one.shape)) for i, one in enumerate(arrays)]
        more: dict[str, Any] = {"is_causal": int(self.causal), "left_window_size": self.before, "softcap": self.cap}
        if self.in_int8:
            made = graph.add("pumice::QuantizedAttention", *inputs, **more)
        else:
            mask = inputs[3] if self.mask else None
            made = graph.add("Attention", *inputs[:3], mask, None, None, inputs[-1], **more)
        graph.output("y", made)
        return graph.compile(context, precision)


COUNTS = (300, 1, 0, 17, 129, 240)
FEW = [Case(1, COUNTS), Case(1, COUNTS, causal=False, size=12), Case(3, COUNTS, before=20, cap=3.0)]
MANY = [Case(40, COUNTS), Case(100, COUNTS, before=50), Case(20, COUNTS, causal=False, size=20)]
MASKED = [replace(one, mask=mask) for mask in ("bool", "float") for one in (FEW[0], FEW[2], MANY[0])]
INT8 = [replace(one, in_int8=True) for one in (FEW[0], FEW[2], MANY[0])]


def kernels(case: Case, context: pumice.Context, precision: str) -> set[str]:
    """Compare the results bit for bit and return the kernels of the plan."""
    program = case.program(context, precision)
    zeros, *others = (program.call(tuple(case.given(precision, behind)))[0] for behind in (0, np.nan, np.inf, 7.0))
    bits = np.uint32 if precision == "fp32" else np.uint16
    for one in others:
        np.testing.assert_array_equal(one.view(bits), zeros.view(bits))
    used = np.array(case.counts) > (case.rows if case.causal else 0)
    assert np.isfinite(zeros[used].astype(np.float32)).mean() > 0.9, "rows that see a key are numbers"
    return {step["kernel"] for step in program.plan([one.shape for one in case.given(precision, 0)])}


@pytest.mark.parametrize("precision", STORED)
@pytest.mark.parametrize("case", [*FEW, *MANY, *MASKED, *INT8], ids=str)
def test_rows_past_the_length_change_no_bit(case: Case, precision: str, context: pumice.Context) -> None:
    kernels(case, context, precision)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("case", [*FEW, *MANY, *MASKED, *INT8], ids=str)
def test_nor_in_the_kernels_of_gpus(case: Case, precision: str, gpu_kernels: pumice.Context) -> None:
    found = kernels(case, gpu_kernels, precision)
    assert found & {"attention_decode.comp", "attention_tiled.comp"}


# The driver needs ten seconds or more to compile the emulation of cooperative matrices.
QUADS = [FEW[0], INT8[0], *(pytest.param(one, marks=pytest.mark.slow) for one in (FEW[2], *MASKED[:2], INT8[1]))]


@pytest.mark.parametrize("case", QUADS, ids=str)
def test_nor_on_tensor_cores(case: Case, emulating: pumice.Context) -> None:
    assert kernels(case, emulating, "fp16") == {"attention_decode_mma.comp"}


@pytest.mark.parametrize("keys", [300, 5000])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("case", [*FEW, *MANY, *MASKED, *INT8], ids=str)
def test_nor_on_real_tensor_cores(case: Case, precision: str, keys: int, pumice_context: pumice.Context) -> None:
    """The same with split-K on real cooperative matrices; skipped on devices without."""
    if not pumice_context.info.matrices:
        pytest.skip("needs cooperative matrices")
    long = replace(case, keys=keys, counts=(keys, *case.counts[1:], keys - 40))
    kernels(replace(long, size=64), pumice_context, precision)
