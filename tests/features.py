"""Features that a test needs of the device, and is skipped without; and which of the engine's kernels run there."""

from __future__ import annotations

import re

import pytest

import pumice


def need_features(context: pumice.Context, *features: str) -> None:
    """Skip the test if the device lacks one of these."""
    if lacking := [feature for feature in features if not context.feature(feature)]:
        pytest.skip(f"the device lacks {', '.join(lacking)}")


def need_limits(context: pumice.Context, **minima: int) -> None:
    """Skip the test if a limit of the device is below its minimum, by the limit's name in Vulkan."""
    for name, minimum in minima.items():
        if context.limit(name) < minimum:
            pytest.skip(f"needs {name} of {minimum}; the device has {context.limit(name)}")


def lacking_features(refusal: str, context: pumice.Context) -> list[str]:
    """Return the features named by an error if the device knows them all and has none of them."""
    named = sorted(set(re.findall(r"needs the feature (\w+)", refusal)))
    return named if all(context.info.features.get(one) is False for one in named) else []


def reason_of_refusal(refusal: str, context: pumice.Context) -> str:
    """Return why a test that an error stopped is to be skipped on this device; empty if the engine should have run it.

    That is a missing feature, or a limit on the buffers of a kernel or on anything else of a user's kernel. The engine's own kernels, which
    are named after their files, have to keep to all other limits.
    """
    if lacking := lacking_features(refusal, context):
        return f"the device lacks {', '.join(lacking)}"
    reasons = []
    pattern = r"kernel '([^']*)' has (\d+) ([a-z ]+?)(?: on axis [xyz])?; '[^']*' takes (\d+) \((\w+)\)"
    for kernel, number, quantity, limit, name in re.findall(pattern, refusal):
        of_device = int(limit) == context.limit(name)  # not of a context that a test restricts
        if not of_device or (name != "maxPerStageDescriptorStorageBuffers" and kernel.endswith(".comp")):
            return ""
        reasons.append(f"the device lacks {quantity}: it takes {limit}, and kernel '{kernel}' has {number}")
    return reasons[0] if reasons else ""


def reason_of_failure(failure: BaseException | None, context: pumice.Context) -> str:
    """Return the reason_of_refusal of the error that a failure is, or was raised from or during; empty if there is none."""
    while failure is not None:
        if isinstance(failure, (pumice.UnsupportedError, pumice.ShaderCompileError, pumice.ValidationError)):
            return reason_of_refusal(str(failure), context)
        failure = failure.__cause__ or failure.__context__
    return ""


def has_cpu_kernels(context: pumice.Context) -> bool:
    """Whether the engine chooses its kernels for CPU drivers. With subgroups of other sizes than 8 it chooses the GPU kernels."""
    is_software = context.info.kind == "software" and context.feature("subgroupShuffle")
    return is_software and context.info.limits["subgroupSize"] == 8
