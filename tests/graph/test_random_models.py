"""Random models of all operators: fused, unfused and node by node, they match ONNX Runtime and the reference."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from onnx import helper

import pumice

pytest.importorskip("onnxruntime", reason="random models are compared with ONNX Runtime, which is not installed")

from random_models import random_model, run_seed
from random_nodes import OPERATORS
from random_nodes.normalized import normalized
from random_nodes.oracle import OneNode

SAMPLE = 8
WHOLE, PARTS = 50_000, 200  # parts of half a minute, to distribute over workers
LEAST_OPERATORS = 120


def failures(context: pumice.Context, seeds: range) -> list[str]:
    return [f"seed {seed}: {text}" for seed in seeds for text in run_seed(seed, context).failures]


def test_random_models_are_right_fused_not_fused_and_node_by_node(context: pumice.Context) -> None:
    found = failures(context, range(SAMPLE))
    assert not found, "\n".join(found)


def test_random_models_reach_the_operators_of_the_table_again_and_again() -> None:
    operators: collections.Counter[str] = collections.Counter()
    for seed in range(200):
        maker, _ = random_model(seed)
        operators.update(made.node.op_type for made in maker.nodes)
    assert sum(count >= 3 for count in operators.values()) >= LEAST_OPERATORS, operators
    assert set(operators) <= set(OPERATORS)
    table = {one.name for one in pumice.operators()}
    assert set(OPERATORS) <= table, sorted(set(OPERATORS) - table)


def test_a_random_model_of_a_seed_is_always_the_same() -> None:
    for seed in range(5):
        one, other = (random_model(seed)[0].model().SerializeToString() for _ in range(2))
        assert one == other


def test_a_variance_that_float32_loses_as_a_difference_is_known_to_the_oracle(context: pumice.Context) -> None:
    """Two elements of a group are 5.644 and 5.651: ONNX's own function body is 0.004 off."""
    assert not failures(context, range(20_060, 20_061))


@pytest.mark.parametrize("seed", [16_907, 40_826])
def test_unique_takes_what_a_map_or_a_split_makes_of_unknown_sizes(context: pumice.Context, seed: int) -> None:
    assert not failures(context, range(seed, seed + 1))


@pytest.mark.parametrize("opset", [18, 21])
def test_a_group_normalization_in_float64_is_that_of_onnx(opset: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 2)).astype("float32")
    numbers = [np.arange(1, 1 + (4 if opset == 21 else 2), dtype="float32") / k for k in (1, 2)]
    operands = [x, *numbers]
    made = OneNode(
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2), ["x", "s", "b"], operands, opset
    )
    got = normalized(made.node, dict(zip(made.names, operands, strict=True)), opset)
    np.testing.assert_allclose(got, made.by_runtime(operands)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_fifty_thousand_random_models_are_right(context: pumice.Context, part: int) -> None:
    each = WHOLE // PARTS
    found = failures(context, range(1000 + part * each, 1000 + (part + 1) * each))
    assert not found, "\n".join(found[:40])
