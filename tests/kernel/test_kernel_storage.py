"""Storage of 16-bit arrays, and the log messages about it."""

from __future__ import annotations

import logging
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pumice
from features import need_features
from glsl_modes import BF16

DOUBLE = """
layout(binding = 0) buffer Y { sfp y[]; };
void main() { uint i = gl_GlobalInvocationID.x; buffer_st1(y, i, buffer_ld1(y, i) + buffer_ld1(y, i)); }
"""
WORDS = ["storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess"]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if (record.name, record.levelname) == ("pumice", "INFO")]
    caplog.clear()
    return [text for text in texts if text.startswith("kernel 'twice'")]


def run(kernel: pumice.Kernel, dtype: Any) -> None:
    y = np.arange(4).astype(dtype)
    kernel(y=y, threads=4)
    np.testing.assert_array_equal(y, (np.arange(4) * 2).astype(dtype))


def test_a_packed_replacement_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with pumice.Context(without=[*WORDS, "shaderBFloat16Type"]) as own, caplog.at_level(logging.INFO, "pumice"):
        kernel = pumice.Kernel(DOUBLE, own, name="twice")
        run(kernel, "float32")
        assert said(caplog) == []
        run(kernel, ml_dtypes.bfloat16)
        assert "bf16_packed" in kernel.variants
        (text,) = said(caplog)
        assert text.startswith("kernel 'twice': bfloat16 arrays are stored as bf16_packed: ")
        assert "the device lacks storageBuffer16BitAccess, the device lacks shaderBFloat16Type" in text
        assert ("lacks GL_EXT_bfloat16" in text) is not BF16
        run(kernel, ml_dtypes.bfloat16)
        assert said(caplog) == []


def test_a_replacement_in_a_bound_kernel_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pumice.Context(without=WORDS) as own, caplog.at_level(logging.INFO, "pumice"):
        kernel = pumice.Kernel(DOUBLE, own, name="twice")
        y = pumice.tensor(np.ones(4, "float16"), context=own)
        kernel.bind(y=y, threads=4)
        assert said(caplog) == [
            "kernel 'twice': float16 arrays are stored as fp16_packed: the device lacks storageBuffer16BitAccess"
        ]


def test_nothing_is_logged_if_arrays_have_their_own_type(
    context: pumice.Context, caplog: pytest.LogCaptureFixture
) -> None:
    need_features(context, "storageBuffer16BitAccess")
    with caplog.at_level(logging.INFO, "pumice"):
        run(pumice.Kernel(DOUBLE, context, name="twice"), "float16")
        assert said(caplog) == []
