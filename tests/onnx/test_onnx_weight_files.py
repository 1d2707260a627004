"""External weight files of a model, and large tensors that stay in the model file."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_models import constant, gemm, model, node, subgraph, value
from process import output_of
from pumice.importer.file.model_file import MODEL_FILE_LOCATION, ModelFile, strip_tensor_data
from pumice.importer.parse_onnx import make_recipe, parse_model
from pumice.onnx import import_graph
from tensor_arrays import waves

Array = np.ndarray[Any, Any]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMICE_NO_CACHE", "1")


# ---- external weights


def wide(width: int = 64) -> onnx.ModelProto:
    """Two weights too large for the skeleton, a bias, and a shape."""
    constants = {"w": waves(4, width), "v": waves(width, 4), "b": waves(4), "s": np.array([-1, 4])}
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Gemm", ["h", "v", "b"], ["g"]),
        node("Reshape", ["g", "s"], ["y"]),
    ]
    return model(nodes, constants=constants)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A model in a folder, with one external file for all of its weights."""
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(wide(), folder / "wide.onnx", save_as_external_data=True, location="all.bin", size_threshold=0)
    return folder / "wide.onnx"


def expected() -> Array:
    x = waves(3, 4)
    return np.asarray(x @ waves(4, 64) @ waves(64, 4) + waves(4))


