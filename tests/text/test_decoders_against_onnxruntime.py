"""Tokens and logits of decoders against ONNX Runtime's CPU provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from corpus.store import load
from decoder_folders import DECODERS, NAMES, STORY, WORDS, Reference, perplexity, write_folder

pytest.importorskip("tokenizers")
pytest.importorskip("onnxruntime")

# Relative rounding error of the logits if no error grows: one rounding per term of the sums on the longest path (fp32),
# and one per tensor stored on it (fp16, with fp32 sums).
FP32, FP16 = 2.0**-24, 2.0**-11
TERMS = {"story": 3 * (4 * 128 + 32 + 256 + 256 + 512) + 256, "corpus": 2 * (4 * 32 + 8 + 48 + 256 + 64) + 64}
TENSORS = {"story": 3 * 16 + 3, "corpus": 2 * 24 + 3}


def bound_of(kind: str, precision: str, logits: Any) -> float:
    """Return the maximum difference from ONNX Runtime's logits: twice the error bound, as both round."""
    relative = TERMS[kind] * FP32 + (TENSORS[kind] * FP16 if precision == "fp16" else 0)
    return float(2 * relative * np.abs(logits).max())


def check_greedy(
    generator: pumice.text.Generator, reference: Reference, prompt: list[int], count: int, kind: str
) -> int:
    """Compare greedy tokens; if two logits are closer than the bound, either token is right. Return the number of such
    positions.

    The reference is fed the generated tokens, so that tokens after such a position are compared as well.
    """
    session = generator.session()
    for _ in session.stream(prompt, max_tokens=count):
        pass
    tokens = session.tokens[len(prompt) :]
    assert len(tokens) == count
    reference.restart()
    near, fed = 0, prompt
    for position, token in enumerate(tokens):
        logits = reference.logits(fed)[-1].astype(np.float64)
        best = int(logits.argmax())
        if token != best:
            bound = bound_of(kind, generator.precision, logits)
            assert logits[best] - logits[token] <= bound, f"token {position}: {token}, expected {best}; bound {bound}"
            near += 1
        fed = [token]
    return near


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_tokens_of_the_corpus_are_those_of_onnx_runtime(
    name: str, tmp_path: Path, context: pumice.Context
) -> None:
    model = load(name).model
    folder = write_folder(tmp_path, model, WORDS)
    with pumice.text.Generator(folder, context) as generator:
        near = check_greedy(generator, Reference(model.SerializeToString(), NAMES), [5, 17, 3, 88, 41], 256, "corpus")
    assert near <= 16, "places where either token is right"


def test_a_model_that_concatenates_its_caches_runs_at_another_precision(
    tmp_path: Path, context: pumice.Context
) -> None:
    """Its caches are cast where they are read, also where their length is read."""
    model = load("llama.script").model
    folder = write_folder(tmp_path, model, WORDS)
    with pumice.text.Generator(folder, context, "fp16") as generator:
        logits = generator.logits([5, 17, 3, 88, 41])
    expected = Reference(model.SerializeToString(), NAMES).logits([5, 17, 3, 88, 41])
    assert np.abs(logits - expected).max() <= bound_of("corpus", "fp16", expected)


def test_greedy_tokens_of_the_example_are_those_of_onnx_runtime(context: pumice.Context) -> None:
    with pumice.text.Generator(STORY, context) as generator:
        prompt = generator.encode("There once lived a baker")
        end = generator.folder.eos_token_ids[0]
        no_end = {**vars(generator.folder), "eos_token_ids": ()}
        generator.folder = generator.folder.__class__(**no_end)
        near = check_greedy(generator, Reference(str(STORY / "model.onnx")), prompt, 256, "story")
        assert near <= 4
    assert end == 0


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_logits_are_within_the_bound(precision: str, context: pumice.Context) -> None:
    """4-bit weights; the whole prompt is read in chunks."""
    text = (STORY / "held_back.txt").read_text().split("\n")[0]
    with pumice.text.Generator(STORY, context, precision) as generator:
        tokens = generator.encode(text)[:120]
        logits = generator.logits(tokens)
        session = generator.session()
        assert session.stream(tokens, max_tokens=1)
        np.testing.assert_allclose(session.logits(), logits[-1], atol=bound_of("story", precision, logits[-1]))
    expected = Reference(str(STORY / "model.onnx")).logits(tokens)
    assert logits.shape == expected.shape
    assert np.abs(logits - expected).max() <= bound_of("story", precision, expected)


def test_the_perplexity_of_a_stored_text_is_that_of_onnx_runtime(context: pumice.Context) -> None:
    text = (STORY / "held_back.txt").read_text()
    with pumice.text.Generator(STORY, context) as generator:
        tokens = generator.encode(text)[:500]
        logits = perplexity(generator.logits(tokens), tokens)
    expected = perplexity(Reference(str(STORY / "model.onnx")).logits(tokens), tokens)
    assert abs(logits / expected - 1) < 1e-3
    assert expected < 2.5, "the example knows the text that it was trained on"
