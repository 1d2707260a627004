"""Residuals of InstanceNormalization, computed before or after it: random graphs with known sizes or sizes known only at a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from features import need_limits
from pumice.testing import assert_close

Array = npt.NDArray[Any]
SEEDS = range(24)
EPSILON = 1e-2
TOLERANCE = {"fp32": 5e-5, "fp16": 2e-2}


@pytest.fixture(scope="module", params=["the device's kernels", "kernels of GPUs"])
def chosen(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """Return a context for the device, and one that uses the GPU kernels on a software device."""
    without = ["subgroupShuffle"] if "GPUs" in request.param and pumice_context.info.kind == "software" else []
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as made:
        yield made


def normalised(x: Array, scale: Array, bias: Array) -> Array:
    distance = x - x.mean((2, 3), keepdims=True)
    made = distance / np.sqrt((distance**2).mean((2, 3), keepdims=True) + EPSILON)
    return np.asarray(made * scale[:, None, None] + bias[:, None, None])


class Stages:
    """Blocks of a normalisation and a skip in sequence, as a graph and in float64."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.channels = int(self.random.choice([3, 4, 6, 8, 16]))
        self.free = bool(self.random.integers(2))
        self.images = bool(self.random.integers(2))  # after convolutions, whose results are channels-last
        self.sums: list[str] = []
        self.late = 0

    def one(self, *options: str) -> str:
        return str(self.random.choice(options))

    def numbers(self, *shape: int) -> Array:
        return self.random.standard_normal(shape).astype("float32")

    def made(self, graph: pumice.Graph, x: Any) -> tuple[Any, Any]:
        """Return the input of the normalisation, and its NumPy function."""
        if not self.images:
            return graph.add("Tanh", x), np.tanh
        kernel = (self.numbers(self.channels, self.channels) / np.sqrt(self.channels)).astype("float32")
        return graph.add("Conv", x, kernel[:, :, None, None]), lambda a: np.einsum("nchw,oc->nohw", a, kernel)

    def skip(self, graph: pumice.Graph, x: Any) -> tuple[Any, Any]:
        kind = self.one("itself", "slice", "pool", "softmax")
        if kind == "itself":
            return x, lambda a: a
        if kind == "softmax":
            return graph.add("Softmax", x, axis=1), lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)
        if kind == "pool":
            attributes: dict[str, Any] = {"kernel_shape": [1, 1], "strides": [1, 1]}
            return graph.add("AveragePool", x, **attributes), lambda a: a
        padded = graph.add("Pad", x, np.array([0, 0, 1, 2, 0, 0, 1, 0]), np.array(0.5, "float32"))
        return graph.add("Slice", padded, np.array([1, 2]), np.array([-1, 1 << 40]), np.array([2, 3])), lambda a: a

    def block(self, graph: pumice.Graph, x: Any, number: int) -> tuple[Any, Any]:
        late = bool(self.random.integers(2))
        self.late += late
        scale, bias = self.numbers(self.channels), self.numbers(self.channels)
        if not late:
            beside, beside_of = self.skip(graph, x)
        made, made_of = self.made(graph, x)
        made = graph.add("InstanceNormalization", made, scale, bias, epsilon=EPSILON, name=f"norm{number}")
        if late:
            beside, beside_of = self.skip(graph, x)
        op, after = self.one("Add", "Sub", "Max"), self.one("", "Relu", "Tanh")
        first, second = (made, beside) if self.random.integers(2) else (beside, made)
        swapped = first is beside
        self.sums.append(f"sum{number}")
        y = graph.add(op, first, second, name=self.sums[-1])
        y = graph.add(after, y) if after else y
        of: Any = {"Add": np.add, "Sub": np.subtract, "Max": np.maximum}[op]
        then: Any = {"": lambda a: a, "Relu": lambda a: np.maximum(a, 0), "Tanh": np.tanh}[after]

        def computed(a: Array) -> Array:
            pair = (normalised(made_of(a), scale, bias), beside_of(a))
            return np.asarray(then(of(*(reversed(pair) if swapped else pair))))

        return y, computed

    def program(self, context: pumice.Context, precision: str, shape: list[int]) -> tuple[pumice.Program, Any]:
        graph = pumice.Graph("stages")
        value = graph.input("x", "float32", [None, self.channels, None, None] if self.free else shape)
        steps = []
        if self.images:
            value, computed = self.made(graph, value)
            steps.append(computed)
        for number in range(int(self.random.integers(1, 4))):
            value, computed = self.block(graph, value, number)
            steps.append(computed)
        graph.output("y", value)

        def whole(a: Array) -> Array:
            for step in steps:
                a = step(a)
            return a

        return graph.compile(context, precision), whole

    def shape(self) -> list[int]:
        return [
            int(self.random.integers(1, 4)),
            self.channels,
            *(int(self.random.choice([1, 2, 5, 8, 13, 40])) for _ in "hw"),
        ]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_skips_are_added_by_the_normalisation(seed: int, precision: str, chosen: pumice.Context) -> None:
    stages = Stages(seed)
    shape = stages.shape()
    program, whole = stages.program(chosen, precision, shape)
    for given in [shape] + [stages.shape() for _ in range(3 if stages.free else 0)]:
        x = stages.numbers(*given)
        (y,) = program.call((x,))
        assert_close(y, whole(x.astype("float64")), rtol=TOLERANCE[precision], atol=TOLERANCE[precision])
    need_limits(chosen, maxPerStageDescriptorStorageBuffers=5)  # else the skips are not fused
    rows = {row["node"]: row for row in program.report()}
    for number, name in enumerate(stages.sums):
        assert (rows[name]["note"], rows[name]["fusion"]) == (f"fused into norm{number}", "residual")


