"""int8 KV caches: error of the logits, generated text, memory, and session operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from benchmarks.text import TINY, Writer
from corpus.store import load
from decoder_folders import DECODERS, STORY, WORDS, assert_steps_are_recorded, perplexity, with_word, write_folder
from process import python
from pumice.importer.file.graph_recipe import GraphRecipe
from pumice.importer.load_graph import build_recipe_graph
from pumice.text.decode_state import DecodeState
from pumice.text.decoder import Decoder
from pumice.text.generator import Generator
from pumice.text.model_folder import ModelFolder
from pumice.text.static_kv_cache import to_static_kv_cache

PROMPT = "Once there was a fox"
DRAWN: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "seed": 7}
LEVEL = 1 / 254  # half a quantization step, relative to the row's maximum
LAYERS = 3  # of the example


@pytest.fixture(scope="module")
def rounded(pumice_context: pumice.Context) -> Iterator[Generator]:
    """The example with int8 KV caches."""
    with Generator(STORY, pumice_context, cache="int8") as generator:
        yield generator


def bound_of(layers: int, logits: Any) -> float:
    """Return the error bound of a logit: K and V of each layer are off by half a step, relative to the largest logit."""
    return float(2 * layers * LEVEL * np.abs(logits).max())


def held_back(generator: Generator, count: int) -> list[int]:
    return generator.encode((STORY / "held_back.txt").read_text())[:count]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_logits_are_within_the_bound_and_the_text_as_likely(precision: str, context: pumice.Context) -> None:
    """The perplexity of a stored text is within 0.5% of the one with float caches."""
    with Generator(STORY, context, precision) as floats, Generator(STORY, context, precision, "int8") as rounded:
        tokens = held_back(floats, 400)
        expected, logits = floats.logits(tokens), rounded.logits(tokens)
    error = np.abs(logits.astype(np.float64) - expected.astype(np.float64)).max()
    assert error <= bound_of(LAYERS, expected)
    assert error > 0, "rounded caches are read"
    assert abs(perplexity(logits, tokens) / perplexity(expected, tokens) - 1) < 5e-3


def test_tokens_are_those_of_floats_but_where_two_are_near(rounded: Generator, generator: Generator) -> None:
    """At each position, the token is the float model's argmax or within the error bound of it."""
    prompt, near = generator.encode(PROMPT), 0
    with rounded.session() as session:
        session(prompt, max_tokens=200)
        tokens = session.tokens
    logits = generator.logits(tokens)
    for position in range(len(prompt), len(tokens)):
        row = logits[position - 1]
        near += int(row.argmax()) != tokens[position]
        assert row.max() - row[tokens[position]] <= 2 * bound_of(LAYERS, logits)
    assert near <= 0.05 * (len(tokens) - len(prompt))


@pytest.mark.parametrize("name", DECODERS)
def test_models_that_concatenate_their_caches_round_them_too(
    name: str, tmp_path: Path, context: pumice.Context
) -> None:
    """The new rows are written by a separate kernel (Concat) or by GroupQueryAttention."""
    folder = write_folder(tmp_path, load(name).model, WORDS)
    tokens = [int(number) for number in np.random.default_rng(0).integers(0, WORDS, 40)]
    result = {}
    for cache in (None, "int8"):
        with Generator(folder, context, cache=cache) as generator:
            session = generator.session()
            for i in range(0, len(tokens), 8):
                session.stream(tokens[i : i + 8])
                result[cache, i] = session.logits()
    errors = [
        np.abs(result["int8", i] - result[None, i]).max() / bound_of(2, result[None, i])
        for i in range(0, len(tokens), 8)
    ]
    assert max(errors) <= 1
    assert min(errors) > 0, "rows are rounded, also those of the same step"


