"""mode="bisect": a binary search finds the node at which a prefix of the fused model becomes wrong, in few comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from test_injected_faults import faulty_folder, run, task

import pumice
from faults import FAULTS
from onnx_models import cast_at_boundaries, gemm, model, node, subgraph, value
from pumice.base.errors import InputError
from pumice.validation.reference.reference_model import ReferenceModel
from pumice.validation.reference.tensor_sources import ModelSplitter

FLOAT = np.float32
Array = np.ndarray[Any, Any]
DIGITS = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"
IMAGES = np.random.default_rng(0).random((3, 1, 8, 8)).astype(FLOAT)
X = np.random.default_rng(2).standard_normal((5, 4)).astype(FLOAT)
OPS = ("Neg", "Add", "Neg", "Mul")


def chain(length: int) -> onnx.ModelProto:
    """Return a chain of nodes that fusion reduces to a few kernels; every Add and Mul has its own constant."""
    nodes, constants = [], {}
    for i in range(length):
        op, name = OPS[i % len(OPS)], f"n{i}"
        inputs = ["x" if i == 0 else f"n{i - 1}"]
        if op in ("Add", "Mul"):
            constants[f"c{i}"] = np.full((4,), 1.02, FLOAT)
            inputs.append(f"c{i}")
        nodes.append(node(op, inputs, ["y" if i == length - 1 else name], name=name))
    return model(nodes, constants=constants)


@pytest.fixture
def mistaken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change constants of the reference only, so that the device is wrong at the nodes that read them."""
    begin = ReferenceModel.__init__

    def install(**changes: float) -> None:
        def init(self: ReferenceModel, *given: Any, **options: Any) -> None:
            begin(self, *given, **options)
            for name, change in changes.items():
                self.constants[name] = self.constants[name] + FLOAT(change)

        monkeypatch.setattr(ReferenceModel, "__init__", init)

    return install


def bisected(context: pumice.Context, source: Any, *cases: Any, **options: Any) -> pumice.ValidationReport:
    return pumice.validate(source, list(cases) or [X], context=context, mode="bisect", **options)


def told(report: pumice.ValidationReport) -> str:
    (text,) = [one.text for one in report.findings if one.kind == "bisected"]
    return text


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_right_outputs_are_not_searched(context: pumice.Context, precision: str) -> None:
    seen: list[tuple[int, int]] = []
    report = bisected(
        context, DIGITS, IMAGES, IMAGES[:1], precision=precision, progress=lambda *step: seen.append(step)
    )
    assert report.state == "right", report.summary
    assert [row.op for row in report.rows] == ["output"]
    assert told(report) == "the outputs are right: no prefix was searched"
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("at", [3, 5, 9, 21, 27, 39])
def test_the_first_wrong_node_is_named_with_few_probes(
    context: pumice.Context, mistaken: Callable[..., None], at: int
) -> None:
    mistaken(**{f"c{at}": 0.125})
    report = bisected(context, chain(40))
    assert report.state == "wrong"
    assert report.first_divergence is not None
    assert report.first_divergence.node == f"n{at}"
    probes = len({row.node for row in report.rows if row.op != "output"})
    assert probes <= math.ceil(math.log2(40)) + 1
    assert f"the first {at} of 40 nodes are right together; with node 'n{at}'" in told(report)
    with pytest.raises(pumice.ValidationError, match=f"node 'n{at}'"):
        report.raise_if_failed()


@pytest.mark.parametrize(("constant", "named"), [("c", "first"), ("d", "last")])
def test_the_first_node_and_the_last(
    context: pumice.Context, mistaken: Callable[..., None], constant: str, named: str
) -> None:
    made = model([node("Add", ["x", "c"], ["a"], name="first"), node("Mul", ["a", "d"], name="last")])
    for name, array in (("c", X[0]), ("d", X[1])):
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    mistaken(**{constant: 0.125})
    report = bisected(context, made)
    assert report.first_divergence is not None
    assert report.first_divergence.node == named
    assert [row.output for row in report.rows if row.op == "output"] == ["y"]


