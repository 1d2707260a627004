"""The rate that ./dev bench computes from the calls of several processes."""

from __future__ import annotations

import dataclasses
import math

import pytest

from benchmarks.ray_blocks import Call, seconds_to_first, steady_rate


def test_the_rate_counts_what_was_done_while_all_worked() -> None:
    """Two processes of 10 rows/s; the second starts 5 s later and ends 3 s later."""
    first = [Call(1, float(t), t + 1.0, -1.0, 10) for t in range(12)]
    second = [Call(2, float(t), t + 1.0, 4.5, 10) for t in range(5, 15)]
    assert steady_rate([*second, *first]) == pytest.approx(20.0)
    assert steady_rate(first) == pytest.approx(10.0)
    idle = [Call(3, 2.0 * t, 2.0 * t + 1, 0.0, 10) for t in range(20)]  # idle half of the time
    assert steady_rate(idle) == pytest.approx(5.0, rel=0.1)
    assert math.isnan(steady_rate(first[:2]))
    assert math.isnan(
        steady_rate([*first, *(dataclasses.replace(call, process=9, begin=50 + call.begin) for call in first)])
    )
    assert seconds_to_first([*first, *second]) == pytest.approx(2.0)
