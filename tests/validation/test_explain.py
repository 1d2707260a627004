"""report.explain() of the first wrong node: a minimal model that still fails, and other outcomes."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import pumice
from diagnosis_runner import replaced, run
from faults import FAULTS
from onnx_models import gemm, model, node, value
from process import python
from pumice.validation.search.explain import explain

BY_NUMBER = {fault.number: fault for fault in FAULTS}
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


pytestmark = pytest.mark.usefixtures("lavapipe")


CELLS = [(9, "fp32"), (9, "fp16"), (1, "fp32")]


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], dict[str, Any]]:
    """Explain each fault's sample, placed between other nodes; by fault and precision, with the folders and a second run on them."""
    tasks, folders = [], []
    for number, precision in CELLS:
        fault, root = BY_NUMBER[number], tmp_path_factory.mktemp("fault")
        shaders, target = root / "shaders", root / "explained"
        replaced(shaders, fault.path, fault.old, fault.new, fault.count)
        task = {"folder": str(shaders), "sample": fault.sample, "target": str(target), "precision": precision}
        tasks += [{**task, "action": "explain"}, {**task, "action": "again"}]
        folders.append((shaders, target))
    said = run(tasks)
    return {
        cell: {**said[2 * i], "again": said[2 * i + 1]["state"], "shaders": folders[i][0], "target": folders[i][1]}
        for i, cell in enumerate(CELLS)
    }


def test_a_wrong_node_is_a_model_of_its_own(explained: dict[tuple[int, str], dict[str, Any]]) -> None:
    found = explained[9, "fp32"]
    target = found["target"]
    assert (found["node"], found["nodes"], found["fails"]) == ("softmax", ["softmax"], True)
    assert found["again"] == "wrong"
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == [
        "explanation.txt",
        "model.onnx",
        "reproduce.py",
        "test_data_set_0/input_0.pb",
        "test_data_set_0/output_0.pb",
    ]
    onnx.checker.check_model(onnx.load(str(target / "model.onnx")), full_check=True)
    data = target / "test_data_set_0"
    given, expected = (numpy_helper.to_array(onnx.load_tensor(data / f"{one}_0.pb")) for one in ("input", "output"))
    exact = np.exp(given.astype(np.float64) - given.max(axis=1, keepdims=True))
    np.testing.assert_allclose(expected, exact / exact.sum(axis=1, keepdims=True), rtol=1e-6)
    assert (target / "explanation.txt").read_text() == found["text"]


def test_what_ran_and_what_happens_otherwise_is_reported(explained: dict[tuple[int, str], dict[str, Any]]) -> None:
    found = explained[9, "fp32"]
    kernel = re.compile(r"softmax(_held)?\.comp, \d+x1x1 workgroups")
    assert any(kernel.search(line) for line in found["kernels"]), found["kernels"]
    assert set(found["trials"]) >= {"as it was", "fuse=False", "deterministic=True"}
    assert all(said.startswith("wrong: node 'softmax'") for said in found["trials"].values())
    assert f"PUMICE_SHADERS={found['shaders']}" in found["text"]
    assert "softmax (Softmax)" in found["text"]
    assert "a: float32[13, 37]" in found["text"]


def test_a_fault_of_fusion_takes_both_nodes_and_goes_without_fusion(
    explained: dict[tuple[int, str], dict[str, Any]],
) -> None:
    found = explained[1, "fp32"]
    assert (found["nodes"], found["fails"]) == (["conv", "behind"], True)
    kernel = r"wrong: kernel conv_(cpu|tiled)\.comp \(conv, behind\) has"
    assert re.match(kernel, found["trials"]["as it was"]), found["trials"]
    assert found["trials"]["fuse=False"] == "right"


def test_fp32_is_tried_beside_fp16(explained: dict[tuple[int, str], dict[str, Any]]) -> None:
    assert explained[9, "fp16"]["trials"]["fp32"].startswith("wrong")
    assert "precision='fp16'" in explained[9, "fp16"]["line"]
    assert "fp32" not in explained[9, "fp32"]["trials"]


def test_the_line_reproduces_the_fault(explained: dict[tuple[int, str], dict[str, Any]]) -> None:
    found = explained[9, "fp32"]
    assert (found["target"] / "reproduce.py").read_text() == f"{found['line']}\n"
    faulty = python("reproduce.py", cwd=found["target"], PUMICE_SHADERS=str(found["shaders"]))
    assert "1 case: wrong: " in faulty.stdout, faulty.stderr
    right = python("reproduce.py", cwd=found["target"])
    assert "1 case: right: " in right.stdout, right.stderr


# ---- without faulty shaders


def test_an_output_that_no_submodel_explains_is_reported(context: pumice.Context, spoil: Callable[..., None]) -> None:
    """Only the optimised program's output is corrupted, and only once."""
    spoilt = [True]

    def change(results: dict[str, Any]) -> None:
        if spoilt[0] and "sum" in results:
            results["sum"] = results["sum"] + 1

    spoil(change, kept=False)
    report = pumice.validate(gemm().SerializeToString(), [X], context=context)
    assert report.state == "wrong"
    explanation = report.explain()
    assert (explanation.node, explanation.part.nodes, explanation.fails) == ("sum", ["gemm.sum"], True)
    spoilt[0] = False
    explanation = report.explain()
    assert (explanation.node, explanation.part.nodes, explanation.fails) == ("sum", ["gemm.sum", "relu.y"], False)
    assert explanation.trials["as it was"] == "right"
    assert "The part is right by itself" in str(explanation)
    np.testing.assert_array_equal(explanation.part.inputs["x"], X)


