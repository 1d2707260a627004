"""The operators' test table, one case per row. Cases are compared with onnx's reference; `./dev bench operators`
times those of `timed`, at larger sizes."""

from __future__ import annotations

from collections.abc import Sequence

from cases import (
    attentions,
    contractions,
    fills,
    folded,
    index_maps,
    indexed,
    integer_products,
    large,
    maps,
    normalizations,
    quantizations,
    recurrents,
    reductions,
    regions,
    resizes,
    signals,
    sorts,
    timed,
    views,
    windows,
)
from cases.rows import OPSET, Case, values_in

__all__ = ["CASES", "OPSET", "Case", "values_in"]

FAMILIES = (
    contractions.convolutions,
    contractions.products,
    contractions.einsums,
    contractions.determinants,
    contractions.wide_products,
    attentions.attentions,
    attentions.caches,
    attentions.rotations,
    windows.windows,
    windows.unpoolings,
    normalizations.normalizations,
    normalizations.held_rows,
    normalizations.columns,
    index_maps.index_maps,
    fills.fills,
    fills.tiles,
    folded.folded,
    resizes.resizes,
    resizes.grids,
    sorts.sorts,
    signals.transforms,
    signals.short_transforms,
    signals.mel_weights,
    regions.regions,
    regions.blocks,
    regions.bits,
    indexed.gathers,
    indexed.scatters,
    reductions.reductions,
    reductions.positions,
    reductions.teams,
    reductions.scans,
    maps.maps,
    maps.elementary,
    maps.more_maps,
    maps.doubles,
    maps.ranges,
    maps.casts,
    quantizations.quantizations,
    integer_products.products,
    integer_products.convolutions,
    integer_products.requantized,
    integer_products.dynamic,
    recurrents.recurrents,
    views.copies,
    timed.small,
    large.large,
)
CASES: Sequence[Case] = tuple(one for family in FAMILIES for one in family())