def is_right(loaded: pumice.Model) -> bool:
    return np.allclose(loaded(waves(3, 4)), expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_one_file_of_weights_or_one_each(outside: Path, precision: str) -> None:
    assert np.allclose(pumice.load(outside, precision=precision)(waves(3, 4)), expected(), rtol=3e-2, atol=3e-2)
    each = outside.parent / "each.onnx"
    onnx.save(wide(), each, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    (outside.parent / "all.bin").unlink()
    assert is_right(pumice.load(each))


def test_bytes_and_file_objects_and_protos_with_a_folder(outside: Path) -> None:
    elsewhere = onnx.load(outside, load_external_data=False)
    for source in (outside.read_bytes(), io.BytesIO(outside.read_bytes()), elsewhere):
        with pytest.raises(pumice.GraphError, match=r"tensor 'w'.*not given as a path.*folder="):
            pumice.load(elsewhere if source is elsewhere else outside.read_bytes())
        loaded = pumice.load(source, folder=outside.parent)
        assert is_right(loaded)
        assert pumice.validate(loaded, [waves(3, 4)]).ok
    moved = outside.parent.parent / "moved.onnx"
    shutil.move(outside, moved)
    assert is_right(pumice.load(moved, folder=outside.parent))


def test_a_file_object_of_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="'rb'"):
        pumice.load(io.StringIO("model"))  # type: ignore[arg-type]


def test_a_link_out_of_the_models_folder_is_rejected(outside: Path) -> None:
    weights, target = outside.parent / "all.bin", outside.parent.parent / "secret.bin"
    weights.rename(target)
    weights.symlink_to(target)
    with pytest.raises(pumice.GraphError, match=r"tensor 'w'.*own folder, given a link.*secret\.bin"):
        pumice.load(outside)
    weights.unlink()
    (outside.parent / "inner").symlink_to(outside.parent.parent)
    proto = onnx.load(outside, load_external_data=False)
    for tensor in proto.graph.initializer:
        tensor.external_data[0].value = "inner/secret.bin"
    onnx.save(proto, outside)
    with pytest.raises(pumice.GraphError, match="given a link"):
        pumice.load(outside)


def test_links_of_a_store_of_files_are_followed(outside: Path, tmp_path: Path) -> None:
    """A model and its weights are symlinks into one folder, as in download caches."""
    store, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    outside.parent.rename(store)
    snapshot.mkdir()
    for name in ("wide.onnx", "all.bin"):
        (snapshot / name).symlink_to(store / name)
    assert is_right(pumice.load(snapshot / "wide.onnx"))


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_weights_that_are_no_regular_file_are_rejected(outside: Path, kind: str) -> None:
    weights = outside.parent / "all.bin"
    weights.unlink()
    if kind == "folder":
        weights.mkdir()
    elif kind == "pipe":
        os.mkfifo(weights)
    else:
        weights.symlink_to("/dev/zero")
    with pytest.raises(pumice.GraphError, match="tensor 'w'.*(not a regular file|given a link)"):
        pumice.load(outside)


def test_a_model_that_is_a_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        pumice.load(tmp_path)


def test_an_offset_past_the_end_names_both_numbers(outside: Path) -> None:
    weights = outside.parent / "all.bin"
    size = weights.stat().st_size
    os.truncate(weights, size - 8)
    with pytest.raises(
        pumice.GraphError, match=rf"expected \d+ bytes at offset \d+ of 'all.bin', given a file of {size - 8} bytes"
    ):
        pumice.load(outside)


def test_a_file_that_becomes_shorter_is_an_error(outside: Path, context: pumice.Context) -> None:
    onnx.save(wide(1 << 14), outside, save_as_external_data=True, location="more.bin", size_threshold=0)
    graph = import_graph(outside)
    os.truncate(outside.parent / "more.bin", 0)
    with pytest.raises(pumice.Error, match=r"more\.bin.*truncated since it was opened"):
        graph.compile(context)


def test_a_checksum_is_not_read(outside: Path) -> None:
    proto = onnx.load(outside, load_external_data=False)
    for tensor in proto.graph.initializer:
        tensor.external_data.append(onnx.StringStringEntryProto(key="checksum", value="0" * 40))
    onnx.save(proto, outside)
    assert is_right(pumice.load(outside))


SPARSE = """
import sys
import numpy as np, pumice
def peak():  # getrusage's value begins with the peak of the process before this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
pumice.Context()  # the driver's own memory
before = peak()
result = pumice.load(sys.argv[1])(np.ones((1, 4), "float32"))
print(result.y.sum(), result.sum.sum(), peak() - before)
"""


def test_two_small_tensors_of_a_file_of_six_gigabytes(tmp_path: Path) -> None:
    proto = gemm()
    size = 6 << 30
    offsets = {"w": 4096 + 3, "b": size - 12}
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(size)
        for tensor in proto.graph.initializer:
            file.seek(offsets[tensor.name])
            file.write(tensor.raw_data)
    result = pumice.load(proto)(np.ones((1, 4), np.float32))
    for tensor in proto.graph.initializer:
        length = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, entry in (("location", "sparse.bin"), ("offset", offsets[tensor.name]), ("length", length)):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=str(entry)))
    onnx.save(proto, tmp_path / "sparse.onnx")
    first, last, kilobytes = output_of("-c", SPARSE, str(tmp_path / "sparse.onnx")).split()
    assert (float(first), float(last)) == pytest.approx((result.y.sum(), result.sum.sum()), rel=1e-6)
    assert "PUMICE_SANITIZED" in os.environ or int(kilobytes) < 100_000


# ---- large tensors that stay in the file


def packed_floats() -> onnx.ModelProto:
    """A weight in float_data."""
    proto = wide()
    for tensor in proto.graph.initializer:
        if tensor.name == "w":
            tensor.float_data.extend(np.frombuffer(tensor.raw_data, np.float32))
            tensor.ClearField("raw_data")
    return proto


@pytest.mark.parametrize("make", [wide, packed_floats])
def test_the_skeleton_is_the_model_without_large_tensors(make: Any) -> None:
    data = make().SerializeToString()
    small = bytes(strip_tensor_data(data))
    assert len(small) < len(data) - 2 * 1024 + 200
    parsed = onnx.ModelProto.FromString(small)
    assert [n.op_type for n in parsed.graph.node] == ["MatMul", "Gemm", "Reshape"]
    for tensor, whole in zip(parsed.graph.initializer, make().graph.initializer, strict=True):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.name in "bs":
            assert not entries and tensor == whole
            continue
        assert entries["location"] == MODEL_FILE_LOCATION
        begin = int(entries["offset"])
        assert data[begin : begin + int(entries["length"])] == numpy_helper.to_array(whole).tobytes()


