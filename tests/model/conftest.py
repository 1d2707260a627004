"""Fixtures shared by the model tests: the digits model on several devices and its expected results."""

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
    """Return the results for the module's `images`, computed one image per call."""
    with pumice.load(DIGITS, pumice_context) as loaded:
        return np.concatenate([loaded(images[i : i + 1]) for i in range(len(images))])


@pytest.fixture
def twice(context: pumice.Context) -> Iterator[pumice.ParallelModel]:
    """The model on the same device twice."""
    with pumice.load(DIGITS, devices=[f"uuid:{context.info.uuid}"] * 2) as loaded:
        yield loaded
