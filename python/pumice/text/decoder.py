"""A decoder on the device that all its texts share: the program with the weights, and the kernels; and sampling parameters."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._pumice import Context, Program
from ..base.element_types import Array
from ..device.kernel import Kernel
from .decoder_recipe import DecoderRecipe


class SamplingParams(NamedTuple):
    """The sampling parameters of a sequence; see Generator for their meaning."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    seed: int = 0


def _read_shader(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


class Decoder:
    """A decoder on a device: its program with the weights, and the kernels for sampling and for appending to the caches."""

    def __init__(self, context: Context, program: Program, decoder_recipe: DecoderRecipe, vocab_size: int) -> None:
        self.context, self.program, self.decoder_recipe, self.vocab_size = context, program, decoder_recipe, vocab_size
        outputs = {value.name: value for value in program.outputs}
        self.logits_dtype = str(outputs[decoder_recipe.logits].dtype)

    @functools.cached_property
    def sampling_kernel(self) -> Kernel:
        return self._make_sampling_kernel("sampling", self._make_token_macros())

    @functools.cached_property
    def greedy_kernel(self) -> Kernel:
        """The kernel that computes the argmax token and stores it, in a single dispatch."""
        return self._make_sampling_kernel("logits_argmax", {"STORES_TOKEN": 1, **self._make_token_macros()}, "greedy")

    @functools.cached_property
    def argmax_kernel(self) -> Kernel:
        return self._make_sampling_kernel("logits_argmax")

    @functools.cached_property
    def candidates_kernel(self) -> Kernel:
        return self._make_sampling_kernel("sampling_candidates")

    def _make_token_macros(self) -> dict[str, str | float]:
        is_int64 = self.decoder_recipe.input_ids_dtype == "int64"
        id_type, conversion = ("uvec2", "uvec2(token, 0u)") if is_int64 else ("uint", "token")
        return {"INPUT_ID": id_type, "TO_INPUT_ID(token)": conversion}

    def _make_sampling_kernel(
        self, file: str, macros: dict[str, str | float] | None = None, name: str | None = None
    ) -> Kernel:
        includes = {include: _read_shader(include) for include in ("token_scores.glsl", "store_token.glsl")}
        return Kernel(_read_shader(f"{file}.comp"), self.context, name or file, macros, includes=includes)

    @functools.cached_property
    def append_kernel(self) -> Kernel:
        return Kernel(_read_shader("append_kv.comp"), self.context, "append_kv", {"AS_UINT32": 0})

    @functools.cached_property
    def append_uint32_kernel(self) -> Kernel:
        return Kernel(_read_shader("append_kv.comp"), self.context, "append_kv_uint32", {"AS_UINT32": 1})


def make_token_bitmask(tokens: Sequence[Sequence[int]], vocab_size: int) -> Array:
    """Return a bitmask of the tokens of each sequence, uint32 [batch, (vocab_size + 31) / 32]."""
    token_bitmask = np.zeros((len(tokens), (vocab_size + 31) // 32), np.uint32)
    for bitmask, sequence in zip(token_bitmask, tokens, strict=True):
        token_ids = np.unique(np.array(sequence, np.int64))
        np.bitwise_or.at(bitmask, token_ids // 32, np.uint32(1) << (token_ids % 32).astype(np.uint32))
    return token_bitmask


class TokenBitmask:
    """The token bitmask of a text that only grows, updated incrementally."""

    def __init__(self, tokens: Sequence[int], vocab_size: int) -> None:
        self._bits, self._num_tokens = make_token_bitmask([tokens], vocab_size), len(tokens)

    def make_bitmasks(self, tokens: Sequence[int], draft_tokens: Sequence[int], num_positions: int) -> Array:
        """Return a bitmask for each position, uint32 [num_positions, (vocab_size + 31) / 32]: the text and the draft tokens before it."""
        for token in tokens[self._num_tokens :]:
            self._bits[0, token // 32] |= np.uint32(1 << token % 32)
        self._num_tokens = len(tokens)
        bitmasks = np.tile(self._bits, (num_positions, 1))
        for i, token in enumerate(draft_tokens[: num_positions - 1]):
            bitmasks[i + 1 :, token // 32] |= np.uint32(1 << token % 32)
        return bitmasks
