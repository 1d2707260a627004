"""Initializers that a file lists among its inputs: constants, or defaults of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_models import gemm, model, node, subgraph, value

Array = np.ndarray[Any, Any]
X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def with_inputs(version: int = 8) -> onnx.ModelProto:
    """A model whose first initializer is listed before the input, and the second after it."""
    proto = gemm()
    proto.ir_version = version
    inputs = [value("w", [4, 3]), *proto.graph.input, value("b", [3])]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    for output in proto.graph.output:
        output.CopyFrom(value(output.name, ["N", 3]))
    return proto


def by_runtime(proto: onnx.ModelProto, **inputs: Array) -> list[Array]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("given", [(), ("w",), ("b",), ("b", "w")])
@pytest.mark.parametrize("wanted", [True, ["w", "b"]])
def test_a_call_that_gives_an_initializer_uses_it(context: pumice.Context, given: tuple[str, ...], wanted: Any) -> None:
    proto = with_inputs()
    random = np.random.default_rng(7)
    others = {"w": random.standard_normal((4, 3), np.float32), "b": random.standard_normal(3, np.float32)}
    chosen = {name: others[name] for name in given}
    loaded = pumice.load(proto, context, overridable=wanted)
    assert [one.name for one in loaded.inputs] == ["x"]
    assert [str(one) for one in loaded.overridable] == ["w: float32[4, 3]", "b: float32[3]"]
    for ours, theirs in zip(loaded(X, **chosen), by_runtime(proto, x=X, **chosen), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(loaded(x=X), by_runtime(proto, x=X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", [3, 8])
def test_without_asking_they_are_constants_and_the_error_says_how(context: pumice.Context, version: int) -> None:
    loaded = pumice.load(with_inputs(version), context)
    assert not loaded.overridable
    with pytest.raises(pumice.BindingError, match=r"input 'w'.*constant unless.*overridable=\['w'\]"):
        loaded(X, w=np.zeros((4, 3), np.float32))
    one = pumice.load(with_inputs(version), context, overridable=["b"])
    assert [v.name for v in one.overridable] == ["b"]
    with pytest.raises(pumice.BindingError, match=r"overridable=\['w'\]"):
        one(X, w=np.zeros((4, 3), np.float32))
    np.testing.assert_array_equal(one(X, b=np.full(3, 1e3, np.float32))[0] > 900, True)


@pytest.mark.parametrize("wanted", [["k"], ["x"], ["w", "k"], "w"])
def test_what_is_no_such_initializer_is_rejected(wanted: Any) -> None:
    with pytest.raises(pumice.BindingError, match=f"'{wanted[-1]}': expected"):
        pumice.load(with_inputs(), overridable=wanted)
    with pytest.raises(pumice.BindingError, match="of which there are none"):
        pumice.load(gemm(), overridable=["w"])


@pytest.mark.parametrize("wanted", [5, [5], {"w": True}, b"w", np.True_])
def test_what_is_no_list_of_names_is_rejected(wanted: Any) -> None:
    with pytest.raises(pumice.BindingError, match="overridable '.*': expected True, False or a list of names; given"):
        pumice.load(with_inputs(), overridable=wanted)


@pytest.mark.parametrize("wanted", [("w",), {"w"}, frozenset(["w"])])
def test_names_may_come_as_a_tuple_or_a_set(context: pumice.Context, wanted: Any) -> None:
    assert [v.name for v in pumice.load(with_inputs(), context, overridable=wanted).overridable] == ["w"]
    for none in ((), set()):
        assert pumice.load(with_inputs(), context, overridable=none).overridable == []


def test_a_value_of_a_wrong_shape_or_type_is_rejected(context: pumice.Context) -> None:
    loaded = pumice.load(with_inputs(), context, overridable=True)
    with pytest.raises(pumice.BindingError, match=r"input 'w'.*\[4, 3\].*\[3, 4\]"):
        loaded(X, w=np.zeros((3, 4), np.float32))
    with pytest.raises(pumice.BindingError, match="input 'b'.*float32.*float64"):
        loaded(X, b=np.zeros(3))


def test_an_initializer_that_is_not_what_the_input_says_is_rejected() -> None:
    proto = with_inputs()
    proto.graph.input[0].CopyFrom(value("w", [4, 5]))
    pumice.load(proto)
    with pytest.raises(
        pumice.GraphError, match=r"input 'w': expected an initializer of float32\[4, 5\], given float32"
    ):
        pumice.load(proto, overridable=True)


def test_nothing_is_computed_beforehand_from_one(context: pumice.Context) -> None:
    """Covers a shape, axes that were once an attribute, and values captured by a branch."""
    nodes = [
        node("Reshape", ["x", "shape"], ["reshaped"]),
        node("ReduceSum", ["reshaped", "axes"], ["y"], keepdims=0),
        node(
            "If",
            ["flag"],
            ["z"],
            then_branch=subgraph([node("Add", ["x", "k"], ["t"])], [], [value("t", None)]),
            else_branch=subgraph([node("Sub", ["x", "k"], ["e"])], [], [value("e", None)]),
        ),
    ]
    constants = {
        "shape": np.array([4, 2]),
        "axes": np.array([0]),
        "flag": np.array([True]),
        "k": np.array([3], np.float32),
    }
    listed = [
        value("shape", [None], TensorProto.INT64),
        value("axes", [1], TensorProto.INT64),
        value("flag", [1], TensorProto.BOOL),
        value("k", [1]),
    ]
    loaded = pumice.load(model(nodes, [value("x", [2, 4]), *listed], ["y", "z"], constants), context, overridable=True)
    y, z = loaded(X)
    np.testing.assert_allclose(y, X.reshape(4, 2).sum(0), atol=1e-6)
    np.testing.assert_allclose(z, X + 3)
    y, z = loaded(X, axes=np.array([1]), flag=np.array([False]), k=np.array([5], np.float32), shape=np.array([1, 2, 4]))
    np.testing.assert_allclose(y, X.reshape(1, 2, 4).sum(1), atol=1e-6)
    np.testing.assert_allclose(z, X - 5)


def test_they_come_back_from_the_cache(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    path = tmp_path / "model.onnx"
    onnx.save(with_inputs(), path)
    w = np.ones((4, 3), np.float32)
    results = []
    for _ in range(2):
        with pumice.load(path, context, overridable=True) as loaded:
            results.append((loaded(X)[1], loaded(X, w=w)[1]))
        with pumice.load(path, context) as loaded, pytest.raises(pumice.BindingError, match="overridable"):
            loaded(X, w=w)
    np.testing.assert_array_equal(results[0], results[1])
    assert len(list((tmp_path / "cache" / "pumice" / "graphs").iterdir())) == 2


def test_they_are_validated_with_what_is_given(context: pumice.Context) -> None:
    loaded = pumice.load(with_inputs(), context, overridable=True)
    pumice.validate(loaded, [{"x": X}, {"x": X, "b": np.full(3, 7, np.float32)}]).raise_if_failed()
