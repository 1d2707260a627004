"""The digits model on devices that several tests ask for, and what it gives image by image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pumice.demo
from pumice.base.element_types import Array

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"


@pytest.fixture(scope="module")
def expected(images: Array, pumice_context: pumice.Context) -> Array:
    """The results for the module's `images`, from a call for each."""
    with pumice.load(DIGITS, pumice_context) as loaded:
        return np.concatenate([loaded(images[i : i + 1]) for i in range(len(images))])


@pytest.fixture
def twice(context: pumice.Context) -> Iterator[pumice.ParallelModel]:
    """The model on the same device twice."""
    with pumice.load(DIGITS, devices=[f"uuid:{context.info.uuid}"] * 2) as loaded:
        yield loaded
