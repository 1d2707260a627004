"""Tests of BatchPredictor: splitting into runs, smaller runs when memory is short, use in other engines' workers."""

from __future__ import annotations

import concurrent.futures
import gc
import logging
import multiprocessing
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pumice.demo
import pumice.model.model_runs
from onnx_models import model, node, value
from process import python
from pumice.base.element_types import Array
from pumice.base.errors import InputError
from pumice.model import shared_models

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"


@pytest.fixture(scope="module")
def images() -> Array:
    return (np.load(Path(pumice.demo.DATA) / "holdback.npz")["images"][:23, None] / 16).astype(np.float32)


@pytest.fixture
def device(context: pumice.Context) -> str:
    return f"uuid:{context.info.uuid}"


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the batch size of each run."""
    seen: list[int] = []
    start = pumice.model.model_runs.start_case

    def started(loaded: Any, case: Any, timeout: Any) -> Any:
        seen.append(len(next(iter(case.values()))))
        return start(loaded, case, timeout)

    monkeypatch.setattr(pumice.model.model_runs, "start_case", started)
    return seen


def two_outputs(rows: int | str = "N") -> bytes:
    """total = a + b per row, most = max(a, b); `bias` has no batch axis."""
    nodes = [
        node("Add", ["a", "b"], ["sum"]),
        node("Add", ["sum", "bias"], ["total"]),
        node("Max", ["a", "b"], ["most"]),
    ]
    inputs = [value("a", shape=[rows, 3]), value("b", shape=[rows, 3]), value("bias", shape=[3])]
    return model(nodes, inputs, ["total", "most"]).SerializeToString()


@pytest.mark.parametrize("ragged", ["pad", "rebind"])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 23, 64])
def test_batches_of_any_size_give_what_single_rows_give(
    images: Array, expected: Array, device: str, sizes: list[int], ragged: str, batch_size: int | None
) -> None:
    with pumice.BatchPredictor(DIGITS, device=device, batch_size=batch_size, ragged=ragged) as predictor:
        np.testing.assert_allclose(predictor(images), expected, rtol=1e-5, atol=1e-6)
    full = batch_size or 23
    wanted = [full] * (23 // full) + ([23 % full] if 23 % full else [])
    if ragged == "pad" and batch_size:
        wanted = [full] * len(wanted)
    assert sizes == wanted


def test_batches_are_mapped_in_their_order_and_form(images: Array, expected: Array, device: str) -> None:
    with pumice.BatchPredictor(
        DIGITS, device=device, batch_size=4, columns={"image": "pixels"}, keep=["n"]
    ) as predictor:
        parts = [images[:3], images[3:11], images[11:11], images[11:]]
        np.testing.assert_allclose(np.concatenate([*predictor.map(parts)]), expected, rtol=1e-5, atol=1e-6)
        named = predictor({"pixels": images, "n": np.arange(23), "unused": 1})
    assert sorted(named) == ["n", predictor_output()]
    np.testing.assert_array_equal(named["n"], np.arange(23))
    np.testing.assert_allclose(named[predictor_output()], expected, rtol=1e-5, atol=1e-6)


def predictor_output() -> str:
    return str(onnx.load(DIGITS).graph.output[0].name)


@pytest.mark.parametrize("rows", ["N", 4])
def test_several_inputs_and_outputs_and_one_input_without_rows(device: str, rows: int | str) -> None:
    a, b = np.arange(21, dtype=np.float32).reshape(7, 3), np.full((7, 3), 9, np.float32)
    bias = np.array([0, 100, 200], np.float32)
    source = two_outputs(rows)
    if rows == 4:  # fixed batch size: `bias` does not have it, so its batch axis is declared as absent
        source = model(
            [node("Add", ["a", "b"], ["total"])], [value("a", shape=[4, 3]), value("b", shape=[4, 3])], ["total"]
        ).SerializeToString()
        with pumice.BatchPredictor(source, device=device) as predictor:
            np.testing.assert_array_equal(predictor(a, b), a + b)
            np.testing.assert_array_equal(predictor(a[:0], b[:0]), np.zeros((0, 3), np.float32))
        return
    with pumice.BatchPredictor(source, device=device, batch_size=3) as predictor:
        total, most = predictor(a, b, bias)
        np.testing.assert_array_equal(total, a + b + bias)
        np.testing.assert_array_equal(most, np.maximum(a, b))
        assert predictor(a, b, bias).most.shape == (7, 3)
        predict = predictor.make_predict_fn()
        assert sorted(predict(a, b, bias)) == ["most", "total"]
    with pumice.BatchPredictor(source, device=device, named=True) as predictor:
        assert sorted(predictor(a, b, bias)) == ["most", "total"]


def test_a_batch_without_rows_gives_results_without_rows(images: Array, device: str) -> None:
    with pumice.BatchPredictor(DIGITS, device=device, batch_size=4) as predictor:
        assert predictor(images[:0]).shape == (0, 10)
    with pumice.BatchPredictor(DIGITS, device=device, ragged="rebind") as predictor:
        assert predictor(images[:0]).shape == (0, 10)


# ---- errors

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "ragged": (lambda: pumice.BatchPredictor(DIGITS, ragged="drop"), pumice.Error, "ragged must be 'pad' or 'rebind'"),
    "size": (
        lambda: pumice.BatchPredictor(DIGITS, batch_size=0),
        pumice.Error,
        "batch_size must be a positive number of rows",
    ),
    "precision": (lambda: pumice.BatchPredictor(DIGITS, precision="fp8"), pumice.Error, "fp8"),
    "option": (lambda: pumice.BatchPredictor(DIGITS, contxt=1), pumice.BindingError, "'contxt'"),
    "path": (lambda: pumice.BatchPredictor("gone.onnx"), FileNotFoundError, "gone.onnx"),
    "depth": (lambda: pumice.BatchPredictor(DIGITS, depth=9), InputError, "depth must be a number of runs from 1 to 8"),
    "no depth": (lambda: pumice.BatchPredictor(DIGITS, depth=True), InputError, "depth must be a number of runs"),
    "source": (lambda: pumice.BatchPredictor(5), TypeError, "not int"),  # type: ignore[arg-type]
    "kernels": (
        lambda: pumice.BatchPredictor(DIGITS, kernels={"my.domain::Op": "void main() {}"}),
        *(pumice.BindingError, "it contains functions of this process, which workers do not have"),
    ),
    "operators": (
        lambda: pumice.BatchPredictor(DIGITS, operators=[]),
        *(pumice.BindingError, "expected one of device, precision, batch_size, ragged, columns, keep, named, depth"),
    ),
    "context": (lambda: pumice.BatchPredictor(DIGITS, context=None), pumice.BindingError, "device= names the device"),
    "columns": (
        lambda: pumice.BatchPredictor(DIGITS, columns={"imgae": "pixels"})(np.zeros((1, 1, 8, 8), np.float32)),
        *(pumice.BindingError, "argument 'columns': expected names of inputs (image); given 'imgae'"),
    ),
    "columns' form": (
        lambda: pumice.BatchPredictor(DIGITS, columns=["pixels"]),  # type: ignore[arg-type]
        *(InputError, "columns must be a dict of columns by input; given list"),
    ),
    "kept output": (
        lambda: pumice.BatchPredictor(DIGITS, keep=["probabilities"])(np.zeros((1, 1, 8, 8), np.float32)),
        *(pumice.BindingError, "expected columns that are not outputs (probabilities); given 'probabilities'"),
    ),
    "kept text": (lambda: pumice.BatchPredictor(DIGITS, keep="id"), InputError, "keep must be a list of column names"),
    "kept of arrays": (
        lambda: pumice.BatchPredictor(DIGITS, keep=["n"], named=True)(np.zeros((1, 1, 8, 8), np.float32)),
        *(pumice.BindingError, "a dict of columns, since keep= names n"),
    ),
    "column": (lambda: pumice.BatchPredictor(DIGITS)({"picture": 1}), pumice.BindingError, "a column 'image'"),
    "count": (lambda: pumice.BatchPredictor(DIGITS)(1, 2), pumice.BindingError, "1 (image)"),
    "keep": (
        lambda: pumice.BatchPredictor(DIGITS, keep=["n"])({"image": np.zeros((1, 1, 8, 8), np.float32)}),
        *(pumice.BindingError, "column 'n'"),
    ),
    "shape": (lambda: pumice.BatchPredictor(DIGITS)(np.zeros((2, 8, 8), np.float32)), pumice.BindingError, "image"),
    "scalar": (lambda: pumice.BatchPredictor(DIGITS)(np.float32(1)), pumice.BindingError, "an axis of rows"),
    "rows": (
        lambda: pumice.BatchPredictor(two_outputs())(np.zeros((2, 3), "f4"), np.zeros((3, 3), "f4"), np.zeros(3, "f4")),
        *(pumice.BindingError, "2 rows, as in 'a'"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_rejected(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


def test_an_output_without_rows_is_rejected(device: str) -> None:
    proto = model([node("ReduceSum", ["a"], ["total"], keepdims=0)], [value("a", shape=["N", 3])], ["total"])
    with (
        pumice.BatchPredictor(proto, device=device) as predictor,
        pytest.raises(pumice.BindingError, match="output 'total'.*rows along the first axis"),
    ):
        predictor(np.zeros((2, 3), np.float32))


NO_ROWS = {
    "mean": ([node("ReduceMean", axes=[0], keepdims=1)], ["N", 3], (1, 3)),
    "turned": ([node("Transpose", perm=[1, 0])], ["N", 3], (1, 3)),
    "fixed": ([node("ReduceMean", axes=[0], keepdims=1)], [4, 3], (4, 3)),
    "sequence": ([node("SequenceConstruct", ["x", "x"])], ["N", 3], (1, 3)),
    "named": ([node("Transpose", perm=[1, 0])], ["N", "M"], (1, 1)),
}


@pytest.mark.parametrize("name", NO_ROWS)
def test_an_output_that_is_known_to_have_no_rows_is_rejected_before_a_run(
    device: str, sizes: list[int], name: str
) -> None:
    nodes, shape, given = NO_ROWS[name]
    proto = model(nodes, [value("x", shape=shape)])
    if name == "named":
        proto.graph.output[0].CopyFrom(value("y", shape=["M", "N"]))
    with (
        pumice.BatchPredictor(proto, device=device) as predictor,
        pytest.raises(pumice.BindingError, match="output 'y'.*rows along the first axis"),
    ):
        predictor(np.zeros(given, np.float32))
    assert sizes == []


def test_one_row_that_the_file_fixes_is_a_row(device: str) -> None:
    proto = model([node("ReduceMean", axes=[0], keepdims=1)], [value("x", shape=[1, 3])])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pumice.BatchPredictor(proto, device=device) as predictor:
        np.testing.assert_array_equal(predictor(x), x)


def test_an_error_of_the_batch_source_is_raised_in_order(images: Array, device: str) -> None:
    def batches() -> Iterator[Array]:
        yield images[:3]
        raise KeyError("no more")

    with pumice.BatchPredictor(DIGITS, device=device) as predictor:
        results = predictor.map(batches())
        assert next(results).shape == (3, 10)
        with pytest.raises(KeyError, match="no more"):
            next(results)
        assert predictor(images[:2]).shape == (2, 10)


# ---- memory


def test_runs_are_halved_where_memory_is_short_and_nothing_is_lost(
    images: Array, expected: Array, device: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = pumice.model.model_runs.start_case
    refused: list[int] = []

    def started(loaded: Any, case: Any, timeout: Any) -> Any:
        rows = len(next(iter(case.values())))
        if rows > 3:
            refused.append(rows)
            raise pumice.OutOfMemoryError(f"no room for {rows} rows")
        return start(loaded, case, timeout)

    monkeypatch.setattr(pumice.model.model_runs, "start_case", started)
    with caplog.at_level(logging.WARNING, "pumice"), pumice.BatchPredictor(DIGITS, device=device) as predictor:
        first = predictor.model
        results = np.concatenate([*predictor.map([images[:2], images[2:18], images[18:]])])
        np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e-6)
        assert predictor.batch_size == 2
        assert predictor.model is not first  # memory of the larger runs was released
        assert [note.split(" (")[0] for note in predictor.notes] == [
            f"a run of {rows} rows does not fit the device's memory" for rows in (16, 8, 4)
        ]
        assert "no room for 16 rows" in predictor.notes[0]
    assert refused[0] == 16
    assert sum("runs have at most" in record.message for record in caplog.records) == 3


def test_one_row_without_memory_and_a_fixed_number_of_rows_raise(
    images: Array, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: Any) -> Any:
        raise pumice.OutOfMemoryError("no room")

    monkeypatch.setattr(pumice.model.model_runs, "start_case", started)
    with pumice.BatchPredictor(DIGITS, device=device) as predictor:
        with pytest.raises(pumice.OutOfMemoryError, match="no room"):
            predictor(images[:4])
        assert predictor.batch_size == 1
    fixed = model([node("Relu", ["x"], ["y"])], [value("x", shape=[4, 3])], ["y"])
    with (
        pumice.BatchPredictor(fixed, device=device) as predictor,
        pytest.raises(pumice.OutOfMemoryError, match="no room"),
    ):
        predictor(np.zeros((4, 3), np.float32))


# ---- processes, devices


def test_nothing_is_opened_before_the_first_call_and_all_is_freed_when_dropped(images: Array, device: str) -> None:
    code = f"""
