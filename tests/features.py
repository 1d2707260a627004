"""Features that a test needs of the device: where one is lacking the test is skipped by that feature's name."""

from __future__ import annotations

import re

import pytest

import pumice


def need_features(context: pumice.Context, *features: str) -> None:
    """Skips the test where the device lacks one of these."""
    if lacking := [feature for feature in features if not context.feature(feature)]:
        pytest.skip(f"the device lacks {', '.join(lacking)}")


def lacking_features(refusal: str, context: pumice.Context) -> list[str]:
    """The features that a refusal names, where each is known to the device and none is there."""
    named = sorted(set(re.findall(r"needs the feature (\w+)", refusal)))
    return named if all(context.info.features.get(one) is False for one in named) else []
