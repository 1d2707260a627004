"""Language models from a folder to text: Generator, and Session for several turns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, overload

import numpy as np

from .._pumice import Context, Program, StateError
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.log import forward_log
from ..base.precisions import checked_precision
from ..device.context import checked_context, default_context
from ..importer.load import graph_of, load_recipe
from .caches import RoomyRecipe, own_precision
from .chat import ChatTemplate, Message
from .device import Choice, Device
from .errors import FolderError
from .folder import Path, read_folder
from .room import INT8, STORED, in_room
from .rows import Choose, Rows, Timing
from .speculation import MOST_WIDTH, Proposer, check_decoder, check_speculation, proposer_of
from .tokens import Pieces, Tokens

_MOST_SEED = 1 << 64
_WIDTH = 3  # tokens that are proposed at once where nothing is said


class Options(NamedTuple):
    """How a text goes on, checked."""

    max_tokens: int
    choices: list[Choice]
    stop: tuple[str, ...]
    choose: Choose | None
    speculate: Generator | str | None
    width: int


def _number(name: str, value: Any, least: float, most: float, what: str) -> float:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # NaN fails as well
        raise InputError(f"{name}: expected {what}, given {value!r:.100}")
    return float(value)


def _whole(name: str, value: Any, least: int, most: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InputError(f"{name}: expected {what}, given {value!r:.100}")
    return int(value)


@dataclass(frozen=True)
class Asked:
    """The options of a call as they are given: see Generator."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | Sequence[int] | None = None
    stop: str | Sequence[str] = ()
    choose: Choose | None = None
    speculate: Generator | str | None = None
    width: int | None = None

    def checked(self, texts: int) -> Options:
        """The options for so many texts. Raises InputError naming the one that is wrong."""
        most = _whole("max_tokens", self.max_tokens, 1, 1 << 31, "a number of tokens from 1 on")
        _number("temperature", self.temperature, 0, 1e6, "a number from 0 on")
        if 0 < self.temperature < 1e-4:
            what = "0, for the likeliest token, or at least 0.0001"
            raise InputError(f"temperature: expected {what}, given {self.temperature!r}")
        top_k = _whole("top_k", self.top_k, 0, 1 << 31, "a number of tokens, 0 for all")
        if not _number("top_p", self.top_p, 0, 1, "a share above 0 and at most 1"):
            raise InputError("top_p: expected a share above 0 and at most 1, given 0")
        _number("repetition_penalty", self.repetition_penalty, 1e-3, 1e3, "a number from 0.001 to 1000")
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if not all(isinstance(one, str) and one for one in stops):
            raise InputError(f"stop: expected texts that are not empty, given {self.stop!r:.100}")
        if self.choose is not None and not callable(self.choose):
            raise InputError(f"choose: expected a callable of logits and tokens, given {self.choose!r:.100}")
        check_speculation(self.speculate, self.width, isinstance(self.speculate, Generator))
        given = _WIDTH if self.width is None else self.width
        width = _whole("width", given, 1, MOST_WIDTH, f"a number of tokens from 1 to {MOST_WIDTH}")
        if self.speculate is not None and self.choose is not None:
            raise InputError(
                f"speculate: expected None beside choose, which is called token by token, given {self.speculate!r:.100}"
            )
        if self.speculate is not None and texts != 1:
            raise InputError(f"speculate: expected one text, given {texts}")
        first = Choice(self.temperature, top_k, self.top_p, self.repetition_penalty)
        choices = [first._replace(seed=_seed(one) if self.temperature > 0 else 0) for one in self._seeds(texts)]
        return Options(most, choices, stops, self.choose, self.speculate, width)

    def _seeds(self, texts: int) -> list[int | None]:
        if self.seed is None or isinstance(self.seed, int | np.integer):
            return [self.seed] * texts
        seeds: list[int | None] = [*self.seed]
        if len(seeds) != texts:
            what = f"one for all texts, or one for each of {texts}"
            raise InputError(f"seed: expected {what}, given {len(seeds)}")
        return seeds


def _seed(given: int | None) -> int:
    if given is None:
        return int.from_bytes(os.urandom(8), "little")
    return _whole("seed", given, 0, _MOST_SEED - 1, "a number from 0 to 2**64 - 1")


def _checked_cache(given: str | None, precision: str) -> str:
    """What caches are stored as. Raises InputError."""
    own = STORED[precision]
    if given not in (None, own, INT8):
        raise InputError(
            f"cache: expected '{INT8}', or '{own}' as the precision {precision} has it, given {given!r:.100}"
        )
    return given or own


