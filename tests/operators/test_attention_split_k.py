"""Split-K attention, whose partial results are merged by the last workgroup to finish."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from pumice.testing import assert_close

Array = npt.NDArray[Any]

SIZE, RUNS = 8, 6


@pytest.fixture(scope="module", params=["lanes", "teams"])
def either(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with its default kernels, and with GPU kernels: software devices without shuffles select the GPU form."""
    without = [] if request.param == "lanes" else ["subgroupShuffle"]
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as made:
        yield made


def expected(q: Array, k: Array, v: Array, is_causal: bool) -> Array:
    """Return softmax(q k^T / sqrt(size)) v in float64 for grouped-query heads. With is_causal, row i sees keys 0 to i."""
    group = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(one.astype("float64"), group, axis=1) for one in (k, v))
    scores = q.astype("float64") @ keys.transpose(0, 1, 3, 2) / np.sqrt(SIZE)
    if is_causal:
        rows = np.arange(q.shape[2])[:, None]
        scores = np.where(np.arange(k.shape[2]) <= rows, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray((weights / weights.sum(-1, keepdims=True)) @ values)


def program(
    context: pumice.Context, heads: tuple[int, int], rows: int, keys: int, is_causal: bool = False, then: str = ""
) -> pumice.Program:
    graph = pumice.Graph()
    q = graph.input("q", "float32", [2, heads[0], rows, SIZE])
    k, v = (graph.input(name, "float32", [2, heads[1], keys, SIZE]) for name in "kv")
    made = graph.add("Attention", q, k, v, is_causal=int(is_causal))
    graph.output("y", graph.add(then, made) if then else made)
    return graph.compile(context)


def parts_of(made: pumice.Program, given: tuple[Array, Array, Array]) -> int:
    """Return the number of key splits. Attention must be a single dispatch."""
    (step,) = made.plan([array.shape for array in given])
    assert step["kernel"] == "attention_decode.comp"
    return int(step["groups"][2])


def arrays(heads: tuple[int, int], rows: int, keys: int, seed: int = 0) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    shapes = (2, heads[0], rows, SIZE), (2, heads[1], keys, SIZE), (2, heads[1], keys, SIZE)
    q, k, v = (random.standard_normal(shape).astype("float32") for shape in shapes)
    return q, k, v


@pytest.mark.parametrize("then", ["", "Relu"])
@pytest.mark.parametrize(("heads", "rows"), [((4, 4), 1), ((8, 2), 1), ((6, 2), 3)])
@pytest.mark.parametrize("keys", [300, 30_011])
def test_each_run_gives_the_same_bits_and_they_are_right(
    heads: tuple[int, int], rows: int, keys: int, then: str, context: pumice.Context
) -> None:
    """State left over from a run would show in the next run; runs with other inputs are interleaved."""
    made = program(context, heads, rows, keys, then=then)
    given, others = arrays(heads, rows, keys), arrays(heads, rows, keys, seed=1)
    assert parts_of(made, given) > 1 or keys < 30_000  # subgroups of 8 split long keys only
    wanted = expected(*given, is_causal=False)
    first = made.call(given)[0]
    assert_close(first, np.maximum(wanted, 0) if then else wanted, rtol=1e-4, atol=1e-4)
    for _ in range(RUNS):
        made.call(others)
        np.testing.assert_array_equal(made.call(given)[0], first)


def test_splits_without_visible_keys_are_skipped(context: pumice.Context) -> None:
    """Of 30,011 keys the three rows see one, two and three, all in the first split."""
    given = arrays((4, 2), 3, 30_011)
    wanted = expected(*given, is_causal=True)
    made = program(context, (4, 2), 3, 30_011, is_causal=True)
    for _ in range(2):
        assert_close(made.call(given)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("counts", [(30_011, 7), (0, 4097), (1, 129)])
def test_what_counts_of_a_cache_is_shared_out(counts: tuple[int, int], either: pumice.Context) -> None:
    """Runs alternate between a full and a mostly empty KV cache with the same program."""
    graph = pumice.Graph()
    q = graph.input("q", "float32", [2, 8, 1, SIZE])
    k, v = (graph.input(name, "float32", [2, 2, 30_011, SIZE]) for name in "kv")
    graph.output("y", graph.add("Attention", q, k, v, None, None, None, graph.input("counts", "int64", [2])))
    made, given = graph.compile(either), arrays((8, 2), 1, 30_011)
    wanted = np.zeros((2, 8, 1, SIZE))
    for image, count in enumerate(counts):
        if count:
            q_of, k_of, v_of = (one[image : image + 1] for one in given)
            wanted[image] = expected(q_of, k_of[:, :, :count], v_of[:, :, :count], is_causal=False)[0]
    for _ in range(2):
        made.call((*given, np.array([30_011, 30_011])))
        assert_close(made.call((*given, np.array(counts)))[0], wanted, rtol=1e-4, atol=1e-4)


def test_threads_do_not_mix_their_partial_results(context: pumice.Context) -> None:
    """All threads share the split counters of one program, one run at a time."""
    made = program(context, (8, 2), 1, 30_011)
    cases = [arrays((8, 2), 1, 30_011, seed) for seed in range(4)]
    alone = [made.call(case)[0] for case in cases]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda place: made.call(cases[place % 4])[0], range(24)))
    for place, result in enumerate(together):
        np.testing.assert_array_equal(result, alone[place % 4])


def test_runs_that_are_submitted_behind_each_other_count_one_after_the_other(context: pumice.Context) -> None:
    given, others = arrays((8, 2), 1, 30_011), arrays((8, 2), 1, 30_011, seed=1)
    made = program(context, (8, 2), 1, 30_011)
    wanted = [made.call(case)[0] for case in (given, others)]
    runs = [made.run_async(case) for case in (given, others) * 4]
    for place, run in enumerate(runs):
        np.testing.assert_array_equal(run.result()[0], wanted[place % 2])


def test_two_executions_in_one_list_count_one_after_the_other(context: pumice.Context) -> None:
    cases = [arrays((8, 2), 1, 30_011, seed) for seed in range(2)]
    made = program(context, (8, 2), 1, 30_011)
    wanted = [made.call(case)[0] for case in cases]
    operator = made.compiled([case.shape for case in cases[0]])
    commands, results = pumice.CommandList(context), []
    for case in cases:
        table = pumice.BindingTable(operator)
        results.append(pumice.empty(wanted[0].shape, "float32", context))
        table.bind_inputs([pumice.tensor(one, context) for one in case])
        table.bind_outputs([results[-1]])
        table.bind_temporary(pumice.Buffer(context, operator.binding_properties.temporary_bytes))
        commands.dispatch(operator, table)
    commands.commit()
    for _ in range(RUNS):
        commands.exec().wait()
        for result, right in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result.numpy(), right)


def test_splits_follow_the_number_of_multiprocessors(pumice_context: pumice.Context) -> None:
    """A smaller device is full with fewer workgroups, so that the keys of one head are split less."""
    splits = {}
    for multiprocessors in (4, 16, 64):
        with pumice.Context(
            f"uuid:{pumice_context.info.uuid}",
            without=["subgroupShuffle"],
            limits={"shaderSMCount": multiprocessors},
        ) as context:
            given = arrays((1, 1), 1, 30_000)
            made = program(context, (1, 1), 1, 30_000)
            splits[multiprocessors] = parts_of(made, given)
            assert_close(made.call(given)[0], expected(*given, is_causal=False), rtol=1e-4, atol=1e-4)
    assert splits == {4: 8, 16: 32, 64: 128}