def logits_of(generator: Generator, texts: list[list[int]], cuts: Sequence[int] = ()) -> Any:
    """Return the logits after the first text, which is read up to each cut and then to its end."""
    rows = DecodeState(generator.decoder, len(texts), None)
    for cut in (*cuts, max(len(text) for text in texts)):
        rows.tokens = [text[:cut] for text in texts]
        rows.prefill()
    logits = rows.logits()[0].astype(np.float64)
    rows.close()
    return logits


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_text_is_the_same_in_any_batch_and_however_it_is_read(
    name: str, precision: str, tmp_path: Path, context: pumice.Context
) -> None:
    """Tokens of one chunk attend to each other's quantized K and V, so logits differ only by summation order."""
    folder, random = write_folder(tmp_path, load(name).model, WORDS), np.random.default_rng(0)
    text, other = ([int(number) for number in random.integers(0, WORDS, count)] for count in (140, 300))
    with Generator(folder, context, precision, "int8") as generator:
        alone = logits_of(generator, [text])
        error = {"fp32": 2e-4, "fp16": 1e-2}[precision] * np.abs(alone).max()
        for result in (
            logits_of(generator, [text, other]),
            logits_of(generator, [text], [8, 50, 51, 52]),
            logits_of(generator, [text], range(120, 140)),
        ):
            assert np.abs(result - alone).max() <= error


@pytest.fixture(scope="module", params=["llama.script", "llama.dynamo", "llama_fused.script"])
def small(request: pytest.FixtureRequest, pumice_context: pumice.Context, tmp_path_factory: Any) -> Iterator[Generator]:
    """Decoders with int8 KV caches, by Concat and by GroupQueryAttention, whose texts are token ids."""
    folder = write_folder(tmp_path_factory.mktemp("small"), load(request.param).model, WORDS)
    with Generator(folder, pumice_context, cache="int8") as generator:
        yield generator


def test_small_decoders_rewind_and_fork(small: Generator) -> None:
    with small.session() as session:
        session([3, 1, 4], max_tokens=30)
        tokens, logits = session.tokens, session.logits()
        with session.fork() as fork:
            fork.rewind(-20)
            fork([5, 9], max_tokens=6)
            assert fork._state.caches is not session._state.caches
            with small.session() as other:
                other.stream(fork.tokens)
                np.testing.assert_allclose(other.logits(), fork.logits(), atol=1e-4 * np.abs(logits).max())
        session.rewind(-12)
        session([], max_tokens=12)
        assert session.tokens == tokens
        np.testing.assert_allclose(session.logits(), logits, atol=1e-4 * np.abs(logits).max())


