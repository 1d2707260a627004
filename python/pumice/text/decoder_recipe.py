"""Describe a decoder with static KV caches: its recipe, caches, inputs and outputs."""

from __future__ import annotations

from typing import NamedTuple

from ..importer.file.graph_recipe import GraphRecipe
from .combined_kv_cache import resolve_io_names
from .model_folder import ModelFolder, list_cache_names_by_layer

PAST_LENGTHS, LOGIT_POSITIONS = "pumice.past", "pumice.logit_positions"


class KvScalesSpec(NamedTuple):
    """The scales of an int8 KV cache: [batch, heads, capacity], one per row and head."""

    name: str
    output: str  # output with the updated scales, or with the new rows' scales if DecoderRecipe.outputs_new_rows
    dtype: str


class KvCacheSpec(NamedTuple):
    """The K or V cache of a layer: [batch, heads, capacity, head_size]."""

    name: str
    output: str  # output with the updated cache, or with the new rows if DecoderRecipe.outputs_new_rows
    dtype: str  # storage dtype
    heads: int
    size: int  # head_size
    scales: KvScalesSpec | None = None  # set for int8 caches


class DecoderRecipe(NamedTuple):
    """A decoder recipe, rewritten for static KV caches.

    Inputs: input_ids [batch, seq], PAST_LENGTHS [batch], LOGIT_POSITIONS [batch, n], and the caches. Outputs: logits
    [batch, n, vocab_size] at these positions, and one output per cache. outputs_new_rows: the cache outputs contain only the new rows,
    [batch, heads, seq, head_size], which are appended to the caches after a run. Otherwise each output is the whole cache, bound to the
    memory of its input.
    """

    recipe: GraphRecipe
    caches: list[KvCacheSpec]
    input_ids: str
    input_ids_dtype: str
    logits: str
    outputs_new_rows: bool
    requires_batch_one: bool  # whether the decoder supports only batch size 1

    def make_input_shapes(self, batch: int, seq_len: int, num_logits: int, capacity: int) -> list[list[int]]:
        """Return the shapes of all inputs in order. seq_len: new tokens per sequence. num_logits: requested positions per sequence."""
        scales = [[batch, cache.heads, capacity] for cache in self.caches if cache.scales is not None]
        return [
            [batch, seq_len],
            [batch],
            [batch, num_logits],
            *([batch, cache.heads, capacity, cache.size] for cache in self.caches),
            *scales,
        ]


def get_exported_precision(recipe: GraphRecipe, folder: ModelFolder) -> str:
    """Return the precision of an exported decoder: "fp16" if its caches are float16, else "fp32"."""
    caches = list_cache_names_by_layer(resolve_io_names(recipe, folder).past, {value.name for value in recipe.inputs})
    dtypes = {value.dtype for value in recipe.inputs if caches and value.name == caches[0][0]}
    return "fp16" if "float16" in dtypes else "fp32"
