"""Times of a kernel on the device."""

from __future__ import annotations

import numpy as np
import pytest

import pumice


def test_times_are_the_devices_and_arrays_stay(context: pumice.Context) -> None:
    add = pumice.Kernel(
        "layout(binding = 0) buffer X { sfp x[]; };\nlayout(push_constant) uniform P { float term; };\n"
        "void main() { uint i = gl_GlobalInvocationID.x; buffer_st1(x, i, buffer_ld1(x, i) + afp(term)); }",
        context,
        name="add",
    )
    x = np.zeros(64, "float16")
    told = add.time(x=x, term=1.0, threads=64, runs=5)
    assert len(told.seconds) == 5
    assert 0 < told.min <= told.median <= max(told.seconds)
    assert "5 runs" in repr(told)
    assert not x.any()
    on_device = pumice.zeros((64,), "float32", context=context)
    add.time({"x": on_device}, term=1.0, threads=64, runs=5)
    assert (on_device.numpy() == 6).all(), "one run more than those that are measured"
    with pytest.raises(pumice.Error, match="runs: expected a number from 1 on, given 0"):
        add.time(x=x, term=1.0, threads=64, runs=0)
    with pytest.raises(pumice.BindingError, match="neither"):
        add.time(x=x, term=1.0)
