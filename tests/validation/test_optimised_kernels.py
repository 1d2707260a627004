"""Kernels of the optimised program, checked one at a time: a fusion's fault is assigned to a node, and a more exact fusion is not wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pumice
from observed_programs import ObservedProgram
from onnx_models import model, node, value

FLOAT = np.float32
RANDOM = np.random.default_rng(11)


def chain(step: int = 1) -> bytes:
    """Return Conv, BatchNormalization and Relu as one kernel and MaxPool as another; with step=2, all of them are one kernel."""
    constants = {
        "w": RANDOM.standard_normal((6, 3, 3, 3)).astype(FLOAT),
        "scale": RANDOM.uniform(0.5, 2, 6).astype(FLOAT),
        "shift": RANDOM.standard_normal(6).astype(FLOAT),
        "mean": RANDOM.standard_normal(6).astype(FLOAT),
        "var": RANDOM.uniform(0.5, 2, 6).astype(FLOAT),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], name="norm"),
        node("Relu", ["n"], ["r"], name="relu"),
        node("MaxPool", ["r"], ["y"], name="pool", kernel_shape=[2, 2], strides=[step, step]),
    ]
    made: bytes = model(nodes, [value("x", [1, 3, 8, 8])], constants=constants).SerializeToString()
    return made


@pytest.mark.parametrize("op", ["Identity", "Flatten", "Unsqueeze"])
def test_a_cast_behind_a_view_has_that_node_alone(op: str, context: pumice.Context) -> None:
    nodes = [node("Softmax", ["x"], ["s"]), node("MatMul", ["s", "w"], ["m"], name="product")]
    nodes.append(node(op, ["m", "axes"] if op == "Unsqueeze" else ["m"], name="view"))
    constants = {"w": RANDOM.standard_normal((8, 8)).astype(FLOAT), "axes": np.array([0])}
    source = model(nodes, [value("x", [4, 8])], constants=constants)
    report = pumice.validate(source, [RANDOM.standard_normal((4, 8)).astype(FLOAT)], context=context, precision="fp16")
    assert report.ok and {row.members for row in report.kernels if row.output == "y"} <= {("view",)}


def image() -> Any:
    return RANDOM.standard_normal((1, 3, 8, 8)).astype(FLOAT)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_every_tensor_that_a_kernel_stores_is_proved(context: pumice.Context, precision: str) -> None:
    report = pumice.validate(chain(), [image()], context=context, precision=precision)
    report.raise_if_failed()
    members = {row.output: row.members for row in report.kernels}
    assert members["r"] == ("conv", "norm", "relu")
    assert members["y"] == ("pool",)
    assert all(row.kernel.endswith(".comp") and row.verdict == "right" for row in report.kernels)
    assert "that its kernels store" in report.verdict


class Observed(ObservedProgram):
    """A program with corrupted kernel results: only in observations, or also in the results of calls."""

    def observe(
        self, inputs: tuple[Any, ...], names: set[str] | None = None, steps: int | None = None
    ) -> dict[str, Any]:
        found = dict(self._program.observe(inputs, names, steps))
        if steps is None:
            self._change({one["name"]: one["array"] for one in found["tensors"]})
        return found


def test_what_fusion_breaks_is_found_at_its_kernel(context: pumice.Context) -> None:
    def change(stored: dict[str, Any]) -> None:
        stored["r"][0, 2, 3, 4] += 1

    with pumice.load(chain(), context) as loaded:
        loaded._program = Observed(loaded._program, change)  # type: ignore[arg-type, assignment]
        report = pumice.validate(loaded, [image()])
    assert report.state == "wrong"
    assert {row.verdict for row in report.rows if row.program == "nodes"} == {"right"}
    first = report.first_divergence
    assert first is not None and first.local is not None
    assert (first.program, first.node, first.local.at) == ("kernels", "relu", (0, 2, 3, 4))
    assert "'conv', 'norm', 'relu'" in report.summary
    with pytest.raises(pumice.ValidationError, match="relu"):
        report.raise_if_failed()
    # Later kernels are checked on their actual inputs, so the pool that read the corrupted tensor is not reported.
    assert next(row.output for row in report.kernels if row.verdict == "wrong") == "r"


def test_a_node_that_is_wrong_where_nobody_runs_it_leaves_the_verdict_alone(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pumice.validation.reference.tensor_sources import DeviceTensors

    made = DeviceTensors.compute_tensors

    def spoilt(self: DeviceTensors, inputs: dict[str, Any]) -> dict[str, Any]:
        results = made(self, inputs)
        results["n"] = results["n"].copy()
        results["n"][0, 1, 2, 3] += 1
        return results

    monkeypatch.setattr(DeviceTensors, "compute_tensors", spoilt)
    report = pumice.validate(chain(), [image()], context=context)
    assert {row.node for row in report.rows if row.verdict == "wrong"} >= {"norm"}
    assert report.state == "right" and report.ok and report.first_divergence is None
    told = [one.text for one in report.findings if one.kind == "wrong value"]
    assert told and all("program of single nodes alone" in one for one in told)


def test_tensors_in_a_concatenation_are_read_with_their_strides(context: pumice.Context) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="first"),
        node("Neg", ["x"], ["b"], name="second"),
        node("Concat", ["a", "b"], ["c"], name="join", axis=1),
        node("Transpose", ["c"], ["t"], name="turn", perm=[1, 0]),
        node("Softmax", ["t"], ["y"], name="soft", axis=0),
    ]
    source = model(nodes, [value("x", [3, 5])]).SerializeToString()
    x = RANDOM.standard_normal((3, 5)).astype(FLOAT)
    with pumice.load(source, context) as loaded:
        stored = {one["name"]: one["array"] for one in loaded.program.observe((x,))["tensors"]}
        report = pumice.validate(loaded, [x])
    expected = {"a": np.maximum(x, 0), "b": -x}
    found = {name: array for name, array in stored.items() if name in expected}
    assert found
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
    report.raise_if_failed()


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")])
def test_a_program_is_observed_as_it_ships(context: pumice.Context, precision: str, dtype: str) -> None:
    x = image()
    with pumice.load(chain(), context, precision=precision) as loaded:
        tensors = {one["name"]: one for one in loaded.program.observe((x,))["tensors"]}
        plan = loaded.program.plan([x.shape])
        result = loaded(x)
    assert str(tensors["r"]["array"].dtype) == dtype
    assert tensors["r"]["kernel"] in {step["kernel"] for step in plan}
    assert "c" not in tensors and "n" not in tensors  # inside the kernel
    assert set(tensors["y"]["reads"]) - {"y"} == {"r"}  # stores of partial words read them first
    np.testing.assert_array_equal(tensors["y"]["array"].astype(FLOAT), result)


def test_an_observation_rejects_what_a_call_rejects(context: pumice.Context) -> None:
    with pumice.load(chain(), context) as loaded:
        with pytest.raises(pumice.BindingError, match="x"):
            loaded.program.observe(())
        with pytest.raises(pumice.BindingError, match="K10"):
            loaded.program.observe((np.zeros((1, 3, 8), FLOAT),))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_quantisation_by_its_own_scale_is_proved(context: pumice.Context, precision: str) -> None:
    """The kernels divide by the stored scale, so its rounding causes no undecided choices."""
    nodes = [
        node("Mul", ["x", "k"], ["a"], name="mul"),
        node("DynamicQuantizeLinear", ["a"], ["q", "s", "z"], name="quantise"),
        node("MatMulInteger", ["q", "w", "z"], ["p"], name="product"),
        node("Cast", ["p"], ["f"], name="cast", to=1),
        node("Mul", ["f", "s"], ["y"], name="scale"),
    ]
    draw = np.random.default_rng(5)  # independent of which tests ran before
    constants = {"k": np.array(1.37, FLOAT), "w": draw.integers(-127, 127, (64, 32)).astype(np.int8)}
    source = model(nodes, [value("x", [16, 64])], constants=constants)
    x = draw.standard_normal((16, 64)).astype(FLOAT)
    report = pumice.validate(source, [x], context=context, precision=precision)
    judged = {(row.program, row.output): row for row in (*report.rows, *report.kernels) if row.node == "quantise"}
    assert {("kernels", name) for name in "qsz"} <= set(judged)
    for row in judged.values():
        assert row.verdict == "right" and row.local is not None, row
        # A quotient next to a half-integer still depends on the device's division and stays undecided.
        assert row.output == "s" or row.local.undecided <= row.local.elements // 200, row


def test_a_wrong_step_of_a_quantisation_is_found(context: pumice.Context) -> None:
    """Change the codes by one step, with a scale that is rounded to fp16."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantise"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], name="back"),
    ]

    def change(stored: dict[str, Any]) -> None:
        stored["q"][3, 5] ^= 1

    with pumice.load(model(nodes, [value("x", [16, 64])]), context, precision="fp16") as loaded:
        loaded._program = Observed(loaded._program, change)  # type: ignore[arg-type, assignment]
        report = pumice.validate(loaded, [RANDOM.standard_normal((16, 64)).astype(FLOAT)], mode="isolated")
    wrong = [(row.output, row.local.at) for row in report.kernels if row.verdict == "wrong" and row.local]
    assert wrong[0] == ("q", (3, 5))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("without", [[], ["subgroupShuffle"]])