import gc, pickle, sys
import numpy as np, pumice
from pumice.model import shared_models
predictor = pumice.BatchPredictor({str(DIGITS)!r}, batch_size=4)
copy = pickle.loads(pickle.dumps(predictor))
assert not predictor.is_open and not any("libvulkan" in line for line in open("/proc/self/maps"))
rows = np.zeros((6, 1, 8, 8), np.float32)
other = pumice.BatchPredictor({str(DIGITS)!r})
assert predictor(rows).shape == other(rows).shape == (6, 10)
assert predictor.model is other.model and predictor.is_open
held = predictor.model.context
copy(rows)
assert copy.model.context is held, "one context a process"
del held
predictor.close(); del other, copy
gc.collect()
assert len(shared_models._process.models) == 1, "that of the pickled one is kept for the next task"
pumice.BatchPredictor.release()
gc.collect()
assert not shared_models._process.models and not shared_models._process.contexts
assert predictor(rows).shape == (6, 10), "a call opens it again"
print("fine")
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_a_file_that_is_another_in_the_worker_is_rejected(images: Array, tmp_path: Path, device: str) -> None:
    path = tmp_path / "copied.onnx"
    shutil.copy(DIGITS, path)
    travelled = pickle.dumps(pumice.BatchPredictor(path, device=device))
    assert pickle.loads(travelled)(images[:2]).shape == (2, 10)
    pumice.BatchPredictor.release()
    gc.collect()
    path.write_bytes(two_outputs())
    with pytest.raises(pumice.GraphError, match="expected the file that the predictor was pickled with"):
        pickle.loads(travelled)(images[:2])


