"""Tests of Model calls: arguments, results, error messages, lifetimes."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import gemm, model, node, value

FLOAT = np.float32


@pytest.fixture
def loaded(context: pumice.Context) -> Iterator[pumice.Model]:
    with pumice.load(gemm(), context) as loaded_model:
        yield loaded_model


@pytest.fixture
def pair(context: pumice.Context) -> Iterator[pumice.Model]:
    """a [N, 4] + b [N, 4], and an output whose name is not an identifier."""
    proto = model([node("Add", ["a", "b.in"], ["sum:0"])], [value("a"), value("b.in")], ["sum:0"])
    with pumice.load(proto, context) as loaded_model:
        yield loaded_model


def x(rows: int = 5) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(2).standard_normal((rows, 4)).astype(FLOAT)


def reference(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from onnx import numpy_helper

    w, b = (numpy_helper.to_array(tensor) for tensor in gemm().graph.initializer)
    return rows @ w + b


def test_several_outputs_by_position_name_and_attribute(loaded: pumice.Model) -> None:
    results = loaded(x())
    np.testing.assert_allclose(results["sum"], reference(x()), rtol=1e-5)
    np.testing.assert_array_equal(results.y, np.maximum(results.sum, 0))
    y, total = results
    assert y is results[0] is results["y"]
    assert total is results[-1]
    assert len(results[:1]) == 1
    assert list(results._asdict()) == ["y", "sum"]
    with pytest.raises(KeyError, match="'z'; available: y, sum"):
        results["z"]
    with pytest.raises(AttributeError, match="no output 'z'"):
        _ = results.z
    copy = pickle.loads(pickle.dumps(results))
    np.testing.assert_array_equal(copy["sum"], total)


def test_one_output_is_an_array(pair: pumice.Model) -> None:
    result = pair(x(), x())
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, x() + x())


def test_inputs_by_name_in_any_order_and_mixed(pair: pumice.Model) -> None:
    a, b = x(), x()[::-1]
    expected = pair(a, b)
    np.testing.assert_array_equal(pair(**{"b.in": b, "a": a}), expected)
    np.testing.assert_array_equal(pair(a, **{"b.in": b}), expected)


def test_any_strides_arrive_right(pair: pumice.Model) -> None:
    base = np.arange(80, dtype=FLOAT).reshape(8, 10)
    for view in (base[::2, 1:5], base[::-2, 8:0:-2], base.T[:4, :4].T, np.broadcast_to(base[0, :4], (3, 4))):
        np.testing.assert_array_equal(pair(view, view), view + view)
    read_only = x()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(pair(read_only, read_only), x() + x())


def test_results_stay_after_the_next_call(pair: pumice.Model) -> None:
    first = pair(x(), x())
    kept = first.copy()
    pair(x() + 1, x())
    np.testing.assert_array_equal(first, kept)


def test_every_batch_size_is_right(loaded: pumice.Model) -> None:
    for rows in (1, 7, 64, 3, 1):
        np.testing.assert_allclose(loaded(x(rows))["sum"], reference(x(rows)), rtol=1e-5, atol=1e-6)


def test_tensors_are_taken_as_inputs(pair: pumice.Model, context: pumice.Context) -> None:
    np.testing.assert_array_equal(pair(pumice.tensor(x(), context), x()), x() + x())


WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, str, str]] = {
    # Each key names the error; the values are (positional, keyword arguments, rule, input, message).
    "float64": (
        (x().astype(np.float64), x()),
        {},
        "K5",
        "a",
        r'expected an array of float32; given float64.*\.astype\("float32"\)',
    ),
    "integers": ((x().astype(np.int32), x()), {}, "K5", "a", "given int32"),
    "big endian": ((x().astype(">f4"), x()), {}, "K5", "a", ">f4"),
    "a list": (([[1.0, 2, 3, 4]], x()), {}, "K5", "a", "float32; given float64"),
    "a ragged list": (([[1.0], [2.0, 3.0]], x()), {}, "K5", "a", "given list"),
    "None": ((None, x()), {}, "K5", "a", "given NoneType"),
    "rank": ((x()[0], x()), {}, "K10", "a", r"shape \[N, 4\]; given shape \[4\]"),
    "size": ((x(), x()[:, :3]), {}, "K10", "b.in", r"shape \[N, 4\]; given shape \[5, 3\]"),
    "symbolic size": ((x(5), x(6)), {}, "K10", "b.in", r"N = 5 as in 'a'; given shape \[6, 4\]"),
    "missing": ((x(),), {}, "K3", "b.in", r"an array \(b\.in: float32\[N, 4\]\); given nothing"),
    "too many": ((x(), x(), x()), {}, "K4", "", r"expected 2 \(a, b\.in\); given 3"),
    "unknown name": ((x(), x()), {"ghost": x()}, "K4", "ghost", "one of the inputs a, b.in; given 'ghost'"),
    "twice": ((x(),), {"a": x()}, "K4", "a", "one by position and one by name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_and_the_model_goes_on(pair: pumice.Model, case: str) -> None:
    given, by_name, rule, name, text = WRONG[case]
    for call in (pair, pair.run_async):
        with pytest.raises(pumice.BindingError, match=text) as caught:
            call(*given, **by_name)
        assert (caught.value.rule, caught.value.tensor) == (rule, name)
        assert isinstance(caught.value, ValueError)
    np.testing.assert_array_equal(pair(x(), x()), x() + x())


def test_what_a_model_says_of_itself(loaded: pumice.Model, context: pumice.Context) -> None:
    assert [(v.name, v.dtype, v.shape) for v in loaded.inputs] == [("x", np.dtype("float32"), ("N", 4))]
    assert [v.name for v in loaded.outputs] == ["y", "sum"]
    assert "x: float32[N, 4]" in repr(loaded)
    report = loaded.report()
    assert {row["node"] for row in report} == {"gemm.sum", "relu.y"}
    assert context.info.name in str(report)
    assert "Gemm" in str(report)


def test_declared_names_of_output_sizes_are_kept(context: pumice.Context) -> None:
    proto = model([node("Relu")], [value("x", ["N", "W"])])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "W_out"]))
    with pumice.load(proto, context) as loaded_model:
        shape = loaded_model.outputs[0].shape
        assert shape is not None
        assert shape[0] == "N"
        assert isinstance(shape[1], str)


def test_asynchronous_runs(loaded: pumice.Model) -> None:
    runs = [loaded.run_async(x(rows)) for rows in (3, 4, 3)]
    for run, rows in zip(runs, (3, 4, 3), strict=True):
        np.testing.assert_array_equal(run.result(timeout=60)["sum"], loaded(x(rows))["sum"])
        run.wait(timeout=1)
        assert run.done


def test_a_closed_model_says_so(context: pumice.Context) -> None:
    loaded_model = pumice.load(gemm(), context)
    loaded_model(x())
    loaded_model.close()
    loaded_model.close()
    assert loaded_model.closed
    for call in (loaded_model, loaded_model.run_async):
        with pytest.raises(pumice.StateError, match="model 'small' is closed"):
            call(x())
    with pytest.raises(pumice.StateError, match="closed"):
        loaded_model.report()


def test_closed_and_dropped_models_free_their_memory(context: pumice.Context) -> None:
    gc.collect()
    before = context.memory.buffers
    for _ in range(3):
        with pumice.load(gemm(), context) as loaded_model:
            loaded_model(x())
        pumice.load(gemm(), context)(x())
    del loaded_model
    gc.collect()
    assert context.memory.buffers == before


def test_an_unknown_precision_is_named(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="fp12"):
        pumice.load(gemm(), context, "fp12")


def test_the_default_context_is_made_once_and_again_after_it_was_closed() -> None:
    with pumice.load(gemm()) as one, pumice.load(gemm()) as two:
        assert one.context is two.context is pumice.default_context()


def test_a_model_comes_through_a_pipe(context: pumice.Context, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model")
    writer = threading.Thread(target=(tmp_path / "model").write_bytes, args=(gemm().SerializeToString(),))
    writer.start()
    with pumice.load(tmp_path / "model", context) as loaded_model:
        writer.join()
        np.testing.assert_allclose(loaded_model(x())["sum"], reference(x()), rtol=1e-5)


def test_the_file_may_be_gone_once_the_model_is_loaded(context: pumice.Context, tmp_path: Path) -> None:
    path = tmp_path / "gemm.onnx"
    path.write_bytes(gemm().SerializeToString())
    with pumice.load(path, context) as loaded_model:
        path.unlink()
        np.testing.assert_allclose(loaded_model(x())["sum"], reference(x()), rtol=1e-5)


@pytest.mark.parametrize("fuse", [None, 2, "epilogue", [3], {"epilogue": 1}, np.False_])
def test_what_is_no_choice_of_fusions_is_rejected(fuse: Any, context: pumice.Context) -> None:
    with pytest.raises(pumice.BindingError, match="fuse '.*': expected True, False or a list of names; given"):
        pumice.load(gemm(), context, fuse=fuse)


def test_fusions_may_come_as_a_tuple_or_a_set(context: pumice.Context) -> None:
    expected = pumice.load(gemm(), context)(x())
    for fuse in (("epilogue",), {"epilogue"}, frozenset(["epilogue"]), [], set(), False):
        np.testing.assert_allclose(pumice.load(gemm(), context, fuse=fuse)(x()), expected, rtol=1e-5)


def test_a_model_that_is_loaded_again_keeps_how_it_was_loaded(context: pumice.Context) -> None:
    """An out-of-range index raises in the reloaded model as in the first, also at another precision."""
    inputs = [value("x", [3, 2]), value("i", [1], TensorProto.INT64)]
    proto = model([node("Gather", ["x", "i"], ["y"])], inputs, ["y"], {})
    first = pumice.load(proto, context, check_indices=True)
    for item in (first, first.loaded_again(), first.loaded_again(precision="fp16")):
        with pytest.raises(pumice.IndexRangeError):
            item(np.ones((3, 2), "float32"), np.array([7]))
