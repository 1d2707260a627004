"""The KV caches of a rewritten decoder, and its inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

from ..importer.file.recipe import Recipe
from .folder import Folder, layer_names
from .single_caches import names_of

PAST, WANTED = "pumice.past", "pumice.wanted"


class Scales(NamedTuple):
    """The scales of a cache of int8, one for each row of a head: [batch, heads, room]."""

    name: str
    output: str  # the scales with those of the new rows, or where the cache `is_apart` those of the new rows alone
    dtype: str


class Cache(NamedTuple):
    """A cache of the decoder: [batch, heads, room, size]."""

    name: str
    output: str  # the cache with the new rows, or where `is_apart` the new rows alone
    dtype: str  # what its elements are stored as
    heads: int
    size: int
    scales: Scales | None = None  # of a cache of int8


class RoomyRecipe(NamedTuple):
    """A recipe with the inputs words [batch, rows], PAST [batch], WANTED [batch, wanted] and the caches.

    Its outputs are the logits of the wanted rows, [batch, wanted, words], and what the caches say of theirs. is_apart: the new rows
    are outputs of their own, [batch, heads, rows, size], which are written into the caches after a run; else a cache's output is
    that cache, to be bound to the same memory.
    """

    recipe: Recipe
    caches: list[Cache]
    words: str
    words_dtype: str
    logits: str
    is_apart: bool

    is_single: bool  # whether it runs one text at a time

    @property
    def scales(self) -> list[Scales]:
        """The scales of all caches of int8, in their order."""
        return [one.scales for one in self.caches if one.scales is not None]

    def shapes(self, batch: int, rows: int, wanted: int, room: int) -> list[list[int]]:
        """The shapes of all inputs."""
        scales = [[batch, one.heads, room] for one in self.caches if one.scales is not None]
        return [
            [batch, rows],
            [batch],
            [batch, wanted],
            *([batch, one.heads, room, one.size] for one in self.caches),
            *scales,
        ]


def own_precision(recipe: Recipe, folder: Folder) -> str:
    """The precision that a model is exported in: fp16 where its caches are float16, else fp32."""
    caches = layer_names(names_of(recipe, folder).past, {value.name for value in recipe.inputs})
    dtypes = {value.dtype for value in recipe.inputs if caches and value.name == caches[0][0]}
    return "fp16" if "float16" in dtypes else "fp32"
