"""The on-disk cache of compiled graphs: entries are found again and always checked. Needs no device."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_models import gemm, model, node, value
from process import output_of
from pumice._pumice import read_cache_entry, write_cache_entry
from pumice.base.element_types import array_from_bytes
from pumice.importer import load_graph
from pumice.importer.file.graph_recipe import ConstantRecipe, GraphRecipe
from threads import in_threads


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "pumice"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with a tensor attribute, large and small constants, and a typed data field."""
    random = np.random.default_rng(1)
    wide = {
        "w": random.standard_normal((40, 30)).astype(np.float32),
        "v": random.standard_normal((40, 30)).astype(np.float32),
        "b": np.ones(30, np.float32),
    }
    fill = node("ConstantOfShape", ["s"], ["o"], value=numpy_helper.from_array(np.array([0.5], np.float32)))
    nodes = [
        fill,
        node("Gemm", ["x", "w", "b"], ["g"]),
        node("Gemm", ["x", "v", "b"], ["h"]),
        node("Sum", ["g", "h", "o"]),
    ]
    made = model(nodes, [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 40])], constants=wide)
    made.graph.initializer.append(helper.make_tensor("s", TensorProto.INT64, [300], range(300)))
    onnx.save(made, tmp_path / "wide.onnx")
    return tmp_path / "wide.onnx"


def read(path: Path) -> GraphRecipe:
    return load_graph.load_recipe(path)


def imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether loading it parses the ONNX file."""
    calls = []
    from pumice.importer import parse_onnx

    original = parse_onnx.make_recipe
    with monkeypatch.context() as patched:
        patched.setattr(parse_onnx, "make_recipe", lambda *a: calls.append(a) or original(*a))
        read(path)
    return bool(calls)


def entry_of(cache: Path) -> Path:
    (entry,) = (cache / "graphs").iterdir()
    return entry


def plain(value: object) -> object:
    """Return a comparable form: bytes instead of views, no file positions."""
    if isinstance(value, ConstantRecipe):
        return value.name, value.dtype, value.shape, bytes(value.raw)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def test_a_second_load_gives_the_same_without_onnx(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert imports(path, monkeypatch)
    assert not imports(path, monkeypatch)
    warm = read(path)
    monkeypatch.setenv("PUMICE_NO_CACHE", "1")
    assert plain(warm) == plain(read(path))
    attribute = warm.nodes[0].attributes["value"]
    assert isinstance(attribute, ConstantRecipe)
    np.testing.assert_array_equal(array_from_bytes(attribute.raw, "float32", [1]), [0.5])


def listing(graph: pumice.Graph) -> list[object]:
    """Return a comparable form of a graph."""
    return [
        (one.op, one.name, [value and str(value) for value in one.inputs], str(one.outputs), plain_attributes(one))
        for one in graph.nodes
    ]


def plain_attributes(one: pumice.Node) -> list[object]:
    return sorted((name, np.asarray(value).tolist()) for name, value in one.attributes.items())


@pytest.mark.parametrize("name", ["wide", "digits"])
def test_a_graph_from_the_cache_is_that_of_the_recipe(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = path if name == "wide" else Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"
    built = load_graph.build_cached_graph
    calls = []
    monkeypatch.setattr(load_graph, "build_cached_graph", lambda *a: calls.append(a) or built(*a))
    cold, recipe = load_graph.load_graph(file)
    assert not calls
    warm, facts = load_graph.load_graph(file)
    assert len(calls) == 1
    assert listing(warm) == listing(cold)
    assert plain(facts) == plain(recipe._replace(nodes=[], constants={}))


def test_a_graph_with_a_nested_graph_is_built_from_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = helper.make_graph([node("Relu", ["x"], ["r"])], "then", [], [value("r", [4])])
    other = helper.make_graph([node("Neg", ["x"], ["n"])], "else", [], [value("n", [4])])
    choice = node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    inputs = [value("x", [4]), onnx.helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    onnx.save(model([choice], inputs, ["y"]), tmp_path / "if.onnx")
    for _ in range(2):
        graph, recipe = load_graph.load_graph(tmp_path / "if.onnx")
        assert [one.op for one in graph.nodes][-1] == "If"
        assert recipe.nodes


def test_large_constants_stay_in_the_model_file(path: Path, cache: Path) -> None:
    read(path)
    assert entry_of(cache).stat().st_size < 8000  # w and v have 4,800 bytes each, s has 2,400
    places = {name: c.tensor_location for name, c in read(path).constants.items()}
    data = path.read_bytes()
    for name in ("w", "v"):
        place = places[name]
        assert place is not None
        found = np.frombuffer(data, np.float32, 1200, place.offset)
        np.testing.assert_array_equal(found, array_from_bytes(read(path).constants[name].raw, "float32", [1200]))


def test_a_warm_process_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    onnx.save(gemm(), tmp_path / "gemm.onnx")
    code = (
        "import sys, pumice.importer.load_graph\n"
        "pumice.importer.load_graph.load_graph(sys.argv[1])\n"
        "names = ('onnx', 'google.protobuf', 'rich', 'logging', 'pumice.importer.translators.operator_table')\n"
        "print([name for name in names if name in sys.modules])"
    )
    cold, warm = (output_of("-c", code, str(tmp_path / "gemm.onnx")) for _ in range(2))
    assert "onnx" in cold
    assert warm == "[]\n"


def test_a_warm_process_runs_a_model_without_the_shader_compiler(tmp_path: Path) -> None:
    model = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"
    code = (
        "import sys, numpy, pumice\n"
        "pumice.load(sys.argv[1])(numpy.zeros((1, 1, 8, 8), 'float32'))\n"
        "print(pumice.compile_counts().compiled > 0, 'libpumice_glslang' in open('/proc/self/maps').read())"
    )
    assert output_of("-c", code, str(model), PUMICE_CACHE_DIR=str(tmp_path)) == "True True\n"
    assert output_of("-c", code, str(model), PUMICE_CACHE_DIR=str(tmp_path)) == "False False\n"


def test_another_file_is_another_entry(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(path)
    proto = onnx.load(path)
    proto.graph.initializer[2].raw_data = np.zeros(30, np.float32).tobytes()
    onnx.save(proto, path)
    assert imports(path, monkeypatch)
    np.testing.assert_array_equal(array_from_bytes(read(path).constants["b"].raw, "float32", [30]), np.zeros(30))
    assert len([*(cache / "graphs").iterdir()]) == 2


def test_a_copy_of_the_file_is_the_same_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(path)
    copy = path.with_name("copy.onnx")
    copy.write_bytes(path.read_bytes())
    assert not imports(copy, monkeypatch)


def test_another_importer_is_another_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(path)
    monkeypatch.setattr(load_graph, "_get_importer_version", lambda: "later")
    assert imports(path, monkeypatch)


def version() -> str:
    """Return the version a new process computes."""
    load_graph._get_importer_version.cache_clear()
    return load_graph._get_importer_version()


def test_the_version_knows_every_file_of_the_importer_and_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(load_graph._get_importer_version.cache_clear)
    monkeypatch.setattr(load_graph, "__file__", str(tmp_path / "importer" / "load_graph.py"))
    monkeypatch.setattr(load_graph._pumice, "__file__", str(tmp_path / "_pumice.so"))
    for folder in ("base", "importer/file", "model"):
        (tmp_path / folder).mkdir(parents=True)
    versions = [version()]
    for name, text in (
        ("base/any.py", "a"),
        ("base/any.py", "ab"),
        ("importer/other.py", ""),
        ("importer/file/deep.py", ""),
        ("_pumice.so", "a"),
        ("_pumice.so", "ab"),
    ):
        (tmp_path / name).write_text(text)
        versions.append(version())
    assert len(set(versions)) == len(versions)
    (tmp_path / "base" / "__pycache__").mkdir()
    for name in ("base/notes.txt", "model/model.py", "base/__pycache__/any.py"):
        (tmp_path / name).write_text("a")
        assert version() == versions[-1]


def test_the_files_of_the_importer_are_looked_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(path)

    def refuse(*_: Any) -> None:
        raise AssertionError("the package's files are looked at again")

    monkeypatch.setattr(os, "listdir", refuse)
    assert not imports(path, monkeypatch)


def test_what_is_overridable_is_one_entry_however_it_is_said(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(path)
    proto.graph.input.extend([value("b", [30]), value("w", [40, 30])])
    onnx.save(proto, path)
    for i, same in enumerate(([False, None, (), []], [["b", "w"], ("w", "b"), ["w", "b", "w"]], [["b"]], [True])):
        for wanted in same:
            load_graph.load_recipe(path, None, wanted)
        assert len([*(cache / "graphs").iterdir()]) == i + 1


def test_damaged_entries_are_rebuilt(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain(read(path))
    entry = entry_of(cache)
    good = entry.read_bytes()
    middle = len(good) // 2
    damaged = [
        b"",
        good[:10],
        good[:-1],
        good + b"x",
        good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        b"#!/bin/sh\n" * 100,
    ]
    for content in damaged:
        entry.write_bytes(content)
        assert imports(path, monkeypatch)
        assert plain(read(path)) == expected
        assert entry.read_bytes() == good


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("constants", [["w", "float32", [40, 30], 0, 1 << 40]]),
        ("constants", [["w", "float32", [40, 30], 7, 0]]),
        ("constants", [["w", "complex64", [40], 0, 0]]),
        ("constants", [["w", "float32", [40, -30], 0, 0]]),
        ("constants", [["w", "float32", [40, 30], 0, -4800]]),
        ("nodes", 3),
        ("inputs", [["x"]]),
    ],
)
def test_a_signed_entry_that_makes_no_sense_is_rebuilt(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, change: str, value: object
) -> None:
    read(path)
    entry = entry_of(cache)
    good = entry.read_bytes()
    body = read_cache_entry("graphs", entry.stem)
    assert body is not None
    length = int.from_bytes(body[:8], "little")
    structure = json.loads(body[8 : 8 + length])
    structure[change] = value
    assert write_cache_entry("graphs", entry.stem, load_graph.pack_cache_entry(structure, body[8 + length :]))
    graph, _ = load_graph.load_graph(path)
    assert len(graph) == 4
    assert entry.read_bytes() == good
    assert write_cache_entry("graphs", entry.stem, load_graph.pack_cache_entry(structure, body[8 + length :]))
    assert imports(path, monkeypatch)
    assert entry.read_bytes() == good


def test_external_weights_are_offsets_in_their_file(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gemm.onnx"
    onnx.save(gemm(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    read(path)
    assert not imports(path, monkeypatch)
    weights = (tmp_path / "weights.bin").read_bytes()
    changed = np.full(12, 2, np.float32).tobytes()
    place = read(path).constants["w"].tensor_location
    assert place is not None
    (tmp_path / "weights.bin").write_bytes(weights[: place.offset] + changed + weights[place.offset + 48 :])
    assert bytes(read(path).constants["w"].raw) == changed  # not the cached old value
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(pumice.GraphError, match="no such file"):
        read(path)


@pytest.mark.parametrize(("value", "off"), [("1", True), ("0", False), ("", False)])
def test_the_cache_can_be_turned_off(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, value: str, off: bool
) -> None:
    monkeypatch.setenv("PUMICE_NO_CACHE", value)
    read(path)
    assert cache.exists() != off


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PUMICE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/somebody")
    assert load_graph.cache_directory() == "/somebody/.cache/pumice"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert load_graph.cache_directory() == "/caches/pumice"
    monkeypatch.setenv("PUMICE_CACHE_DIR", "/chosen")
    assert load_graph.cache_directory() == "/chosen/pumice"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_no_error(path: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        read(path)
    finally:
        tmp_path.chmod(0o700)


def test_a_cache_that_is_a_file_is_no_error(path: Path, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("in the way")
    assert len(read(path).nodes) == 4


def test_writers_at_the_same_time_leave_one_good_entry(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads(read, [path] * 8)
    assert entry_of(cache).suffix == ".graph"
    assert not imports(path, monkeypatch)


def test_what_a_recipe_cannot_hold_is_not_kept(tmp_path: Path, cache: Path) -> None:
    onnx.save(model([node("Relu")], opset=999), tmp_path / "newer.onnx")
    for _ in range(2):
        with pytest.raises(pumice.UnsupportedError, match="999"):
            load_graph.load_graph(tmp_path / "newer.onnx")
    assert not cache.exists()
