"""inputs="reference": each node runs alone, in its own program, on the reference's values."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import gemm, model, node, value
from pumice.base.errors import InputError
from pumice.tools.cli import main
from pumice.validation.reference import single_node_programs
from pumice.validation.reference.single_node_programs import ReferenceValues, SingleNodePrograms

Array = np.ndarray[Any, Any]
FLOAT = np.float32


def overflowing() -> onnx.ModelProto:
    """Return a MatMul that overflows fp16, with later nodes that bring the values back to normal sizes."""
    nodes = [
        node("MatMul", ["x", "big"], ["product"], name="product"),
        node("Mul", ["product", "small"], ["scaled"], name="scaled"),
        node("Sub", ["scaled", "one"], ["less"], name="less"),
        node("Tanh", ["less"], ["y"], name="tanh"),
    ]
    constants = {"big": np.full((4, 3), 3e4, FLOAT), "small": FLOAT(1 / 65536), "one": FLOAT(1)}
    return model(nodes, [value("x", [2, 4])], constants=constants)


X = np.random.default_rng(0).uniform(1, 2, (2, 4)).astype(FLOAT)


def reported(source: Any, *inputs: Array, **options: Any) -> pumice.ValidationReport:
    return pumice.validate(source, [inputs], mode="isolated", inputs="reference", **options)


def kinds(report: pumice.ValidationReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def test_nodes_behind_an_overflow_are_right_by_themselves(context: pumice.Context) -> None:
    report = reported(overflowing(), X, context=context, precision="fp16")
    assert report.state == "right"
    assert [(row.node, row.verdict) for row in report.rows] == [
        (name, "right") for name in ("product", "scaled", "less", "tanh")
    ]
    assert {one.node for one in report.findings if one.kind == "overflow"} == {"product"}
    behind = [row.deviation for row in report.rows[1:]]
    assert all(one is not None and math.isfinite(one.actual) for one in behind)
    assert report.as_dict()["options"]["inputs"] == "reference"


def test_a_fault_behind_an_overflow_is_found(context: pumice.Context, spoil: Callable[..., None]) -> None:
    """With the device's inputs the node would read infinity, and infinity plus the fault is still infinity."""

    def change(results: dict[str, Any]) -> None:
        if "less" in results:
            results["less"] += FLOAT(0.25)

    spoil(change, kept=False)
    report = reported(overflowing(), X, context=context, precision="fp16")
    assert [row.node for row in report.rows if row.verdict == "wrong"] == ["less"]
    assert report.first_divergence is not None
    assert report.state == "wrong"


def test_what_is_not_checked_is_reported(context: pumice.Context) -> None:
    report = reported(gemm(), X, context=context)
    text = next(one.text for one in report.findings if one.kind == "kernels not judged")
    assert "the optimised program did not run" in text
    assert "an If, a Loop or a Scan together with its bodies" in text
    assert not report.kernels
    assert not [row for row in report.rows if row.program != "nodes"]
    assert "kernels not judged" not in kinds(pumice.validate(gemm(), [(X,)], context=context, mode="isolated"))


@pytest.mark.parametrize("precision", ["fp32", "fp16", {"default": "fp16", "less": "fp32", "tanh": "fp32"}])
def test_nodes_are_checked_at_their_own_precision(context: pumice.Context, precision: Any) -> None:
    report = reported(overflowing(), X / FLOAT(1e3), context=context, precision=precision)
    assert report.state == "right"
    judged = {row.node: row.deviation for row in report.rows}
    assert all(one is not None and one.elements for one in judged.values())
    # Multiplication by a power of two is exact, and so is the difference of close numbers.
    assert all(one is not None and one.allowed > 0 for name, one in judged.items() if name in ("product", "tanh"))


def _branch(op: str, name: str) -> onnx.GraphProto:
    return onnx.helper.make_graph(
        [node(op, ["x"], [name])], name, [], [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)]
    )


def test_control_flow_runs_as_one_node(context: pumice.Context) -> None:
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=_branch("Exp", "e"), else_branch=_branch("Neg", "n")),
    ]
    source = model(nodes, [value("x", [2, 4])], constants={"zero": FLOAT(0)})
    report = reported(source, X, context=context)
    assert [(row.op, row.verdict) for row in report.rows] == [(op, "right") for op in ("ReduceSum", "Greater", "If")]


def test_sizes_that_nodes_compute_and_constants_that_they_fold_are_given(context: pumice.Context) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "last"], ["count"]),
        node("Concat", ["minus", "count"], ["wanted"], axis=0),
        node("Transpose", ["x"], ["t"]),
        node("Reshape", ["t", "wanted"], ["r"]),
        node("Transpose", ["w"], ["turned"]),
        node("MatMul", ["r", "turned"], ["y"]),
    ]
    constants = {"last": np.int64([1]), "minus": np.int64([-1]), "w": np.ones((3, 4), FLOAT)}
    report = reported(model(nodes, [value("x", [2, 4])], constants=constants), X, context=context)
    assert report.state == "right"
    assert {"Reshape", "MatMul"} <= {row.op for row in report.rows}


