"""Steps of a wave are independent: run in reverse order, in a separate process, they give the same bits.

Phases of a transposed convolution share a wave and write one result: strides beyond the kernel, groups, dilations,
output padding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from pumice.testing import assert_close

Array = npt.NDArray[Any]
PRECISIONS = ("fp32", "fp16")
SEEDS = range(12)
SAMPLE = SEEDS[:1]  # of the default tier


class Transposed:
    """A random 2D transposed convolution, between convolutions or alone, and the nodes after it."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)

        def pair(low: int, high: int) -> list[int]:
            return [int(one) for one in random.integers(low, high, 2)]

        self.kernel, self.strides, self.dilations = pair(1, 5), pair(1, 5), pair(1, 4)
        self.group, self.each = int(random.choice([1, 1, 2, 4])), int(random.choice([1, 4, 5, 8]))
        self.channels = self.group * int(random.choice([1, 3, 4, 8]))
        self.padding = [int(random.integers(0, max(s, d))) for s, d in zip(self.strides, self.dilations, strict=True)]
        extent = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]
        self.pads = [int(random.integers(0, (e + 1) // 2)) for e in extent * 2]
        self.sizes = pair(4, 12)
        self.follows = str(random.choice(["", "Relu", "Add", "Concat", "Norm"]))
        self.between = bool(random.integers(2))
        self.x = random.standard_normal((2, self.channels, *self.sizes)).astype("float32")
        self.w = random.standard_normal((self.channels, self.each, *self.kernel)).astype("float32") / 4
        self.b = random.standard_normal(self.group * self.each).astype("float32")

    def results(self, context: pumice.Context, precision: str) -> Array:
        graph = pumice.Graph("transposed")
        value = graph.input("x", "float32", list(self.x.shape))
        if self.between:
            value = graph.add("Conv", value, np.eye(self.channels, dtype="float32")[:, :, None, None])
        up = graph.add(
            "ConvTranspose",
            value,
            self.w,
            self.b,
            strides=self.strides,
            dilations=self.dilations,
            group=self.group,
            pads=self.pads,
            output_padding=self.padding,
        )
        if self.follows == "Relu":
            up = graph.add("Relu", up)
        elif self.follows == "Add":
            up = graph.add("Add", graph.add("Sigmoid", up), graph.add("Tanh", up))
        elif self.follows == "Concat":
            up = graph.add("Concat", up, graph.add("Neg", up), axis=1)
        elif self.follows == "Norm":
            ones = np.ones(self.group * self.each, "float32")
            up = graph.add(
                "Add", graph.add("InstanceNormalization", up, ones, self.b, epsilon=0.5), graph.add("Neg", up)
            )
        if self.between and self.follows != "Concat":
            up = graph.add("Conv", up, np.eye(self.group * self.each, dtype="float32")[:, :, None, None])
        graph.output("y", up)
        (made,) = graph.compile(context, precision).call((self.x,))
        return np.asarray(made)

    def transposed(self) -> Array:
        """Compute the transposed convolution: scatter each input element times the kernel."""
        (kh, kw), (sh, sw), (dh, dw) = self.kernel, self.strides, self.dilations
        (h, w), (ph, pw) = self.sizes, self.padding
        whole = np.zeros(
            (2, self.group, self.each, (h - 1) * sh + (kh - 1) * dh + 1 + ph, (w - 1) * sw + (kw - 1) * dw + 1 + pw)
        )
        x = self.x.astype("float64").reshape(2, self.group, -1, h, w)
        weights = self.w.astype("float64").reshape(self.group, -1, self.each, kh, kw)
        for i, j in product(range(kh), range(kw)):
            part = np.einsum("ngchw,gco->ngohw", x, weights[..., i, j])
            whole[..., i * dh : i * dh + (h - 1) * sh + 1 : sh, j * dw : j * dw + (w - 1) * sw + 1 : sw] += part
        top, left, bottom, right = self.pads
        cut = whole[..., top : whole.shape[-2] - bottom, left : whole.shape[-1] - right]
        return np.asarray(cut.reshape(2, -1, *cut.shape[-2:]) + self.b[:, None, None])

    def expected(self) -> Array:
        up = self.transposed()
        if self.follows == "Relu":
            return np.maximum(up, 0)
        if self.follows == "Add":
            return np.asarray(1 / (1 + np.exp(-up)) + np.tanh(up))
        if self.follows == "Concat":
            return np.concatenate([up, -up], 1)
        if self.follows == "Norm":
            distance = up - up.mean((2, 3), keepdims=True)
            return np.asarray(
                distance / np.sqrt((distance**2).mean((2, 3), keepdims=True) + 0.5) + self.b[:, None, None] - up
            )
        return up


def branches(context: pumice.Context, precision: str, seed: int) -> Array:
    """Run a graph with branches that share waves and arena memory."""
    random = np.random.default_rng(seed)
    graph = pumice.Graph("branches")
    values = [graph.input("x", "float32", [1, 8, 12, 12])]
    for _ in range(14):
        x, y = (values[int(random.integers(max(0, len(values) - 5), len(values)))] for _ in "xy")
        kernel = random.standard_normal((8, 8, 3, 3)).astype("float32") / 16
        kind = int(random.integers(4))
        if kind == 0:
            values.append(graph.add("Conv", x, kernel, pads=[1, 1, 1, 1]))
        elif kind == 1:
            up = graph.add("ConvTranspose", x, kernel, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
            values.append(graph.add("MaxPool", up, kernel_shape=[2, 2], strides=[2, 2]))
        elif kind == 2:
            values.append(graph.add("Add", graph.add("Sigmoid", x), y))
        else:
            values.append(
                graph.add("Conv", graph.add("Concat", x, y, axis=1), np.tile(kernel, (1, 2, 1, 1)), pads=[1, 1, 1, 1])
            )
    graph.output("y", graph.add("Sum", *values[-5:]))
    (made,) = graph.compile(context, precision).call((random.standard_normal((1, 8, 12, 12)).astype("float32"),))
    return np.asarray(made)


def devices() -> Iterator[tuple[str, pumice.Context]]:
    """Yield the device, a software device with the GPU kernels, and a device without 16-bit storage."""
    with pumice.Context() as context:
        yield "device", context
        name = f"uuid:{context.info.uuid}"
        if context.info.kind == "software":
            with pumice.Context(name, without=["subgroupShuffle"]) as made:
                yield "gpu", made
        with pumice.Context(name, without=["storageBuffer16BitAccess"]) as made:
            yield "words", made


def all_results(seeds: range) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for name, context in devices():
        for precision in PRECISIONS:
            for seed in seeds:
                made[f"{name} {precision} transposed {seed}"] = Transposed(seed).results(context, precision)
            for seed in seeds[:3]:
                made[f"{name} {precision} branches {seed}"] = branches(context, precision, seed)
    return made


@pytest.fixture(scope="module", params=[SAMPLE, pytest.param(SEEDS, marks=pytest.mark.slow)], ids=["sample", "all"])
def in_order(request: pytest.FixtureRequest) -> tuple[range, dict[str, Array]]:
    """Return the seeds and the results of their graphs."""
    return request.param, all_results(request.param)


def test_waves_run_the_other_way_round_give_the_same_bits(
    in_order: tuple[range, dict[str, Array]], tmp_path: Path
) -> None:
    seeds, expected = in_order
    made = tmp_path / "made.npz"
    environment = {**os.environ, "PUMICE_FAULT": "reversed"}
    subprocess.run([sys.executable, __file__, str(made), str(len(seeds))], env=environment, check=True)
    with np.load(made) as other:
        assert sorted(other) == sorted(expected)
        apart = [name for name in expected if expected[name].tobytes() != other[name].tobytes()]
    assert apart == []


def test_phases_of_random_transposed_convolutions(in_order: tuple[range, dict[str, Array]]) -> None:
    seeds, results = in_order
    for seed in seeds:
        expected = Transposed(seed).expected()
        for name, result in results.items():
            if name.endswith(f" transposed {seed}"):
                tolerance = 3e-2 if "fp16" in name else 5e-5
                assert_close(result, expected, rtol=tolerance, atol=tolerance)


def test_phases_share_a_wave(pumice_context: pumice.Context) -> None:
    """Check that the random graphs have phases without taps, and waves of several steps."""
    cases = [Transposed(seed) for seed in SEEDS]
    assert sum(any(s > k for s, k in zip(one.strides, one.kernel, strict=True)) for one in cases) > 1
    assert sum(one.group > 1 for one in cases) > 1 and sum(max(one.dilations) > 1 for one in cases) > 1
    graph = pumice.Graph()
    up = graph.add(
        "ConvTranspose",
        graph.input("x", "float32", [1, 3, 5, 7]),
        cases[0].w[:1, :1, :1, :1].repeat(3, 0),
        strides=[3, 2],
    )
    graph.output("y", graph.add("Neg", up))
    waves = [step["wave"] for step in graph.compile(pumice_context).plan([[1, 3, 5, 7]]) if "conv" in step["kernel"]]
    assert len(waves) == 6 and len(set(waves)) == 1


if __name__ == "__main__":
    np.savez(sys.argv[1], **all_results(SEEDS[: int(sys.argv[2])]))  # type: ignore[arg-type]