def test_a_convolution_that_pools_is_proved(context: pumice.Context, precision: str, without: list[str]) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}", without=without) as device:
        report = pumice.validate(chain(step=2), [image()], context=device, precision=precision)
    report.raise_if_failed()
    members = {row.output: row.members for row in report.kernels}
    assert "r" not in members
    assert members["y"] == ("conv", "norm", "relu", "pool")


def digits() -> bytes:
    """Return a MatMul with small N, which is an output, and its Softmax."""
    constants = {
        "w": RANDOM.standard_normal((65, 10)).astype(FLOAT) / 8,
        "b": RANDOM.standard_normal(10).astype(FLOAT),
    }
    nodes = [
        node("Gemm", ["x", "w", "b"], ["logits"], name="fc"),
        node("Softmax", ["logits"], ["y"], name="prob", axis=-1),
    ]
    given = [value("x", [3, 65])]
    made: bytes = model(nodes, given, outputs=["y", "logits"], constants=constants).SerializeToString()
    return made


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("without", [[], ["subgroupShuffle"]])
def test_a_matmul_with_its_softmax_is_proved(context: pumice.Context, precision: str, without: list[str]) -> None:
    rows = RANDOM.standard_normal((3, 65)).astype(FLOAT)
    with pumice.Context(f"uuid:{context.info.uuid}", without=without) as device:
        report = pumice.validate(digits(), [rows], context=device, precision=precision)
    report.raise_if_failed()
    assert {row.verdict for row in report.kernels} == {"right"}
    assert {"y", "logits"} <= {row.output for row in report.kernels}


