"""RoPE fused with the KV cache update: bit-identical to the separate nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pumice
from features import need_limits
from small_programs import of_the_device

PLACES = 9
FIRSTS = (
    -1,
    6,
    100,
    2**31 - 2,
    2**31 + 1,
    2**32 + 3,
    5 * 2**32,
    3 - 2**32,
)  # the low words of some are valid cache rows


def cached(
    graph: pumice.Graph, sizes: tuple[int, int, int, int], room: int, turned: int = 0, interleaved: int = 0
) -> dict[str, np.ndarray]:
    """Add decoder attention with a fused QKV input, and return its inputs."""
    batch, rows, groups, size = sizes
    heads, dtype = 2 * groups, "float32"
    chance = np.random.default_rng(rows)
    arrays = {
        "rows": chance.standard_normal((batch, rows, (heads + 2 * groups) * size)).astype(dtype),
        "past_keys": chance.standard_normal((batch, groups, room, size)).astype(dtype),
        "past_values": chance.standard_normal((batch, groups, room, size)).astype(dtype),
        "places": chance.integers(0, PLACES, (batch, rows)),
        "firsts": chance.integers(0, room - rows + 1, batch),
    }
    given = {name: graph.input(name, str(one.dtype), list(one.shape)) for name, one in arrays.items()}
    given["firsts"] = of_the_device(graph, given["firsts"], "found")  # not a checked input of the call
    apart = graph.add("Reshape", given["rows"], np.array([0, 0, heads + 2 * groups, size]))
    apart = graph.add("Transpose", apart, perm=[0, 2, 1, 3])
    q, k, v = graph.add("Split", apart, np.array([heads, groups, groups]), outputs=3, axis=1)
    angles = chance.uniform(0, 3, (PLACES, (turned or size) // 2))
    tables = [graph.constant(make(angles).astype(dtype)) for make in (np.cos, np.sin)]
    how = {"rotary_embedding_dim": turned, "interleaved": interleaved}
    q, k = (graph.add("RotaryEmbedding", one, *tables, given["places"], **how) for one in (q, k))
    keys = graph.add("TensorScatter", given["past_keys"], k, given["firsts"], axis=2)
    values = graph.add("TensorScatter", given["past_values"], v, given["firsts"], axis=2)
    seen = graph.add("Add", given["firsts"], np.array([rows]))
    graph.output("y", graph.add("Attention", q, keys, values, None, None, None, seen, is_causal=1))
    graph.output("keys", keys)
    graph.output("values", values)
    return arrays


def kernels_of(program: pumice.Program) -> set[str]:
    return {kernel for row in program.report() for kernel in row["kernel"].split(", ") if kernel}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("turned", "interleaved"), [(0, 0), (0, 1), (4, 0), (4, 1)])
def test_the_bits_are_those_of_the_nodes_apart(
    turned: int, interleaved: int, precision: str, context: pumice.Context
) -> None:
    need_limits(context, maxPerStageDescriptorStorageBuffers=10)  # else the nodes are not fused
    for sizes, room in itertools.product([(1, 1, 1, 8), (2, 3, 2, 10), (3, 5, 1, 64)], (5, 8)):
        made = []
        for fuse in (True, False):
            graph = pumice.Graph("cached")
            arrays = cached(graph, sizes, room, turned, interleaved)
            program = graph.compile(context, precision, fuse=fuse)
            made.append(program(arrays))
            assert ("rotary_kv_cache.comp" in str(kernels_of(program))) == fuse
        for name in ("y", "keys", "values"):
            np.testing.assert_array_equal(made[0][name], made[1][name], name)


def test_rows_past_the_end_of_a_cache_are_left_out(context: pumice.Context) -> None:
    """Rows before the start or past the end of the cache are dropped, without side effects."""
    for first in FIRSTS:
        made = []
        for fuse in (True, False):
            graph = pumice.Graph("cached")
            arrays = cached(graph, (1, 3, 1, 8), 8)
            arrays["firsts"][:] = first
            made.append(graph.compile(context, fuse=fuse)(arrays))
        np.testing.assert_array_equal(made[0]["keys"], made[1]["keys"])
        np.testing.assert_array_equal(made[0]["values"], made[1]["values"])
        if first >= 100 or first < -2:
            np.testing.assert_array_equal(made[0]["keys"], arrays["past_keys"])


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_first_rows_are_numbers_of_64_bits(mode: str, context: pumice.Context) -> None:
    """Linear caches drop rows past the end; circular caches wrap around."""
    cache, update = np.zeros((1, 7, 4), np.float32), np.ones((1, 3, 4), np.float32)
    for first in FIRSTS:
        graph = pumice.Graph("scattered")
        given = [graph.input("cache", "float32", [1, 7, 4]), graph.input("update", "float32", [1, 3, 4])]
        firsts = of_the_device(graph, graph.input("firsts", "int64", [1]), "found")
        graph.output("y", graph.add("TensorScatter", *given, firsts, axis=1, mode=mode))
        made = graph.compile(context)({"cache": cache, "update": update, "firsts": np.array([first])})["y"]
        rows = [first + i for i in range(3)]
        expected = {one % 7 for one in rows if one >= 0} if mode == "circular" else set(rows)
        assert set(made[0, :, 0].nonzero()[0]) == expected & set(range(7)), first


def test_a_program_that_checks_indices_keeps_the_nodes_apart(context: pumice.Context) -> None:
    """Checks belong to the nodes that read the indices."""
    graph = pumice.Graph("cached")
    arrays = cached(graph, (1, 3, 1, 8), 8)
    program = graph.compile(context, check_indices=True)
    arrays["firsts"][:] = 7
    with pytest.raises(pumice.Error, match="7"):
        program(arrays)
    assert "rotary_kv_cache.comp" not in str(kernels_of(program))
