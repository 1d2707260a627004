"""The sampling kernel against NumPy: possible tokens, their frequencies, and reproducibility by seed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from pumice.text.decode_state import RING_SLOTS, DecodeState, SamplingMode
from pumice.text.decoder import Decoder, SamplingParams, make_token_bitmask
from pumice.text.generator import Generator

NONE = 0xFFFFFFFF


def draws(device: Decoder, logits: Any, choices: list[SamplingParams], rounds: int, seen: Any = None) -> Any:
    """Sample tokens, [rounds, batch]: the same logits at positions 0, 1, ... Without randomness both sampling kernels must agree."""
    found = draws_in_a_way(device, logits, choices, rounds, seen, "random")
    if all(choice.temperature <= 0 for choice in choices):
        assert (draws_in_a_way(device, logits, choices, rounds, seen, "greedy") == found).all()
    return found


def draws_in_a_way(
    device: Decoder, logits: Any, choices: list[SamplingParams], rounds: int, seen: Any, way: SamplingMode
) -> Any:
    state = DecodeState(device, len(logits), None)
    words = state.step_tensors
    words.logits.upload(np.asarray(logits, np.float32)[:, None])
    words.upload_sampling_params(choices, [0] * len(choices))
    words.token_bitmask.upload(make_token_bitmask(seen or [[] for _ in choices], device.vocab_size))
    chosen = state.get_sampling_commands(way)
    found = []
    for position in range(rounds):
        words.past.upload(np.full(len(choices), position, np.int64))
        if seen is not None:
            words.token_bitmask.upload(make_token_bitmask(seen, device.vocab_size))
        chosen.exec().wait()
        found.append(words.sampled_tokens[position % RING_SLOTS].copy())
        assert (words.input_ids.numpy()[:, 0] == np.where(found[-1] == NONE, 0, found[-1])).all()
    return np.array(found)


def probabilities(logits: Any, choice: SamplingParams) -> Any:
    """Return the probability of each token."""
    scores = np.asarray(logits, np.float64) / choice.temperature
    kept = np.ones(len(scores), bool)
    if choice.top_k:
        kept &= scores >= np.sort(scores)[::-1][min(choice.top_k, len(scores)) - 1]
    p = np.where(kept, np.exp(scores - scores.max()), 0)
    p /= p.sum()
    if choice.top_p < 1:
        order = np.argsort(-p, kind="stable")
        enough = np.searchsorted(np.cumsum(p[order]), choice.top_p) + 1
        least = p[order[min(enough, len(order)) - 1]]
        p = np.where(p >= least, p, 0)
    return p / p.sum()


def spread(words: int, seed: int, scale: float = 2.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(words) * scale).astype(np.float32)


@pytest.mark.parametrize(
    "choice",
    [
        SamplingParams(1.0),
        SamplingParams(0.7),
        SamplingParams(1.3, top_k=5),
        SamplingParams(1.0, top_p=0.6),
        SamplingParams(0.9, top_k=40, top_p=0.8),
        SamplingParams(1.0, top_k=1),
        SamplingParams(5.0, top_p=0.999),
    ],
    ids=str,
)
def test_frequencies_are_those_of_the_distribution(choice: SamplingParams, generator: Generator) -> None:
    """Chi-squared test over 16 sequences of 250 positions with different seeds; filtered tokens never appear."""
    images, rounds = 16, 250
    logits = spread(generator.decoder.vocab_size, 3)
    choices = [choice._replace(seed=100 + i) for i in range(images)]
    found = draws(generator.decoder, np.tile(logits, (images, 1)), choices, rounds).ravel()
    p = probabilities(logits, choice)
    assert p[found].min() > 0, "a token that is left out has come"
    counts = np.bincount(found, minlength=len(p))
    order = np.argsort(-p)
    likely = order[p[order] * len(found) >= 8]
    expected = np.append(p[likely], 1 - p[likely].sum()) * len(found)
    given_counts = np.append(counts[likely], len(found) - counts[likely].sum())
    kept = expected > 1e-6
    chi = ((given_counts - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = max(kept.sum() - 1, 1)
    assert chi < freedom + 6 * np.sqrt(2 * freedom) + 6


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1), top_k=st.integers(0, 600), top_p=st.floats(0.05, 1), temperature=st.floats(0.1, 4)
)
def test_a_token_depends_on_its_own_text_alone(
    seed: int, top_k: int, top_p: float, temperature: float, generator: Generator
) -> None:
    """A sequence gets the same tokens alone and in any batch, all of nonzero probability."""
    choice = SamplingParams(temperature, top_k, top_p, seed=seed)
    logits = spread(generator.decoder.vocab_size, seed % 1000)
    alone = draws(generator.decoder, logits[None], [choice], 6)[:, 0]
    other = spread(generator.decoder.vocab_size, 5)
    batch = draws(generator.decoder, [other, logits, other], [SamplingParams(1.0, seed=1), choice, SamplingParams()], 6)
    assert (batch[:, 1] == alone).all()
    assert (batch[:, 2] == other.argmax()).all()
    p = probabilities(logits, choice._replace(top_p=min(top_p * 1.0001, 1.0)))
    assert (p[alone] > 0).all()


CUTS = [
    SamplingParams(1.0),
    SamplingParams(0.3, top_p=0.7),
    SamplingParams(1.0, top_k=3),
    SamplingParams(2.0, top_k=40, top_p=0.9),
    SamplingParams(1.0, top_k=5000),
]


@pytest.mark.parametrize("least", [10_000, 1000, 100])
def test_likeliest_tokens_are_taken_whatever_the_number_of_workgroups(
    least: int, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1, 6 and 60 workgroups, on one command list run repeatedly: the last workgroup picks the token and resets the counters."""
    device = copy.copy(generator.decoder)
    device.vocab_size = 6007
    monkeypatch.setattr("pumice.text.decode_state._MIN_CHUNK_TOKENS", least)
    logits = np.stack([np.round(spread(device.vocab_size, seed)) for seed in range(5)])
    logits[3] = np.nan
    logits[4, 6006] = np.inf
    found = draws(
        device, logits, [SamplingParams(penalty=1.5), *[SamplingParams()] * 4], 30, seen=[[1, 2], [], [], [], []]
    )
    expected = np.where(np.arange(5) >= 3, NONE, logits.argmax(1))
    scored = logits[0].copy()
    scored[[1, 2]] = np.where(scored[[1, 2]] > 0, scored[[1, 2]] / 1.5, scored[[1, 2]] * 1.5)
    expected[0] = scored.argmax()
    assert (found == expected).all()


