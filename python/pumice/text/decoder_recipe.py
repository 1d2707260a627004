"""Describe the KV caches, inputs and outputs of a rewritten decoder."""

from __future__ import annotations

from typing import NamedTuple

from ..importer.file.recipe import Recipe
from .combined_kv_cache import resolve_io_names
from .model_folder import ModelFolder, cache_names_by_layer

PAST_LENGTHS, LOGIT_POSITIONS = "pumice.past", "pumice.logit_positions"


class KvScalesSpec(NamedTuple):
    """The scales of an int8 cache, one per row and head: [batch, heads, capacity]."""

    name: str
    output: str  # name of the output with the updated scales, or with only the new rows' scales if the recipe's outputs_new_rows is set
    dtype: str


class KvCacheSpec(NamedTuple):
    """A KV cache tensor of the decoder: [batch, heads, capacity, head_size]."""

    name: str
    output: str  # name of the output with the updated cache, or with only the new rows if the recipe's outputs_new_rows is set
    dtype: str  # storage dtype of the cache's elements
    heads: int
    size: int
    scales: KvScalesSpec | None = None  # set for int8 caches


class DecoderRecipe(NamedTuple):
    """A recipe rewritten for static KV caches, with inputs input_ids [batch, seq], PAST_LENGTHS [batch], LOGIT_POSITIONS [batch, n] and the
    caches. Its outputs are logits [batch, n, vocab_size] of the requested positions, and one output per cache. outputs_new_rows: these
    outputs hold only the new rows, [batch, heads, seq, head_size], and are written into the caches after a run. Otherwise each is the whole
    cache and must be bound to the same memory as its input.
    """

    recipe: Recipe
    caches: list[KvCacheSpec]
    input_ids: str
    input_ids_dtype: str
    logits: str
    outputs_new_rows: bool

    requires_batch_one: bool  # whether only batch size 1 is supported

    @property
    def scales(self) -> list[KvScalesSpec]:
        """The scales of all int8 caches, in the order of the caches."""
        return [cache.scales for cache in self.caches if cache.scales is not None]

    def input_shapes(self, batch: int, seq_len: int, num_logits: int, capacity: int) -> list[list[int]]:
        """Return the shapes of all inputs, in order. rows: new tokens per sequence. wanted: requested positions. room: cache capacity."""
        scales = [[batch, cache.heads, capacity] for cache in self.caches if cache.scales is not None]
        return [
            [batch, seq_len],
            [batch],
            [batch, num_logits],
            *([batch, cache.heads, capacity, cache.size] for cache in self.caches),
            *scales,
        ]


def exported_precision(recipe: Recipe, folder: ModelFolder) -> str:
    """Return the precision in which a model was exported: fp16 if its caches are float16, else fp32."""
    caches = cache_names_by_layer(resolve_io_names(recipe, folder).past, {value.name for value in recipe.inputs})
    dtypes = {value.dtype for value in recipe.inputs if caches and value.name == caches[0][0]}
    return "fp16" if "float16" in dtypes else "fp32"
