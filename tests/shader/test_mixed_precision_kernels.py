"""Kernels with both float32 and 16-bit arrays compile for every storage, including devices not present."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import pumice

SHADERS = Path(__file__).resolve().parents[2] / "shaders"
CONTRACTION = {"MATRIX": "1", "HAS_BIAS": "0", "EPILOGUE(x)": "max(x, 0.0)"}
VECTORS = {"Y_VEC4": "1", "X_VEC4": "1"}
HELD = {"GROUP_THREADS": "16u", "THREAD_GROUPS": "16u", "ITEMS_PER_THREAD": "2u", "SUBGROUP": "32", "EPILOGUE(x)": "x"}
ROWS = {"CPU_VARIANT": "0", "SHORT_ROWS": "1", "WORKGROUP": "64", "EPILOGUE(x)": "x"}
NORM = {"HAS_BIAS": "1", "SUBTRACT_MEAN": "1", "HAS_MEAN": "0", "HAS_DEVIATION": "0"}

# Shader, arrays that may be float32 next to 16-bit ones, and macros.
KERNELS: list[tuple[str, list[str], dict[str, str]]] = [
    ("conv_coopmat.comp", ["", "Y", "BRY"], {**CONTRACTION, **VECTORS}),
    ("conv_coopmat.comp", ["", "Y", "BRY"], {**CONTRACTION, "Y_VEC4": "0", "RESIDUAL": "1", "HAS_BIAS": "2"}),
    ("conv_halo.comp", ["", "Y", "RY"], {**CONTRACTION, "MATRIX": "0", "Y_VEC4": "1"}),
    (
        "conv_halo.comp",
        ["", "Y", "RY"],
        {**CONTRACTION, "MATRIX": "0", "Y_VEC4": "0", "RESIDUAL": "1", "HAS_BIAS": "1"},
    ),
    (
        "conv_halo.comp",
        ["", "Y", "RY"],
        {**CONTRACTION, "MATRIX": "0", "Y_VEC4": "0", "RESIDUAL": "1", "FOLD_TAPS": "1"},
    ),
    ("gemm_mma.comp", ["", "Y", "BRY"], {**CONTRACTION, **VECTORS}),
    ("gemm_mma.comp", ["", "Y", "BRY"], {**CONTRACTION, "Y_VEC4": "0", "RESIDUAL": "1", "HAS_BIAS": "2"}),
    ("gemv_col_major.comp", ["", "Y", "W", "WY", "XW"], {**CONTRACTION, "SUBGROUP": "32"}),
    ("gemv.comp", ["", "Y", "W", "WY", "XW"], CONTRACTION),
    ("conv_tiled.comp", ["", "Y", "W", "WY", "XW"], {**CONTRACTION, **VECTORS}),
    (
        "conv_tiled.comp",
        ["", "BRY", "W", "BRWY", "BRXW"],
        {**CONTRACTION, "Y_VEC4": "0", "RESIDUAL": "1", "HAS_BIAS": "2"},
    ),
    ("conv_patch.comp", ["", "Y", "W", "WY", "XW"], {**CONTRACTION, **VECTORS, "MATRIX": "0"}),
    (
        "conv_patch.comp",
        ["", "RY", "W", "RWY", "RXW"],
        {**CONTRACTION, "MATRIX": "0", "X_VEC4": "0", "Y_VEC4": "0", "RESIDUAL": "1", "HAS_BIAS": "1"},
    ),
    ("conv_few_channels.comp", ["", "X", "Y"], {**CONTRACTION, **VECTORS, "MATRIX": "0", "Y_VEC8": "0"}),
    (
        "conv_few_channels.comp",
        ["", "R"],
        {**CONTRACTION, "MATRIX": "0", "Y_VEC4": "1", "Y_VEC8": "1", "RESIDUAL": "1"},
    ),
    (
        "conv_few_channels.comp",
        ["", "RY"],
        {**CONTRACTION, "MATRIX": "0", "Y_VEC4": "0", "Y_VEC8": "0", "RESIDUAL": "1", "HAS_BIAS": "1"},
    ),
    ("conv_few_channels.comp", [""], {**CONTRACTION, "MATRIX": "0", "Y_VEC4": "1", "Y_VEC8": "1", "EMULATED": "1"}),
    ("conv_depthwise.comp", ["", "Y", "W", "WY", "XW"], {"VEC4": "1", "HAS_BIAS": "1", "EPILOGUE(x)": "x"}),
    ("conv_depthwise.comp", ["", "Y", "W", "WY", "XW"], {"Y_ROW_VEC4": "1", "HAS_BIAS": "1", "EPILOGUE(x)": "x"}),
    ("layer_norm_registers.comp", ["", "X", "Y"], {**HELD, **NORM, "CHANNELS": "0"}),
    ("layer_norm_registers.comp", ["", "Y"], {**HELD, **NORM, "CHANNELS": "0", "HOLDS_FP16": "1"}),
    ("layer_norm.comp", ["", "X", "Y"], {**ROWS, **NORM}),
    ("softmax_registers.comp", ["", "X", "Y"], {**HELD, "LOGARITHM": "0"}),
    ("softmax.comp", ["", "X", "Y"], {**ROWS, "MODE": "0"}),
    ("softmax_columns.comp", ["", "X", "Y"], {"LOGARITHM": "0", "ROWS": "8u"}),
    ("norm_apply.comp", ["", "X", "Y"], {"PLANES": "1", "VEC4": "0", "EPILOGUE(x)": "x"}),
]
STORAGES = ("fp16", "fp16_packed", "bf16_packed")
# Kernels that need 16-bit storage of single elements.
MATRICES = ("conv_halo.comp", "conv_coopmat.comp", "conv_few_channels.comp", "gemm_mma.comp")


def parameters() -> list[tuple[str, str, dict[str, str]]]:
    found = []
    for (name, floats, macros), storage in itertools.product(KERNELS, STORAGES):
        if name in MATRICES and storage != "fp16":
            continue
        found += [(name, storage, {**macros, **{f"{one}_FLOAT": "1" for one in arrays}}) for arrays in floats]
    return found


@pytest.mark.parametrize(("name", "storage", "macros"), parameters())
def test_arrays_of_either_size_compile(name: str, storage: str, macros: dict[str, str]) -> None:
    options = pumice.ShaderOptions(storage=storage, fp16_arithmetic=storage == "fp16", vulkan_minor=3)
    source = (SHADERS / name).read_text()
    shader = pumice.compile(
        source, options, macros={"LOCAL_SIZE": "64", **macros}, include_dirs=[str(SHADERS)], name=name
    )
    assert shader.spirv
