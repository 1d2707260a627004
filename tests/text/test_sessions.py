"""Tests of sessions: streams, turns, rewinding, forks and batches."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import pumice
from decoder_folders import STORY, assert_steps_are_recorded
from process import python
from pumice.text.generator import Generator, StreamingDetokenizer

PROMPT = "Once there was a fox"
DRAWN: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "seed": 7}


def test_the_example_tells_a_story(generator: Generator) -> None:
    text = generator(PROMPT)
    assert text.startswith(" who lived ")
    assert text.count(".") >= 4
    assert "the fox" in text, "the story remembers who it is about"
    timing = generator.timing
    assert timing.prompt == len(generator.encode(PROMPT))
    assert 0 < timing.first_seconds < timing.seconds
    assert timing.tokens > 40


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["likeliest", "drawn"])
def test_pieces_are_the_text(options: dict[str, Any], generator: Generator) -> None:
    pieces = [*generator.stream(PROMPT, **options)]
    assert len(pieces) > 20
    assert "".join(pieces) == generator(PROMPT, **options)


def test_a_batch_of_unequal_prompts_is_each_alone(generator: Generator) -> None:
    prompts = ["Once", "There once lived a young bear at the edge of the forest. One evening", PROMPT, "One"]
    assert generator(prompts, max_tokens=40) == [generator(prompt, max_tokens=40) for prompt in prompts]
    options = {**DRAWN, "seed": [1, 2, 3, 4]}
    alone = [generator(item, max_tokens=40, **{**DRAWN, "seed": i + 1}) for i, item in enumerate(prompts)]
    assert generator(prompts, max_tokens=40, **options) == alone
    assert generator([]) == []


def test_stop_texts_end_it_and_are_left_out(generator: Generator) -> None:
    whole = generator(PROMPT)
    for stop in (".", " the ", '?" she', "nowhere"):
        assert generator(PROMPT, stop=[stop, "~~"]) == whole.split(stop)[0]


def test_no_piece_holds_half_a_character(generator: Generator) -> None:
    text = "naïve 😀 — 東京"
    pieces = StreamingDetokenizer(generator.tokens)
    result = [pieces.add(token) for token in generator.encode(text)]
    assert "".join(result) + pieces.flush() == text
    assert all("\ufffd" not in piece for piece in result)
    assert "" in result, "some tokens are a part of a character"


@pytest.mark.parametrize("stop", ["ab", "ba", "aab", "aaa"])
def test_what_may_be_a_stop_is_buffered(stop: str, generator: Generator) -> None:
    text = "aaaaacbaabaac"
    pieces = StreamingDetokenizer(generator.tokens, [stop])
    result = ""
    for token in generator.encode(text):
        result += pieces.add(token)
        assert text.split(stop)[0].startswith(result)
        if pieces.stopped:
            break
    assert result + pieces.flush() == text.split(stop)[0]


def test_turns_go_on_where_the_last_ended(generator: Generator) -> None:
    whole = generator.session()
    expected = whole(PROMPT, max_tokens=60)
    session = generator.session()
    text = session(PROMPT, max_tokens=20)
    rows = session._state
    before = list(rows.cached)
    for _ in range(4):
        text += session([], max_tokens=10)
    assert text == expected
    assert session.tokens == whole.tokens
    assert rows.cached[0] > before[0]
    assert session.text == PROMPT + expected


def test_a_prompt_of_a_later_turn_is_read(generator: Generator) -> None:
    session = generator.session()
    session(PROMPT, max_tokens=10)
    said = session(" Then a crow came along and saw the", max_tokens=8)
    again = generator.session()
    tokens = session.tokens
    assert said
    assert again(tokens[: len(tokens) - 8], max_tokens=8) == said


def test_rewinding_takes_back_tokens(generator: Generator) -> None:
    session = generator.session()
    session(PROMPT, max_tokens=30)
    tokens = session.tokens
    session.rewind(-12)
    assert session.tokens == tokens[:-12]
    session([], max_tokens=12)
    assert session.tokens == tokens
    session.rewind(0)
    assert session(PROMPT, max_tokens=30)
    assert session.tokens == tokens
    with pytest.raises(pumice.Error, match="a number of tokens from"):
        session.rewind(len(tokens) + 1)


@pytest.mark.parametrize("counts", [(300, 20, 5, 1), (1, 5, 20, 150)], ids=["falling", "rising"])
def test_runs_of_all_numbers_of_rows_share_their_temporary_memory(
    generator: Generator, counts: tuple[int, ...]
) -> None:
    """Chunk sizes run one after the other, so only the largest buffer is allocated; a closed session has none."""
    session = generator.session()
    session._state.ensure_capacity(512)
    for count in counts:
        session.stream(generator.encode("the fox ")[:2] * (count // 2) or [5])
        session.logits()
    rows, device = session._state, generator.decoder
    assert rows.caches is not None
    assert len(rows._runs) >= (3 if counts[0] > counts[-1] else 1)
    needs = [
        device.program.compiled(
            device.decoder_recipe.make_input_shapes(1, count, expected, rows.caches.capacity)
        ).binding_properties.temporary_bytes
        for count, expected, _ in rows._runs
    ]
    buffers = {prompt.arena.id: prompt.arena.bytes for prompt in rows._runs.values()}
    assert sum(buffers.values()) == max(needs)
    session.close()
    assert rows._arena is None


def test_forks_share_the_caches_until_one_goes_on(generator: Generator) -> None:
    session = generator.session()
    session(PROMPT, max_tokens=20)
    fork, before = session.fork(), session.tokens
    assert fork._state.caches is session._state.caches
    ours, theirs = session(" The owl", max_tokens=10), fork(" The goat", max_tokens=10)
    assert fork._state.caches is not session._state.caches
    for result, more in ((ours, " The owl"), (theirs, " The goat")):
        assert result == generator.session()(before + generator.encode(more), max_tokens=10)
    third = fork.fork()
    fork.close()
    assert third([], max_tokens=5)


def test_a_step_makes_no_binding_and_no_pipeline(generator: Generator) -> None:
    """At any length, because the kernels read the length from a buffer."""
    session = generator.session()
    stream = session.stream(PROMPT, max_tokens=200, choose=None, **DRAWN)
    assert_steps_are_recorded(session, stream, begun=4)


def test_an_interrupted_stream_leaves_the_session_usable(generator: Generator) -> None:
    session = generator.session()
    stream = session.stream(PROMPT, max_tokens=60)
    for _ in range(10):
        next(stream)
    stream.close()
    tokens = session.tokens
    expected = generator.session()
    expected(PROMPT, max_tokens=len(tokens) - len(generator.encode(PROMPT)))
    assert tokens == expected.tokens
    assert session([], max_tokens=10) == expected([], max_tokens=10)


def test_an_older_stream_raises_after_the_session_went_on(generator: Generator) -> None:
    session = generator.session()
    stream = session.stream(PROMPT, max_tokens=60)
    next(stream)
    session([], max_tokens=5)
    with pytest.raises(pumice.StateError, match="continued with another text"):
        next(stream)
    assert session([], max_tokens=5)


def test_caches_grow_where_a_text_outgrows_them(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = generator.session()
    expected(PROMPT, max_tokens=150, **DRAWN)
    monkeypatch.setattr("pumice.text.decode_state._MAX_EXTRA_CAPACITY", 8)
    monkeypatch.setattr("pumice.text.decode_state._MIN_CAPACITY", 8)
    session = generator.session()
    rooms = set()
    for _ in session.stream(PROMPT, max_tokens=150, **DRAWN):
        rooms.add(session.capacity)
    assert session.tokens == expected.tokens
    assert len(rooms) > 1
    assert max(rooms) < 512


class Interrupted(dict[Any, Any]):
    """Recordings whose release is interrupted by Ctrl-C."""

    def clear(self) -> None:
        raise KeyboardInterrupt


def test_an_interruption_while_caches_grow_loses_no_row(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice.text.decode_state._MAX_EXTRA_CAPACITY", 8)
    expected, session = generator.session(), generator.session()
    for item in (expected, session):
        item(PROMPT, max_tokens=20)
    rows = session._state
    with monkeypatch.context() as patched:
        patched.setattr(rows, "_runs", Interrupted(rows._runs))
        with pytest.raises(KeyboardInterrupt):
            session([], max_tokens=60)
    left = 60 - (len(session.tokens) - len(expected.tokens))
    session([], max_tokens=left)
    expected([], max_tokens=60)
    assert session.tokens == expected.tokens
    np.testing.assert_allclose(session.logits(), expected.logits(), rtol=1e-4, atol=1e-4)


def test_the_context_is_the_most(generator: Generator) -> None:
    session = generator.session()
    long = generator.encode("the fox ") * 200
    with pytest.raises(pumice.text.ContextError, match="at most 512 tokens") as caught:
        session(long)
    assert (caught.value.tokens, caught.value.context_length) == (len(long), 512)
    assert session.tokens == []
    with pytest.raises(pumice.text.ContextError):
        session(long[:512])
    result = session(long[:500], max_tokens=100)
    assert result
    assert len(session.tokens) <= 512
    with pytest.raises(pumice.text.ContextError):
        session([5] * 12)
    with pytest.raises(pumice.text.ContextError):
        generator(["Once", "the fox " * 300])


def test_out_of_memory_leaves_the_session_as_it_was(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    session = generator.session()
    session(PROMPT, max_tokens=10)
    tokens = session.tokens

    def refuse(*_: Any) -> Any:
        raise pumice.OutOfMemoryError("no room")

    fork = session.fork()
    with monkeypatch.context() as patched:
        patched.setattr("pumice.text.decode_state.KvCaches", refuse)
        with pytest.raises(pumice.OutOfMemoryError):
            fork([], max_tokens=5)
    assert fork.tokens == tokens
    assert fork([], max_tokens=5) == session([], max_tokens=5)


def test_logits_and_a_callable_that_chooses(generator: Generator) -> None:
    seen = []

    def best(logits: Any, tokens: list[int]) -> int:
        seen.append((logits.copy(), tokens))
        return int(logits.argmax())

    assert generator(PROMPT, choose=best, max_tokens=20) == generator(PROMPT, max_tokens=20)
    prompt = generator.encode(PROMPT)
    assert seen[0][1] == prompt
    rows = generator.logits(PROMPT)
    assert rows.shape == (len(prompt), generator.decoder.vocab_size)
    np.testing.assert_allclose(rows[-1], seen[0][0], rtol=1e-4, atol=1e-4)
    session = generator.session()
    session(PROMPT, max_tokens=1)
    np.testing.assert_allclose(session.logits(), seen[1][0], rtol=1e-4, atol=1e-4)
    with pytest.raises(pumice.Error, match="choose: expected a token"):
        generator(PROMPT, choose=lambda logits, tokens: 10**6)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"temperature": 1.0, "seed": -1}, "seed"),
        ({"temperature": 1.0, "seed": 1 << 64}, "seed"),
        ({"seed": [1, 2]}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": [3]}, "stop"),
        ({"choose": 3}, "choose"),
    ],
    ids=str,
)
def test_options_that_are_none_are_rejected_by_name(options: dict[str, Any], name: str, generator: Generator) -> None:
    with pytest.raises(pumice.Error, match=f"^{name}: expected"):
        generator.stream(PROMPT, **options)
    with pytest.raises(TypeError):
        generator(PROMPT, heat=1)


def test_prompts_that_are_none_are_rejected(generator: Generator) -> None:
    with pytest.raises(pumice.Error, match="prompt: expected tokens"):
        generator.session()([512])
    with pytest.raises(pumice.Error, match="prompt: expected a text or tokens"):
        generator.session()(3)  # type: ignore[arg-type]
    with pytest.raises(pumice.Error, match="expected a session with a text"):
        generator.session().logits()
    assert generator("", max_tokens=20), "the folder names a token that begins a text"


def test_what_is_closed_says_so(pumice_context: pumice.Context) -> None:
    generator = pumice.text.Generator(STORY, pumice_context)
    session = generator.session()
    session.close()
    session.close()
    with pytest.raises(pumice.StateError, match="session is closed"):
        session(PROMPT)
    other = generator.session()
    generator.close()
    generator.close()
    with pytest.raises(pumice.StateError, match="generator is closed"):
        other(PROMPT)
    with pytest.raises(pumice.StateError, match="generator is closed"):
        generator(PROMPT)


def test_fp16_tells_a_story_too(pumice_context: pumice.Context) -> None:
    with pumice.text.Generator(STORY, pumice_context, "fp16") as generator:
        session = generator.session()
        assert session(PROMPT, max_tokens=40).startswith(" who lived ")
        assert {str(tensor.desc.dtype) for tensor in session._state.caches.tensors} == {"float16"}


def test_the_command_prints_the_text(generator: Generator) -> None:
    command = ["-m", "pumice", "generate", str(STORY), "--max-tokens", "30", "--time"]
    done = python(*command, "--prompt", PROMPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == generator(PROMPT, max_tokens=30) + "\n"
    assert "30 tokens" in done.stderr
    done = python(*command, "--prompt", "x", "--top-p", "2")
    assert (done.returncode, "top_p: expected" in done.stderr) == (2, True)


def test_importing_the_package_does_not_import_it() -> None:
    text = "import sys, pumice; assert not [n for n in sys.modules if n.startswith(('pumice.text', 'tokenizers'))]"
    assert python("-c", text).returncode == 0
    assert sys.modules
