"""Caches and pickles depend on all files of a model: external weights and large tensors inside the model file."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_models import model, node, value
from pumice.importer.file import weight_files
from pumice.importer.file.model_file import ModelFile

Array = np.ndarray[Any, Any]
WIDTH = 400  # float32 elements; more than the skeleton keeps inline


def external(name: str, location: str, dtype: int = TensorProto.FLOAT, size: int = 4) -> TensorProto:
    tensor = TensorProto(name=name, data_type=dtype, dims=[size], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def scaled(folder: Path, factor: float, location: str = "scales.any") -> Path:
    """y = x * w, with w in an external file of an unusual name."""
    proto = model([node("Mul", ["x", "w"])])
    proto.graph.initializer.append(external("w", location))
    path = folder / "scaled.onnx"
    path.write_bytes(proto.SerializeToString())
    (folder / location).parent.mkdir(exist_ok=True)
    write(folder / location, factor)
    return path


def write(path: Path, factor: float) -> None:
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(np.full(4, factor, np.float32).tobytes())
    os.utime(path, ns=(before + 10**9, before + 10**9))  # later at any clock resolution of the file system


@pytest.fixture
def device(context: pumice.Context) -> str:
    return f"uuid:{context.info.uuid}"


@pytest.fixture(autouse=True)
def released() -> Any:
    yield
    pumice.BatchPredictor.release()
    gc.collect()


@pytest.mark.parametrize("location", ["scales.any", "deep/scales.bin"])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_worker_rejects_other_weights(tmp_path: Path, device: str, location: str, as_bytes: bool) -> None:
    path = scaled(tmp_path, 2.0, location)
    x = np.full((1, 4), 4.0, np.float32)
    source, options = (path.read_bytes(), {"folder": tmp_path}) if as_bytes else (path, {})
    predictor = pumice.BatchPredictor(source, device=device, **options)
    travelled = pickle.dumps(predictor)
    again = pickle.dumps(pickle.loads(travelled))  # an engine may forward it
    np.testing.assert_array_equal(pickle.loads(travelled)(x), x * 2)
    pumice.BatchPredictor.release()
    gc.collect()
    write(tmp_path / location, 4.0)
    for item in (travelled, again):
        with pytest.raises(
            pumice.GraphError, match=f"expected the weight file '{location}'.*SHA-256.*pickle the predictor"
        ):
            pickle.loads(item)(x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(predictor))(x), x * 4)


def test_weights_that_are_gone_are_named(tmp_path: Path, device: str) -> None:
    path = scaled(tmp_path, 2.0)
    travelled = pickle.dumps(pumice.BatchPredictor(path, device=device))
    (tmp_path / "scales.any").unlink()
    with pytest.raises(pumice.GraphError, match="scales.any.*no such file"):
        pickle.loads(travelled)(np.ones((1, 4), np.float32))


def test_weights_that_were_written_since_open_a_model_anew(tmp_path: Path, device: str) -> None:
    path, x = scaled(tmp_path, 2.0), np.ones((1, 4), np.float32)
    first = pumice.BatchPredictor(path, device=device)
    np.testing.assert_array_equal(first(x), x * 2)
    write(tmp_path / "scales.any", 3.0)
    second = pumice.BatchPredictor(path, device=device)
    np.testing.assert_array_equal(second(x), x * 3)
    first.close()
    second.close()


def test_a_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    mapped = weight_files.map_file

    def counted(path: str) -> Any:
        hashed.append(os.path.basename(path))
        return mapped(path)

    monkeypatch.setattr(weight_files, "map_file", counted)
    predictor = pumice.BatchPredictor(scaled(tmp_path, 2.0))
    for _ in range(3):
        pickle.dumps(predictor)
    assert sorted(hashed) == ["scaled.onnx", "scales.any"]
    write(tmp_path / "scales.any", 3.0)
    pickle.dumps(predictor)
    assert hashed[2:] == ["scales.any"]


def places() -> dict[str, Callable[[TensorProto], onnx.ModelProto]]:
    """Return every location of an external tensor in a model."""

    def in_branch(tensor: TensorProto) -> onnx.ModelProto:
        branch = helper.make_graph([node("Identity", ["w"], ["b"])], "branch", [], [value("b")])
        branch.initializer.append(tensor)
        return model([node("If", ["x"], then_branch=branch, else_branch=branch)])

    def in_function(tensor: TensorProto) -> onnx.ModelProto:
        proto = model([node("Relu")])
        nodes = [helper.make_node("Constant", [], ["y"], value=tensor)]
        proto.functions.append(helper.make_function("own", "F", [], ["y"], nodes, [helper.make_opsetid("", 17)]))
        return proto

    def sparse(tensor: TensorProto) -> onnx.ModelProto:
        indices = numpy_helper.from_array(np.arange(4), "i")
        return model([node("Relu")], sparse_initializer=[helper.make_sparse_tensor(tensor, indices, [4])])

    def initializer(tensor: TensorProto) -> onnx.ModelProto:
        proto = model([node("Relu")])
        proto.graph.initializer.append(tensor)
        return proto

    return {
        "initializer": initializer,
        "attribute": lambda tensor: model([helper.make_node("Constant", [], ["y"], value=tensor)]),
        "branch": in_branch,
        "function": in_function,
        "sparse": sparse,
    }


@pytest.mark.parametrize("place", places())
@pytest.mark.parametrize("name", ["w", "location", "\n\x08location\x12\x03abc"])
def test_every_external_tensor_is_found(place: str, name: str) -> None:
    result = places()[place](external(name, "a" * 300))
    result.doc_string = "location of \n\x08location\x12\x07nowhere"
    for source in (result, result.SerializeToString()):
        assert weight_files.find_weight_files(ModelFile(source)) == ["a" * 300], place
        assert "a" * 300 in weight_files.find_weight_files(ModelFile(source), exact=False), place


def sparse(value_: float, location: str = "") -> onnx.ModelProto:
    values = numpy_helper.from_array(np.full(WIDTH, value_, np.float32), "w")
    if location:
        values = external("w", location, size=WIDTH)
    indices = numpy_helper.from_array(np.arange(WIDTH), "wi")
    sparse_tensor = helper.make_sparse_tensor(values, indices, [WIDTH])
    return model([node("Add", ["x", "w"])], [value("x", shape=[WIDTH])], sparse_initializer=[sparse_tensor])


@pytest.mark.parametrize("location", ["", "values.bin"])
def test_what_a_recipe_is_made_of_names_its_entry(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """The importer makes sparse tensors dense and stores the result in the recipe cache."""
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    x = np.zeros(WIDTH, np.float32)
    path = tmp_path / "sparse.onnx"
    for number in (1.0, 2.0, 3.0):
        if location:
            (tmp_path / location).write_bytes(np.full(WIDTH, number, np.float32).tobytes())
            os.utime(tmp_path / location, (number, number))
        path.write_bytes(sparse(number, location).SerializeToString())
        with pumice.load(path, context) as loaded:
            np.testing.assert_array_equal(loaded(x), number)
