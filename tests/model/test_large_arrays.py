"""Models with large arrays: `out` arrays, pinned memory, many cases in flight."""

from __future__ import annotations

import gc
import signal
from collections import UserDict
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import pumice
from onnx_models import gemm, model, node, value

ROWS = [0, 1, 7, (4 << 20) // 16 + 1, 3 * (4 << 20) // 16 + 5]  # of 16 bytes: around the chunk size of transfers
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def doubled(staging_device: pumice.Context) -> Iterator[pumice.Model]:
    """x [N, 4] -> x + x and |x|."""
    nodes = [node("Add", ["x", "x"], ["twice"]), node("Abs", ["x"], ["size"])]
    with pumice.load(model(nodes, [value("x")], ["twice", "size"]), staging_device) as loaded_model:
        yield loaded_model


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 4)).astype("float32")


# ---- results written to given arrays


@pytest.mark.parametrize("count", ROWS)
def test_results_go_into_given_arrays(doubled: pumice.Model, count: int) -> None:
    x, twice = rows(count), np.full((count, 4), 7, "float32")
    results = doubled(x, out={"twice": twice})
    assert results.twice is twice
    np.testing.assert_array_equal(twice, x + x)
    np.testing.assert_array_equal(results.size, np.abs(x))
    inside = np.zeros((3, count, 4), "float32")  # a contiguous slice of an array, and an output that aliases the input
    results = doubled(x, out={"size": x, "twice": inside[1]})
    assert results.size is x
    np.testing.assert_array_equal(x, np.abs(rows(count)))
    np.testing.assert_array_equal(inside[1], rows(count) * 2)
    assert not inside[::2].any()


def test_what_cannot_hold_a_result_is_rejected(doubled: pumice.Model) -> None:
    x = rows(5)
    read_only = np.zeros((5, 4), "float32")
    read_only.setflags(write=False)
    base = np.zeros((6, 4), "float32")
    wrong: list[tuple[Any, str]] = [
        ({"z": base[:5]}, "twice, size"),
        (base[:5], "a dict of arrays"),
        ({"twice": [0.0]}, "a NumPy array"),
        ({"twice": np.zeros((5, 4), "float64")}, "float32.*float64"),
        ({"twice": np.zeros((5, 4), ">f4")}, "byte order|endian"),
        ({"twice": np.zeros((4, 5), "float32")}, r"\(4, 5\)"),
        ({"twice": np.zeros((4, 5), "float32").T}, "strided"),
        ({"twice": read_only}, "read-only"),
        ({"twice": base[:5], "size": base[1:]}, "does not overlap"),
    ]
    for out, text in wrong:
        with pytest.raises(pumice.BindingError, match=text):
            doubled(x, out=out)
        assert not base.any()


def test_arrays_without_elements_share_no_memory(staging_device: pumice.Context) -> None:
    nodes = [node("Abs", ["x"], ["y"]), node("Abs", ["e"], ["z"])]
    with pumice.load(model(nodes, [value("x"), value("e", ("M", 4))], ["y", "z"]), staging_device) as loaded_model:
        base = np.zeros((6, 4), "float32")
        results = loaded_model(rows(6), rows(0), out={"y": base, "z": base[3:][:0]})
        assert results.y is base
        np.testing.assert_array_equal(base, np.abs(rows(6)))


def test_results_of_4_bits_come_in_chunks_too(staging_device: pumice.Context) -> None:
    """4-bit results larger than a transfer chunk, unpacked by the host."""
    proto = model([node("Cast", to=onnx.TensorProto.INT4)], opset=21)
    with pumice.load(proto, staging_device) as cast:
        for count in (1, 5 << 17):
            x = (np.arange(count * 4) % 16 - 8).astype("float32").reshape(-1, 4)
            for y in (cast(x), cast.run_async(x).result()):
                assert y.dtype == ml_dtypes.int4
                np.testing.assert_array_equal(y.astype("float32"), x)


