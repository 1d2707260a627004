"""Convolution commands of the dv interface in NumPy, following only the interface's formulas."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import pumice.dv as dv

Array = npt.NDArray[Any]
CANCELLED = 2e-6  # float32 rounding error relative to the largest result; near 0 it spans many float16 values

ACTIVATIONS = {
    0: lambda x, a: x,
    1: lambda x, a: np.tanh(x),
    2: lambda x, a: np.where(x > 0, x, a * x if a else 0),
    3: lambda x, a: 1 / (1 + np.exp(-x)),
    5: lambda x, a: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    6: lambda x, a: np.clip(x, 0, 6),
}


def to_whc8(x: Array) -> Array:
    """Convert (C, H, W) to the interface's WHC8 layout."""
    return np.concatenate([x[first : first + 8].transpose(2, 1, 0).ravel() for first in range(0, len(x), 8)])


def from_whc8(flat: Array, c: int, h: int, w: int) -> Array:
    groups, at = [], 0
    for first in range(0, c, 8):
        count = min(8, c - first)
        groups.append(flat[at : at + count * h * w].reshape(w, h, count).transpose(2, 1, 0))
        at += count * h * w
    return np.concatenate(groups)


def windows(x: Array, kernel: tuple[int, int], step: tuple[int, int], dilation: tuple[int, int]) -> Array:
    """Return (C, H', W', ky, kx) windows of a padded (C, H, W); pairs are (x, y)."""
    (kx, ky), (sx, sy), (dx, dy) = kernel, step, dilation
    whole = np.lib.stride_tricks.sliding_window_view(x, ((ky - 1) * dy + 1, (kx - 1) * dx + 1), (1, 2))
    return whole[:, ::sy, ::sx, ::dy, ::dx]


def padded(x: Array, sides: tuple[int, int, int, int], value: float) -> Array:
    left, right, top, bottom = sides
    return np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=value)


