"""The spare second context of a device, kept idle alongside the first one."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from pumice._pumice import another_context, keep_spare, lose_device_after, take_spare


def another(context: pumice.Context) -> pumice.Context:
    return pumice.Context(f"uuid:{context.info.uuid}")


def test_a_spare_is_taken_once(context: pumice.Context) -> None:
    with another(context) as first:
        assert take_spare(first) is None
        spare = another(context)
        keep_spare(first, spare)
        assert take_spare(first) is spare
        assert take_spare(first) is None
        spare.close()


def test_the_latest_is_kept_and_closed_with_its_context(context: pumice.Context) -> None:
    with another(context) as first:
        older, latest = another(context), another(context)
        keep_spare(first, older)
        keep_spare(first, latest)
        assert (older.closed, latest.closed) == (True, False)
    assert latest.closed


def test_what_cannot_be_used_is_not_kept(context: pumice.Context) -> None:
    first, closed, lost = another(context), another(context), another(context)
    closed.close()
    keep_spare(first, closed)
    assert take_spare(first) is None
    lose_device_after(lost, 0)
    with pytest.raises(pumice.DeviceLostError):
        pumice.tensor(np.zeros(4, np.float32), lost) + 1
    keep_spare(first, lost)
    assert lost.closed
    assert take_spare(first) is None
    with pytest.raises(pumice.StateError, match="its own spare"):
        keep_spare(first, first)
    first.close()
    with pytest.raises(pumice.StateError, match="closed"):
        take_spare(first)
    late = another(context)
    keep_spare(first, late)
    assert late.closed


def test_a_spare_that_breaks_while_it_is_kept_is_not_given(context: pumice.Context) -> None:
    with another(context) as first:
        spare = another(context)
        keep_spare(first, spare)
        spare.close()
        assert take_spare(first) is None


def test_another_context_has_the_options_of_the_first(pumice_context: pumice.Context) -> None:
    limits = {"maxComputeWorkGroupInvocations": 64, "maxComputeWorkGroupSize_0": 64}
    of = f"uuid:{pumice_context.info.uuid}"
    with (
        pumice.Context(of, without=["subgroupShuffle"], limits=limits, quirks=["told_spills"]) as first,
        another_context(first, ["shaderInt64"]) as other,
    ):
        assert other.info.uuid == first.info.uuid
        assert other.without == ["subgroupShuffle", "shaderInt64"]
        assert {name: other.info.limits[name] for name in limits} == limits
        assert "told_spills" in {quirk.name for quirk in other.driver_quirks}