def test_seeds_have_skips_of_both_kinds() -> None:
    """Check that the random graphs cover early and late skips, and unknown sizes."""
    late = free = blocks = 0
    for seed in SEEDS:
        stages = Stages(seed)
        graph = pumice.Graph()
        value = graph.input("x", "float32", [None, stages.channels, None, None])
        for number in range(3):
            value, _ = stages.block(graph, value, number)
        late, free, blocks = late + stages.late, free + stages.free, blocks + 3
    assert 0.25 * blocks < late < 0.75 * blocks
    assert 4 < free < len(SEEDS) - 4


def test_sizes_that_broadcast_at_a_call_only(chosen: pumice.Context) -> None:
    """Both tensors have the same rank and unknown sizes; whether these are equal is known when the program is bound."""
    random = np.random.default_rng(0)
    scale, bias = random.standard_normal((2, 4)).astype("float32")
    graph = pumice.Graph()
    x, r = (graph.input(name, "float32", [None, 4, None, None]) for name in "xr")
    norm = graph.add("InstanceNormalization", x, scale, bias, epsilon=EPSILON, name="norm")
    graph.output("y", graph.add("Relu", graph.add("Add", norm, graph.add("Softmax", r, axis=1), name="sum")))
    program = graph.compile(chosen)
    for own, beside in (
        ((2, 5, 7), (2, 5, 7)),
        ((2, 5, 8), (1, 1, 8)),
        ((1, 1, 7), (2, 5, 7)),
        ((2, 4, 1), (1, 1, 6)),
        ((1, 1, 1), (3, 2, 2)),
    ):
        given = [random.standard_normal((n, 4, h, w)).astype("float32") for n, h, w in (own, beside)]
        soft = np.exp(given[1]) / np.exp(given[1]).sum(1, keepdims=True)
        expected = np.maximum(normalised(given[0].astype("float64"), scale, bias) + soft, 0)
        (y,) = program.call(tuple(given))
        assert_close(y, expected, rtol=2e-5, atol=2e-5)
    need_limits(chosen, maxPerStageDescriptorStorageBuffers=5)  # else the sum is not fused
    assert {row["node"]: row["note"] for row in program.report()}["sum"] == "fused into norm"
    with pytest.raises(pumice.GraphError, match=r"'norm': its result \[2, 4, 5, 6\] and "):
        program.call((np.zeros((2, 4, 5, 6), "float32"), np.zeros((3, 4, 5, 6), "float32")))