@dataclass(kw_only=True)
class Run:
    """One run: the interface's fields, and its weights."""

    kind: int = 0
    weights: Array | None = None  # (out, in, ky, kx)
    bias: Array | None = None
    slopes: Array | None = None
    table: Array | None = None
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (0, 0)
    pool: int = 0
    window: tuple[int, int] = (1, 1)
    step: tuple[int, int] = (1, 1)
    pool_pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    factor: float = 0.0
    act: int = 0
    slope: float = 0.0
    absolute: bool = False
    lrn: bool = False

    @property
    def values(self) -> Array:
        assert self.weights is not None
        return self.weights if self.table is None else self.table[self.weights]

    @property
    def dilations(self) -> tuple[int, int]:
        return max(self.dilation[0], 1), max(self.dilation[1], 1)

    def packed(self, transposed: bool = False) -> bytes:
        assert self.weights is not None and self.bias is not None
        pack = dv.pack_dil_weights if max(self.dilations) > 1 else dv.pack_conv_weights
        weights = self.weights.transpose(0, 1, 3, 2) if transposed else self.weights
        return bytes(pack(weights, self.bias, table=self.table, prelu=self.slopes))

    def raw(self, weight_buf: Any, channels: int) -> dv.Run:
        """Return the raw run; `channels`: input channels."""
        kernel = (1, 1) if self.weights is None else (self.weights.shape[3], self.weights.shape[2])
        return dv.Run(
            weight_buf=weight_buf,
            conv_enable=self.kind,
            m=channels if self.weights is None else len(self.weights),
            p=kernel,
            conv_pad=self.pads,
            conv_stride=self.stride,
            conv_dilation=self.dilation,
            weight_fmt=1 if self.table is None else 3,
            pool_enable=self.pool,
            pool_size=self.window,
            pool_stride=self.step,
            pool_pad=self.pool_pads,
            pool_avg_param=float(self.factor),
            actfunc=self.act,
            actfunc_param=float(self.slope),
            rectifi_en=int(self.absolute),
            lrn=0x503 if self.lrn else 0,
        )

    def convolved(self, x: Array) -> Array:
        assert self.bias is not None
        weights, (sx, sy) = self.values.astype(np.float64), self.stride
        if self.kind & 4:
            spread = np.zeros((len(x), (x.shape[1] - 1) * sy + 1, (x.shape[2] - 1) * sx + 1))
            spread[:, ::sy, ::sx] = x
            x, (sx, sy) = spread, (1, 1)
        seen = windows(padded(x, self.pads, 0), (weights.shape[3], weights.shape[2]), (sx, sy), self.dilations)
        form = "chwyx,cyx->chw" if self.kind & 2 else "chwyx,ocyx->ohw"
        sums = np.einsum(form, seen, weights[:, 0] if self.kind & 2 else weights, optimize=True)
        return sums + self.bias.astype(np.float64)[:, None, None]

    def pooled(self, x: Array) -> Array:
        if self.pool == 4:
            return x.repeat(2, 1).repeat(2, 2)
        if self.pool == 1:
            return windows(padded(x, self.pool_pads, -np.inf), self.window, self.step, (1, 1)).max((3, 4))
        sums = windows(padded(x, self.pool_pads, 0), self.window, self.step, (1, 1)).sum((3, 4))
        return sums * float(np.float16(self.factor))

    def normalized(self, x: Array) -> Array:
        squares = np.pad(x**2, ((2, 2), (0, 0), (0, 0)))
        sums = sum(squares[i : i + len(x)] for i in range(5))
        k = np.clip(np.floor(np.log(np.maximum(sums, 1e-30)) / np.log(4)), 0, 11)
        low, high = 4.0**k, 4.0 ** (k + 1)
        first, last = (1 + 2e-5 * low) ** -0.75, (1 + 2e-5 * high) ** -0.75
        return x * (first + (sums - low) * (last - first) / (high - low))

    def __call__(self, x: Array, added: Array | None = None) -> Array:
        """Return the result before rounding to float16; `added`: contents of eltwise_buf."""
        x = x.astype(np.float64)
        if self.lrn:
            x = self.normalized(x)
        if self.kind:
            x = self.convolved(x)
        if self.pool == 2:
            x = self.pooled(x)
        if added is not None:
            x = x + added
        if self.pool in (1, 4):
            x = self.pooled(x)
        if self.act == 4:
            assert self.slopes is not None
            x = np.where(x > 0, x, self.slopes.astype(np.float64)[:, None, None] * x)
        else:
            x = ACTIVATIONS[self.act](x, float(np.float16(self.slope)))
        return np.abs(x) if self.absolute else x

    def summed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (C, H, W) of the elementwise operand."""
        plain = replace(self, act=0, absolute=False, lrn=False, pool=self.pool if self.pool == 2 else 0)
        return plain(np.zeros(shape)).shape


@dataclass
class Command:
    """A whole command with its own memories, and guards around all outputs."""

    context: dv.Context
    runs: list[Run]
    inputs: Array  # (N, C, H, W), float16
    topo: int | None = None
    adds: bool = False
    added: list[Array] | None = None  # (N, C, H, W) for each run that writes; None: the input
    offset: int = 64  # offset of the input in its memory
    output_offset: int = 128
    transposed: bool = False  # tensors and packed kernels with x innermost
    memories: list[dv.Memory] = field(default_factory=list)

    @property
    def last(self) -> int:
        return 1 << (len(self.runs) - 1) if self.topo is None else self.topo

    def expected(self) -> list[list[Array]]:
        """Return the float16 results of each run that writes, per batch item."""
        results = []
        for n, image in enumerate(self.inputs):
            x, result = image, list[Array]()
            for i, run in enumerate(self.runs):
                writes = bool(self.last >> i & 1)
                extra = None
                if self.adds and writes:
                    extra = (
                        image.astype(np.float64)
                        if self.added is None
                        else self.added[len(result)][n].astype(np.float64)
                    )
                with np.errstate(over="ignore"):
                    y = run(x, extra).astype(np.float16)
                if writes:
                    result.append(y)
                x = image if writes else y
            results.append(result)
        return results

    def memory(self, values: Array | bytes, offset: int = 0, room: int = 0) -> dv.Memory:
        data = np.frombuffer(values, np.uint8) if isinstance(values, bytes) else values.view(np.uint8)
        memory = dv.Memory(self.context, offset + data.nbytes + room)
        memory.write(data, offset)
        self.memories.append(memory)
        return memory

    def flat(self, x: Array) -> Array:
        return to_whc8(x.transpose(0, 2, 1) if self.transposed else x)

    def tensor(self, flat: Array, c: int, h: int, w: int) -> Array:
        return from_whc8(flat, c, w, h).transpose(0, 2, 1) if self.transposed else from_whc8(flat, c, h, w)

    def raw(self) -> dv.Conv:
        n, c, h, w = self.inputs.shape
        flat = np.concatenate([self.flat(image) for image in self.inputs])
        source = self.memory(flat, self.offset)
        sizes = [sum(y.size for y in image) for image in self.expected()]
        guarded = np.full(sum(sizes) + self.output_offset // 2 + 64, 0x7E55, np.uint16)
        self.target = self.memory(guarded)
        runs, channels = [], c
        for i, run in enumerate(self.runs):
            location = None if run.weights is None else (self.memory(run.packed(self.transposed)), 0)
            runs.append(run.raw(location, channels))
            channels = c if self.last >> i & 1 else (channels if run.weights is None else len(run.weights))
        extra = None
        if self.adds and self.added is not None:
            parts = [self.flat(addend[k]) for k in range(n) for addend in self.added]
            extra = self.memory(np.concatenate(parts))
        return dv.Conv(
            input_buf=source + self.offset,
            output_buf=self.target + self.output_offset,
            eltwise_buf=extra,
            topo=self.topo,
            w=w,
            h=h,
            c=c,
            input_circular_offset=n | (dv.WEIGHTS_TRANSPOSED if self.transposed else 0),
            output_mode=int(self.adds),
            run=runs,
        )

    def check(self, ulps: int = 1) -> None:
        """Run the command; compare its outputs and the guards around them."""
        with dv.CommandList(self.context) as commands:
            commands.add(self.raw())
            commands.commit()
            commands.run(timeout=60)
        self.compare(ulps)

    def compare(self, ulps: int = 1) -> None:
        at = self.output_offset // 2
        everything = self.target.read(np.uint16, self.target.size // 2)
        for n, image in enumerate(self.expected()):
            for i, expected in enumerate(image):
                actual = self.tensor(everything[at : at + expected.size].view(np.float16), *expected.shape)
                distance = np.where(
                    np.isnan(actual) & np.isnan(expected), 0, np.abs(ordered(actual) - ordered(expected))
                )
                if ulps and np.isfinite(expected).all() and np.isfinite(actual).all():
                    off = np.abs(actual.astype(np.float64) - expected)
                    distance[off <= CANCELLED * np.abs(expected.astype(np.float64)).max()] = 0
                assert distance.max() <= ulps, (
                    f"image {n}, output {i}: {distance.max()} ulps at {np.unravel_index(distance.argmax(), expected.shape)}, "
                    f"{(distance > ulps).sum()} of {expected.size} wrong\n{actual.ravel()[:8]}\n{expected.ravel()[:8]}"
                )
                at += expected.size
        assert (everything[: self.output_offset // 2] == 0x7E55).all(), "written before the output"
        guards = everything[at : at + 64]
        assert (guards == 0x7E55).all(), "written after the output"


def ordered(x: Array) -> Array:
    """Map float16 to integers in order, with neighbours one apart."""
    bits = x.view(np.uint16).astype(np.int32)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)