def test_one_output_takes_an_array_alone(staging_device: pumice.Context) -> None:
    with pumice.load(model([node("Relu")]), staging_device) as relu:
        x, y = rows(3), np.zeros((3, 4), "float32")
        assert relu(x, out=y) is y
        np.testing.assert_array_equal(y, np.maximum(x, 0))
    with pumice.load(model([node("NonZero")]), staging_device) as places:  # a shape known only after the run
        x = np.eye(4, dtype="float32")
        out = np.zeros((2, 4), "int64")
        assert places(x, out=out) is out
        np.testing.assert_array_equal(out, [range(4), range(4)])
        with pytest.raises(pumice.BindingError, match="shape"):
            places(x, out=np.zeros((2, 5), "int64"))


def test_an_input_named_out_is_an_argument(staging_device: pumice.Context) -> None:
    proto = model([node("Relu", ["out"])], [value("out")])
    with pumice.load(proto, staging_device) as relu:
        np.testing.assert_array_equal(relu(out=rows(3)), np.maximum(rows(3), 0))


def test_tensors_copy_into_given_arrays(staging_device: pumice.Context) -> None:
    x = rows(ROWS[-1])
    tensor, y = pumice.tensor(x, staging_device), np.zeros_like(x)
    assert tensor.numpy(out=y) is y
    np.testing.assert_array_equal(y, x)
    for wrong in (y[:-1], y.astype("int32"), y.T):
        with pytest.raises(pumice.BindingError, match="out"):
            tensor.numpy(out=wrong)


# ---- pinned memory


@pytest.mark.parametrize("count", ROWS)
def test_arrays_in_pinned_memory_are_arrays(doubled: pumice.Model, staging_device: pumice.Context, count: int) -> None:
    x = pumice.empty_host((count + 2, 4), "float32", staging_device)
    x[:] = rows(count + 2)
    outs = {name: pumice.empty_host((count, 4), "float32", staging_device) for name in ("twice", "size")}
    for part in (x[2:], x[1:-1]):
        results = doubled(part, out=outs)
        np.testing.assert_array_equal(results.twice, part * 2)
        np.testing.assert_array_equal(outs["size"], np.abs(part))
        array, run = part.copy(), doubled.run_async(part)
        part[:] = 1  # after run_async, the caller may overwrite the argument
        np.testing.assert_array_equal(run.result().twice, array * 2)
        tensor = pumice.tensor(part, staging_device)
        assert tensor.numpy(out=outs["twice"]) is outs["twice"]
        np.testing.assert_array_equal(outs["twice"], part)


def test_pinned_memory_lives_as_long_as_its_arrays(staging_device: pumice.Context) -> None:
    gc.collect()
    before = staging_device.memory.buffers
    x = pumice.empty_host((1 << 20, 4), "float32", staging_device)
    assert staging_device.memory.buffers == before + 1
    view = x[5:, 1]
    view[:] = 3
    del x
    gc.collect()
    assert staging_device.memory.buffers == before + 1
    assert (view == 3).all()
    del view
    gc.collect()
    assert staging_device.memory.buffers == before
    assert pumice.empty_host(0, "int8", staging_device).shape == (0,)
    with pytest.raises(pumice.UnsupportedError, match="int4"):
        pumice.empty_host(8, "int4", staging_device)


def test_a_model_lets_go_of_pinned_arrays(doubled: pumice.Model, staging_device: pumice.Context) -> None:
    x = rows(ROWS[-1])
    doubled(x)
    gc.collect()
    before = staging_device.memory.buffers
    array, out = (pumice.empty_host(x.shape, "float32", staging_device) for _ in range(2))
    array[:] = x
    doubled(array, out={"twice": out})
    assert staging_device.memory.buffers == before + 2
    np.testing.assert_array_equal(out, x + x)
    del array, out
    staging_device.wait_idle()
    pumice.empty(1, "float32", staging_device)  # an allocation frees what the device has finished with
    gc.collect()
    assert staging_device.memory.buffers == before


