"""Rows that hold what is no number: once they are taken back, or were only proposed, they are no part of a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from corpus.store import load
from decoder_folders import DECODERS, WORDS, story_with_word, with_word, write_folder
from pumice.text.generator import Generator

BAD = 7
TEXT = [5, 17, 3, 40, 9]
UNSAID = 96  # by any of the decoders
STORY_WORDS = "story"
NAMES = [*DECODERS, STORY_WORDS]
MORE = [(3 * i + 11) % WORDS for i in range(60) if (3 * i + 11) % WORDS != BAD]


def folder_of(name: str, folder: Path, value: float, word: int = BAD) -> Path:
    """A decoder with a word whose embedding is this value."""
    if name == STORY_WORDS:
        return story_with_word(folder, word, value)
    return write_folder(folder, with_word(load(name).model, word, value), WORDS)


def logits_of(session: Any, *texts: Sequence[int]) -> Any:
    for one in texts:
        session.stream(one)
        logits = session.logits()
    return logits.astype(np.float32)


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("cache", [None, "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_that_were_taken_back_are_not_seen(
    name: str, cache: str | None, bad: float, tmp_path: Path, context: pumice.Context
) -> None:
    """Bit by bit, in runs of all numbers of rows, where what was taken back has been read in runs of several."""
    with Generator(folder_of(name, tmp_path, bad), context, cache=cache) as generator:
        for count in (1, 2, 5, 20, 55):
            session = generator.session()
            assert np.isfinite(logits_of(session, TEXT)).all()
            assert np.isnan(logits_of(session, [2, BAD, *range(20, 45)])).all()
            fork = session.fork()
            for one in (session, fork):
                one.rewind(len(TEXT))
                expected = logits_of(generator.session(), [*TEXT, *MORE[:count]], [1], [2, 3])
                assert np.isfinite(expected).all()
                np.testing.assert_array_equal(logits_of(one, MORE[:count], [1], [2, 3]), expected)


@pytest.mark.parametrize("cache", [None, "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_behind_those_in_use_are_not_seen(
    name: str, cache: str | None, tmp_path: Path, context: pumice.Context
) -> None:
    """Bit by bit, whatever the caches hold there."""
    made = []
    with Generator(folder_of(name, tmp_path, np.nan), context, cache=cache) as generator:
        for filled in (False, True):
            session, logits = generator.session(), []
            for more in (TEXT, [1], [2, 3, 4], MORE[:30]):
                caches = session._rows.make_room(128)
                for tensor in (*caches.words, *caches.scales) if filled else ():
                    held = tensor.numpy().copy()
                    bits = held.view(np.int16 if held.itemsize == 2 else np.int32)
                    bits[:, :, len(session.tokens) :] = -1  # NaN as a float of any type
                    tensor.upload(held)
                logits.append(logits_of(session, more))
            made.append(logits)
    np.testing.assert_array_equal(made[0], made[1])
    assert np.isfinite(made[0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_rewind_keeps_the_rows_of_a_text_of_numbers(name: str, tmp_path: Path, context: pumice.Context) -> None:
    with Generator(folder_of(name, tmp_path, np.nan), context) as generator, generator.session() as session:
        logits_of(session, TEXT, MORE)
        session.rewind(20)
        assert session._rows.cached == [20]
        session(MORE[:3], max_tokens=3)
        session.rewind(-1)
        assert session._rows.cached[0] > 20
        logits_of(session, [BAD])
        session.rewind(-1)
        assert session._rows.cached == [0]


class Bad:
    """Proposes the word that has no numbers."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        return [UNSAID, *[9] * (count - 1)][:count]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("width", [1, 3, 15])
@pytest.mark.parametrize("cache", [None, "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_proposals_that_are_no_numbers_change_nothing(
    name: str, cache: str | None, width: int, tmp_path: Path, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Generator(folder_of(name, tmp_path, np.nan, UNSAID), context, cache=cache) as generator:
        expected, session = generator.session(), generator.session()
        expected(TEXT, max_tokens=12)
        assert UNSAID not in expected.tokens
        monkeypatch.setattr("pumice.text.generator.proposer_of", lambda *_: Bad())
        session(TEXT, max_tokens=12, speculate="ngram", width=width)
        assert session.tokens == expected.tokens


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_fill_a_run_are_words_of_the_text(name: str, tmp_path: Path, context: pumice.Context) -> None:
    """A prompt is read in runs of 8 rows and more, whatever its length. Word 0 has no numbers."""
    with Generator(folder_of(name, tmp_path, np.nan, 0), context) as generator:
        assert np.isfinite(logits_of(generator.session(), TEXT)).all()
        assert np.isfinite(generator.logits(TEXT).astype(np.float32)).all()
