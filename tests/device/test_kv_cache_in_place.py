"""A KV cache is updated in place if nothing else reads its previous contents."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from pumice.testing import assert_close

BATCH, HEADS, PLACES, SIZE = 2, 3, 16, 8


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def step_graph() -> pumice.Graph:
    """One decode step: q, k and v of one token, the caches with the new k and v written, and attention over them."""
    graph = pumice.Graph("step")
    rows = [graph.input(name, "float32", [BATCH, HEADS, 1, SIZE]) for name in ("q", "k", "v")]
    caches = [graph.input(name, "float32", [BATCH, HEADS, PLACES, SIZE]) for name in ("keys", "values")]
    length = graph.input("length", "int64", [BATCH])
    made = [graph.add("TensorScatter", cache, row, length) for cache, row in zip(caches, rows[1:], strict=True)]
    grown = graph.add("Add", length, np.array([1]))
    graph.output("y", graph.add("Attention", rows[0], *made, None, None, None, grown))
    for name, value in zip(("new_keys", "new_values", "grown"), (*made, grown), strict=True):
        graph.output(name, value)
    return graph


def on_device(
    graph: pumice.Graph, context: pumice.Context, arrays: dict[str, np.ndarray], same: dict[str, str]
) -> tuple[pumice.CommandList, dict[str, pumice.Tensor]]:
    """Record a command list with one dispatch; `same`: outputs that are bound to the tensor of an input."""
    program = graph.compile(context)
    compiled = program.compiled([list(array.shape) for array in arrays.values()])
    tensors = {name: pumice.tensor(array, context) for name, array in arrays.items()}
    for desc in program.outputs:
        shape = [int(size) for size in desc.shape]
        tensors[desc.name] = tensors[same[desc.name]] if desc.name in same else pumice.empty(shape, desc.dtype, context)
    table = pumice.BindingTable(compiled)
    table.bind(**tensors)
    needed = compiled.binding_properties
    table.bind_temporary(pumice.Buffer(context, needed.temporary_bytes) if needed.temporary_bytes else None)
    table.bind_persistent(program.persistent if needed.persistent_bytes else None)
    commands = pumice.CommandList(context)
    commands.dispatch(compiled, table)
    return commands, tensors


IN_PLACE = {"new_keys": "keys", "new_values": "values"}


@pytest.mark.parametrize("same", [{}, IN_PLACE, {"new_keys": "keys"}], ids=["apart", "in place", "one of them"])
def test_steps_with_a_cache_give_what_attention_over_all_rows_gives(
    same: dict[str, str], context: pumice.Context
) -> None:
    lengths = np.array([0, 5])
    keys, values = random(BATCH, HEADS, PLACES, SIZE, seed=1), random(BATCH, HEADS, PLACES, SIZE, seed=2)
    rows = {name: random(BATCH, HEADS, 1, SIZE, seed=ord(name)) for name in "qkv"}
    commands, tensors = on_device(
        step_graph(), context, {**rows, "keys": keys, "values": values, "length": lengths}, same
    )
    for copied in ("new_keys", "new_values"):
        if copied not in same:
            commands.copy(tensors[copied], tensors[copied.removeprefix("new_")])
    commands.copy(tensors["grown"], tensors["length"])
    commands.commit()
    for _ in range(3):
        for image, length in enumerate(lengths):
            keys[image, :, length], values[image, :, length] = rows["k"][image, :, 0], rows["v"][image, :, 0]
        lengths += 1
        commands.exec().wait()
        for image, length in enumerate(lengths):
            scores = rows["q"][image] @ keys[image, :, :length].transpose(0, 2, 1) / SIZE**0.5
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            expected = shares / shares.sum(-1, keepdims=True) @ values[image, :, :length]
            assert_close(tensors["y"].numpy()[image], expected.astype("float32"), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(tensors["new_keys"].numpy(), keys)
        np.testing.assert_array_equal(tensors["new_values"].numpy(), values)
        np.testing.assert_array_equal(tensors["length"].numpy(), lengths)


def test_a_cache_in_place_is_not_copied(context: pumice.Context) -> None:
    arrays = {name: random(BATCH, HEADS, 1, SIZE) for name in "qkv"}
    arrays |= {name: random(BATCH, HEADS, PLACES, SIZE) for name in ("keys", "values")}
    arrays["length"] = np.array([0, 5])
    counts = []
    for same in ({}, IN_PLACE):
        commands, _ = on_device(step_graph(), context, arrays, same)
        commands.commit()
        counts.append(commands.dispatches)
    assert counts[0] - counts[1] == 2


def test_a_cache_is_not_changed_where_it_is_read_as_it_was(context: pumice.Context) -> None:
    graph = pumice.Graph("refused")
    arrays = {"cache": random(BATCH, PLACES, SIZE), "row": random(BATCH, 1, SIZE)}
    cache, row = (graph.input(name, "float32", list(array.shape)) for name, array in arrays.items())
    graph.output("new", graph.add("TensorScatter", cache, row))
    graph.output("sum", graph.add("ReduceSum", cache))
    with pytest.raises(pumice.BindingError, match="in place"):
        on_device(graph, context, arrays, {"new": "cache"})
