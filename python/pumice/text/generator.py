"""Text generation from a language model folder: Generator, and Session for several turns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, overload

import numpy as np

from .._pumice import Context, Program, StateError
from ..base.deprecation import choose_renamed_argument, make_deprecated_attribute
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.log import forward_log
from ..base.precision_argument import check_precision
from ..device.context import default_context, validate_context
from ..importer.load_graph import build_recipe_graph, load_recipe
from .chat import ChatTemplate, Message
from .decoder import Decoder
from .decoder_recipe import DecoderRecipe, get_exported_precision
from .decoding_batch import DecodingBatch, Timing
from .errors import FolderError
from .generation_options import GenerationOptions, ValidatedOptions, check_integer
from .model_folder import Path, read_model_folder
from .speculation import DraftProposer, check_draft, make_proposer
from .static_kv_cache import CACHE_DTYPES, INT8, to_static_kv_cache
from .tokenization import FolderTokenizer, StreamingDetokenizer


def _validate_options(options: Mapping[str, Any], batch: int) -> ValidatedOptions:
    """Return the validated options of a call on `batch` texts. Raise InputError naming an invalid option."""
    generation_options = GenerationOptions(**options)
    return generation_options.validate(batch, isinstance(generation_options.speculate, Generator))


def _check_cache_dtype(cache: str | None, precision: str) -> str:
    """Return the storage dtype of the KV caches. cache: the requested one; None: that of the precision. Raise InputError if invalid."""
    default_dtype = CACHE_DTYPES[precision]
    if cache not in (None, default_dtype, INT8):
        raise InputError(
            f"cache: expected '{INT8}', or '{default_dtype}' to match precision {precision}, given {cache!r:.100}"
        )
    return cache or default_dtype


def _get_tokens_or_bos(tokens: list[int], generator: Generator) -> list[int]:
    """Return the tokens of a first prompt, or the BOS token if there are none. Raise InputError if the folder has no BOS token."""
    if tokens:
        return tokens
    if generator.folder.bos_token_id is None:
        raise InputError(
            "prompt: expected a text of at least one token: the folder does not specify a token that begins one (bos_token_id)"
        )
    return [generator.folder.bos_token_id]


class Session:
    """A multi-turn text that keeps its KV cache between turns.

    The options of `stream` and of calls are described in Generator. Use a session in one thread at a time. If a turn is interrupted, the
    tokens emitted so far stay in the text, and the session can continue. A context manager.
    """

    def __init__(self, generator: Generator, batch: DecodingBatch) -> None:
        self.generator = generator
        self._decoding_batch = batch

    @property
    def tokens(self) -> list[int]:
        """All tokens: prompts and generated tokens, including end tokens."""
        return list(self._decoding_batch.tokens[0])

    @property
    def text(self) -> str:
        """The text of all tokens, without special tokens."""
        return self.generator.tokens.decode(self._decoding_batch.tokens[0])

    @property
    def timing(self) -> Timing:
        """Timing of the last turn."""
        return self._decoding_batch.timing

    @property
    def capacity(self) -> int:
        """The capacity of the KV caches, in tokens."""
        return 0 if self._decoding_batch.caches is None else self._decoding_batch.caches.capacity

    room = make_deprecated_attribute("text.Session.room")

    @property
    def cache_bytes(self) -> int:
        """The size of the KV caches and their scales in bytes; forks may share them."""
        return 0 if self._decoding_batch.caches is None else self._decoding_batch.caches.bytes

    def __call__(self, prompt: str | Sequence[int], **options: Any) -> str:
        """Return the continuation of the text so far plus the prompt. Raise the errors of `stream`."""
        return "".join(self.stream(prompt, **options))

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[str]:
        """Yield the continuation in pieces of whole characters, as it is generated.

        prompt: a text, or token ids. Raise InputError for invalid options, ContextError if the context is full (possibly because of another
        stream), StateError if the session is closed or its text has changed since.
        """
        self._check_open()
        validated = _validate_options(options, 1)
        batch, tokens = self._decoding_batch, self._encode_prompt(prompt)
        self._check_context(tokens)
        if validated.speculate is not None:
            check_draft(validated.speculate, batch.decoder)
        batch.tokens[0] += tokens
        batch.revision += bool(tokens)  # invalidates older streams of this session
        return self._stream_pieces(validated)

    def _check_open(self) -> None:
        if self._decoding_batch.closed:
            raise StateError("this session is closed")
        self.generator.check_open()

    def _check_context(self, tokens: list[int]) -> None:
        self._decoding_batch.tokens[0] += tokens
        try:
            self._decoding_batch.check_context(1)
        finally:
            del self._decoding_batch.tokens[0][len(self._decoding_batch.tokens[0]) - len(tokens) :]

    def _encode_prompt(self, prompt: str | Sequence[int]) -> list[int]:
        is_first = not self._decoding_batch.tokens[0]
        tokens = self.generator.encode(prompt, is_first)
        return _get_tokens_or_bos(tokens, self.generator) if is_first else tokens

    def _stream_pieces(self, options: ValidatedOptions) -> Iterator[str]:
        pieces = StreamingDetokenizer(self.generator.tokens, options.stop)
        for steps in _make_generation_steps(self._decoding_batch, options):
            self._decoding_batch.append_token(0, steps[0])
            if steps[0] in self.generator.folder.eos_token_ids:
                break
            if piece := pieces.add(steps[0]):
                yield piece
            if pieces.stopped:
                return
        if piece := pieces.flush():
            yield piece

    def logits(self) -> Array:
        """Return the logits after the last token, float [vocab_size]. Raise InputError for an empty session."""
        self._check_open()
        if not self._decoding_batch.tokens[0]:
            raise InputError("logits: expected a session with a text, given an empty one")
        self._decoding_batch.revision += 1
        self._decoding_batch.prefill()
        return np.asarray(self._decoding_batch.logits()[0])

    def rewind(self, tokens: int) -> None:
        """Truncate the text to its first `tokens` tokens; a negative number drops that many. Copies no memory.

        Raise InputError if there are not enough tokens.
        """
        self._check_open()
        batch, count = self._decoding_batch, len(self._decoding_batch.tokens[0])
        num_tokens = check_integer("rewind", tokens, -count, count, f"a number of tokens from {-count} to {count}")
        num_tokens = num_tokens if num_tokens >= 0 else count + num_tokens
        batch.revision += 1
        batch.truncate(num_tokens)

    def fork(self) -> Session:
        """Return a copy of the session; the KV caches are shared until either continues."""
        self._check_open()
        return Session(self.generator, self._decoding_batch.make_fork())

    def close(self) -> None:
        """Free the KV caches unless a fork uses them. Idempotent."""
        self._decoding_batch.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make_generation_steps(batch: DecodingBatch, options: ValidatedOptions) -> Iterator[list[int]]:
    """Yield the tokens of each step, limited by the options and the context. Raise ContextError if the context is full."""
    batch.check_context(1)  # check again, because an older stream may have filled the context
    longest = max(map(len, batch.tokens))
    max_tokens = (
        options.max_tokens if batch.context_length is None else min(options.max_tokens, batch.context_length - longest)
    )
    if options.speculate is not None:
        return _yield_speculative_steps(
            batch, options, max_tokens, make_proposer(options.speculate, options.sampling_params[0], batch.decoder)
        )
    return (
        batch.generate(options.sampling_params, max_tokens)
        if options.choose is None
        else batch.generate_with_callback(options.choose, max_tokens)
    )


def _yield_speculative_steps(
    batch: DecodingBatch, options: ValidatedOptions, max_tokens: int, proposer: DraftProposer
) -> Iterator[list[int]]:
    """Yield generated tokens one at a time, with speculative decoding, and close the proposer at the end."""
    try:
        yield from batch.generate_speculative(
            options.sampling_params[0], max_tokens, proposer, options.num_draft_tokens
        )
    finally:
        proposer.close()


class Generator:
    """A language model in a folder in onnxruntime-genai or optimum format, compiled for a device. A context manager.

    folder: contains genai_config.json or config.json, the model with its weights, and tokenizer.json. context: the default context if
    omitted. precision: storage type of floats, "fp32", "fp16" or "bf16"; by default fp16 if the model's caches are float16, else fp32.
    cache: storage type of the KV cache. "int8", with a scale per row and head, needs half the memory of float16; each key and value is off
    by at most half its row's scale, 1/254 of the row's maximum, plus the scale's own rounding (docs/text.md, "Use an int8 KV cache"). By
    default the caches have the type of the precision.

    Options for calls:
    max_tokens: maximum number of new tokens. temperature: 0 selects the most likely token; otherwise tokens are sampled from softmax(logits
    / temperature). top_k: sample from the k most likely tokens, including ties with the k-th. top_p: sample from the smallest set of most
    likely tokens with this total probability. repetition_penalty: divides positive logits of tokens already in the text and multiplies
    negative ones. seed: 0 to 2**64 - 1, one for all texts or one per text; a token depends on the seed, its position and its text, not on
    the rest of the batch. None: seeded from the system. stop: strings that end generation; excluded from the result. choose: a callable
    that receives the logits, float [vocab_size], and the tokens so far, and returns the next token; it replaces all sampling options.
    speculate: the source of draft tokens for speculative decoding, verified several per run: "ngram" (prompt lookup), or a smaller
    Generator with the same vocabulary. A draft token is accepted if it equals the token that would be sampled, so the text is the same; if
    two logits differ only by the kernels' rounding, either may be chosen. num_draft_tokens: maximum draft tokens per run,
    1 to 15, default 3.

    Raise FolderError naming the invalid or missing file and field, UnsupportedError or GraphError if the model cannot be loaded,
    DeviceError if there is no usable device.
    """

    def __init__(
        self, folder: Path, context: Context | None = None, precision: str | None = None, cache: str | None = None
    ) -> None:
        context = validate_context(context)
        self.folder = read_model_folder(folder)
        self.tokens = FolderTokenizer(self.folder)
        try:
            recipe = load_recipe(self.folder.model)
        except OSError as error:
            raise FolderError(os.path.basename(self.folder.model), "", f"expected a model: {error}") from None
        self.precision = (
            get_exported_precision(recipe, self.folder) if precision is None else check_precision(precision)
        )
        if self.precision not in CACHE_DTYPES:
            raise InputError(f"precision: expected one of {', '.join(CACHE_DTYPES)}, given {self.precision!r:.100}")
        self.cache = _check_cache_dtype(cache, self.precision)
        decoder_recipe = to_static_kv_cache(recipe, self.folder, self.precision, self.cache == INT8)
        self.context = context or default_context()
        graph = build_recipe_graph(decoder_recipe.recipe)
        program = graph.compile(self.context, self.precision)
        self.context_length = self.folder.context_length
        self._decoder: Decoder | None = Decoder(
            self.context, program, decoder_recipe, self._read_vocab_size(program, decoder_recipe)
        )
        self.timing = Timing(0, 0.0, 0, 0.0)  # timing of the last call
        forward_log()

    def _read_vocab_size(self, program: Program, decoder_recipe: DecoderRecipe) -> int:
        """Return the model's vocabulary size. Raise FolderError if it does not match the tokenizer."""
        (shape,) = (value.shape for value in program.outputs if value.name == decoder_recipe.logits)
        if shape is None or not shape[-1]:
            desc = program.compiled(decoder_recipe.make_input_shapes(1, 1, 1, 1)).outputs[0].desc
            shape = desc.shape if desc is not None else None
        vocab_size = shape[-1] if shape else None
        if vocab_size is None:
            raise FolderError(
                os.path.basename(self.folder.model), decoder_recipe.logits, "expected a known vocabulary size"
            )
        for token in self.folder.eos_token_ids:
            if token >= vocab_size:
                raise FolderError(
                    self.folder.settings, "eos_token_id", f"expected a token below {vocab_size}, given {token}"
                )
        return vocab_size

    @property
    def decoder(self) -> Decoder:
        """The decoder on the device: its program and kernels. Raise StateError if the generator is closed."""
        self.check_open()
        assert self._decoder is not None
        return self._decoder

    device = make_deprecated_attribute("text.Generator.device")

    def check_open(self) -> None:
        """Raise StateError if the generator is closed."""
        if self._decoder is None:
            raise StateError("this generator is closed")

    encoded = make_deprecated_attribute("text.Generator.encoded")

    def encode(self, prompt: str | Sequence[int], special: bool = True) -> list[int]:
        """Return the token ids of a prompt. Raise InputError if it is neither a text nor valid token ids."""
        vocab_size = self.decoder.vocab_size
        if isinstance(prompt, str):
            tokens = self.tokens.encode(prompt, special)
            if any(token >= vocab_size for token in tokens):
                raise FolderError(
                    "tokenizer.json",
                    "",
                    f"expected tokens below {vocab_size}, the model's vocabulary size, given {max(tokens)}",
                )
            return tokens
        try:
            return [
                check_integer("prompt", token, 0, vocab_size - 1, f"tokens from 0 to {vocab_size - 1}")
                for token in prompt
            ]
        except TypeError:
            raise InputError(f"prompt: expected a text or tokens, given {type(prompt).__name__}") from None

    def template_text(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        *,
        answer: bool | None = None,
        **variables: Any,
    ) -> str:
        """Return a conversation rendered with the folder's chat template.

        messages: the conversation, each message a mapping with strings "role" and "content". add_generation_prompt: append the start of the
        assistant's turn; `answer` is its old name. variables: further template variables. Jinja templates need the package jinja2. Raise
        FolderError if the folder has no template or it fails, InputError for invalid messages or messages that the template rejects.
        """
        self.check_open()
        name = "text.Generator.template_text(answer)"
        add_generation_prompt = choose_renamed_argument(name, answer, add_generation_prompt, True)
        return ChatTemplate(self.folder).render(messages, add_generation_prompt, variables)

    def apply_template(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        *,
        answer: bool | None = None,
        **variables: Any,
    ) -> list[int]:
        """Return the token ids of template_text(), for use as a prompt. The template itself adds the BOS token."""
        name = "text.Generator.apply_template(answer)"
        add_generation_prompt = choose_renamed_argument(name, answer, add_generation_prompt, True)
        return self.encode(self.template_text(messages, add_generation_prompt, **variables), special=False)

    @overload
    def __call__(self, prompt: str, **options: Any) -> str: ...
    @overload
    def __call__(self, prompt: Sequence[str], **options: Any) -> list[str]: ...
    def __call__(self, prompt: str | Sequence[str], **options: Any) -> str | list[str]:
        """Return the continuation of a prompt, or of each of several prompts of any lengths. Raise the errors of Session.stream."""
        if isinstance(prompt, str):
            return "".join(self.stream(prompt, **options))
        return self._generate_batch(prompt, **options)

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[str]:
        """Yield the continuation of a text or token ids in pieces of whole characters. Raise the errors of Session.stream."""
        session = self.session()
        pieces = session.stream(prompt, **options)  # validates now instead of at the first piece

        def stream_pieces() -> Iterator[str]:
            with session:
                for piece in pieces:
                    yield piece
                    self.timing = session.timing
                self.timing = session.timing

        return stream_pieces()

    def session(self) -> Session:
        """Return an empty session."""
        return Session(self, DecodingBatch(self.decoder, 1, self.context_length))

    def logits(self, text: str | Sequence[int]) -> Array:
        """Return the logits after each token of a text, float [tokens, vocab_size].

        Raise InputError for an invalid prompt, ContextError if it is too long.
        """
        tokens = _get_tokens_or_bos(self.encode(text), self)
        batch = DecodingBatch(self.decoder, 1, self.context_length)
        batch.tokens[0] = tokens
        batch.check_context(0)
        batch.tokens[0] = []
        try:
            return batch.compute_all_logits(tokens)
        finally:
            batch.close()

    def _generate_batch(self, prompts: Sequence[str], **options: Any) -> list[str]:
        if not prompts:
            return []
        validated = _validate_options(options, len(prompts))
        if self.decoder.decoder_recipe.requires_batch_one and len(prompts) > 1:
            return self._generate_sequentially(prompts, **options)
        batch = DecodingBatch(self.decoder, len(prompts), self.context_length)
        batch.tokens = [_get_tokens_or_bos(self.encode(prompt), self) for prompt in prompts]
        batch.check_context(1)
        detokenizers = [StreamingDetokenizer(self.tokens, validated.stop) for _ in prompts]
        results, ended = [""] * len(prompts), [False] * len(prompts)
        try:
            for step in _make_generation_steps(batch, validated):
                for i, token in enumerate(step):
                    batch.append_token(i, token)
                    if ended[i]:
                        continue
                    ended[i] = token in self.folder.eos_token_ids
                    results[i] += detokenizers[i].flush() if ended[i] else detokenizers[i].add(token)
                    ended[i] = ended[i] or detokenizers[i].stopped
                if all(ended):
                    break
        finally:
            self.timing = batch.timing
            batch.close()
        prompt_states = zip(results, detokenizers, ended, strict=True)
        return [text if is_ended else text + detokenizer.flush() for text, detokenizer, is_ended in prompt_states]

    def _generate_sequentially(
        self, prompts: Sequence[str], seed: int | Sequence[int] | None = None, **options: Any
    ) -> list[str]:
        """Return the continuations of several prompts one after the other, for a decoder limited to batch size 1."""
        seeds = [seed] * len(prompts) if seed is None or isinstance(seed, int | np.integer) else [*seed]
        results, timings = [], []
        for prompt, prompt_seed in zip(prompts, seeds, strict=True):
            results += self._generate_batch([prompt], seed=prompt_seed, **options)
            timings.append(self.timing)
        self.timing = Timing(*(sum(column) for column in zip(*timings, strict=True)))
        return results

    def close(self) -> None:
        """Free the weights once no session needs them. Idempotent."""
        if self._decoder is not None:
            self._decoder.program.close()
        self._decoder = None

    def __enter__(self) -> Generator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