# ---- by other references


def told_of(report: pumice.ValidationReport) -> dict[str, tuple[str, str]]:
    return {row.output: (row.verdict, row.note) for row in report.kernels}


@pytest.mark.parametrize("reference", ["onnx", "onnxruntime"])
@pytest.mark.parametrize("mode", ["isolated", "both"])
def test_runtimes_check_the_kernels_that_ship(context: pumice.Context, reference: str, mode: str) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")

    def change(stored: dict[str, Any]) -> None:
        stored["r"][0, 2, 3, 4] += 1

    options: dict[str, Any] = {"reference": reference, "mode": mode}
    for precision in ("fp32", "fp16"):
        report = pumice.validate(chain(), [image()], context=context, precision=precision, **options)
        report.raise_if_failed()
        assert told_of(report) == {"r": ("right", ""), "y": ("right", "")}
    with pumice.load(chain(), context) as loaded:
        loaded._program = Observed(loaded._program, change)  # type: ignore[arg-type, assignment]
        report = pumice.validate(loaded, [image()], **options)
    first = report.first_divergence
    assert report.state == "wrong" and first is not None and first.local is not None
    assert (first.program, first.node, first.local.at) == ("kernels", "relu", (0, 2, 3, 4))


def evaluating(monkeypatch: pytest.MonkeyPatch, op: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change onnx's evaluation of an operator whose nodes are members of kernels."""
    from pumice.validation.reference import reference_oracles

    evaluate_fused_nodes = reference_oracles.evaluate_fused_nodes

    def by_members(members: Any, read: Any, runner: Any, evaluate: Any) -> Any:
        def other(member: Any, arrays: Any) -> Any:
            made = evaluate(member, arrays)
            return change(dict(made)) if member.op == op else made

        return evaluate_fused_nodes(members, read, runner, other)

    monkeypatch.setattr(reference_oracles, "evaluate_fused_nodes", by_members)


def test_a_reference_that_contradicts_the_rules_inside_a_kernel_is_reported(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluating(monkeypatch, "Relu", lambda made: {name: array + 1 for name, array in made.items()})
    report = pumice.validate(chain(), [image()], context=context, reference="onnx", mode="isolated")
    assert report.state == "wrong" and told_of(report)["r"][0] == "wrong"
    assert {one.kind for one in report.findings if one.node == "relu"} == {"reference apart"}


def test_a_member_that_a_reference_cannot_run_leaves_its_kernel_to_the_rules(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(made: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("no such kernel")

    evaluating(monkeypatch, "BatchNormalization", fails)
    report = pumice.validate(chain(), [image()], context=context, reference="onnx", mode="isolated")
    assert report.ok
    note = "by the rules, not by onnx: it fails on node 'norm': no such kernel"
    assert told_of(report) == {"r": ("right", note), "y": ("right", "")}


def test_kernels_of_control_flow_say_that_the_rules_check_them(context: pumice.Context) -> None:
    branch = [
        helper.make_graph([node(op, ["x"], ["b"], name=op.lower())], op, [], [value("b", [4])])
        for op in ("Exp", "Tanh")
    ]
    nodes = [
        node("If", ["c"], ["i"], name="if", then_branch=branch[0], else_branch=branch[1]),
        node("Neg", ["i"], ["y"], name="neg"),
    ]
    source = model(nodes, [value("c", [], TensorProto.BOOL), value("x", [4])])
    cases = [(np.array(taken), np.ones(4, FLOAT)) for taken in (True, False)]
    report = pumice.validate(source, cases, context=context, reference="onnx")
    assert report.ok and report.kernels
    notes = {row.note.removeprefix("run 1: ") for row in report.kernels}
    assert notes == {"by the rules, not by onnx: the program has control flow"}


# ---- tolerances of members


def test_a_tolerance_of_a_fused_node_is_applied(context: pumice.Context) -> None:
    """No kernel stores the result of the node, so only the unfused program can be checked."""
    report = pumice.validate(chain(), [image()], context=context, tolerances={"conv": 1e-12})
    assert report.state == "wrong" and not report.ok
    first = report.first_divergence
    assert first is not None and (first.node, first.program) == ("conv", "nodes")
    assert {row.verdict for row in report.kernels} == {"right"}
    for name in ("conv", "c"):
        pumice.validate(chain(), [image()], context=context, tolerances={name: 1e-3}).raise_if_failed()
    stored = pumice.validate(chain(), [image()], context=context, tolerances={"relu": 1e-12})
    assert {row.node for row in stored.kernels if row.verdict == "wrong"} == {"relu"}


@pytest.mark.parametrize(("given", "state"), [({}, "wrong"), ({"conv": 1e-2}, "wrong"), ({"conv": 10}, "right")])
def test_a_tolerance_of_a_member_reaches_what_its_kernel_stores(
    context: pumice.Context, given: dict[str, float], state: str
) -> None:
    """The tolerance is propagated through the later members of the kernel."""

    def change(stored: dict[str, Any]) -> None:
        stored["r"][0, 2, 3, 4] += 1

    with pumice.load(chain(), context) as loaded:
        loaded._program = Observed(loaded._program, change)  # type: ignore[arg-type, assignment]
        for mode in ("isolated", "both"):
            report = pumice.validate(loaded, [image()], tolerances=given, mode=mode)
            assert {row.node for row in report.rows if row.verdict != "right"} == set()
            assert next(row.verdict for row in report.kernels if row.output == "r") == state


@pytest.mark.parametrize(("given", "state"), [({}, "wrong"), ({"conv": 1e-2}, "wrong"), ({"c": 10}, "right")])
def test_a_tolerance_of_a_node_reaches_the_outputs_behind_it(
    context: pumice.Context, spoil: Callable[..., None], given: dict[str, float], state: str
) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][0, 2, 3, 4] += 1

    spoil(change, kept=False)
    # The tolerance of a node widens bounds, not the accuracy limit.
    report = pumice.validate(chain(), [image()], context=context, tolerances=given, accuracy=1)
    assert [row.verdict for row in report.rows if row.op == "output"] == [state]


def test_a_tolerance_of_a_map_inside_a_kernel_reaches_its_end(context: pumice.Context) -> None:
    def change(stored: dict[str, Any]) -> None:
        stored["y"][2, 3] += 0.5

    names = ["x", "a", "b", "y"]
    nodes = [node(op, [names[i]], [names[i + 1]], name=op.lower()) for i, op in enumerate(("Exp", "Neg", "Abs"))]
    with pumice.load(model(nodes, [value("x", [300, 300])]), context) as loaded:
        loaded._program = Observed(loaded._program, change)  # type: ignore[arg-type, assignment]
        case = RANDOM.uniform(0, 1, (300, 300)).astype(FLOAT)
        for given, state in (({}, "wrong"), ({"exp": 0.6}, "right"), ({"exp": 0.4}, "wrong")):
            report = pumice.validate(loaded, [case], tolerances=given, mode="isolated")
            assert [row.verdict for row in report.kernels] == [state]