@pytest.mark.parametrize("ties", [False, True], ids=["apart", "ties"])
@pytest.mark.parametrize("choice", CUTS, ids=str)
def test_tokens_do_not_depend_on_how_the_vocabulary_is_split(
    choice: SamplingParams, ties: bool, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a vocabulary larger than a workgroup's chunk, 1, 6 and 60 workgroups sample the same tokens, none of them filtered out."""
    device = copy.copy(generator.decoder)
    device.vocab_size = 6007
    logits = spread(device.vocab_size, 9, 3.0)
    logits = np.round(logits) if ties else logits
    choices = [choice._replace(seed=seed) for seed in range(3)]
    found = []
    for least in (10_000, 1000, 100):
        monkeypatch.setattr("pumice.text.decode_state._MIN_CHUNK_TOKENS", least)
        assert DecodeState(device, 1, None).step_tensors.num_chunks == max(1, device.vocab_size // least)
        found.append(draws(device, np.tile(logits, (3, 1)), choices, 20))
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert (probabilities(logits, choice)[found[0]] > 0).all()
    assert len(np.unique(found[0])) > 1


def test_seeds_and_positions_give_other_tokens(generator: Generator) -> None:
    flat = np.zeros(generator.decoder.vocab_size, np.float32)
    choices = [SamplingParams(1.0, seed=item) for item in (0, 1, 1 << 32, (1 << 64) - 1)]
    found = draws(generator.decoder, np.tile(flat, (4, 1)), choices, 40)
    assert all(len(set(column)) > 30 for column in found.T)
    assert len({tuple(column) for column in found.T}) == 4


def test_the_first_of_equal_logits_is_the_likeliest(generator: Generator) -> None:
    logits = np.full(generator.decoder.vocab_size, -3.0, np.float32)
    logits[[77, 300]] = 2.5
    assert draws(generator.decoder, logits[None], [SamplingParams()], 1)[0, 0] == 77


def test_tokens_that_were_there_are_less_likely(generator: Generator) -> None:
    logits = spread(generator.decoder.vocab_size, 8)
    order = np.argsort(-logits)
    choice = SamplingParams(penalty=100.0)
    found = draws(generator.decoder, logits[None], [choice], 1, seen=[[int(order[0]), int(order[1])]])
    assert found[0, 0] == order[2]
    negative = -np.abs(logits) - 1
    order = np.argsort(-negative)
    assert draws(generator.decoder, negative[None], [choice], 1, seen=[[int(order[0])]])[0, 0] == order[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_logits_without_a_finite_number_raise(bad: float, temperature: float, generator: Generator) -> None:
    logits = np.full(generator.decoder.vocab_size, bad, np.float32)
    assert draws(generator.decoder, logits[None], [SamplingParams(temperature)], 1)[0, 0] == NONE


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_number_beside_none_is_taken(temperature: float, generator: Generator) -> None:
    logits = np.full(generator.decoder.vocab_size, -np.inf, np.float32)
    logits[:100] = np.nan
    logits[211] = -1e30
    assert draws(generator.decoder, logits[None], [SamplingParams(temperature, top_k=3, top_p=0.5)], 1)[0, 0] == 211


def test_a_model_of_nan_is_an_error(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    session = generator.session()
    pieces = session.stream("Once", max_tokens=4)
    monkeypatch.setattr(
        session._state.step_tensors,
        "sampled_tokens",
        np.full_like(session._state.step_tensors.sampled_tokens, NONE),
    )
    with pytest.raises(pumice.Error, match="expected a finite number among the logits"):
        next(pieces)