def test_what_cannot_run_by_itself_is_unproved_and_what_follows_is_checked(context: pumice.Context) -> None:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("ConcatFromSequence", ["s"], ["c"], axis=0),
        node("Relu", ["c"], ["y"]),
    ]
    source = model(nodes, [value("x", [2, 4])])
    report = reported(source, X, context=context)
    verdicts = {row.op: (row.verdict, row.note) for row in report.rows}
    assert verdicts["ConcatFromSequence"] == ("unproved", "no tensor is stored for s")
    assert verdicts["Relu"][0] == "right"
    assert report.state == "unproved"
    allowed = ["SequenceConstruct", "ConcatFromSequence"]
    assert reported(source, X, context=context, allow_unchecked=allowed).ok


def test_behind_what_no_rule_covers_the_devices_result_goes_on(context: pumice.Context) -> None:
    nodes = [node("RandomUniformLike", ["x"], ["r"]), node("Exp", ["r"], ["y"])]
    report = reported(model(nodes, [value("x", [2, 4])]), X, context=context)
    assert [row.verdict for row in report.rows] == ["unproved", "right"]


def test_functions_of_the_callers_check_too(context: pumice.Context) -> None:
    def relu(_: Any, inputs: list[Any]) -> Any:
        return np.maximum(inputs[0], 0) + 1

    report = reported(gemm(), X, context=context, reference={"Relu": relu})
    assert [row.op for row in report.rows if row.verdict == "wrong"] == ["Relu"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"inputs": "host"}, "expected 'device' or 'reference', given 'host'"),
    ({"inputs": "reference"}, "expected mode='isolated' with it, given 'both'"),
    ({"inputs": "reference", "mode": "chained"}, "given 'chained'"),
    ({"inputs": "reference", "mode": "bisect"}, "given 'bisect'"),
    ({"inputs": "reference", "mode": "isolated", "repeat": 4}, "expected no repeat"),
    ({"inputs": "reference", "mode": "isolated", "reference": "onnx"}, "or functions, given 'onnx'"),
    ({"inputs": "reference", "mode": "isolated", "reference": "run"}, "or functions, given 'run'"),
    ({"inputs": "reference", "mode": "isolated", "reference": "fp16"}, "or functions, given 'fp16'"),
    ({"inputs": "reference", "mode": "isolated", "candidate": lambda given: {}}, "expected no 'reference'"),
]


@pytest.mark.parametrize(("options", "text"), REFUSED, ids=[one[1] for one in REFUSED])
def test_the_argument_is_rejected_where_it_says_nothing(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=r"validate: inputs: ") as caught:
        pumice.validate(gemm(), [(X,)], **options)
    assert text in str(caught.value)


def test_progress_counts_every_node_of_every_case(context: pumice.Context) -> None:
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    options: dict[str, Any] = {"context": context, "mode": "isolated", "inputs": "reference", "progress": progress}
    pumice.validate(gemm(), [(X,), (X,)], **options)
    assert seen == [(k + 1, 6) for k in range(6)]


def test_programs_are_closed_one_by_one_and_after_an_interrupt(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[set[int]] = []
    opened: set[int] = set()
    load, close = single_node_programs.ModelLoadSetup.load_subgraph, pumice.Model.close

    def loading(self: Any, part: Any) -> Any:
        made = load(self, part)
        opened.add(id(made))
        alive.append(set(opened))
        return made

    def closing(self: Any) -> None:
        opened.discard(id(self))
        close(self)

    monkeypatch.setattr(single_node_programs.ModelLoadSetup, "load_subgraph", loading)
    monkeypatch.setattr(pumice.Model, "close", closing)

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reported(overflowing(), X, context=context, progress=interrupt)
    assert [len(one) for one in alive] == [1, 1]
    assert not opened


def test_of_many_tensors_those_are_kept_that_nodes_still_read(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, count = 512, 12
    names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
    nodes = [node("Sigmoid" if k % 2 else "Neg", [names[k]], [names[k + 1]]) for k in range(count)]
    held: list[int] = []
    run = SingleNodePrograms.run
    values: list[ReferenceValues] = []
    begin = ReferenceValues.__init__

    def beginning(self: ReferenceValues, *given: Any) -> None:
        begin(self, *given)
        values.append(self)

    def running(self: SingleNodePrograms, *given: Any) -> Any:
        held.append(sum(one.nbytes for one in values[0]._values.values()))
        return run(self, *given)

    monkeypatch.setattr(ReferenceValues, "__init__", beginning)
    monkeypatch.setattr(SingleNodePrograms, "run", running)
    tracemalloc.start()
    try:
        x = np.ones((side, side), FLOAT)
        assert reported(model(nodes, [value("x", [side, side])]), x, context=context).state == "right"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(held) == x.nbytes
    assert peak < 16 * x.nbytes


def test_the_command_line_takes_it(context: pumice.Context, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "x.npy"
    onnx.save(overflowing(), path)
    np.save(data, X)
    arguments = ["validate", str(path), "--input", f"x={data}", "--precision", "fp16", "--json"]
    status = main([*arguments, "--mode", "isolated", "--inputs", "reference", "--device", f"uuid:{context.info.uuid}"])
    record = json.loads(capsys.readouterr().out)
    assert (status, record["verdict"], record["options"]["inputs"]) == (0, "right", "reference")
    assert main([*arguments, "--inputs", "reference", "--device", f"uuid:{context.info.uuid}"]) == 2
    assert "expected mode='isolated'" in capsys.readouterr().err
