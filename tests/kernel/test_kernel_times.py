"""Kernel timing on the device."""

from __future__ import annotations

from typing import Any

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
    with pytest.raises(pumice.Error, match="runs: expected a positive number, given 0"):
        add.time(x=x, term=1.0, threads=64, runs=0)
    with pytest.raises(pumice.BindingError, match="neither"):
        add.time(x=x, term=1.0)


SCALED = """
struct P { vec3 at; float m; };
layout(binding = 0) uniform F { float f[2]; vec3 shift; } b;
layout(std140, binding = 1) buffer X { float x[]; };
layout(binding = 2) buffer V { vec3 v[]; } vectors;
layout(binding = 3) buffer S { P p[]; };
layout(binding = 4) buffer C { uint n; float ys[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  x[i] *= b.f[1];
  vectors.v[i] += b.shift;
  p[i].at.y += 1.0;
  ys[i] = x[i];
  n = 1u;
}
"""


def scaled_arguments() -> dict[str, Any]:
    return {
        "b": {"f": np.array([0, 3], "float32"), "shift": (1, 2, 3)},
        "x": np.arange(5, dtype="float32"),
        "vectors.v": np.zeros((5, 3), "float32"),
        "p": np.zeros(5, [("m", "f4"), ("at", "f4", 3)]),
        "n": np.zeros(1, "uint32"),
        "ys": np.zeros(5, "float32"),
    }


def test_arrays_are_timed_as_a_call_takes_them(context: pumice.Context) -> None:
    """Arrays without padding, members and structures are accepted, and remain unchanged."""
    given = scaled_arguments()
    assert len(pumice.Kernel(SCALED, context).time(given, threads="x", runs=2).seconds) == 2
    for name, value in scaled_arguments().items():
        if name == "b":
            continue
        np.testing.assert_array_equal(given[name], value)


def test_arrays_are_tuned_as_a_call_takes_them(context: pumice.Context) -> None:
    kernel = pumice.Kernel(SCALED, context)
    right = scaled_arguments()
    kernel(right, threads="x")
    names = ("x", "vectors.v", "p", "n", "ys")

    def check(**given: Any) -> dict[str, Any]:
        assert given["x"].tolist() == list(range(5)) and not given["ys"].any()
        return {name: right[name] for name in names}

    def tuned() -> pumice.Tuning:
        given = {**scaled_arguments(), "threads": "x"}
        return kernel.tune({"local_size": [32]}, given, check=check, runs=1, again=True, progress=False)

    assert tuned().best == {"local_size": [32]}
    right["p"]["at"][3, 1] += 1
    with pytest.raises(pumice.Error, match=r"'p\.at' differs"):
        tuned()