def test_a_chunk_that_is_not_a_multiple_of_words(staging_device: pumice.Context) -> None:
    """Downloads into pinned memory write only the bytes of their range."""
    host = pumice.empty_host(6 << 20, "uint8", staging_device)
    host[:] = 9
    array = np.arange((5 << 20) + 3, dtype="uint32").astype("uint8")
    part = host[1 : 1 + array.size]
    pumice.tensor(array, staging_device).numpy(out=part)
    np.testing.assert_array_equal(part, array)
    assert host[0] == 9
    assert (host[1 + array.size :] == 9).all()


# ---- many cases in flight


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [3, ROWS[-1]])
def test_a_map_gives_what_calls_give(doubled: pumice.Model, count: int, depth: int) -> None:
    cases = [rows(count + i % 2, i) for i in range(6)]
    results = list(doubled.map(cases, depth))
    assert len(results) == 6
    for x, y in zip(cases, results, strict=True):
        plain = doubled(x)
        np.testing.assert_array_equal(y.twice, plain.twice)
        np.testing.assert_array_equal(y.size, plain.size)


def test_cases_are_arrays_tuples_and_dicts(doubled: pumice.Model) -> None:
    for case in (rows(3), (rows(3),), {"x": rows(3)}):
        (result,) = doubled.map([case])
        np.testing.assert_array_equal(result.twice, rows(3) * 2)
    assert list(doubled.map([])) == []


def test_one_array_may_be_filled_again_and_again(doubled: pumice.Model, staging_device: pumice.Context) -> None:
    """The case generator may reuse one array for all cases, pinned or not."""
    for x in (rows(ROWS[-1]), pumice.empty_host((ROWS[-1], 4), "float32", staging_device)):

        def cases(x: Array = x) -> Iterator[Array]:
            for i in range(5):
                x[:] = i
                yield x

        for i, result in enumerate(doubled.map(cases(), depth=3)):
            assert (result.twice == 2 * i).all()


def test_errors_come_in_their_case_s_place(doubled: pumice.Model) -> None:
    def broken() -> Iterator[Array]:
        yield rows(2)
        yield rows(2)
        raise ValueError("no more")

    for cases, error, text in (
        ([rows(2), rows(2), rows(2).astype("float64"), rows(2)], pumice.BindingError, "float64"),
        (broken(), ValueError, "no more"),
    ):
        results = doubled.map(cases, depth=3)
        for _ in range(2):
            np.testing.assert_array_equal(next(results).twice, rows(2) * 2)
        with pytest.raises(error, match=text):
            next(results)
        assert list(results) == []

    class Ended(UserDict[str, Array]):
        def keys(self) -> Any:
            raise StopIteration  # does not end the cases

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(doubled.map([rows(2), Ended(), rows(2)]))
    for depth in (0, 9, 1.5, True):
        with pytest.raises(pumice.Error, match="depth"):
            doubled.map([], depth)  # type: ignore[arg-type]


def test_a_map_closed_early_leaves_nothing(staging_device: pumice.Context) -> None:
    gc.collect()
    before = staging_device.memory.buffers
    with pumice.load(gemm(), staging_device) as loaded:
        loaded(rows(4))
        for taken in (0, 1, 3):
            results = loaded.map((rows(4, i) for i in range(10)), depth=4)
            for _ in range(taken):
                next(results)
            results.close()  # type: ignore[attr-defined]
        runs = [loaded.run_async(rows(4)) for _ in range(8)]  # the maximum in flight
        for run in runs:
            run.wait()
        del runs, run
    gc.collect()
    assert staging_device.memory.buffers == before


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_signals_in_calls_leave_the_model_usable(doubled: pumice.Model) -> None:
    """Work submitted by an interrupted call finishes before its memory is reused."""

    class Rung(Exception):
        pass

    def ring(*_: object) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    array = [rows(ROWS[-1], seed) for seed in range(3)]
    try:
        for turn in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.003 * (turn % 7 + 1))
                while True:
                    for x in array:
                        doubled(x)
                    for _ in doubled.map(array):
                        pass
            except Rung:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            x = array[turn % 3]
            np.testing.assert_array_equal(doubled(x).twice, x * 2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