def _with_start(tokens: list[int], generator: Generator) -> list[int]:
    """The tokens of a first prompt. Raises InputError where there are none, and no token that begins a text."""
    if tokens:
        return tokens
    if generator.folder.begin is None:
        raise InputError(
            "prompt: expected a text of at least one token: the folder names no token that begins one (bos_token_id)"
        )
    return [generator.folder.begin]


class Session:
    """A text that goes on turn by turn: what has been read and made stays in the caches.

    Options of `stream` and of calls are those of Generator. A session is for one thread at a time; where a turn is interrupted, what
    it has given until then is part of the text, and the session goes on from there. A context manager.
    """

    def __init__(self, generator: Generator, rows: Rows) -> None:
        self.generator = generator
        self._rows = rows

    @property
    def tokens(self) -> list[int]:
        """All tokens: those of the prompts, and those that were made, also the one that ended a turn."""
        return list(self._rows.tokens[0])

    @property
    def text(self) -> str:
        """The text of all tokens, without special ones."""
        return self.generator.tokens.decode(self._rows.tokens[0])

    @property
    def timing(self) -> Timing:
        """How long the last turn took."""
        return self._rows.timing

    @property
    def room(self) -> int:
        """The rows that the caches have room for."""
        return 0 if self._rows.caches is None else self._rows.caches.room

    @property
    def cache_bytes(self) -> int:
        """The bytes of the caches with their scales, which forks may share."""
        return 0 if self._rows.caches is None else self._rows.caches.bytes

    def __call__(self, prompt: str | Sequence[int], **options: Any) -> str:
        """The continuation of the text so far and the prompt. Raises as `stream` does."""
        return "".join(self.stream(prompt, **options))

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[str]:
        """The pieces of what follows, as they are made: whole characters.

        prompt: a text, or tokens. Raises InputError for options that are none, ContextError where the prompt leaves no room, or another
        stream has taken it meanwhile, StateError for a session that is closed or whose text has changed since.
        """
        self._check_open()
        made = Asked(**options).checked(1)
        rows, tokens = self._rows, self._prompt(prompt)
        self._check_context(tokens)
        if made.speculate is not None:
            check_decoder(made.speculate, rows.device)
        rows.tokens[0] += tokens
        rows.turn += bool(tokens)  # a stream that has begun goes on without them, and is told so
        return self._pieces(made)

    def _check_open(self) -> None:
        if self._rows.closed:
            raise StateError("this session is closed")
        self.generator.check_open()

    def _check_context(self, tokens: list[int]) -> None:
        self._rows.tokens[0] += tokens
        try:
            self._rows.check_context(1)
        finally:
            del self._rows.tokens[0][len(self._rows.tokens[0]) - len(tokens) :]

    def _prompt(self, prompt: str | Sequence[int]) -> list[int]:
        is_first = not self._rows.tokens[0]
        tokens = self.generator.encoded(prompt, is_first)
        return _with_start(tokens, self.generator) if is_first else tokens

    def _pieces(self, options: Options) -> Iterator[str]:
        pieces = Pieces(self.generator.tokens, options.stop)
        for steps in _steps(self._rows, options):
            self._rows.keep(0, steps[0])
            if steps[0] in self.generator.folder.ends:
                break
            if piece := pieces.add(steps[0]):
                yield piece
            if pieces.stopped:
                return
        if piece := pieces.end():
            yield piece

    def logits(self) -> Array:
        """The logits behind the last token, float [words]. Raises InputError for a session without a text."""
        self._check_open()
        if not self._rows.tokens[0]:
            raise InputError("logits: expected a session with a text, given one without")
        self._rows.turn += 1
        self._rows.read()
        return np.asarray(self._rows.logits()[0])

    def rewind(self, tokens: int) -> None:
        """Takes back all tokens but the first `tokens`; a negative number takes back that many. No memory moves.

        Raises InputError where there are not as many.
        """
        self._check_open()
        rows, count = self._rows, len(self._rows.tokens[0])
        kept = _whole("rewind", tokens, -count, count, f"a number of tokens from {-count} to {count}")
        kept = kept if kept >= 0 else count + kept
        rows.turn += 1
        rows.take_back(kept)

    def fork(self) -> Session:
        """Another session with the same text, which shares the caches until one of both goes on."""
        self._check_open()
        return Session(self.generator, self._rows.forked())

    def close(self) -> None:
        """Frees the caches, where no fork needs them. Idempotent."""
        self._rows.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _steps(rows: Rows, options: Options) -> Iterator[list[int]]:
    """The tokens of each step, as many as the options and the context allow. Raises ContextError where that is none."""
    rows.check_context(1)  # again, as a stream that was opened before may have filled the context meanwhile
    longest = max(map(len, rows.tokens))
    most = options.max_tokens if rows.context is None else min(options.max_tokens, rows.context - longest)
    if options.speculate is not None:
        return _speculated(rows, options, most, proposer_of(options.speculate, options.choices[0], rows.device))
    return rows.chosen(options.choices, most) if options.choose is None else rows.called(options.choose, most)


