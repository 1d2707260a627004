"""Speculative decoding: the text equals the one without proposals, in fewer runs if the proposals are right."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from corpus.store import load
from decoder_folders import STORY, WORDS, assert_steps_are_recorded, write_folder
from process import python
from pumice.text.decode_state import DecodeState
from pumice.text.decoder import SamplingParams, TokenBitmask, make_token_bitmask
from pumice.text.generator import Generator, Session
from pumice.text.speculation import DraftModelProposer, NGramProposer

PROMPT = "Once there was a fox"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.2},
    {"temperature": 1.0, "top_p": 0.95, "seed": 7},
    {"temperature": 0.8, "top_k": 20, "seed": 3, "repetition_penalty": 1.3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("width", [1, 3, 15])
def test_the_text_is_the_one_without_proposals(width: int, options: dict[str, Any], generator: Generator) -> None:
    """Also with sampling: a sample depends only on the seed, the position and the text."""
    for prompt in (PROMPT, "One evening"):
        expected = generator(prompt, max_tokens=120, **options)
        assert generator(prompt, max_tokens=120, speculate="ngram", num_draft_tokens=width, **options) == expected


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_draft_that_is_the_model_is_always_right(options: dict[str, Any], generator: Generator) -> None:
    """Of four tokens per run, three are proposed, sampled with the same random numbers."""
    expected = generator(PROMPT, max_tokens=81, **options)
    assert generator.timing.runs == 80
    assert generator(PROMPT, max_tokens=81, speculate=generator, num_draft_tokens=3, **options) == expected
    assert (generator.timing.tokens, generator.timing.runs) == (81, 20)


def test_a_text_that_is_there_already_is_proposed(generator: Generator) -> None:
    tokens = generator.encode(PROMPT)
    with generator.session() as session:
        session(tokens, max_tokens=60)
        new_tokens = session.tokens
    again = [*new_tokens, *tokens]
    expected = generator.session()
    expected(again, max_tokens=50)
    session = generator.session()
    session(again, max_tokens=50, speculate="ngram", num_draft_tokens=7)
    assert session.tokens == expected.tokens
    assert session.timing.runs < expected.timing.runs


@pytest.mark.parametrize("cache", [None, "int8"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_other_caches_and_precisions(precision: str, cache: str | None, context: pumice.Context) -> None:
    with Generator(STORY, context, precision, cache) as generator:
        expected = generator(PROMPT, max_tokens=60)
        assert generator(PROMPT, max_tokens=60, speculate=generator) == expected
        assert generator.timing.runs <= 22


class Wrong:
    """Proposes as many tokens as requested, all of them wrong."""

    def __init__(self, words: int) -> None:
        self.asked: list[int] = []
        self.words = words

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        self.asked.append(count)
        return [(tokens[-1] + 1 + i) % self.words for i in range(count)]

    def close(self) -> None:
        self.words = 0


def test_wrong_proposals_change_nothing(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Wrong(generator.decoder.vocab_size)
    monkeypatch.setattr("pumice.text.generator.make_proposer", lambda *_: wrong)
    expected = generator.session()
    expected(PROMPT, max_tokens=40)
    session = generator.session()
    session(PROMPT, max_tokens=20, speculate="ngram")
    assert wrong.words == 0, "it was closed"
    wrong.words = generator.decoder.vocab_size
    session([], max_tokens=20)
    assert session.tokens == expected.tokens
    assert max(wrong.asked) == 3
    assert min(wrong.asked) < 3, "no more is proposed than tokens are wanted"


def test_caches_grow_and_the_context_ends(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice.text.decode_state._MAX_EXTRA_CAPACITY", 8)
    monkeypatch.setattr("pumice.text.decode_state._MIN_CAPACITY", 8)
    long = generator.encode("the fox ") * 200
    for prompt, count, length in ((generator.encode(PROMPT), 60, 65), (long[:480], 100, 512)):
        expected, session = generator.session(), generator.session()
        expected(prompt, max_tokens=count)
        session(prompt, max_tokens=count, speculate=generator, num_draft_tokens=7)
        assert session.tokens == expected.tokens
        assert len(session.tokens) == length
        if length < 512:
            assert session([], max_tokens=5) == expected([], max_tokens=5) != ""
            continue
        for item in (session, expected):
            with pytest.raises(pumice.text.ContextError, match="512 tokens and 1 more"):
                item([], max_tokens=1)


@pytest.mark.parametrize("speculate", [None, "ngram", STORY], ids=["alone", "ngram", "draft"])
def test_of_two_open_streams_the_later_goes_on(speculate: Any, generator: Generator) -> None:
    """A prompt read while another stream is active ends that stream, because its tokens would follow another text."""
    given = {"speculate": generator if speculate == STORY else speculate}
    session, expected = generator.session(), generator.session()
    first = session.stream(PROMPT, max_tokens=40, **given)
    for _ in range(5):
        next(first)
    tokens = session.tokens
    second = session.stream(" The owl", max_tokens=12, **given)
    with pytest.raises(pumice.StateError, match="continued with another text"):
        next(first)
    with pytest.raises(StopIteration):
        next(first)
    more = generator.encode(" The owl", special=False)
    assert session.tokens == tokens + more
    assert "".join(second) == expected(tokens + more, max_tokens=12)
    assert session.tokens == expected.tokens
    np.testing.assert_allclose(session.logits(), expected.logits(), rtol=1e-4, atol=1e-4)


def test_a_later_stream_that_has_ended_does_not_end_an_older_one(generator: Generator) -> None:
    """Each stream has its own finished flags: the older one raises, although the later one has ended at a stop string."""
    session = generator.session()
    first = session.stream(PROMPT, max_tokens=40)
    next(first)
    assert len(list(session.stream(" The owl", max_tokens=40, stop=" "))) < 40
    with pytest.raises(pumice.StateError, match="continued with another text"):
        next(first)


@pytest.mark.parametrize("speculate", [None, "ngram"])
def test_a_stream_without_cache_capacity_says_so(speculate: str | None, generator: Generator) -> None:
    """The first of two streams fills the context, which had free space when the second was opened."""
    session = generator.session()
    long = (generator.encode("the fox ") * 200)[:507]
    first = session.stream(long, max_tokens=1000)
    second = session.stream([long[0]], max_tokens=10, speculate=speculate)
    for _ in first:
        pass
    assert len(session.tokens) == 512
    with pytest.raises(pumice.text.ContextError, match="at most 512 tokens") as caught:
        next(second)
    assert (caught.value.tokens, caught.value.context_length) == (512, 512)
    assert (len(session.tokens), session.capacity) == (512, 512)
    for most in (0, -1):
        rows = generator.session()._state
        rows.tokens[0] += long
        assert not list(rows.generate([SamplingParams()], most, draft=(NGramProposer(), 3)))


def test_a_run_makes_no_binding_and_no_pipeline(generator: Generator) -> None:
    """After each kernel was used once: the number of accepted proposals decides which kernels a run needs."""
    generator(PROMPT, max_tokens=200, speculate=generator)
    session = generator.session()
    stream = session.stream(PROMPT, max_tokens=200, speculate=generator)
    assert_steps_are_recorded(session, stream, begun=6)


def test_an_interrupted_stream_leaves_the_session_usable(generator: Generator) -> None:
    for count in range(3, 9):
        session, expected = generator.session(), generator.session()
        stream = session.stream(PROMPT, max_tokens=60, speculate=generator)
        for _ in range(count):
            next(stream)
        stream.close()
        expected(PROMPT, max_tokens=len(session.tokens) - len(generator.encode(PROMPT)))
        assert session.tokens == expected.tokens
        assert session([], max_tokens=10) == expected([], max_tokens=10)


def interrupted_at(place: int) -> Callable[[pumice.Tensor, Any], None]:
    """Return a Tensor.upload that raises KeyboardInterrupt at upload number `place`."""
    numbers, whole = itertools.count(), pumice.Tensor.upload

    def upload(tensor: pumice.Tensor, array: Any) -> None:
        if next(numbers) == place:
            raise KeyboardInterrupt
        whole(tensor, array)

    return upload


@pytest.mark.slow
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1]], ids=str)
def test_an_interruption_at_any_upload_leaves_the_text_right(
    options: dict[str, Any], generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Includes uploads of the first run, which creates the recordings of later runs. New tensors are zeroed, as memory may be."""
    prompt = generator.encode(PROMPT)
    empty = pumice._pumice.empty

    def zeros(*arguments: Any) -> pumice.Tensor:
        result = empty(*arguments)
        result.fill(0)
        return result

    monkeypatch.setattr(pumice._pumice, "empty", zeros)
    expected = generator.session()
    expected(prompt, max_tokens=24, **options)
    interrupted = set()
    for place in range(40):
        session = generator.session()
        with monkeypatch.context() as patched:
            patched.setattr(pumice.Tensor, "upload", interrupted_at(place))
            try:
                session(prompt, max_tokens=24, speculate=generator, **options)
            except KeyboardInterrupt:
                interrupted.add(len(session.tokens))
        left = len(prompt) + 24 - len(session.tokens)
        if left:
            session([], max_tokens=left, speculate=generator, **options)
        assert session.tokens == expected.tokens, place
    assert len(interrupted) > 3


