"""Features that a test needs of the device, and is skipped without; and which of the engine's kernels run there."""

from __future__ import annotations

import re

import pytest

import pumice


def need_features(context: pumice.Context, *features: str) -> None:
    """Skip the test if the device lacks one of these."""
    if lacking := [feature for feature in features if not context.feature(feature)]:
        pytest.skip(f"the device lacks {', '.join(lacking)}")


def lacking_features(refusal: str, context: pumice.Context) -> list[str]:
    """Return the features named by an error if the device knows them all and has none of them."""
    named = sorted(set(re.findall(r"needs the feature (\w+)", refusal)))
    return named if all(context.info.features.get(one) is False for one in named) else []


def exceeded_buffers(refusal: str) -> str:
    """Return the number of storage buffers of a kernel that an error refuses for it, and the device's; empty for other errors.

    No kernel of the engine has more than the 32 of the default software driver; phones and small boards have 4 or 8.
    """
    found = re.search(r"(kernel '[^']*' has \d+ storage buffers); '.*' takes (\d+) \(maxPerStage", refusal)
    return f"the device lacks storage buffers: {found[1]}, of {found[2]}" if found else ""


def has_cpu_kernels(context: pumice.Context) -> bool:
    """Whether the engine chooses its kernels for CPU drivers. With subgroups of other sizes than 8 it chooses the GPU kernels."""
    is_software = context.info.kind == "software" and context.feature("subgroupShuffle")
    return is_software and context.info.limits["subgroupSize"] == 8
