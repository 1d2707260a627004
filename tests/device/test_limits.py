"""A Context restricted to smaller limits than its device has."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from lesser_devices import MIN_LIMITS, is_stricter


def device(context: pumice.Context) -> str:
    return f"uuid:{context.info.uuid}"


def test_a_context_keeps_to_its_requested_limits(context: pumice.Context) -> None:
    limits = {"maxComputeWorkGroupCount": 64, "maxComputeWorkGroupCount_1": 7, "maxStorageBufferRange": 1 << 20}
    with pumice.Context(device(context), limits=limits) as made:
        assert [made.limit(f"maxComputeWorkGroupCount_{axis}") for axis in range(3)] == [64, 7, 64]
        assert made.info.limits["maxStorageBufferRange"] == 1 << 20
        assert pumice.device_macros(made)["ncnn_maxComputeWorkGroupCount_1"].rstrip("ul") == "7"
        unnamed = {name for name in context.info.limits if name.startswith("maxPerStage")}
        assert {name: made.limit(name) for name in unnamed} == {name: context.limit(name) for name in unnamed}


def test_user_kernels_keep_to_the_limits_too(context: pumice.Context) -> None:
    source = "layout(local_size_x = 64) in;\nshared float s[256];\nvoid main() { s[gl_LocalInvocationIndex] = 1.0; }"
    with (
        pumice.Context(device(context), limits={"maxComputeWorkGroupInvocations": 32}) as made,
        pytest.raises(pumice.UnsupportedError, match="takes 32 .maxComputeWorkGroupInvocations."),
    ):
        pumice.Kernel(source, made)
    with (
        pumice.Context(device(context), limits={"maxComputeSharedMemorySize": 512}) as made,
        pytest.raises(pumice.UnsupportedError, match="takes 512 .maxComputeSharedMemorySize."),
    ):
        pumice.Kernel(source, made)


def test_limits_that_the_device_does_not_have_are_rejected(context: pumice.Context) -> None:
    own = context.limit("maxComputeWorkGroupInvocations")
    with pytest.raises(pumice.UnsupportedError, match=f"{own + 1} is more than .* supports: .* is {own}"):
        pumice.Context(device(context), limits={"maxComputeWorkGroupInvocations": own + 1})
    for value in (0, -3):
        with pytest.raises(pumice.UnsupportedError, match=f"'maxStorageBufferRange': {value} is below 1"):
            pumice.Context(device(context), limits={"maxStorageBufferRange": value})
    for value in (48, context.limit("minStorageBufferOffsetAlignment") // 2):
        with pytest.raises(pumice.UnsupportedError, match="minStorageBufferOffsetAlignment|is below 1"):
            pumice.Context(device(context), limits={"minStorageBufferOffsetAlignment": value})


@pytest.mark.parametrize("name", ["maxComputeWorkgroupCount", "maxComputeWorkGroupCount_3", "subgroupSize", ""])
def test_an_unknown_limit_is_rejected_with_those_that_are_known(context: pumice.Context, name: str) -> None:
    with pytest.raises(
        pumice.UnsupportedError, match="by which|engine.s decisions; these do: .*maxComputeWorkGroupCount, "
    ):
        pumice.Context(device(context), limits={name: 1})


def test_the_minimum_limits_of_the_specification_are_accepted(context: pumice.Context) -> None:
    kept = {name: value for name, value in MIN_LIMITS.items() if is_stricter(context, name, value)}
    assert len(kept) >= 6
    with pumice.Context(device(context), limits=kept) as made:
        y = pumice.empty(1000, "float32", made)
        graph = pumice.Graph()
        graph.output("y", graph.add("Relu", graph.input("x", "float32", [1000])))
        x = np.linspace(-1, 1, 1000, dtype="float32")
        np.testing.assert_array_equal(graph.compile(made)({"x": x})["y"], np.maximum(x, 0))
        assert y.shape == (1000,)