class Counted(list[int]):
    """A text that counts how many of its tokens are read."""

    read = 0

    def __iter__(self) -> Iterator[int]:
        for token in super().__iter__():
            self.read += 1
            yield token

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(place, slice) else 1
        return found


def test_a_proposal_reads_what_is_new_of_the_text(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Counted((generator.encode("the fox ") * 200)[:300])
    draft = DraftModelProposer(DecodeState(generator.decoder, 1, None), SamplingParams(penalty=1.2))
    for proposer in (draft, NGramProposer()):
        proposer.propose(text, 3)
        before = text.read
        for _ in range(4):
            text += [7]
            proposer.propose(text, 3)
        assert text.read - before < 100
    for speculate in ("ngram", generator):
        given: list[int] = []
        for module in ("decoder", "decode_state"):
            counted = functools.partial(_counted_seen, given)
            monkeypatch.setattr(f"pumice.text.{module}.make_token_bitmask", counted)
        generator.session()(list(text), max_tokens=40, speculate=speculate, repetition_penalty=1.2)
        assert sum(given) == len(text), "the text is read once, and not at every step"


def _counted_seen(given: list[int], texts: Sequence[Sequence[int]], words: int) -> Any:
    given.extend(map(len, texts))
    return make_token_bitmask(texts, words)


def test_the_bits_of_rows_are_those_of_their_texts() -> None:
    text, proposed = [3, 40, 3, 99], [31, 40, 64]
    seen = TokenBitmask(text, 100)
    for rows in (4, 1, 6):
        expected = make_token_bitmask([text + proposed[:i] for i in range(rows)], 100)
        np.testing.assert_array_equal(seen.make_bitmasks(text, proposed, rows), expected)
        text += [63, rows]


def test_positions_are_int64_whatever_numpys_default(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, NumPy 1 uses int32 as its default integer."""
    expected, whole = generator(PROMPT, max_tokens=20), np.arange

    def arange(*arguments: Any, dtype: Any = np.int32) -> Any:
        return whole(*arguments, dtype=dtype)

    monkeypatch.setattr(np, "arange", arange)
    assert generator(PROMPT, max_tokens=20, speculate=generator) == expected


JOINING = ["llama.script", "llama.dynamo", "mixture_of_experts.script", "llama.fp16"]


def assert_same_text(actual: Session, expected: Session, options: dict[str, Any]) -> None:
    """Check that the tokens are equal, or that the first differing ones have logits within the rounding of kernels.

    Kernels for one row and for several round differently. In one of some tens of texts, 16-bit logits are that close.
    Sampling is not repeated here.
    """
    if actual.tokens == expected.tokens:
        return
    common = next(i for i, (a, b) in enumerate(zip(actual.tokens, expected.tokens, strict=True)) if a != b)
    logits = actual.generator.logits(expected.tokens[:common])[-1]
    assert logits.dtype == np.float16, (actual.tokens, expected.tokens)
    if "temperature" in options:
        return
    penalty = options.get("repetition_penalty", 1.0)
    values = logits.astype(np.float64)
    seen = np.isin(np.arange(values.size), expected.tokens[:common])
    values = np.where(seen, np.where(values > 0, values / penalty, values * penalty), values)
    chosen = values[[actual.tokens[common], expected.tokens[common]]]
    assert chosen.min() >= values.max() - 4e-3 * np.abs(values).max(), (common, chosen, values.max())


@pytest.mark.parametrize("cache", [None, "int8"])
@pytest.mark.parametrize("name", JOINING)
def test_models_that_concatenate_their_caches(
    name: str, cache: str | None, tmp_path: Path, context: pumice.Context
) -> None:
    """Also with quantized caches: tokens verified together attend to each other's quantized K and V."""
    folder = write_folder(tmp_path, load(name).model, WORDS)
    with Generator(folder, context, cache=cache) as generator:
        assert generator.decoder.decoder_recipe.outputs_new_rows
        for options in OPTIONS[:3]:
            expected, session = generator.session(), generator.session()
            expected([5, 17, 3], max_tokens=60, **options)
            session([5, 17, 3], max_tokens=60, speculate=generator, num_draft_tokens=7, **options)
            assert_same_text(session, expected, options)
            assert session.timing.runs < 30
        told = generator.session()
        told([*expected.tokens, 5, 17, 3], max_tokens=30, speculate="ngram")
        expected([5, 17, 3], max_tokens=30, **OPTIONS[0])
        assert_same_text(told, expected, OPTIONS[0])


@pytest.mark.parametrize("name", JOINING)
def test_tokens_of_a_run_attend_to_rounded_rows(name: str, tmp_path: Path, context: pumice.Context) -> None:
    """The caches match token-by-token reading, except for the rounding of single- and multi-row kernels."""
    folder = write_folder(tmp_path, load(name).model, WORDS)
    with Generator(folder, context, cache="int8") as generator:
        result = []
        for widths in ([1] * 8, [8]):
            rows, tokens = DecodeState(generator.decoder, 1, None), [5, 17, 3, 9, 11, 2, 40, 8]
            for width in widths:
                rows.tokens[0] += tokens[len(rows.tokens[0]) : len(rows.tokens[0]) + width]
                rows.prefill()
            assert rows.caches is not None
            result.append(
                (rows.logits()[0].astype(np.float64), [tensor.numpy()[:, :, :8] for tensor in rows.caches.tensors])
            )
            rows.close()
        (alone, levels), (together, others) = result
        assert np.abs(together - alone).max() <= 2e-3 * np.abs(alone).max()
        for item, other in zip(levels, others, strict=True):
            assert np.abs(item.astype(int) - other).max() <= 1


@pytest.fixture(scope="module")
def numbers(pumice_context: pumice.Context, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generator]:
    """A decoder with another vocabulary."""
    folder = write_folder(tmp_path_factory.mktemp("numbers"), load("llama.script").model, WORDS)
    with Generator(folder, pumice_context) as generator:
        yield generator


def test_what_cannot_be_is_rejected_by_name(generator: Generator, numbers: Generator) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"speculate": "magic"}, "speculate: expected 'ngram' or a Generator, given 'magic'"),
        ({"speculate": 3}, "speculate: expected 'ngram' or a Generator, given 3"),
        ({"speculate": numbers}, "speculate: expected a generator with 512 vocabulary entries"),
        ({"speculate": "ngram", "choose": lambda logits, tokens: 0}, "speculate: expected None if choose= is given"),
        (
            {"speculate": "ngram", "num_draft_tokens": 0},
            "num_draft_tokens: expected a number of tokens from 1 to 15, given 0",
        ),
        ({"speculate": "ngram", "num_draft_tokens": 16}, "num_draft_tokens: expected"),
        ({"speculate": "ngram", "num_draft_tokens": True}, "num_draft_tokens: expected"),
        ({"speculate": "ngram", "num_draft_tokens": 3.0}, "num_draft_tokens: expected"),
        ({"speculate": "ngram", "num_draft_tokens": np.int64(16)}, "num_draft_tokens: expected"),
        ({"num_draft_tokens": 3}, "num_draft_tokens: expected only with speculate"),
    ]
    for options, message in refused:
        session = generator.session()
        with pytest.raises(pumice.Error, match=f"^{message}"):
            session.stream(PROMPT, **options)
        assert session.tokens == []
    with pytest.raises(pumice.Error, match="^speculate: expected one text, given 2"):
        generator(["Once", "One"], speculate="ngram")


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_whole_numbers_of_numpy_are_options(dtype: Any, generator: Generator) -> None:
    """Also small integer types, whose sums with the text length would overflow."""
    prompt = generator.encode("the fox ") * 40
    given = {"max_tokens": 20, "num_draft_tokens": 3, "top_k": 200, "seed": 5}
    options = {"speculate": "ngram", "temperature": 1.0}
    expected = generator.session()(prompt, **options, **given)
    assert generator.session()(prompt, **options, **{name: dtype(value) for name, value in given.items()}) == expected


