"""Descriptions and devices are value types; models are pickled by their source; tables and lists have a readable repr."""

from __future__ import annotations

import copy
import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pumice
from binding_tables import F64, operator, parts
from onnx_models import model, node
from process import output_of
from pumice import BindingTable, Buffer, BufferRange, CommandList, TensorDesc

DIGITS = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"


@st.composite
def descs(draw: st.DrawFn) -> TensorDesc:
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = draw(st.sampled_from(["float32", "float16", "int8", "int4", "bool", "float8_e4m3fn"]))
    given_strides = st.lists(st.integers(0, 40), min_size=len(shape), max_size=len(shape))
    strides = draw(st.none() | given_strides)
    options: dict[str, Any] = {"owned": draw(st.booleans()), "alignment": draw(st.sampled_from([0, 16, 64]))}
    if shape and draw(st.booleans()):
        options |= {
            "channel_axis": 0,
            "scale": [0.5 + i for i in range(shape[0])],
            "zero_point": draw(st.integers(-8, 7)),
        }
    elif draw(st.booleans()):
        options |= {"scale": draw(st.floats(0.125, 4, width=32))}
    desc = TensorDesc(dtype, shape, strides, **options)
    if draw(st.booleans()):
        desc = TensorDesc(dtype, shape, strides, total_bytes=desc.bytes + 64, **options)
    return desc


@given(one=descs(), other=descs())
@settings(max_examples=200, deadline=None)
def test_descriptions_are_compared_hashed_and_pickled(one: TensorDesc, other: TensorDesc) -> None:
    for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert again == one
        assert hash(again) == hash(one)
        for name in ("dtype", "shape", "strides", "owned", "alignment", "scale", "zero_point", "channel_axis", "bytes"):
            assert getattr(again, name) == getattr(one, name)
    assert (one == other) is not (one != other)
    assert one != "TensorDesc"
    if one == other:
        assert hash(one) == hash(other)
    assert len({one, other, copy.copy(one)}) == (1 if one == other else 2)


def test_devices_are_compared_hashed_and_pickled(context: pumice.Context) -> None:
    for info in [*pumice.devices(), context.info]:
        again = pickle.loads(pickle.dumps(info))
        assert again == info
        assert hash(again) == hash(info)
        for name in dir(type(info)):
            if not name.startswith("_"):
                assert getattr(again, name) == getattr(info, name) or callable(getattr(again, name))
        assert {info: "here"}[again] == "here"
        for matrix in info.matrices:
            assert pickle.loads(pickle.dumps(matrix)) == matrix
    with pumice.Context(f"uuid:{context.info.uuid}", without=["shaderFloat64"]) as masked:
        assert masked.info != context.info or not context.feature("shaderFloat64")
    devices = pumice.devices()
    assert pickle.loads(pickle.dumps(devices)) == devices
    with pytest.raises(ValueError, match="another version"):
        TensorDesc.__new__(TensorDesc).__setstate__((1, 2))  # type: ignore[attr-defined]


def small(tmp_path: Path) -> tuple[onnx.ModelProto, Path]:
    proto = model([node("Relu", ["x"], ["y"])], outputs=["y"])
    path = tmp_path / "small.onnx"
    onnx.save(proto, path)
    return proto, path


X = np.array([[-1, 2, -3, 4]], "float32")


def test_a_model_is_pickled_by_its_source(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto, path = small(tmp_path)
    monkeypatch.chdir(tmp_path)
    sources: list[Any] = [
        path,
        str(path),
        "small.onnx",
        proto.SerializeToString(),
        bytearray(proto.SerializeToString()),
        proto,
    ]
    for source in sources:
        with pumice.load(source, context, "fp16", fuse=False) as loaded:
            data = pickle.dumps(loaded)
            monkeypatch.chdir("/")
            again = pickle.loads(data)
            monkeypatch.chdir(tmp_path)
            assert again is not loaded
            assert (again.name, again.precision) == (Path(str(loaded.name)).name, "fp16")
            assert again.context is context
            np.testing.assert_array_equal(again(X), loaded(X))
            assert copy.deepcopy(again)(X).tolist() == loaded(X).tolist()
            again.close()
    with pytest.raises(pumice.StateError, match="closed"):
        pickle.dumps(loaded)


def test_a_pickled_model_comes_back_in_another_process(tmp_path: Path) -> None:
    _, path = small(tmp_path)
    with pumice.Context(without=["shaderFloat64"]) as context:
        loaded = pumice.load(path, context)
        (tmp_path / "model.pickle").write_bytes(pickle.dumps(loaded))
    script = f"""
import pickle, numpy
with open({str(tmp_path / "model.pickle")!r}, "rb") as file:
    model = pickle.load(file)
print(model(numpy.array([[-1, 2, -3, 4]], "float32")).tolist(), model.context.without, model.context.info.uuid)
"""
    assert output_of("-c", script).split() == f"[[0.0, 2.0, 0.0, 4.0]] ['shaderFloat64'] {context.info.uuid}".split()


def test_the_options_of_a_pickled_model_come_with_it(context: pumice.Context) -> None:
    noise = model([node("RandomUniformLike", ["x"], ["y"])], outputs=["y"])
    with pumice.load(noise, context, seed=5) as loaded:
        again = pickle.loads(pickle.dumps(loaded))
    with pumice.load(noise, context, seed=5) as loaded:
        assert again.seed == 5
        np.testing.assert_array_equal(again(X), loaded(X))
    with pumice.Context(f"uuid:{context.info.uuid}") as own:
        data = pickle.dumps(pumice.load(noise, own))
    gc.collect()
    with pickle.loads(data) as elsewhere:  # its context is closed: use another one of that device
        assert elsewhere.context.info.uuid == context.info.uuid
        assert not elsewhere.context.closed


def test_tables_and_lists_say_what_they_hold(context: pumice.Context) -> None:
    relu = operator(context, "Relu", [F64], [F64])
    memory = Buffer(context, 4096)
    table = BindingTable(relu)
    assert repr(table) == "<BindingTable of 'Relu': inputs unbound; outputs unbound>"
    table.bind_inputs(parts(memory, 0))
    table.bind_outputs(parts(memory, 256))
    place = f"of buffer {memory.id}"
    assert repr(table) == (
        f"<BindingTable of 'Relu': inputs (x: 256 bytes at offset 0 {place}); outputs (y: 256 bytes at offset 256 {place})>"
    )
    assert repr(BufferRange(memory, 64, 32)) == f"<BufferRange 32 bytes at offset 64 {place}>"
    commands = CommandList(context)
    assert "0 dispatches, not committed" in repr(commands)
    initializer = pumice.Initializer(context, [relu])
    initial = BindingTable(initializer)
    initial.bind_inputs([None])
    initial.bind_outputs([None])
    assert repr(initial) == "<BindingTable of 'initializer': inputs (Relu: None); outputs (Relu: None)>"
    commands.dispatch(initializer, initial)
    commands.dispatch(relu, table)
    commands.copy(*parts(memory, 256, 512))
    assert "2 dispatches, not committed" in repr(commands)
    commands.commit()
    assert "<CommandList of 2 dispatches and 1 barrier, committed, on '" in repr(commands)
    late = operator(context, "Relu", [F64], [F64], flags=["DESCRIPTORS_VOLATILE"])
    commands = CommandList(context)
    commands.dispatch(late, BindingTable(late))
    assert "1 table read by exec()" in repr(commands)