def test_bytes_travel_and_the_pickle_of_a_path_is_small(images: Array, expected: Array, device: str) -> None:
    assert len(pickle.dumps(pumice.BatchPredictor(DIGITS))) < 2000
    predictor = pumice.BatchPredictor(DIGITS.read_bytes(), device=device, batch_size=8)
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(predictor))))
    np.testing.assert_allclose(copy(images), expected, rtol=1e-5, atol=1e-6)
    assert "not open" in repr(predictor)
    pumice.BatchPredictor.release()


def test_threads_share_one_model(images: Array, expected: Array, device: str) -> None:
    predictor = pumice.BatchPredictor(DIGITS, device=device, batch_size=4)
    with predictor, concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            results = [*pool.map(predictor, [images[i : i + 3] for i in range(0, 23, 3)])]
            np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-5, atol=1e-6)
    assert threading.active_count() < 20


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_open_a_device_of_their_own(images: Array, expected: Array, device: str, method: str) -> None:
    predictor = pumice.BatchPredictor(DIGITS, device=device, batch_size=4)
    processes = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=processes) as pool:
        results = [*pool.map(predictor, [images[i : i + 3] for i in range(0, 23, 3)])]
    np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-5, atol=1e-6)
    assert not predictor.is_open


def test_a_forked_child_opens_a_device_of_its_own_where_the_driver_survives(images: Array) -> None:
    code = f"""
import os
import numpy as np, pumice
predictor = pumice.BatchPredictor({str(DIGITS)!r}, batch_size=4)
rows = np.zeros((6, 1, 8, 8), np.float32)
expected = predictor(rows)
survives = all(device.name.startswith("llvmpipe") for device in pumice.devices())
child = os.fork()
if child == 0:
    try:
        np.testing.assert_array_equal(predictor(rows), expected)
    except pumice.StateError as error:
        assert not survives and "only Mesa's llvmpipe survives a fork" in str(error)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
np.testing.assert_array_equal(predictor(rows), expected)
print("fine")
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_joblib_runs_it(images: Array, expected: Array, device: str) -> None:
    joblib = pytest.importorskip("joblib")
    predictor = pumice.BatchPredictor(DIGITS, device=device, batch_size=4)
    tasks = [joblib.delayed(predictor)(images[i : i + 6]) for i in range(0, 23, 6)]
    with joblib.parallel_config("loky", n_jobs=2):
        results = joblib.Parallel()(tasks)
    np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-5, atol=1e-6)
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True)


# ---- which model file a predictor loads


def with_weights_beside(folder: Path, weight: float) -> bytes:
    """y = x + w, with w in an external file in the folder."""
    proto = onnx.load_from_string(adding(weight))
    tensor = proto.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    (folder / "weights.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    return proto.SerializeToString()


def adding(weight: float) -> bytes:
    """y = x + weight."""
    constants = {"w": np.full(3, weight, np.float32)}
    return model([node("Add", ["x", "w"])], [value("x", shape=["N", 3])], ["y"], constants).SerializeToString()


X = np.zeros((2, 3), np.float32)


def test_predictors_with_other_folders_have_other_models(tmp_path: Path, device: str) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, weight in zip(folders, (1, 2), strict=True):
        folder.mkdir()
        source = with_weights_beside(folder, weight)
    first, second = (pumice.BatchPredictor(source, device=device, folder=folder) for folder in folders)
    with first, second:
        assert (first(X)[0, 0], second(X)[0, 0]) == (1, 2)
        assert first.model is not second.model


def test_a_file_that_was_written_since_is_read_anew_by_a_new_predictor(tmp_path: Path, device: str) -> None:
    path = tmp_path / "adding.onnx"
    path.write_bytes(adding(1))
    with pumice.BatchPredictor(path, device=device) as first:
        assert first(X)[0, 0] == 1
        path.write_bytes(adding(2) + b"\x12\x01a")  # a producer name changes the size even if the mtime is equal
        with pumice.BatchPredictor(path, device=device) as second:
            assert second(X)[0, 0] == 2
        assert first(X)[0, 0] == 1
        first.close()
        assert first(X)[0, 0] == 2


def test_weights_beside_a_file_that_were_written_since_are_read_anew(tmp_path: Path, device: str) -> None:
    path = tmp_path / "weights.onnx"
    path.write_bytes(with_weights_beside(tmp_path, 1))
    with pumice.BatchPredictor(path, device=device) as first:
        assert first(X)[0, 0] == 1
        with_weights_beside(tmp_path, 2)
        os.utime(tmp_path / "weights.bin", ns=(1, 1))
        with pumice.BatchPredictor(path, device=device) as second:
            assert second(X)[0, 0] == 2


def test_the_first_device_is_no_default_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pumice.Context(device) as default,
        pumice.BatchPredictor(adding(1), device=0) as predictor,
        pumice.BatchPredictor(adding(1)) as other,
    ):
        monkeypatch.setattr(shared_models, "get_existing_default_context", lambda: default)
        assert other.model.context is default
        assert predictor.model.context is not default
        assert predictor.model.device.index == 0


@pytest.mark.parametrize("given", [None, True, 1.5])
def test_what_is_no_device_is_rejected(given: Any) -> None:
    with pytest.raises(InputError, match="BatchPredictor: device must be a name or an index"):
        pumice.BatchPredictor(adding(1), device=given)


@pytest.mark.parametrize("is_gone", [False, True])
def test_short_memory_does_not_mix_two_models(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    start = pumice.model.model_runs.start_case
    path = tmp_path / "adding.onnx"
    path.write_bytes(adding(1))

    def started(loaded: Any, case: Any, timeout: Any) -> Any:
        if len(case["x"]) > 1:
            raise pumice.OutOfMemoryError("no room")
        return start(loaded, case, timeout)

    monkeypatch.setattr(pumice.model.model_runs, "start_case", started)
    with pumice.BatchPredictor(path, device=device) as predictor:
        results = predictor.map([X[:1], X])
        assert next(results)[0, 0] == 1
        if is_gone:
            path.unlink()
        else:
            path.write_bytes(adding(2) + b"\x12\x01a")
        with pytest.raises(InputError, match=r"adding\.onnx' unchanged since the model was opened"):
            next(results)
