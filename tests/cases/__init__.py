"""The operators' test table, one case per row. Cases are compared with onnx's reference; `./dev bench operators`
times the cases of `timed`, at larger sizes."""

from __future__ import annotations

from collections.abc import Sequence

from cases import (
    attentions,
    conv_gemm,
    data_movement,
    fills,
    folded,
    gather_scatter,
    integer_conv_gemm,
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
    conv_gemm.convolutions,
    conv_gemm.matmuls,
    conv_gemm.einsums,
    conv_gemm.determinants,
    conv_gemm.fp64_matmuls,
    attentions.attentions,
    attentions.caches,
    attentions.rotations,
    windows.windows,
    windows.unpoolings,
    normalizations.normalizations,
    normalizations.register_rows,
    normalizations.columns,
    data_movement.data_movement,
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
    gather_scatter.gathers,
    gather_scatter.scatters,
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
    integer_conv_gemm.matmuls,
    integer_conv_gemm.convolutions,
    integer_conv_gemm.requantized,
    integer_conv_gemm.dynamic,
    recurrents.recurrents,
    views.copies,
    timed.small,
    large.large,
)
CASES: Sequence[Case] = tuple(one for family in FAMILIES for one in family())
