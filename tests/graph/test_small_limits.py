"""Devices that allow a kernel few storage buffers and little shared memory: 4 buffers with Mesa's PowerVR driver, 8 on a Raspberry Pi 5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pumice
from decoder_folders import STORY
from lesser_devices import MIN_LIMITS, lesser
from tensor_arrays import numbers

BUFFERS = "maxPerStageDescriptorStorageBuffers"


@pytest.fixture(scope="module", params=[4, 8])
def few(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    with lesser(pumice_context, {BUFFERS: request.param}) as context:
        yield context


@contextmanager
def accepted() -> Iterator[None]:
    """Fail a test that is refused for its buffers, which otherwise skips it."""
    try:
        yield
    except pumice.UnsupportedError as error:
        pytest.fail(str(error))


def run(graph: pumice.Graph, inputs: dict[str, Any], context: pumice.Context) -> tuple[Any, dict[str, str]]:
    """Return the output and the fusion of each node. A kernel with too many buffers raises UnsupportedError."""
    with accepted():
        program = graph.compile(context)
        found = program(inputs)["y"]
    return found, {row["node"]: row["fusion"] for row in program.report()}


@pytest.mark.parametrize("count", [4, 5, 8, 9, 20])
@pytest.mark.parametrize("op", ["Sum", "Max"])
def test_variadic_operators_take_turns(op: str, count: int, few: pumice.Context) -> None:
    graph = pumice.Graph()
    inputs = {f"x{i}": numbers(3, 5, seed=i) for i in range(count)}
    graph.output("y", graph.add(op, *(graph.input(name, "float32", [3, 5]) for name in inputs)))
    found, _ = run(graph, inputs, few)
    stacked = np.stack(list(inputs.values()))
    expected = stacked.sum(0, "float64") if op == "Sum" else stacked.max(0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_operators_fuse_as_far_as_buffers_allow(few: pumice.Context) -> None:
    graph = pumice.Graph()
    inputs = {name: numbers(7, 9, seed=seed) for seed, name in enumerate("abcd")}
    a, b, c, d = (graph.input(name, "float32", [7, 9]) for name in inputs)
    graph.output("y", graph.add("Add", graph.add("Mul", a, b, name="ab"), graph.add("Mul", c, d, name="cd"), name="y"))
    found, fusions = run(graph, inputs, few)
    np.testing.assert_allclose(found, inputs["a"] * inputs["b"] + inputs["c"] * inputs["d"], rtol=1e-6, atol=1e-6)
    fused = [fusions[name] == "elementwise" for name in ("ab", "cd")]
    assert fused == ([True, True] if few.limit(BUFFERS) >= 5 else [True, False])


def test_a_residual_needs_a_buffer(few: pumice.Context) -> None:
    graph = pumice.Graph()
    x, w, bias, r = numbers(2, 16), numbers(16, 8, seed=1), numbers(8, seed=2), numbers(2, 8, seed=3)
    product = graph.add("Gemm", graph.input("x", "float32", [2, 16]), w, bias, name="gemm")
    graph.output("y", graph.add("Add", product, graph.input("r", "float32", [2, 8]), name="add"))
    found, fusions = run(graph, {"x": x, "r": r}, few)
    np.testing.assert_allclose(found, x @ w + bias + r, rtol=1e-5, atol=1e-5)
    assert fusions["add"] == ("residual" if few.limit(BUFFERS) >= 5 else "")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_decoder_runs_with_eight_buffers(temperature: float, pumice_context: pumice.Context) -> None:
    pytest.importorskip("tokenizers")
    if pumice_context.limit(BUFFERS) < 8:
        pytest.skip("needs 8 storage buffers per kernel")
    texts = []
    for buffers in (8, 16):
        with lesser(pumice_context, {BUFFERS: buffers}) as context, pumice.text.Generator(STORY, context) as generator:
            options = {"max_tokens": 12, "temperature": temperature, "top_k": 5, "seed": 3}
            with accepted():
                texts.append(generator("Once upon a time", **options))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("channels", "pixels"), [(2, 16), (64, 4), (128, 4)])
def test_group_normalization_keeps_to_little_shared_memory(
    channels: int, pixels: int, pumice_context: pumice.Context
) -> None:
    """Its kernel keeps the factors of all channels of 16 rows; 16 KiB hold those of fewer than 128 channels."""
    graph = pumice.Graph()
    x, scale, bias = numbers(2, 2 * channels, pixels), numbers(2 * channels, seed=1), numbers(2 * channels, seed=2)
    value = graph.input("x", "float32", list(x.shape))
    graph.output("y", graph.add("GroupNormalization", value, scale, bias, num_groups=2))
    with lesser(
        pumice_context,
        MIN_LIMITS | {"maxComputeWorkGroupInvocations": 256, "maxComputeWorkGroupSize_0": 256},
        ["subgroupShuffle"],
    ) as small:
        found, _ = run(graph, {"x": x}, small)
    rows = x.reshape(2, 2, -1).astype("float64")
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    expected = rows.reshape(x.shape) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
