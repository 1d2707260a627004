"""Fragment order of constant matrices for gemm_mma.comp, as packed by pack_weights.comp on any device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import pumice

SHADERS = Path(__file__).resolve().parents[2] / "shaders"
MACROS = {"FRAGMENTS": "1", "SOURCE_FLOAT": "1", "LOCAL_SIZE": "64"}


def in_fragments(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the matrix as [N / 8][K / 32][lane 4 g + t][8]: eight values of column g, from k = 8 t on."""
    depth, columns = matrix.shape
    padded = np.zeros((-(-depth // 32) * 32, -(-columns // 8) * 8), np.float32)
    padded[:depth, :columns] = matrix
    blocks = padded.reshape(padded.shape[0] // 32, 4, 8, padded.shape[1] // 8, 8)  # K chunk, t, k, N block, g
    return np.ascontiguousarray(blocks.transpose(3, 0, 4, 1, 2)).ravel()


def packed(
    context: pumice.Context, matrix: npt.NDArray[np.float32], first: int, count: int, made: pumice.Tensor
) -> None:
    """Pack `count` rows of a matrix from `first` on, as a slice of the whole matrix."""
    depth, columns = matrix.shape
    kernel = pumice.Kernel(
        (SHADERS / "pack_weights.comp").read_text(),
        context,
        macros=MACROS,
        include_dirs=[str(SHADERS)],
        name="pack_weights",
    )
    num_vec4 = -(-columns // 8) * -(-count // 32) * 64
    numbers = {"num_vec4": num_vec4, "taps": 1, "channels_in": count, "channels_out": columns, "first_in": first}
    strides = {"x_stride_group": 0, "x_stride_out": 1, "x_stride_in": columns, "x_stride_tap": 0}
    kernel(
        x=np.ascontiguousarray(matrix[first : first + count]),
        y=made,
        all_in=depth,
        scale=1.0,
        x_offset=0,
        y_offset=0,
        threads=num_vec4,
        **numbers,
        **strides,
    )


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 65])
@pytest.mark.parametrize("depth", [1, 31, 32, 33, 100])
def test_a_matrix_is_packed_in_fragment_order(context: pumice.Context, depth: int, columns: int) -> None:
    matrix = np.arange(1, depth * columns + 1, dtype=np.float32).reshape(depth, columns)
    made = pumice.tensor(np.full(in_fragments(matrix).shape, np.nan, np.float32), context)
    packed(context, matrix, 0, depth, made)
    np.testing.assert_array_equal(made.numpy(), in_fragments(matrix))


def test_tiles_of_a_matrix_are_adjacent_in_fragment_order(context: pumice.Context) -> None:
    matrix = np.random.default_rng(1).standard_normal((150, 20), np.float32)
    made = pumice.tensor(np.full(in_fragments(matrix).shape, np.nan, np.float32), context)
    for first in range(0, 150, 64):
        packed(context, matrix, first, min(64, 150 - first), made)
    np.testing.assert_array_equal(made.numpy(), in_fragments(matrix))


def taps_in_fragments(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return weights [C_out, C_in, taps] as [C_out / 8][C_in / 32][taps][lane 4 g + t][8]."""
    taps = [in_fragments(weights[:, :, tap].T) for tap in range(weights.shape[2])]
    chunks = [one.reshape(-(-weights.shape[0] // 8), -(-weights.shape[1] // 32), 256) for one in taps]
    return np.stack(chunks, 2).ravel()


@pytest.mark.parametrize("spread", [False, True], ids=["taps", "taps of a row as columns"])
@pytest.mark.parametrize("shape", [(9, 40, 3, 3), (3, 32, 2, 5), (8, 8, 1, 4)], ids=str)
def test_conv_weights_are_packed_in_fragment_order(
    context: pumice.Context, shape: tuple[int, int, int, int], spread: bool
) -> None:
    outputs, inputs, rows, width = shape
    weights = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    if spread:  # column = tap * outputs + channel
        expected = taps_in_fragments(weights.transpose(3, 0, 1, 2).reshape(width * outputs, inputs, rows))
    else:
        expected = taps_in_fragments(weights.reshape(outputs, inputs, rows * width))
    macros = MACROS | ({"FOLD_TAPS": f"{width}u"} if spread else {})
    kernel = pumice.Kernel(
        (SHADERS / "pack_weights.comp").read_text(),
        context,
        macros=macros,
        include_dirs=[str(SHADERS)],
        name="pack_weights",
    )
    made = pumice.tensor(np.full(expected.shape, np.nan, np.float32), context)
    sizes = {"num_vec4": expected.size // 4, "taps": rows if spread else rows * width, "first_in": 0, "all_in": inputs}
    sizes |= {"channels_in": inputs, "channels_out": outputs}
    strides = {
        "x_stride_group": 0,
        "x_stride_out": inputs * rows * width,
        "x_stride_in": rows * width,
        "x_stride_tap": 1,
    }
    kernel(x=weights, y=made, scale=1.0, x_offset=0, y_offset=0, threads=expected.size // 4, **sizes, **strides)
    np.testing.assert_array_equal(made.numpy(), expected)
