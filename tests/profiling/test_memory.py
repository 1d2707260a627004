"""The map of a model's temporary memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from pumice.profiling.memory import ArenaTensor, MemoryMap

X = np.ones((64, 32), "float32")


def model(nodes: list[Any], outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    weights = [onnx.numpy_helper.from_array(np.ones((32, 32), "float32"), "w")]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "chain", [value("x", TensorProto.FLOAT, ["n", 32])], made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(source: str, target: str) -> Any:
    return helper.make_node("MatMul", [source, "w"], [target], f"make_{target}")


def test_a_chain_keeps_what_is_read_next(context: pumice.Context) -> None:
    with pumice.load(model([product("x", "a"), product("a", "b"), product("b", "y")]), context) as one:
        told = pumice.memory_map(one, X)
    tensor = 64 * 32 * 4
    spans = {each.name: (each.first, each.last) for each in told.tensors}
    assert spans == {"a": (0, 1), "b": (1, 2)}
    assert told.nodes == (("make_a",), ("make_b",), ("make_y",))
    assert {each.name: each.node for each in told.tensors} == {"a": "make_a", "b": "make_b"}
    assert all(each.bytes == tensor for each in told.tensors)
    assert (told.peak_wave, told.peak_bytes) == (1, 2 * tensor)
    assert told.arena_bytes >= told.peak_bytes >= told.lower_bound_bytes
    assert told.persistent_bytes >= 32 * 32 * 4
    assert [each.name for each in told.kept(0)] == ["a"]


def test_no_two_tensors_that_are_kept_at_once_share_bytes(context: pumice.Context) -> None:
    nodes = [product("x", "a"), product("a", "b"), product("b", "c"), product("c", "d")]
    nodes += [helper.make_node("Add", ["a", "d"], ["y"])]
    with pumice.load(model(nodes), context) as one:
        told = pumice.memory_map(one, x=X)
    for wave in range(told.waves):
        kept = sorted(told.kept(wave), key=lambda each: each.begin)
        assert all(one.end <= two.begin for one, two in pairwise(kept))
        assert all(each.end <= told.arena_bytes for each in kept)
    (first,) = (each for each in told.tensors if each.name == "a")
    assert first.last == told.waves - 1, "the first is kept for the sum at the end"


def test_a_map_shows_its_peak(context: pumice.Context) -> None:
    with pumice.load(model([product("x", "a"), product("a", "b"), product("b", "y")]), context) as one:
        told = pumice.memory_map(one, X)
    for text in (repr(told), told._repr_html_()):
        assert "16,384 bytes at the peak, in wave 1 of 3 (make_b)" in text and "8,192" in text
    kept = told.as_dict()
    assert kept["peak_bytes"] == 16384 and kept["tensors"][0]["name"] == "a"


class Axes:
    """Records what is drawn."""

    def __init__(self) -> None:
        self.bars: list[Any] = []
        self.names: list[str] = []

    def broken_barh(self, spans: Any, rows: Any, **_: Any) -> None:
        self.bars.append((*spans[0], *rows))

    def annotate(self, name: str, *_: Any, **__: Any) -> None:
        self.names.append(name)

    def axvline(self, *_: Any, **__: Any) -> None: ...
    def set_xlabel(self, *_: Any) -> None: ...
    def set_ylabel(self, *_: Any) -> None: ...


def test_the_picture_has_a_bar_for_each_tensor(context: pumice.Context) -> None:
    with pumice.load(model([product("x", "a"), product("a", "b"), product("b", "y")]), context) as one:
        told = pumice.memory_map(one, X)
    axes = Axes()
    assert told.plot(axes) is axes
    assert axes.names == ["a", "b"]
    assert [bar[:2] for bar in axes.bars] == [(0, 2), (1, 2)]
    assert [bar[3] for bar in axes.bars] == [8192, 8192]


def chain() -> onnx.ModelProto:
    return model([product("x", "a"), product("a", "b"), product("b", "y")])


def test_a_profile_has_the_maps_of_the_models_that_ran(context: pumice.Context, tmp_path: Path) -> None:
    with pumice.load(chain(), context) as one:
        one(X)
        with pumice.profile() as measured:
            for array in (X, X[:32], X):
                one(array)
        expected = [pumice.memory_map(one, array).as_dict() for array in (X, X[:32])]
    assert [each.as_dict() for each in measured.memory] == expected  # the maps stay available after the model is closed
    assert measured.as_dict()["memory"] == expected
    assert "16,384 bytes at the peak" in measured._repr_html_()
    axes = Axes()
    assert measured.plot("memory", axes) is axes and axes.names == ["a", "b"]
    measured.save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Memory</h2>" in page and page.count("Memory of chain") == 2
    assert "a: 8,192 bytes, waves 0 to 1, made by make_a" in page


def test_a_profile_without_models_has_no_memory(context: pumice.Context, tmp_path: Path) -> None:
    with pumice.load(chain(), context) as one:
        with pumice.profile() as measured:
            pass
        one(X)
    assert measured.memory == ()
    with pytest.raises(pumice.Error, match="no model with a single memory was called"):
        measured.plot("memory", Axes())
    measured.save_html(tmp_path / "page.html")
    assert "Memory" not in (tmp_path / "page.html").read_text()


def test_what_has_no_one_memory_is_left_out_of_a_profile(context: pumice.Context) -> None:
    with pumice.load(model([helper.make_node("NonZero", ["x"], ["y"])]), context) as cut, pumice.profile() as measured:
        cut(X)
    assert measured.memory == ()


def test_slices_of_one_allocation_count_once() -> None:
    sizes = {"arena_bytes": 100, "lower_bound_bytes": 0, "persistent_bytes": 0}
    tensors = [ArenaTensor("whole", "n", 0, 100, 0, 0), ArenaTensor("part", "n", 40, 60, 0, 0)]
    assert MemoryMap("m", tensors, [("n",)], sizes).peak_bytes == 100
    assert MemoryMap("m", [], [], sizes).peak_bytes == 0


def test_what_has_no_one_memory_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.Error, match="expected a Model, given str"):
        pumice.memory_map("m.onnx")  # type: ignore[arg-type]
    with pumice.load(model([product("x", "y")]), context) as one, pytest.raises(pumice.BindingError, match="K3"):
        pumice.memory_map(one)
    with (
        pumice.load(model([helper.make_node("NonZero", ["x"], ["y"])]), context) as cut,
        pytest.raises(pumice.UnsupportedError),
    ):
        pumice.memory_map(cut, X)