def test_an_error_that_disappears_hides_no_later_one(context: pumice.Context, mistaken: Callable[..., None]) -> None:
    """Wrong, then multiplied by zero, then wrong again: the search returns a node that turns a right prefix into a wrong one."""
    ops = [("Add", "c0"), ("Mul", "zero"), *(("Add", f"c{i}") for i in range(1, 14))]
    nodes = [
        node(op, ["x" if i == 0 else f"t{i - 1}", constant], ["y" if i == 14 else f"t{i}"], name=f"t{i}")
        for i, (op, constant) in enumerate(ops)
    ]
    constants = {f"c{i}": np.full((4,), i + 1, FLOAT) for i in range(14)}
    made = model(nodes, constants={**constants, "zero": np.zeros(4, FLOAT)})
    mistaken(c0=0.5)
    assert bisected(context, made).state == "right"  # the error is multiplied by zero
    mistaken(c9=0.5)
    first = bisected(context, made).first_divergence
    assert first is not None
    assert first.node in ("t0", "t10")


def test_a_fault_of_the_whole_program_alone_is_at_its_last_node(
    context: pumice.Context, spoil: Callable[..., None]
) -> None:
    def change(results: dict[str, Any]) -> None:
        if "y" in results:
            results["y"][0, 0] += 1

    spoil(change, kept=False)
    report = bisected(context, chain(9))
    assert report.first_divergence is not None
    assert report.first_divergence.node == "n8"
    assert "the first 8 of 9 nodes are right together" in told(report)


NUMBERS = (3, 6, 9, 41, 1)


@pytest.mark.slow
def test_injected_faults_are_found_by_bisection(context: pumice.Context) -> None:
    if "llvmpipe" not in context.info.name:
        pytest.skip("the faults are in kernels that lavapipe runs")
    rows = {fault.number: fault for fault in FAULTS if fault.number in NUMBERS}
    with TemporaryDirectory() as root:
        tasks = [
            {
                **task(fault.sample, "fp32", faulty_folder(fault, Path(root) / str(fault.number)), fault.on_gpu),
                "mode": "bisect",
            }
            for fault in rows.values()
        ]
        for fault, found in zip(rows.values(), run(tasks), strict=True):
            assert found["state"] == "wrong", found["summary"]
            # A fault in an epilogue shows only after the next node, which is fused into the kernel, is included.
            assert found["first"] == ("behind" if fault.fused_alone else fault.node), found["summary"]
            assert found["outputs"] == ["y"]
            assert "are right together" in found["bisected"][0]


def test_weights_beside_the_model_stay_there(
    context: pumice.Context, mistaken: Callable[..., None], tmp_path: Path
) -> None:
    proto = onnx.load(DIGITS)
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    name = next(one.name for one in proto.graph.initializer if one.name.startswith("fc1") and len(one.dims) == 1)
    mistaken(**{name: 0.01})
    report = bisected(context, tmp_path / "model.onnx", IMAGES)
    assert report.first_divergence is not None
    assert report.first_divergence.node == "fc1"


def test_bodies_keep_what_they_read(context: pumice.Context, mistaken: Callable[..., None]) -> None:
    branches = [subgraph([node(op, ["a"], [op])], [], [value(op, [5, 4])]) for op in ("Neg", "Abs")]
    made = model(
        [
            node("Add", ["x", "c"], ["a"], name="add"),
            node("ReduceSum", ["a"], ["s"], name="sum", keepdims=0),
            node("Greater", ["s", "k"], ["g"], name="greater"),
            node("If", ["g"], ["i"], name="if", then_branch=branches[0], else_branch=branches[1]),
            node("Mul", ["i", "d"], ["m"], name="mul"),
            node("Sin", ["m"], name="sin"),
        ],
        constants={"c": X[0], "d": X[1], "k": np.array(3000, FLOAT)},
    )
    assert bisected(context, made).state == "right"
    mistaken(d=0.25)
    first = bisected(context, made).first_divergence
    assert first is not None
    assert first.node == "mul"


