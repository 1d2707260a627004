"""Reduction of models to the smallest part that still fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import pumice
from diagnosis_runner import RESTLESS, replaced, run
from fault_models import SAMPLES
from faults import FAULTS
from onnx_models import model, node, subgraph, value
from process import python
from pumice.tools.cli import main
from pumice.validation.report.subgraph import _get_umask

Array = np.ndarray[Any, Any]
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
BY_NUMBER = {fault.number: fault for fault in FAULTS}


pytestmark = pytest.mark.usefixtures("lavapipe")


def chain() -> onnx.ModelProto:
    """Return a chain of twelve nodes, including a MatMul and branches that merge."""
    ops = ["Neg", "Abs", "Sigmoid", "Tanh", "Relu", "Neg"]
    nodes = [node(op, [f"t{i}" if i else "x"], [f"t{i + 1}"], name=f"{op} {i}") for i, op in enumerate(ops)]
    nodes += [
        node("MatMul", ["t6", "w"], ["m"], name="product"),
        node("Softmax", ["m"], ["s"], name="softmax"),
        node("Add", ["s", "b"], ["a"], name="add"),
        node("Mul", ["a", "m"], ["k"], name="mul"),
        node("Exp", ["k"], ["y"], name="exp"),
        node("Abs", ["s"], ["z"], name="side"),
    ]
    weights = {"w": np.eye(4, 5, dtype=np.float32), "b": np.ones(5, np.float32)}
    return model(nodes, [value("x", ["N", 4])], ["y", "z"], weights)


def ops_of(proto: onnx.ModelProto) -> list[str]:
    return [one.op_type for one in proto.graph.node]


def reduced(context: pumice.Context, fails: Any, proto: onnx.ModelProto | None = None) -> pumice.Reduction:
    given = proto or chain()
    return pumice.reduce(given.SerializeToString(), [X], context=context, fails=fails)


def test_nodes_that_do_not_matter_go(context: pumice.Context) -> None:
    found = reduced(context, lambda proto, inputs: "Softmax" in ops_of(proto))
    assert (ops_of(found.proto), found.before, found.after) == (["Softmax"], 12, 1)
    assert {name: array.shape for name, array in found.inputs.items()} == {"m": (1, 1)}
    assert found.expected["s"].tolist() == [[1.0]]
    assert "1 of 12 nodes still fail at fp32: 'softmax' (Softmax)" in str(found)


def test_two_nodes_that_are_apart_stay(context: pumice.Context) -> None:
    found = reduced(context, lambda proto, inputs: {"Softmax", "Sigmoid"} <= set(ops_of(proto)))
    assert ops_of(found.proto) == ["Sigmoid", "Softmax"]


def test_a_cut_edge_becomes_an_input_with_the_devices_numbers(context: pumice.Context) -> None:
    found = reduced(context, lambda proto, inputs: "Exp" in ops_of(proto) and all(len(a) == 6 for a in inputs.values()))
    with pumice.load(chain(), context) as whole:
        np.testing.assert_array_equal(found.expected["y"], np.exp(np.float64(found.inputs["k"])).astype(np.float32))
        np.testing.assert_allclose(whole(X)["y"][:, : found.inputs["k"].shape[1]], found.expected["y"], rtol=1e-5)


def test_results_that_do_not_matter_go(context: pumice.Context) -> None:
    nodes = [node("Split", ["x"], ["a", "b"], axis=1, name="split")]
    found = reduced(
        context,
        lambda proto, inputs: bool(proto.graph.node),
        model(nodes, [value("x", ["N", 4])], ["a", "b"], opset=13),
    )
    assert len(found.proto.graph.output) == 1


def test_k_of_matmuls_shrinks_with_their_weights(context: pumice.Context) -> None:
    """An axis of an input and one of a constant are halved together."""

    def fails(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        with pumice.load(proto, context, progress=False) as loaded:
            loaded(**inputs)
        return "MatMul" in ops_of(proto)

    found = reduced(context, fails)
    (weights,) = found.proto.graph.initializer
    assert (list(weights.dims), [array.shape for array in found.inputs.values()]) == ([1, 1], [(1, 1)])


def test_a_submodel_that_does_not_run_does_not_fail(context: pumice.Context) -> None:
    def fails(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        if len(proto.graph.node) < 12:
            raise pumice.GraphError("not runnable")
        return True

    assert reduced(context, fails).after == 12


def test_branches_take_what_they_capture(context: pumice.Context) -> None:
    then, other = (subgraph([node(op, ["t"], ["r"], name=f"in {op}")], [], [value("r", None)]) for op in ("Exp", "Abs"))
    nodes = [
        node("Neg", ["x"], ["t"], name="neg"),
        node("ReduceSum", ["x"], ["sum"], name="sum", keepdims=0),
        node("Greater", ["sum", "zero"], ["c"], name="greater"),
        node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other),
    ]
    proto = model(nodes, [value("x", ["N", 4])], constants={"zero": np.float32(0)})
    found = reduced(context, lambda proto, inputs: "If" in ops_of(proto), proto)
    assert ops_of(found.proto) == ["If"]
    assert set(found.inputs) == {"c", "t"}


def test_a_sequence_is_not_split(context: pumice.Context) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["s"], name="split", axis=0),
        node("ConcatFromSequence", ["s"], ["c"], name="join", axis=0),
        node("Abs", ["c"], ["y"], name="abs"),
    ]
    found = reduced(
        context, lambda proto, inputs: "ConcatFromSequence" in ops_of(proto), model(nodes, [value("x", [6, 4])])
    )
    assert ops_of(found.proto) == ["SplitToSequence", "ConcatFromSequence"]


def test_a_model_that_is_right_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.Error, match="expected a model that fails, given one that does not"):
        pumice.reduce(chain(), [X], context=context)
    with pytest.raises(pumice.Error, match="expected a part that fails"):
        reduced(context, lambda proto, inputs: False)


def test_the_case_that_fails_is_taken(context: pumice.Context) -> None:
    cases = [np.zeros((2, 4), np.float32), np.full((2, 4), 3, np.float32)]
    found = pumice.reduce(
        chain(), cases, context=context, fails=lambda proto, inputs: any((a == 3).any() for a in inputs.values())
    )
    assert [a.tolist() for a in found.inputs.values()] == [[[3.0]]]


# ---- faults in shaders


@pytest.mark.parametrize(("number", "ops"), [(9, ["Softmax"]), (1, ["Conv", "Tanh"])])
def test_a_fault_is_reduced_to_the_nodes_that_it_needs(number: int, ops: list[str], tmp_path: Path) -> None:
    """The second fault is in the epilogue, so two nodes are needed."""
    fault = BY_NUMBER[number]
    folder = str(replaced(tmp_path / "shaders", fault.path, fault.old, fault.new, fault.count))
    target = str(tmp_path / "reduced")
    first, faulty, right = run(
        [
            {"action": "reduce", "folder": folder, "sample": fault.sample, "target": target},
            {"action": "again", "folder": folder, "target": target},
            {"action": "again", "folder": "", "target": target},
        ]
    )
    assert first["ops"] == ops
    assert all(max(shape) <= 2 for shape in first["shapes"].values())
    assert (faulty["state"], right["state"]) == ("wrong", "right")


@pytest.mark.parametrize(
    ("name", "ops"), [("norm", ["LayerNormalization"]), ("fused norm", ["LayerNormalization", "Tanh"])]
)
def test_what_differs_from_run_to_run_is_reduced_too(name: str, ops: list[str], tmp_path: Path) -> None:
    task = {"folder": str(replaced(tmp_path / "shaders", *RESTLESS[name])), "sample": "layer norm", "repeat": 10}
    found, text = run(
        [
            {**task, "action": "reduce", "target": str(tmp_path / "reduced")},
            {**task, "action": "explain", "target": str(tmp_path / "explained")},
        ]
    )
    assert found["ops"] == ops
    assert (text["fails"], len(text["nodes"])) == (True, len(ops))
    assert text["trials"]["as it was"] == "right; 5 of 10 runs differ"
    fused = name == "fused norm"
    assert text["trials"]["fuse=False"] == f"right; {'the same bits in 10 runs' if fused else '5 of 10 runs differ'}"
    assert "repeat=10" in text["line"]
    assert "The part differs from run to run by itself" in text["text"]


def test_the_command_writes_the_submodel(tmp_path: Path) -> None:
    fault = BY_NUMBER[9]
    folder = replaced(tmp_path / "shaders", fault.path, fault.old, fault.new, fault.count)
    sample = SAMPLES[fault.sample]()
    onnx.save(sample.proto, str(tmp_path / "model.onnx"))
    np.save(tmp_path / "x.npy", sample.inputs[0])
    given = ("-m", "pumice", "reduce", "model.onnx", "-i", "x.npy", "-o", "small")
    done = python(*given, cwd=tmp_path, PUMICE_SHADERS=str(folder))
    assert done.returncode == 0, done.stderr
    assert "1 of 3 nodes still fail at fp32: 'softmax' (Softmax)" in done.stdout
    assert_is_an_example(tmp_path / "small")


def test_the_command_looks_for_what_differs(tmp_path: Path) -> None:
    folder = replaced(tmp_path / "shaders", *RESTLESS["norm"])
    onnx.save(SAMPLES["layer norm"]().proto, str(tmp_path / "model.onnx"))
    given = ("-m", "pumice", "reduce", "model.onnx", "--dim", "x[0]=9", "--repeat", "8", "-o", "small", "--json")
    done = python(*given, cwd=tmp_path, PUMICE_SHADERS=str(folder))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["before"], record["after"], record["folder"]) == (3, 1, "small")
    assert record["nodes"] == [{"node": "norm", "op": "LayerNormalization"}]
    assert_is_an_example(tmp_path / "small")


def test_the_command_rejects_right_models_and_folders_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "model.onnx")
    onnx.save(chain(), path)
    assert main(["reduce", path, "--dim", "N=6", "-o", str(tmp_path / "other")]) == 2
    assert "expected a model that fails" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    assert main(["reduce", path, "--dim", "N=6", "-o", str(tmp_path)]) == 2
    assert "expected a new or an empty folder, given a folder that is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT8])
def test_tensors_of_all_kinds_are_stored(context: pumice.Context, tmp_path: Path, kind: int, precision: str) -> None:
    nodes = [
        node("Cast", ["x"], ["a"], name="cast", to=kind),
        node("Add", ["a", "a"], ["b"], name="add"),
        node("Cast", ["b"], ["y"], name="back", to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [value("x", ["N", 4])], opset=18)
    found = pumice.reduce(
        proto, [X], context=context, precision=precision, fails=lambda proto, inputs: "Add" in ops_of(proto)
    )
    assert ops_of(found.proto) == ["Add"]
    found.save(tmp_path / "small")
    assert_is_an_example(tmp_path / "small")
    tensor = onnx.load_tensor(str(tmp_path / "small" / "test_data_set_0" / "input_0.pb"))
    assert tensor.data_type == kind


def test_weights_in_files_of_their_own_are_taken_along(context: pumice.Context, tmp_path: Path) -> None:
    proto = chain()
    weights = next(one for one in proto.graph.initializer if one.name == "w")
    onnx.external_data_helper.set_external_data(weights, "weights.bin")
    onnx.save(proto, str(tmp_path / "model.onnx"))
    assert (tmp_path / "weights.bin").exists()
    found = pumice.reduce(
        tmp_path / "model.onnx", [X], context=context, fails=lambda proto, inputs: "MatMul" in ops_of(proto)
    )
    assert [one.name for one in found.proto.graph.initializer] == ["w"]
    found.save(tmp_path / "small")
    assert_is_an_example(tmp_path / "small")


def assert_is_an_example(folder: Path) -> None:
    """Check that the folder has the layout of ONNX's own tests, with a model that the onnx package accepts."""
    proto = onnx.load(str(folder / "model.onnx"))
    onnx.checker.check_model(proto, full_check=True)
    for kind, values in (("input", proto.graph.input), ("output", proto.graph.output)):
        for index, declared in enumerate(values):
            tensor = onnx.load_tensor(str(folder / "test_data_set_0" / f"{kind}_{index}.pb"))
            assert tensor.name == declared.name
            assert list(tensor.dims) == [size.dim_value for size in declared.type.tensor_type.shape.dim]
            assert numpy_helper.to_array(tensor).size > 0


# ---- files


def test_an_interrupt_leaves_no_partial_files(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reduced(context, lambda proto, inputs: "Softmax" in ops_of(proto))
    real, written = Path.write_bytes, []

    def interrupted(self: Path, content: bytes) -> int:
        if written:
            raise KeyboardInterrupt
        written.append(self)
        return real(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            found.save(tmp_path / "deep" / "folder")
    assert written
    assert list((tmp_path / "deep").iterdir()) == []
    found.save(tmp_path / "deep" / "folder")
    assert_is_an_example(tmp_path / "deep" / "folder")


def test_files_of_others_stay(context: pumice.Context, tmp_path: Path) -> None:
    found = reduced(context, lambda proto, inputs: "Softmax" in ops_of(proto))
    (tmp_path / "own.txt").write_text("mine")
    for target in (tmp_path, tmp_path / "own.txt"):
        with pytest.raises(pumice.Error, match="expected a new or an empty folder"):
            found.save(target)
    (tmp_path / "empty").mkdir()
    found.save(tmp_path / "empty")
    assert_is_an_example(tmp_path / "empty")
    assert os.stat(tmp_path / "empty").st_mode & 0o777 == 0o777 & ~_get_umask()