def test_submodels_are_checked_by_the_same_tolerances(context: pumice.Context) -> None:
    report = pumice.validate(gemm().SerializeToString(), [X], context=context, tolerances={"gemm.sum": 0.0})
    explanation = report.explain()
    assert (explanation.node, explanation.fails) == ("gemm.sum", True)
    assert explanation.trials["as it was"].endswith("allowed 0")


def test_an_index_out_of_range_is_explained(context: pumice.Context) -> None:
    proto = model(
        [node("Gather", ["t", "i"], ["g"], name="gather"), node("Neg", ["g"], ["y"], name="neg")],
        [value("i", [3], TensorProto.INT64)],
        constants={"t": X},
    )
    report = pumice.validate(proto, [np.int64([0, 7, 1])], context=context)
    explanation = report.explain()
    assert (explanation.part.nodes, explanation.fails) == (["gather"], True)
    assert "out of range" in explanation.trials["as it was"]
    assert explanation.expected == {}


def test_large_inputs_are_cropped(context: pumice.Context) -> None:
    """The 2.4 MB input is cropped to few rows: only the last one makes the model fail."""

    def last_row_fails(part: Any, setup: Any) -> Any:
        report = real(part, setup._replace(tolerances=None))
        fails = any((array == 7).any() for array in part.inputs.values())
        return SimpleNamespace(state="wrong", first_divergence=None) if fails else report

    x = np.zeros((600, 1000), np.float32)
    x[-1, 3] = 7
    proto = model([node("Softmax", ["x"], ["y"], name="softmax", axis=-1)], [value("x", ["N", 1000])])
    report = pumice.validate(proto, [x], context=context, tolerances={"softmax": 0.0})
    assert report.origin is not None
    real = report.origin.validate_subgraph
    report.origin = report.origin._replace(validate_subgraph=last_row_fails)
    explanation = report.explain()
    assert explanation.fails
    assert 100_000 < explanation.part.bytes <= 1 << 20
    (given,) = explanation.part.inputs.values()
    assert given[-1, 3] == 7
    assert explain(report, 100_000).part.bytes <= 100_000


def test_a_report_without_faults_has_nothing_to_explain(context: pumice.Context, tmp_path: Path) -> None:
    report = pumice.validate(gemm(), [X], context=context)
    with pytest.raises(pumice.Error, match="expected a report with a wrong row"):
        report.explain(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_submodels_keep_their_nodes_precision_policy(context: pumice.Context) -> None:
    ops = ("Neg", "Exp", "Tanh", "Softmax")
    nodes = [node(op, [f"t{i}" if i else "x"], [f"t{i + 1}"], name=op.lower()) for i, op in enumerate(ops)]
    proto = model(nodes, [value("x", ["N", 4])], ["t4"])
    options: dict[str, Any] = {
        "precision": {"default": "fp16", "exp": "fp32", "op:Softmax": "fp32"},
        "context": context,
    }
    explanation = pumice.validate(proto, [X], tolerances={"tanh": 0.0}, **options).explain()
    assert (explanation.part.nodes, explanation.precision) == (["tanh"], {"default": "fp16", "tanh": "fp16"})
    assert "precision={'default': 'fp16', 'tanh': 'fp16'}" in explanation.line

    def fails(proto: onnx.ModelProto, inputs: dict[str, Any]) -> bool:
        return {"Exp", "Softmax"} <= {one.op_type for one in proto.graph.node}

    found = pumice.reduce(proto, [X], fails=fails, **options)
    assert found.precision == {"default": "fp16", "exp": "fp32", "softmax": "fp32"}


def test_a_bisected_report_is_explained(context: pumice.Context) -> None:
    proto = model(
        [node("Gather", ["t", "i"], ["g"], name="gather"), node("Neg", ["g"], ["y"], name="neg")],
        [value("i", [3], TensorProto.INT64)],
        constants={"t": X},
    )
    report = pumice.validate(proto, [np.int64([0, 7, 1])], context=context, mode="bisect")
    assert report.explain().part.nodes == ["gather"]


def test_a_pickled_report_has_lost_its_model(context: pumice.Context) -> None:
    report = pumice.validate(gemm(), [X], context=context, tolerances={"gemm.sum": 0.0})
    again = pickle.loads(pickle.dumps(report))
    assert again.summary == report.summary
    with pytest.raises(pumice.Error, match="a pickled report or one of a candidate has none"):
        again.explain()


def test_the_model_may_be_closed(context: pumice.Context) -> None:
    with pumice.load(gemm(), context, precision="fp16") as loaded:
        report = pumice.validate(loaded, [X], tolerances={"gemm.sum": 0.0})
    assert report.explain().precision == "fp16"