def _speculated(rows: Rows, options: Options, most: int, proposer: Proposer) -> Iterator[list[int]]:
    """The tokens of each step, several of which may come from one run."""
    try:
        yield from rows.speculated(options.choices[0], most, proposer, options.width)
    finally:
        proposer.close()


class Generator:
    """The language model of a folder as onnxruntime-genai or optimum writes it, compiled for a device. A context manager.

    folder: has genai_config.json or config.json, the model with its weights, and tokenizer.json. context: by default the default context.
    precision: what floats are stored as inside, "fp32", "fp16" or "bf16"; by default fp16 for a model whose caches are float16,
    else fp32. cache: what the caches are stored as: "int8", with a scale for each row of a head, takes half of the memory of float16, and
    each key and value is off by half of its row's scale at most: by 1/254 of the largest of its row, but for the rounding of the scale to
    the precision's type (docs/text.md, "Use an int8 KV cache"); by default the type of the precision, which may be named as well.

    Options of calls: max_tokens: the most tokens that are made. temperature: 0 takes the likeliest token each time, otherwise
    tokens are drawn by chance from softmax(logits / temperature). top_k: only so many of the likeliest are drawn from, and those as likely
    as the last of these. top_p: only the fewest of the likeliest that have this share of the probability. repetition_penalty: positive
    logits of tokens that are in the text already are divided by it, negative ones multiplied. seed: 0 to 2**64 - 1, one for all texts
    or one for each; a token depends on the seed, its place and its text, not on the other texts of a call. None: drawn from the system.
    stop: texts that end what is made, and are left out. choose: a callable that is given the logits, float [words], and the tokens
    so far, and gives the next token, instead of all of that. speculate: what proposes tokens, which are checked several in one run:
    "ngram", what has followed the last tokens where the text had them before, or a smaller Generator of the same words. A proposal is kept
    where it is the token that would be made there, so that the text is the same, if it is made faster; where two logits are as near as the
    kernels of one and of several rows round, either may be taken. width: the most tokens that are proposed at once, 1 to 15, by default 3.

    Raises FolderError naming the file and the field that is wrong or missing, UnsupportedError, GraphError, DeviceError.
    """

    def __init__(
        self, folder: Path, context: Context | None = None, precision: str | None = None, cache: str | None = None
    ) -> None:
        context = checked_context(context)
        self.folder = read_folder(folder)
        self.tokens = Tokens(self.folder)
        try:
            recipe = load_recipe(self.folder.model)
        except OSError as error:
            raise FolderError(os.path.basename(self.folder.model), "", f"expected a model: {error}") from None
        self.precision = own_precision(recipe, self.folder) if precision is None else checked_precision(precision)
        if self.precision not in STORED:
            raise InputError(f"precision: expected one of {', '.join(STORED)}, given {self.precision!r:.100}")
        self.cache = _checked_cache(cache, self.precision)
        roomy = in_room(recipe, self.folder, self.precision, self.cache == INT8)
        self.context = context or default_context()
        graph = graph_of(roomy.recipe)
        program = graph.compile(self.context, self.precision)
        self.context_length = self.folder.context
        self._device: Device | None = Device(self.context, program, roomy, self._words_of(program, roomy))
        self.timing = Timing(0, 0.0, 0, 0.0)  # of the last call
        forward_log()

    def _words_of(self, program: Program, roomy: RoomyRecipe) -> int:
        """The number of words that the model knows. Raises FolderError where the tokenizer has others."""
        (shape,) = (value.shape for value in program.outputs if value.name == roomy.logits)
        if shape is None or not shape[-1]:
            desc = program.compiled(roomy.shapes(1, 1, 1, 1)).outputs[0].desc
            shape = desc.shape if desc is not None else None
        words = shape[-1] if shape else None
        if words is None:
            raise FolderError(os.path.basename(self.folder.model), roomy.logits, "expected a known number of words")
        for token in self.folder.ends:
            if token >= words:
                raise FolderError(
                    self.folder.settings, "eos_token_id", f"expected a token below {words}, given {token}"
                )
        return words

    @property
    def device(self) -> Device:
        """The program and its kernels. Raises StateError once the generator is closed."""
        self.check_open()
        assert self._device is not None
        return self._device

    def check_open(self) -> None:
        """Raises StateError once the generator is closed."""
        if self._device is None:
            raise StateError("this generator is closed")

    def encoded(self, prompt: str | Sequence[int], special: bool = True) -> list[int]:
        """The tokens of a prompt. Raises InputError for what is neither a text nor tokens that the model knows."""
        words = self.device.words
        if isinstance(prompt, str):
            tokens = self.tokens.encode(prompt, special)
            if any(token >= words for token in tokens):
                raise FolderError(
                    "tokenizer.json", "", f"expected tokens below {words}, the model's words, given {max(tokens)}"
                )
            return tokens
        try:
            return [_whole("prompt", token, 0, words - 1, f"tokens from 0 to {words - 1}") for token in prompt]
        except TypeError:
            raise InputError(f"prompt: expected a text or tokens, given {type(prompt).__name__}") from None

    def template_text(self, messages: Sequence[Message], answer: bool = True, **variables: Any) -> str:
        """The text of a conversation as the folder's chat template writes it.

        messages: the conversation, each message a mapping with a text as its "role" and its "content". answer: with what begins
        the model's own message. variables: further ones that the template reads. Needs the package jinja2 where the template is
        in Jinja. Raises FolderError where the folder has no template or it fails, InputError for messages that are none or that
        the template refuses.
        """
        self.check_open()
        return ChatTemplate(self.folder).text(messages, answer, variables)

    def apply_template(self, messages: Sequence[Message], answer: bool = True, **variables: Any) -> list[int]:
        """The tokens of template_text(), which a stream or a session takes as its prompt: the template itself begins the text."""
        return self.encoded(self.template_text(messages, answer, **variables), special=False)

    @overload
    def __call__(self, prompt: str, **options: Any) -> str: ...
    @overload
    def __call__(self, prompt: Sequence[str], **options: Any) -> list[str]: ...
    def __call__(self, prompt: str | Sequence[str], **options: Any) -> str | list[str]:
        """The continuation of a prompt, or of each of several, which may be of unequal lengths. Raises as Session.stream does."""
        if isinstance(prompt, str):
            return "".join(self.stream(prompt, **options))
        return self._batch(prompt, **options)

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[str]:
        """The pieces of what follows a text or tokens, as they are made: whole characters. Raises as Session.stream does."""
        session = self.session()
        pieces = session.stream(prompt, **options)  # what is wrong is said now and not at the first piece

        def given() -> Iterator[str]:
            with session:
                for piece in pieces:
                    yield piece
                    self.timing = session.timing
                self.timing = session.timing

        return given()

    def session(self) -> Session:
        """A session without a text."""
        return Session(self, Rows(self.device, 1, self.context_length))

    def logits(self, text: str | Sequence[int]) -> Array:
        """The logits behind each token of a text, float [tokens, words]. Raises InputError, ContextError."""
        tokens = _with_start(self.encoded(text), self)
        rows = Rows(self.device, 1, self.context_length)
        rows.tokens[0] = tokens
        rows.check_context(0)
        rows.tokens[0] = []
        try:
            return rows.all_logits(tokens)
        finally:
            rows.close()

    def _batch(self, prompts: Sequence[str], **options: Any) -> list[str]:
        if not prompts:
            return []
        made = Asked(**options).checked(len(prompts))
        if self.device.roomy.is_single and len(prompts) > 1:
            return self._one_by_one(prompts, **options)
        rows = Rows(self.device, len(prompts), self.context_length)
        rows.tokens = [_with_start(self.encoded(one), self) for one in prompts]
        rows.check_context(1)
        pieces = [Pieces(self.tokens, made.stop) for _ in prompts]
        texts, ended = [""] * len(prompts), [False] * len(prompts)
        try:
            for step in _steps(rows, made):
                for i, token in enumerate(step):
                    rows.keep(i, token)
                    if ended[i]:
                        continue
                    ended[i] = token in self.folder.ends
                    texts[i] += pieces[i].end() if ended[i] else pieces[i].add(token)
                    ended[i] = ended[i] or pieces[i].stopped
                if all(ended):
                    break
        finally:
            self.timing = rows.timing
            rows.close()
        return [
            text if is_ended else text + piece.end() for text, piece, is_ended in zip(texts, pieces, ended, strict=True)
        ]

    def _one_by_one(self, prompts: Sequence[str], seed: int | Sequence[int] | None = None, **options: Any) -> list[str]:
        """The continuations of several prompts by a decoder that runs one text at a time."""
        seeds = [seed] * len(prompts) if seed is None or isinstance(seed, int | np.integer) else [*seed]
        texts, timings = [], []
        for prompt, one in zip(prompts, seeds, strict=True):
            texts += self._batch([prompt], seed=one, **options)
            timings.append(self.timing)
        self.timing = Timing(*(sum(column) for column in zip(*timings, strict=True)))
        return texts

    def close(self) -> None:
        """Frees the weights, when no session needs them any more. Idempotent."""
        if self._device is not None:
            self._device.program.close()
        self._device = None

    def __enter__(self) -> Generator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
