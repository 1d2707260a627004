"""Damaged, encrypted or foreign array files raise an InputError that names the file and the member."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import pumice
from onnx_models import model, node, value
from pumice.base.errors import InputError
from pumice.model.datasets import read_datasets
from pumice.model.input_sources import read_inputs


def archive(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("_npy", ".npy"), content)
    return target.getvalue()


def npy(array: Any, allow_pickle: bool = False) -> bytes:
    target = io.BytesIO()
    np.save(target, array, allow_pickle=allow_pickle)
    return target.getvalue()


X = npy(np.zeros((2, 4), np.float32))
WHOLE = archive(x_npy=X)


def changed(data: bytes, at: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite bytes of `data`, `offset` bytes after the start of `at`."""
    index = data.index(at) + offset
    return data[:index] + value + data[index + len(value) :]


def encrypted(data: bytes) -> bytes:
    """Return the archive with the encryption flag set in both of its headers."""
    return changed(changed(data, b"PK\x03\x04", 6, b"\x01\x00"), b"PK\x01\x02", 8, b"\x01\x00")


def compressed_by(data: bytes, method: int) -> bytes:
    word = struct.pack("<H", method)
    return changed(changed(data, b"PK\x03\x04", 8, word), b"PK\x01\x02", 10, word)


def with_header(text: str) -> bytes:
    padded = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode() + bytes(64)


