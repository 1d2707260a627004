"""Fixtures of the text tests: the example's generator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pumice
from decoder_folders import STORY


@pytest.fixture(scope="session")
def generator(pumice_context: pumice.Context) -> Iterator[pumice.text.Generator]:
    pytest.importorskip("tokenizers")
    with pumice.text.Generator(STORY, pumice_context) as new_generator:
        yield new_generator
