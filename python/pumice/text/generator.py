"""Text generation from a language model folder: Generator, and Session for several turns."""

from __future__ import annotations

import os
import time
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
from .decode_state import DecodeState, Timing
from .decoder import Decoder
from .decoder_recipe import DecoderRecipe, get_exported_precision
from .errors import FolderError
from .generation_options import GenerationOptions, ValidatedOptions, check_integer
from .model_folder import Path, read_model_folder
from .speculation import check_draft, make_proposer
from .static_kv_cache import CACHE_DTYPES, INT8, to_static_kv_cache
from .tokenization import FolderTokenizer, convert_package_error

_REPLACEMENT_CHAR = "\ufffd"  # the tokenizer's output for an incomplete character
_WINDOW_TOKENS = 6  # maximum number of preceding tokens on which the text of a token may depend


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


class StreamingDetokenizer:
    """Converts tokens to pieces of text with only complete characters.

    stop: strings that end the text. Text that may be the beginning of a stop string is withheld until that is ruled out.
    """

    def __init__(self, folder_tokenizer: FolderTokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = folder_tokenizer.tokenizer
        self._stop = tuple(stop)
        self._token_ids: list[int] = []
        self._window_start = self._num_emitted = (
            0  # index of the first token of the decoding window; number of tokens whose text has been returned
        )
        self._withheld = ""
        self.stopped = False  # whether a stop string was found

    def _decode(self, begin: int, end: int | None = None) -> str:
        tokens = self._token_ids[begin:end]
        try:
            return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
        except BaseException as error:
            raise convert_package_error(error, f"the tokenizer failed on {len(tokens)} tokens") from None

    def add(self, token: int) -> str:
        """Add a token and return the text that is now final; "" while the last character is incomplete."""
        self._token_ids.append(token)
        before = self._decode(self._window_start, self._num_emitted)
        after = self._decode(self._window_start)
        if after.endswith(_REPLACEMENT_CHAR) or len(after) <= len(before) or not after.startswith(before):
            return ""
        self._num_emitted = len(self._token_ids)
        self._advance_window()
        return self._split_at_stop(after[len(before) :])

    def _advance_window(self) -> None:
        """Move the start of the window forward if the remaining tokens decode to the same text without the earlier ones."""
        begin = max(self._num_emitted - _WINDOW_TOKENS, self._window_start)
        if begin == self._window_start:
            return
        if self._decode(self._window_start, self._num_emitted).endswith(self._decode(begin, self._num_emitted)):
            self._window_start = begin

    def flush(self) -> str:
        """Return the remaining text after the last token."""
        if self.stopped:
            return ""
        before = self._decode(self._window_start, self._num_emitted)
        after = self._decode(self._window_start)
        last = self._split_at_stop(after[len(before) :].rstrip(_REPLACEMENT_CHAR))
        withheld, self._withheld = self._withheld, ""
        return last if self.stopped else last + withheld

    def _split_at_stop(self, text: str) -> str:
        """Return the withheld text plus `text`, cut at the first stop string, or before an ending that may begin one."""
        text = self._withheld + text
        stop_positions = [index for index in (text.find(stop) for stop in self._stop) if index >= 0]
        if stop_positions:
            self.stopped, self._withheld = True, ""
            return text[: min(stop_positions)]
        num_withheld = max((_count_stop_prefix_chars(text, stop) for stop in self._stop), default=0)
        self._withheld = text[len(text) - num_withheld :]
        return text[: len(text) - num_withheld]


def _count_stop_prefix_chars(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of `stop` with which the text ends."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


class Session:
    """A multi-turn text that keeps its KV cache between turns.

    The options of `stream` and of calls are described in Generator. Use a session in one thread at a time. If a turn is interrupted, the
    tokens emitted so far stay in the text, and the session can continue. A context manager.
    """

    def __init__(self, generator: Generator, state: DecodeState) -> None:
        self.generator, self._state = generator, state

    @property
    def tokens(self) -> list[int]:
        """All tokens: prompts and generated tokens, including end tokens."""
        return list(self._state.tokens[0])

    @property
    def text(self) -> str:
        """The text of all tokens, without special tokens."""
        return self.generator.tokens.decode(self._state.tokens[0])

    @property
    def timing(self) -> Timing:
        """Timing of the last turn."""
        return self._state.timing

    @property
    def capacity(self) -> int:
        """The capacity of the KV caches, in tokens."""
        return 0 if self._state.caches is None else self._state.caches.capacity

    room = make_deprecated_attribute("text.Session.room")

    @property
    def cache_bytes(self) -> int:
        """The size of the KV caches and their scales in bytes; forks may share them."""
        return 0 if self._state.caches is None else self._state.caches.bytes

    def __call__(self, prompt: str | Sequence[int], **options: Any) -> str:
        """Return the continuation of the text so far plus the prompt. Raise the errors of `stream`."""
        return "".join(self.stream(prompt, **options))

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[str]:
        """Yield the continuation in pieces of whole characters, as it is generated.

        prompt: a text, or token ids. Raise InputError for invalid options, ContextError if the context is full (possibly because of another
        stream), StateError if the session is closed or its text has changed since.
        """
        self._check_open()
        validated, state = _validate_options(options, 1), self._state
        tokens = self.generator.encode(prompt, not state.tokens[0])
        if not state.tokens[0]:
            tokens = _get_tokens_or_bos(tokens, self.generator)
        state.check_context(1, len(tokens))
        if validated.speculate is not None:
            check_draft(validated.speculate, state.decoder)
        state.tokens[0] += tokens
        state.revision += bool(tokens)  # invalidates older streams of this session
        return (piece for (piece,) in _yield_pieces(self.generator, state, validated) if piece)

    def _check_open(self) -> None:
        if self._state.closed:
            raise StateError("this session is closed")
        self.generator.check_open()

    def logits(self) -> Array:
        """Return the logits after the last token, float [vocab_size]. Raise InputError for an empty session."""
        self._check_open()
        if not self._state.tokens[0]:
            raise InputError("logits: expected a session with a text, given an empty one")
        self._state.revision += 1
        self._state.prefill()
        return np.asarray(self._state.logits()[0])

    def rewind(self, tokens: int) -> None:
        """Truncate the text to its first `tokens` tokens; a negative number drops that many. Copies no memory.

        Raise InputError if there are not enough tokens.
        """
        self._check_open()
        count = len(self._state.tokens[0])
        num_tokens = check_integer("rewind", tokens, -count, count, f"a number of tokens from {-count} to {count}")
        self._state.truncate(num_tokens if num_tokens >= 0 else count + num_tokens)

    def fork(self) -> Session:
        """Return a copy of the session; the KV caches are shared until either continues."""
        self._check_open()
        return Session(self.generator, self._state.make_fork())

    def close(self) -> None:
        """Free the KV caches unless a fork uses them. Idempotent."""
        self._state.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _yield_pieces(generator: Generator, state: DecodeState, options: ValidatedOptions) -> Iterator[list[str]]:
    """Generate until all sequences are finished. Yield the text that each step adds to each sequence, then what remains at the end."""
    detokenizers = [StreamingDetokenizer(generator.tokens, options.stop) for _ in state.tokens]
    eos_token_ids, params = generator.folder.eos_token_ids, options.sampling_params
    draft = None
    if options.speculate is not None:
        state.check_context(1)  # before the draft allocates memory: an older stream may have filled the context
        draft = make_proposer(options.speculate, params[0], state.decoder), options.num_draft_tokens
    try:
        for tokens in state.generate(params, options.max_tokens, choose=options.choose, draft=draft):
            pieces, finished = [""] * len(tokens), state.finished
            for i, token in enumerate(tokens):
                if finished[i]:
                    continue
                is_eos = token in eos_token_ids
                pieces[i] = detokenizers[i].flush() if is_eos else detokenizers[i].add(token)
                finished[i] = is_eos or detokenizers[i].stopped
            yield pieces
        yield ["" if finished[i] else detokenizer.flush() for i, detokenizer in enumerate(detokenizers)]
    finally:
        if draft is not None:
            draft[0].close()


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
        return Session(self, DecodeState(self.decoder, 1, self.context_length))

    def logits(self, text: str | Sequence[int]) -> Array:
        """Return the logits after each token of a text, float [tokens, vocab_size].

        Raise InputError for an invalid prompt, ContextError if it is too long.
        """
        tokens = _get_tokens_or_bos(self.encode(text), self)
        state = DecodeState(self.decoder, 1, self.context_length)
        try:
            return state.compute_all_logits(tokens)
        finally:
            state.close()

    def _generate_batch(self, prompts: Sequence[str], **options: Any) -> list[str]:
        if not prompts:
            return []
        validated = _validate_options(options, len(prompts))
        if self.decoder.decoder_recipe.requires_batch_one and len(prompts) > 1:
            return self._generate_sequentially(prompts, **options)
        state = DecodeState(self.decoder, len(prompts), self.context_length)
        state.tokens = [_get_tokens_or_bos(self.encode(prompt), self) for prompt in prompts]
        state.check_context(1)
        texts = [""] * len(prompts)
        try:
            for pieces in _yield_pieces(self, state, validated):
                texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
        finally:
            self.timing = state.timing
            state.close()
        return texts

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

    def warm_up(self, prompt: str | Sequence[int], **options: Any) -> float:
        """Generate two tokens and return the seconds it took, so that later calls find their kernels compiled.

        In a compile-only context, compile and record what a prompt of this length and the tokens after it run. Raise the errors of a call.
        """
        begin = time.perf_counter()
        options = {"max_tokens": 2, **options}
        if not self.context.compile_only:
            for _ in self.stream(prompt, **options):
                pass
            return time.perf_counter() - begin
        validated = _validate_options(options, 1)
        state = DecodeState(self.decoder, 1, self.context_length)
        try:
            state.tokens[0] = _get_tokens_or_bos(self.encode(prompt), self)
            state.check_context(1)
            state.record_first_steps(validated.sampling_params, validated.max_tokens)
        finally:
            state.close()
        return time.perf_counter() - begin

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
