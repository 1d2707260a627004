"""GEMV with a column-major matrix whose input rows are not 32-byte aligned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pumice

SHADERS = Path(__file__).parents[2] / "shaders"
EIGHT = np.dtype([("low", "<f4", 4), ("high", "<f4", 4)])


@pytest.mark.parametrize("first", [0, 4, 8, 12])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_may_begin_at_any_sixteen_bytes(rows: int, first: int, context: pumice.Context) -> None:
    """If the binding alignment is 32 bytes or more, a view is bound from an aligned address and passed with an offset."""
    subgroup = context.info.limits["subgroupSize"]
    depth, columns = 8 * subgroup + 24, 11
    chance = np.random.default_rng(first)
    x = chance.integers(-4, 5, first + rows * depth).astype(np.float32)
    w = chance.integers(-4, 5, (columns, depth)).astype(np.float32)
    text = (SHADERS / "gemv_col_major.comp").read_text()
    macros = {"MATRIX": "1", "HAS_BIAS": "0", "SUBGROUP": f"{subgroup}u", "EPILOGUE(x)": "x"}
    spec = {"ROWS": rows, "UNROLL": 2, "NO_K_TAIL": 0}
    kernel = pumice.Kernel(text, context, "gemv_col_major", macros, spec, include_dirs=[SHADERS])
    numbers = {name: 0 for name, one in push_constants(kernel).items()}
    numbers |= {"pixels": rows, "out_h": 1, "out_w": rows, "channels_in": depth, "channels_out": columns}
    numbers |= {"x_stride_w": depth, "x_stride_c": 1, "y_stride_w": columns, "y_stride_c": 1, "x_offset": first}
    y = np.zeros(rows * columns, np.float32)
    groups = -(-columns * subgroup // 256)
    kernel(x=x.reshape(-1, 4), w=w.reshape(-1).view(EIGHT), y=y, **numbers, groups=(1, groups, 1))
    np.testing.assert_array_equal(y.reshape(rows, columns), x[first:].reshape(rows, depth) @ w.T)


def push_constants(kernel: pumice.Kernel) -> dict[str, object]:
    return {one["name"]: one for one in kernel.shader.interface["push_constants"]}