def test_caches_of_small_decoders_grow(small: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    with small.session() as expected, small.session() as session:
        expected([3, 1, 4], max_tokens=100)
        monkeypatch.setattr("pumice.text.decode_state._MAX_EXTRA_CAPACITY", 8)
        monkeypatch.setattr("pumice.text.decode_state._MIN_CAPACITY", 8)
        rooms: set[int] = set()
        for _ in session.stream([3, 1, 4], max_tokens=100):
            rooms.add(session.capacity)
        assert session.tokens == expected.tokens
        assert len(rooms) > 1


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_first_layer_stores_its_rows_to_half_a_level(
    name: str, precision: str, tmp_path: Path, context: pumice.Context
) -> None:
    """No rounding precedes the first layer's K and V, so the float cache holds the exact values to be quantized."""
    folder = write_folder(tmp_path, load(name).model, WORDS)
    result: dict[str | None, list[Any]] = {}
    tokens = [int(number) for number in np.random.default_rng(0).integers(0, WORDS, 40)]
    for cache in (None, "int8"):
        with Generator(folder, context, precision, cache) as generator, generator.session() as session:
            for i in range(0, 40, 20):
                session.stream(tokens[i : i + 20])
                session.logits()
            caches = session._state.caches
            assert caches is not None
            result[cache] = [
                item.numpy()[:, :, :40].astype(np.float64) for item in (*caches.tensors[:2], *caches.scales[:2])
            ]
    slack = {"fp32": 1e-3, "fp16": 0.05, "bf16": 0.05}[
        precision
    ]  # in quantization steps: the kernels may round RoPE keys in another order
    for floats, levels, scales in zip(result[None], result["int8"][:2], result["int8"][2:], strict=True):
        assert (np.abs(levels * scales[..., None] - floats) <= scales[..., None] * (0.5 + slack)).all()
        assert (np.abs(levels).max(-1) >= 126).all()


@pytest.mark.parametrize("name", ["llama.script", "llama_fused.script"])
def test_nan_reaches_all_later_tokens(name: str, tmp_path: Path, context: pumice.Context) -> None:
    """A token whose embedding is NaN has NaN keys and values."""
    bad = 7
    folder = write_folder(tmp_path, with_word(load(name).model, bad, np.nan), WORDS)
    with Generator(folder, context, cache="int8") as generator, generator.session() as session:
        session.stream([1, 2, 3])
        assert np.isfinite(session.logits()).all()
        session.stream([4, bad, 5])
        assert np.isnan(session.logits()).all()
        session.stream([6])
        assert np.isnan(session.logits()).all()


def with_attributes(numbers: dict[str, int]) -> GraphRecipe:
    """Return the decoder with these attention attributes: a sink or a window."""
    recipe = Writer(TINY, 64).recipe()
    nodes = [
        node._replace(attributes={**node.attributes, **numbers}) if node.op == "GroupQueryAttention" else node
        for node in recipe.nodes
    ]
    return recipe._replace(nodes=nodes)


@pytest.mark.parametrize(
    "numbers", [{"smooth_softmax": 1}, {"smooth_softmax": 1, "local_window_size": 9}, {"local_window_size": 9}]
)
def test_sinks_and_windows(numbers: dict[str, int], context: pumice.Context) -> None:
    result = []
    for in_int8 in (False, True):
        decoder_recipe = to_static_kv_cache(
            with_attributes(numbers), ModelFolder("", "", "model.onnx", ""), "fp32", in_int8
        )
        device = Decoder(
            context, build_recipe_graph(decoder_recipe.recipe).compile(context, "fp32"), decoder_recipe, TINY.words
        )
        rows = DecodeState(device, 1, None)
        for count in (20, 21, 40):
            rows.tokens = [list(range(1, count))]
            rows.prefill()
        result.append(rows.logits()[0].astype(np.float64))
        rows.close()
    assert 0 < np.abs(result[1] - result[0]).max() <= bound_of(TINY.layers, result[0])


def test_a_layer_takes_as_many_dispatches_as_with_floats(pumice_context: pumice.Context) -> None:
    """On GPU kernels, RoPE with the cache write and quantization is one dispatch, and attention another."""
    counts = {}
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as context:
        for in_int8 in (False, True):
            decoder_recipe = to_static_kv_cache(
                Writer(TINY, 512).recipe(), ModelFolder("", "", "model.onnx", ""), "fp32", in_int8
            )
            device = Decoder(
                context, build_recipe_graph(decoder_recipe.recipe).compile(context, "fp32"), decoder_recipe, TINY.words
            )
            rows = DecodeState(device, 1, None)
            rows.tokens = [[1]]
            rows.ensure_capacity(256)
            counts[in_int8] = rows._get_run(1, 1, None).commands.dispatches
            rows.close()
    assert counts[True] == counts[False]


def test_memory_is_half_of_float16(pumice_context: pumice.Context) -> None:
    """Each head of a row has one byte per element and a two-byte scale."""
    taken = {}
    for cache in ("float16", "int8"):
        with Generator(STORY, pumice_context, "fp16", cache) as generator:
            assert generator.cache == cache
            session = generator.session()
            assert session.cache_bytes == 0
            session(PROMPT, max_tokens=2)
            caches = generator.decoder.decoder_recipe.caches
            taken[cache] = session.cache_bytes
            rows = session.capacity * sum(item.heads for item in caches)
            size = caches[0].size
            assert taken[cache] == rows * (2 * size if cache == "float16" else size + 2)
            assert {str(tensor.desc.dtype) for tensor in session._state.caches.tensors} == {cache}
    assert taken["int8"] / taken["float16"] == (size + 2) / (2 * size)


def test_steps_make_no_binding_and_no_pipeline(rounded: Generator) -> None:
    session = rounded.session()
    stream = session.stream(PROMPT, max_tokens=200, **DRAWN)
    assert_steps_are_recorded(session, stream, begun=4)


def test_rewinding_and_forks(rounded: Generator) -> None:
    session = rounded.session()
    session(PROMPT, max_tokens=30)
    tokens = session.tokens
    fork = session.fork()
    assert fork._state.caches is session._state.caches
    session.rewind(-12)
    session([], max_tokens=12)
    assert session.tokens == tokens
    fork(" The owl", max_tokens=10)
    assert fork._state.caches is not session._state.caches
    assert fork.tokens[: len(tokens)] == session.tokens


def test_caches_grow_with_all_that_is_in_them(rounded: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rounded.session()
    expected(PROMPT, max_tokens=150, **DRAWN)
    monkeypatch.setattr("pumice.text.decode_state._MAX_EXTRA_CAPACITY", 8)
    monkeypatch.setattr("pumice.text.decode_state._MIN_CAPACITY", 8)
    session = rounded.session()
    rooms = set()
    for _ in session.stream(PROMPT, max_tokens=150, **DRAWN):
        rooms.add(session.capacity)
    assert session.tokens == expected.tokens
    assert len(rooms) > 1


def test_a_batch_is_each_alone(rounded: Generator) -> None:
    prompts = ["Once", "There once lived a young bear at the edge of the forest. One evening", PROMPT]
    assert rounded(prompts, max_tokens=40) == [rounded(prompt, max_tokens=40) for prompt in prompts]


def test_what_is_no_type_of_caches_is_rejected(pumice_context: pumice.Context) -> None:
    for argument in ("float16", "int4", 8):
        with pytest.raises(pumice.Error, match="^cache: expected 'int8', or 'float32' to match precision fp32"):
            Generator(STORY, pumice_context, "fp32", argument)  # type: ignore[arg-type]


def test_heads_not_a_multiple_of_4_are_rejected_by_name() -> None:
    recipe = Writer(TINY, 64).recipe()
    inputs = [
        value._replace(shape=[*value.shape[:3], 66]) if "past" in value.name else value for value in recipe.inputs
    ]
    with pytest.raises(
        pumice.text.FolderError,
        match=r"past_key_values.0.key: expected a head size that is a multiple of 4 .* given 66",
    ):
        to_static_kv_cache(recipe._replace(inputs=inputs), ModelFolder("", "", "model.onnx", ""), "fp32", True)


def test_values_of_another_size_than_keys_are_rejected_by_name() -> None:
    recipe = Writer(TINY, 64).recipe()
    inputs = [
        item._replace(shape=[*item.shape[:3], 68])
        if item.name.startswith("past") and item.name.endswith("value")
        else item
        for item in recipe.inputs
    ]
    wide, size = recipe._replace(inputs=inputs), next(value.shape[3] for value in recipe.inputs if "past" in value.name)
    message = rf"past_key_values.0.value: expected heads of {size} elements, like the keys, .* given 68"
    with pytest.raises(pumice.text.FolderError, match=message):
        to_static_kv_cache(wide, ModelFolder("", "", "model.onnx", ""), "fp32", True)
    to_static_kv_cache(wide, ModelFolder("", "", "model.onnx", ""), "fp32")


def test_the_command_takes_them(rounded: Generator) -> None:
    command = ["-m", "pumice", "generate", str(STORY), "--max-tokens", "30", "--time", "--prompt", PROMPT]
    done = python(*command, "--cache", "int8")
    assert done.returncode == 0, done.stderr
    assert done.stdout == rounded(PROMPT, max_tokens=30) + "\n"
    assert "caches of int8" in done.stderr
    done = python(*command, "--cache", "int3")
    assert (done.returncode, "cache: expected 'int8'" in done.stderr) == (2, True)