BROKEN: dict[str, tuple[str, bytes]] = {
    "encrypted": ("npz", encrypted(WHOLE)),
    "unknown compression": ("npz", compressed_by(WHOLE, 77)),
    "lzma that is none": ("npz", compressed_by(WHOLE, 14)),
    "bzip2 that is none": ("npz", compressed_by(WHOLE, 12)),
    "bad CRC": ("npz", changed(WHOLE, b"PK\x01\x02", 16, b"\xff\xff\xff\xff")),
    "bad deflate": ("npz", changed(WHOLE, b"x.npy", 5, b"\xff" * 8)),
    "cut": ("npz", WHOLE[: len(WHOLE) // 2]),
    "cut at the end": ("npz", WHOLE[:-5]),
    "no archive": ("npz", b"PK\x03\x04" + bytes(40)),
    "empty": ("npz", b""),
    "text": ("npz", b"x = 1\n"),
    "objects": ("npz", archive(x_npy=npy(np.array([{}, None], object), allow_pickle=True))),
    "a member that is no array": ("npz", archive(x=b"text")),
    "a damaged member": ("npz", archive(x_npy=b"\x93NUMPY\x01\x00\xff")),
    "a huge member": ("npz", archive(x_npy=with_header(str({"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)})))),
    "an odd header": ("npz", archive(x_npy=with_header("{'descr': '<f4', [")))
    ,
    "a deep header": ("npz", archive(x_npy=with_header("(" * 110))),
    "an odd dtype": ("npz", archive(x_npy=with_header(str({"descr": "[('a',", "fortran_order": False, "shape": (2,)})))),
    "a negative shape": ("npz", archive(x_npy=with_header(str({"descr": "<f4", "fortran_order": False, "shape": (-2,)})))),
    "pickled": ("npy", npy(np.array([{}, None], object), allow_pickle=True)),
    "an archive by another name": ("npy", WHOLE),
    "cut array": ("npy", X[:-3]),
    "no tensor": ("pb", b"\xff" * 20),
    "a tensor of text for numbers": ("pb", TensorProto(data_type=1, dims=[4], raw_data=b"12").SerializeToString()),
    "no picture": ("png", b"\x89PNG\r\n\x1a\n" + bytes(30)),
    "an empty picture": ("jpg", b""),
}  # fmt: skip


@pytest.fixture
def relu(context: pumice.Context) -> pumice.Model:
    return pumice.load(model([node("Relu")]), context)


def readers(relu: pumice.Model, path: Path) -> dict[str, Callable[[], Any]]:
    """Return every function that reads such a file, by name."""
    case = {"x": np.zeros((2, 4), np.float32)}
    found: dict[str, Callable[[], Any]] = {"--input": lambda: read_inputs(relu, [f"x={path}"], {})}
    if path.suffix == ".npz":
        found["a folder of cases"] = lambda: read_datasets(relu, str(path.parent))
        found["reference="] = lambda: pumice.validate(relu, [case], reference=str(path))
    if path.suffix == ".pb":
        found["a folder of tensors"] = lambda: read_datasets(relu, str(path.parent))
    return found


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_file_is_an_input_error(case: str, relu: pumice.Model, tmp_path: Path) -> None:
    suffix, content = BROKEN[case]
    path = tmp_path / f"input_0.{suffix}"
    path.write_bytes(content)
    for name, read in readers(relu, path).items():
        with pytest.raises(InputError) as caught:
            read()
        assert str(path) in str(caught.value), (name, str(caught.value))
        assert "expected" in str(caught.value), name


@pytest.mark.parametrize("case", ["encrypted", "bad CRC", "objects", "a damaged member"])
def test_the_member_is_named(case: str, relu: pumice.Model, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(BROKEN[case][1])
    with pytest.raises(InputError, match="member 'x'"):
        read_inputs(relu, [f"x={path}"], {})


def test_a_file_that_is_not_there_is_an_os_error(relu: pumice.Model, tmp_path: Path) -> None:
    for suffix in ("npz", "npy", "pb", "png"):
        with pytest.raises(FileNotFoundError):
            read_inputs(relu, [f"x={tmp_path / 'gone'}.{suffix}"], {})


def external(location: str) -> bytes:
    tensor = numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(2, 4), "x")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value="4")
    tensor.external_data.add(key="length", value="32")
    return tensor.SerializeToString()


def test_external_data_of_a_tensor_is_looked_up_beside_its_file(
    relu: pumice.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = np.arange(8, dtype=np.float32).reshape(2, 4)
    folder = tmp_path / "set"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "input_0.pb").write_bytes(external("x.bin"))
    (folder / "x.bin").write_bytes(b"\xff" * 4 + expected.tobytes())
    for path in ("set/input_0.pb", str(folder / "input_0.pb")):
        np.testing.assert_array_equal(read_inputs(relu, [f"x={path}"], {})["x"], expected)
    np.testing.assert_array_equal(read_datasets(relu, str(folder))[0].inputs["x"], expected)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("gone.bin", "gone.bin.*no such file"),
        ("../x.bin", "expected a weight file in the model's own folder"),
        ("/etc/passwd", "expected a weight file in the model's own folder"),
        ("\0", "expected the name of a file as location of its data, given a NUL byte"),
        ("", "expected a weight file"),
    ],
)
def test_external_data_elsewhere_is_rejected(relu: pumice.Model, tmp_path: Path, location: str, message: str) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(64))
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(external(location))
    with pytest.raises(pumice.Error, match=message):
        read_inputs(relu, [f"x={folder / 'input_0.pb'}"], {})


def test_a_location_of_a_nul_byte_is_rejected(context: pumice.Context, tmp_path: Path) -> None:
    """The importer uses this location internally for large tensors stored in the model file."""
    weights = TensorProto.FromString(external("\0"))
    weights.name = "w"
    proto = model([node("Add", ["x", "w"])], [value("x", shape=[2, 4])])
    proto.graph.initializer.append(weights)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    for source in (tmp_path / "m.onnx", proto.SerializeToString(), proto):
        with pytest.raises(pumice.GraphError, match=r"tensor 'w': expected the name of a weight file.*NUL byte"):
            pumice.load(source, context)


def test_large_tensors_of_the_file_itself_are_still_found(context: pumice.Context) -> None:
    weights = np.arange(4096, dtype=np.float32)
    proto = model([node("Add", ["x", "w"])], [value("x", shape=[4096])], constants={"w": weights})
    result = pumice.load(onnx.ModelProto.FromString(proto.SerializeToString()).SerializeToString(), context)
    np.testing.assert_array_equal(result(np.zeros(4096, np.float32)), weights)