def test_the_skeleton_reaches_tensors_of_nodes_in_subgraphs_and_functions() -> None:
    large = numpy_helper.from_array(waves(16, 32))
    inner = subgraph([node("Constant", [], ["z"], value=large)], [], [value("z", None)])
    branch = node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    proto = model([branch], [value("c", [], BOOL)])
    constant = node("Constant", [], ["b"], value=large)
    proto.functions.append(helper.make_function("local", "F", ["a"], ["b"], [constant], [helper.make_opsetid("", 17)]))
    small = strip_tensor_data(proto.SerializeToString())
    assert len(small) < proto.ByteSize() - 3 * 2000
    np.testing.assert_array_equal(pumice.load(proto.SerializeToString())(np.array(True)), waves(16, 32))


@pytest.mark.parametrize(
    "end", [b"", b"\x3a", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"\x3a\x80\x08x"]
)
def test_what_is_no_protobuf_has_no_skeleton(end: bytes) -> None:
    data = bytes(range(7, 256)) * 8 + end
    assert bytes(strip_tensor_data(data)) == data


def test_an_offset_in_the_model_file_past_its_end() -> None:
    proto = wide()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in (("location", MODEL_FILE_LOCATION), ("offset", "1000000"), ("length", "1024")):
        tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=entry))
    with pytest.raises(pumice.GraphError, match="tensor 'w'"):
        pumice.load(proto.SerializeToString())
    with pytest.raises(pumice.GraphError, match="tensor 'w'"):
        pumice.load(proto)


# ---- invalid external data


def with_weights_beside(folder: Path) -> Path:
    path = folder / "gemm.onnx"
    onnx.save(gemm(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def edit(path: Path, **entries: str) -> None:
    """Change entries of the first initializer's external_data."""
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(proto.SerializeToString())


@pytest.mark.usefixtures("without_cache")
def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    path = with_weights_beside(tmp_path)
    file = ModelFile(path)
    made = make_recipe(parse_model(file), file)
    for tensor in gemm().graph.initializer:
        np.testing.assert_array_equal(constant(made, tensor.name), numpy_helper.to_array(tensor))


@pytest.mark.usefixtures("without_cache")
def test_a_missing_file_of_weights_is_named(tmp_path: Path) -> None:
    path = with_weights_beside(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(pumice.GraphError, match=r"tensor 'w': .*weights\.bin.*no such file") as caught:
        import_graph(path)
    assert caught.value.node == "w"


@pytest.mark.usefixtures("without_cache")
def test_a_short_file_of_weights_is_rejected(tmp_path: Path) -> None:
    path = with_weights_beside(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(20))
    with pytest.raises(pumice.GraphError, match="given a file of 20 bytes"):
        import_graph(path)


@pytest.mark.usefixtures("without_cache")
@pytest.mark.parametrize("location", ["/etc/hostname", "../weights.bin", "a/../../weights.bin", "", "a\0b"])
def test_weights_outside_of_the_models_folder_are_rejected(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = with_weights_beside(inner)
    (tmp_path / "weights.bin").write_bytes((inner / "weights.bin").read_bytes())
    edit(path, location=location)
    with pytest.raises(pumice.GraphError, match="in the model's own folder"):
        import_graph(path)


@pytest.mark.usefixtures("without_cache")
@pytest.mark.parametrize(
    ("key", "given"), [("offset", "-4"), ("length", "-1"), ("offset", "x"), ("length", "8"), ("offset", str(1 << 70))]
)
def test_a_wrong_offset_of_weights_is_rejected(tmp_path: Path, key: str, given: str) -> None:
    path = with_weights_beside(tmp_path)
    edit(path, **{key: given})
    with pytest.raises(pumice.GraphError, match="tensor 'w'"):
        import_graph(path)


@pytest.mark.usefixtures("without_cache")
def test_weights_beside_bytes_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(pumice.GraphError, match="not given as a path"):
        import_graph(with_weights_beside(tmp_path).read_bytes())
