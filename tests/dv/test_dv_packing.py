"""Packed weights of the dv interface against a slow packer that follows the format's description cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pumice
from pumice import dv
from threads import in_threads

SEVENTH_COLUMN = {0: (2, 5), 1: (0, 3), 2: (1, 3), 3: (2, 3), 4: (0, 0), 5: (1, 0), 6: (2, 0)}
BLOCK_CHANNELS = {1: 64, 3: 8, 5: 2, 7: 1}


def cell(side: int, channel: int, y: int, x: int) -> tuple[int, int]:
    """Return row and column of a tap in the 12 x 6 block of its channel."""
    if side == 7:
        return (5 + y, x) if x <= 5 else SEVENTH_COLUMN[y]
    if side == 5:
        return 7 - 6 * (channel % 2) + y, x
    t = channel % 8
    if side == 3:
        return 9 - 3 * (t // 2) + y, 3 * (t % 2) + x
    g = channel % 64 // 8
    return 11 - 3 * (t // 2) - g // 3, 3 * (t % 2) + g % 3


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def header(values: NDArray[np.float16]) -> bytes:
    return padded(values.tobytes())


def stream(weights: NDArray[np.generic], bias: NDArray[np.float16], prelu: NDArray[np.float16] | None) -> bytes:
    kernels, channels, ky, kx = weights.shape
    side = max(kx, ky) | 1
    step, chunk = BLOCK_CHANNELS[side], 64 if side == 1 else 8
    out = b""
    for group in range(0, kernels, 8):
        members = range(group, min(group + 8, kernels))
        out += header(bias[group : group + 8])
        out += b"" if prelu is None else header(prelu[group : group + 8])
        for first in range(0, channels, chunk):
            for kernel in members:
                for block in range(first, min(first + chunk, channels), step):
                    cells = np.zeros((12, 6), weights.dtype)
                    for channel in range(block, min(block + step, channels)):
                        for y in range(ky):
                            for x in range(kx):
                                cells[cell(side, channel, y + side - ky, x)] = weights[kernel, channel, y, x]
                    out += cells.tobytes()
    return padded(out)


def slow_conv(
    weights: NDArray[np.generic],
    bias: NDArray[np.float16],
    table: NDArray[np.float16] | None,
    prelu: NDArray[np.float16] | None,
) -> bytes:
    return (b"" if table is None else table.tobytes()) + stream(weights, bias, prelu)


def slow_dil(
    weights: NDArray[np.generic],
    bias: NDArray[np.float16],
    table: NDArray[np.float16] | None,
    prelu: NDArray[np.float16] | None,
) -> bytes:
    ky, kx = weights.shape[2:]
    out = b"" if table is None else table.tobytes()
    for y in range(ky):
        for x in range(kx):
            last = (y, x) == (ky - 1, kx - 1)
            slopes = None if prelu is None else prelu * np.float16(last)
            out += stream(weights[:, :, y : y + 1, x : x + 1], bias * np.float16(last), slopes)
    return out


def whc8_indices(c: int, h: int, w: int) -> list[int]:
    return [
        ch * h * w + y * w + x
        for group in range(0, c, 8)
        for x in range(w)
        for y in range(h)
        for ch in range(group, min(group + 8, c))
    ]


def slow_fc(weights: NDArray[np.generic], bias: NDArray[np.float16], table: NDArray[np.float16] | None) -> bytes:
    c, h, w, ci, hi, wi = weights.shape
    rows = weights.reshape(c * h * w, ci * hi * wi)[whc8_indices(c, h, w)][:, whc8_indices(ci, hi, wi)]
    return (b"" if table is None else table.tobytes()) + padded(rows.tobytes()) + padded(bias.tobytes())


def halves(rng: np.random.Generator, *shape: int) -> NDArray[np.float16]:
    return rng.integers(1, 0x7C00, shape).astype(np.uint16).view(np.float16)


def layer(seed: int, shape: tuple[int, ...], outputs: int, quantized: bool, prelu: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {"bias": halves(rng, outputs)}
    if quantized:
        made |= {"weights": rng.integers(1, 256, shape).astype(np.uint8), "table": halves(rng, 256)}
    else:
        made["weights"] = halves(rng, *shape)
    if prelu:
        made["prelu"] = halves(rng, outputs)
    return made


def check_unpacked(unpacked: dv.UnpackedWeights, made: dict[str, np.ndarray]) -> None:
    table = made.get("table")
    values = made["weights"] if table is None else table[made["weights"]]
    assert unpacked.weights.dtype == np.float16 and unpacked.weights.tobytes() == values.tobytes()
    assert unpacked.weights.shape == values.shape
    for part, expected in (("bias", made["bias"]), ("table", table), ("prelu", made.get("prelu"))):
        got = getattr(unpacked, part)
        assert (got is None) == (expected is None)
        assert got is None or got.tobytes() == expected.tobytes()
    assert (unpacked.indices is None) == (table is None)
    assert unpacked.indices is None or (unpacked.indices == made["weights"]).all()


@settings(deadline=None, max_examples=150)
@given(
    kernels=st.integers(1, 20),
    channels=st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 130])),
    ky=st.integers(1, 7),
    kx=st.integers(1, 7),
    quantized=st.booleans(),
    prelu=st.booleans(),
    dilated=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_convolutions_are_packed_as_described_and_come_back(
    kernels: int, channels: int, ky: int, kx: int, quantized: bool, prelu: bool, dilated: bool, seed: int
) -> None:
    shape = (kernels, channels, ky, kx)
    made = layer(seed, shape, kernels, quantized, prelu)
    slow, pack, unpack = (
        (slow_dil, dv.pack_dil_weights, dv.unpack_dil_weights)
        if dilated
        else (slow_conv, dv.pack_conv_weights, dv.unpack_conv_weights)
    )
    packed = pack(**made)
    assert packed == slow(made["weights"], made["bias"], made.get("table"), made.get("prelu"))
    check_unpacked(unpack(packed, shape, quantized=quantized, prelu=prelu), made)


@settings(deadline=None, max_examples=60)
@given(
    output=st.tuples(st.integers(1, 18), st.integers(1, 3), st.integers(1, 3)),
    inputs=st.tuples(st.integers(1, 18), st.integers(1, 4), st.integers(1, 4)),
    quantized=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_fully_connected_layers_are_packed_as_described_and_come_back(
    output: tuple[int, int, int], inputs: tuple[int, int, int], quantized: bool, seed: int
) -> None:
    shape = (*output, *inputs)
    made = layer(seed, shape, int(np.prod(output)), quantized, False)
    packed = dv.pack_fc_weights(**made)
    assert packed == slow_fc(made["weights"], made["bias"], made.get("table"))
    check_unpacked(dv.unpack_fc_weights(packed, shape, quantized=quantized), made)


def test_eight_kernels_of_3x3_on_eight_channels_take_1168_bytes() -> None:
    assert len(dv.pack_conv_weights(np.ones((8, 8, 3, 3), "float16"))) == 1168


def size(kernels: int, channels: int, side: int, quantized: bool, prelu: bool) -> int:
    blocks = {7: channels, 5: -(-channels // 2), 3: -(-channels // 8), 1: -(-channels // 64)}[side]
    return 16 * -(-kernels // 8) * (1 + prelu) + kernels * blocks * (72 if quantized else 144)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("prelu", [False, True])
@pytest.mark.parametrize(("ky", "kx"), [(1, 1), (2, 1), (3, 3), (4, 2), (5, 5), (6, 6), (7, 1)])
def test_sizes_follow_the_formulas(ky: int, kx: int, quantized: bool, prelu: bool) -> None:
    for kernels, channels in [(1, 1), (9, 65), (16, 7)]:
        made = layer(0, (kernels, channels, ky, kx), kernels, quantized, prelu)
        table = 512 * quantized
        one = size(kernels, channels, max(ky, kx) | 1, quantized, prelu)
        assert len(dv.pack_conv_weights(**made)) == table + one + -one % 16
        tap = size(kernels, channels, 1, quantized, prelu)
        assert len(dv.pack_dil_weights(**made)) == table + ky * kx * (tap + -tap % 16)


def test_a_row_of_a_fully_connected_layer_is_in_the_order_of_whc8() -> None:
    weights = np.arange(12, dtype="float16").reshape(1, 3, 2, 2)
    packed = np.frombuffer(dv.pack_fc_weights(weights), "float16")
    assert packed[:12].tolist() == [0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11]


def test_the_bias_of_a_fully_connected_layer_keeps_its_order() -> None:
    bias = np.arange(12, dtype="float16")
    packed = dv.pack_fc_weights(np.zeros((3, 2, 2, 1, 1, 1), "float16"), bias)
    assert packed[32:56] == bias.tobytes()


def test_matrices_are_layers_of_1x1() -> None:
    rng = np.random.default_rng(0)
    weights, bias = halves(rng, 5, 12), halves(rng, 5)
    packed = dv.pack_fc_weights(weights, bias)
    assert packed == padded(weights.tobytes()) + padded(bias.tobytes())
    assert (dv.unpack_fc_weights(packed, (5, 12)).weights == weights).all()
    image = weights.reshape(5, 3, 2, 2)
    assert dv.pack_fc_weights(image, bias) == dv.pack_fc_weights(image.reshape(5, 1, 1, 3, 2, 2), bias)


def test_a_missing_bias_is_zeros() -> None:
    weights = np.ones((9, 3, 3, 3), "float16")
    assert dv.pack_conv_weights(weights) == dv.pack_conv_weights(weights, np.zeros(9, "float16"))


def test_a_2x2_kernel_stands_left_and_low_in_its_grid() -> None:
    cells = np.frombuffer(dv.pack_conv_weights(np.arange(1, 5, dtype="float16").reshape(1, 1, 2, 2)), "float16")[8:]
    assert cells.reshape(12, 6)[9:, :3].tolist() == [[0, 0, 0], [1, 2, 0], [3, 4, 0]]


def test_strided_arrays_are_packed_by_their_elements() -> None:
    weights = halves(np.random.default_rng(1), 3, 3, 5, 9)
    turned = weights.transpose(3, 2, 0, 1)
    assert dv.pack_conv_weights(turned) == dv.pack_conv_weights(turned.copy())
    big = weights.astype(">f2")
    assert dv.pack_conv_weights(big[:, :, :, :3]) == dv.pack_conv_weights(weights[:, :, :, :3].copy())


def test_bytes_behind_packed_weights_are_not_read() -> None:
    made = layer(3, (9, 5, 3, 3), 9, True, True)
    packed = np.frombuffer(dv.pack_conv_weights(**made) + b"more", "uint8")
    check_unpacked(dv.unpack_conv_weights(packed, (9, 5, 3, 3), quantized=True, prelu=True), made)
    shifted = np.concatenate([[np.uint8(0)], packed])[1:]
    check_unpacked(dv.unpack_conv_weights(shifted, (9, 5, 3, 3), quantized=True, prelu=True), made)


def test_what_does_not_fit_is_rejected_by_name() -> None:
    weights = np.zeros((4, 2, 3, 3), "float16")
    table = np.zeros(256, "float16")
    refusals = {
        r"kx: expected 1 to 7; given 8": lambda: dv.pack_conv_weights(np.zeros((1, 1, 1, 8), "float16")),
        r"ky: expected 1 to 7; given 9": lambda: dv.pack_dil_weights(np.zeros((1, 1, 9, 1), "float16")),
        r"n_channels: expected at least 1; given 0": lambda: dv.pack_conv_weights(np.zeros((1, 0, 1, 1), "float16")),
        r"n_kernels: expected at least 1; given 0": lambda: dv.pack_conv_weights(np.zeros((0, 1, 1, 1), "float16")),
        r"h_input: expected at least 1; given 0": lambda: dv.pack_fc_weights(np.zeros((1, 1, 0, 1), "float16")),
        r"weights: expected float16; given float32": lambda: dv.pack_conv_weights(weights.astype("float32")),
        r"weights: expected uint8; given float16": lambda: dv.pack_conv_weights(weights, table=table),
        r"weights: expected the shape \(kernels": lambda: dv.pack_conv_weights(weights[0]),
        r"weights: expected the shape \(outputs": lambda: dv.pack_fc_weights(weights[0]),
        r"bias: expected float16 of shape \(4,\); given float16 of shape \(3,\)": lambda: dv.pack_conv_weights(
            weights, np.zeros(3, "float16")
        ),
        r"prelu: expected float16 of shape \(4,\)": lambda: dv.pack_conv_weights(
            weights, prelu=np.zeros((4, 1), "float16")
        ),
        r"table: expected float16 of shape \(256,\)": lambda: dv.pack_conv_weights(
            weights.astype("uint8"), table=table[:255]
        ),
        r"packed: expected at least 592 bytes; given 591": lambda: dv.unpack_conv_weights(bytes(591), (4, 2, 3, 3)),
        r"packed: expected at least 1440 bytes": lambda: dv.unpack_dil_weights(bytes(16), (1, 2, 3, 3)),
        r"packed: expected at least 32 bytes": lambda: dv.unpack_fc_weights(b"", (1, 1)),
        r"packed: expected uint8; given int8": lambda: dv.unpack_fc_weights(np.zeros(32, "int8"), (1, 1)),
        r"dimensions: expected a size that fits in 63 bits": lambda: dv.unpack_conv_weights(
            b"", (2**31 - 1, 2**31 - 1, 7, 7)
        ),
    }
    for message, refused in refusals.items():
        with pytest.raises(pumice.BindingError, match=message):
            refused()


def test_threads_pack_at_the_same_time() -> None:
    made = layer(5, (256, 256, 3, 3), 256, False, False)
    expected = dv.pack_conv_weights(**made)
    assert in_threads(lambda _: dv.pack_conv_weights(**made), range(4)) == [expected] * 4
