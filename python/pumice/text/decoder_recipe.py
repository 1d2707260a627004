"""Describe the KV caches, inputs and outputs of a rewritten decoder."""

from __future__ import annotations

from typing import NamedTuple

from ..importer.file.recipe import Recipe
from .model_folder import Folder, layer_names
from .combined_kv_cache import names_of

PAST, WANTED = "pumice.past", "pumice.wanted"


class Scales(NamedTuple):
    """The scales of an int8 cache, one per row and head: [batch, heads, capacity]."""

    name: str
    output: str  # name of the output with the updated scales, or with only the new rows' scales if the recipe's is_apart is set
    dtype: str


class Cache(NamedTuple):
    """A KV cache tensor of the decoder: [batch, heads, capacity, head_size]."""

    name: str
    output: str  # name of the output with the updated cache, or with only the new rows if the recipe's is_apart is set
    dtype: str  # storage dtype of the cache's elements
    heads: int
    size: int
    scales: Scales | None = None  # set for int8 caches


class RoomyRecipe(NamedTuple):
    """A recipe rewritten for static KV caches, with inputs input_ids [batch, seq], PAST [batch], WANTED [batch, n] and the caches.
    Its outputs are logits [batch, n, vocab_size] of the requested positions, and one output per cache. is_apart: these outputs hold only
    the new rows, [batch, heads, seq, head_size], and are written into the caches after a run. Otherwise each is the whole cache and must be
    bound to the same memory as its input.
    """

    recipe: Recipe
    caches: list[Cache]
    words: str
    words_dtype: str
    logits: str
    is_apart: bool

    is_single: bool  # whether only batch size 1 is supported

    @property
    def scales(self) -> list[Scales]:
        """The scales of all int8 caches, in the order of the caches."""
        return [one.scales for one in self.caches if one.scales is not None]

    def shapes(self, batch: int, rows: int, wanted: int, room: int) -> list[list[int]]:
        """Return the shapes of all inputs, in order. rows: new tokens per sequence. wanted: requested positions. room: cache capacity."""
        scales = [[batch, one.heads, room] for one in self.caches if one.scales is not None]
        return [
            [batch, rows],
            [batch],
            [batch, wanted],
            *([batch, one.heads, room, one.size] for one in self.caches),
            *scales,
        ]


def own_precision(recipe: Recipe, folder: Folder) -> str:
    """Return the precision in which a model was exported: fp16 if its caches are float16, else fp32."""
    caches = layer_names(names_of(recipe, folder).past, {value.name for value in recipe.inputs})
    dtypes = {value.dtype for value in recipe.inputs if caches and value.name == caches[0][0]}
    return "fp16" if "float16" in dtypes else "fp32"