def test_a_draft_that_fails_is_named(
    generator: Generator, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Generator(STORY, context) as draft:

        def failing(*arguments: Any) -> Any:
            state = DecodeState(*arguments)
            state.step_tensors.sampled_tokens = np.full_like(state.step_tensors.sampled_tokens, 0xFFFFFFFF)
            return state

        monkeypatch.setattr("pumice.text.speculation.DecodeState", failing)
        message = "^speculate: the draft: expected a finite number among the logits, given none"
        with pytest.raises(pumice.Error, match=message):
            generator(PROMPT, speculate=draft)


def test_ngrams_are_found_at_their_last_occurrence() -> None:
    proposer = NGramProposer()
    assert proposer.propose([1, 2, 3], 4) == []
    assert proposer.propose([1, 2, 3, 9, 1, 2], 4) == [3, 9, 1, 2]
    assert proposer.propose([1, 2, 3, 9, 1, 2, 5, 7, 1, 2], 2) == [5, 7], "the last time"
    assert proposer.propose([1, 2, 3, 9, 1, 2, 5, 7, 1, 2, 3], 2) == [9, 1], "the most tokens"
    assert proposer.propose([1, 2, 3, 9, 1, 2, 5, 7, 1, 2, 3, 1], 2) == [], "one is not enough"


def test_the_command_takes_them(generator: Generator) -> None:
    command = ["-m", "pumice", "generate", str(STORY), "--max-tokens", "30", "--time", "--prompt", PROMPT]
    expected = generator(PROMPT, max_tokens=30) + "\n"
    for more in (["--speculate", "ngram", "--num-draft-tokens", "2"], ["--speculate", str(STORY)]):
        done = python(*command, *more)
        assert done.returncode == 0, done.stderr
        assert done.stdout == expected
        assert " runs" in done.stderr
    done = python(*command, "--num-draft-tokens", "2")
    assert (done.returncode, "num_draft_tokens: expected only with speculate" in done.stderr) == (2, True)