def test_what_has_no_rule_is_unproved(context: pumice.Context) -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["r"], name="draw"),
        node("Add", ["x", "r"], name="add"),
        node("Neg", ["x"], ["z"], name="neg"),
    ]
    made = model(nodes, outputs=["y", "z"])
    report = bisected(context, made)
    assert report.state == "unproved"
    assert "depends on node 'draw'" in report.summary
    assert bisected(context, made, allow_unchecked=["y"]).ok
    assert told(report) == "the outputs are unproved, none is wrong: no prefix was searched"


def test_an_index_out_of_range_is_a_fault(context: pumice.Context) -> None:
    inputs = [value("x", [5, 4]), value("i", [2], TensorProto.INT64)]
    made = model([node("Gather", ["x", "i"], ["g"], name="gather"), node("Neg", ["g"], name="neg")], inputs)
    report = bisected(context, made, (X, np.array([1, 9])))
    assert report.first_divergence is not None
    assert report.first_divergence.node == "gather"
    assert "wrong index" in report.first_divergence.fault


def test_a_choice_that_rounding_may_turn_is_not_called_wrong(context: pumice.Context) -> None:
    made, x = cast_at_boundaries()
    for precision in ("fp32", "fp16"):
        report = bisected(context, made, x, precision=precision)
        assert report.first_divergence is None, report.summary


def test_behind_a_choice_the_device_is_asked(context: pumice.Context, mistaken: Callable[..., None]) -> None:
    """Nodes after an undecided choice are searched with the device's choice as input."""
    nodes = [
        node("Mul", ["x", "k"], ["a"], name="mul"),
        node("Cast", ["a"], ["b"], name="cast", to=TensorProto.INT64),
        node("Mod", ["b", "three"], ["m"], name="mod"),
        node("Cast", ["m"], ["c"], name="back", to=TensorProto.FLOAT),
        node("Add", ["x", "d"], ["e"], name="add"),
        node("Sin", ["e"], ["f"], name="sin"),
        node("Mul", ["c", "f"], name="last"),
    ]
    constants = {"k": np.array(3.3, FLOAT), "three": np.array(3), "d": np.array(0.25, FLOAT)}
    made = model(nodes, outputs=["y", "f"], constants=constants)
    x = (np.arange(40, dtype=FLOAT).reshape(10, 4) - 20) / FLOAT(3.3)
    assert bisected(context, made, x).first_divergence is None
    mistaken(d=0.125)
    report = bisected(context, made, x)
    assert report.first_divergence is not None
    assert report.first_divergence.node == "add"
    assert "runs for undecided choices" in told(report)


def test_tolerances_are_honoured(context: pumice.Context, mistaken: Callable[..., None]) -> None:
    mistaken(c3=0.001)
    assert bisected(context, chain(6)).state == "wrong"
    assert bisected(context, chain(6), tolerances={"y": 0.1}).state == "right"
    with pytest.raises(InputError, match="given 'nobody'"):
        bisected(context, chain(6), tolerances={"nobody": 0.1})


def test_what_bisection_does_not_do_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(InputError, match="supports only reference='float64', given 'onnx'"):
        bisected(context, gemm(), reference="onnx")
    with pytest.raises(InputError, match="expected no candidate with it"):
        pumice.validate(gemm(), [X], mode="bisect", candidate=lambda inputs: X)


def test_a_prefix_outputs_what_later_nodes_read() -> None:
    made = gemm()
    cuts = ModelSplitter(made, None, ReferenceModel(made))
    assert (cuts.find_live_values(1), cuts.find_live_values(2)) == (["sum"], ["sum", "y"])
    part = cuts.extract_prefix(1, ["sum"])
    assert ([one.op_type for one in part.graph.node], [one.name for one in part.graph.output]) == (["Gemm"], ["sum"])
    assert {one.name for one in part.graph.initializer} == {"w", "b"}
    assert made == gemm()  # the model itself is unchanged
