"""Tests of the per-node precision policy of load()."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from onnx_models import model, node, value
from pumice.model.precision_policy import PrecisionPolicy, escape_literal, parse_policy
from pumice.validation.report.subgraph import make_subgraph_precision

X = np.full((2, 4), 300, np.float32)


def squares() -> onnx.ModelProto:
    """x * x, which overflows float16, then a matmul with ones / 256, and a Softmax."""
    nodes = [
        node("Mul", ["x", "x"], ["s"], name="square"),
        node("MatMul", ["s", "w"], ["m"], name="mean"),
        node("Softmax", ["m"], ["y"], name="softmax"),
    ]
    weights = numpy_helper.from_array(np.full((4, 4), 1 / 256, np.float32), "w")
    proto = model(nodes, [value("x", [2, 4])])
    proto.graph.initializer.append(weights)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("m", TensorProto.FLOAT, [2, 4]))
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4]))
    return proto


def precisions(loaded: pumice.Model) -> dict[str, str]:
    return {row["node"]: row["precision"] for row in loaded.report() if not row["added"]}


@pytest.mark.parametrize(
    ("policy", "wide"),
    [
        ({"default": "fp16", "square": "fp32", "mean": "fp32"}, {"square", "mean"}),
        ({"default": "fp16", "*": "fp32", "softmax": "fp16"}, {"square", "mean"}),
        ({"default": "fp16", "op:M*": "fp32"}, {"square", "mean"}),
        ({"default": "fp32", "op:Softmax": "fp16"}, {"square", "mean"}),
        ({"default": "fp16", "*": "fp32", "m*": "fp16", "mean": "fp32"}, {"square", "mean", "softmax"}),
        ({"mean": "fp32", "default": "fp16"}, {"mean"}),
        ({"default": "fp16"}, set()),
    ],
)
def test_the_last_entry_that_matches_decides(context: pumice.Context, policy: dict[str, str], wide: set[str]) -> None:
    with pumice.load(squares(), context, policy) as loaded:
        results = loaded(X)
        assert {name for name, precision in precisions(loaded).items() if precision == "fp32"} == wide
        assert loaded.precision == "fp16"
        assert loaded.policy == policy
        assert np.isfinite(results["m"]).all() == ("mean" in wide)  # the preceding cast is fused with the square


def test_a_file_says_it(context: pumice.Context, tmp_path: Path) -> None:
    policy = {"default": "bf16", "square": "fp32"}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy))
    for given in (path, str(path)):
        with pumice.load(squares(), context, given) as loaded:
            assert (loaded.policy, loaded.precision) == (policy, "bf16")
            assert precisions(loaded)["square"] == "fp32"


def test_models_are_loaded_again_with_their_policy(context: pumice.Context) -> None:
    policy = {"default": "fp16", "square": "fp32"}
    with pumice.load(squares(), context, policy) as loaded:
        for again in (loaded.loaded_again(), pickle.loads(pickle.dumps(loaded))):
            assert again.policy == policy
            assert precisions(again)["square"] == "fp32"
            again.close()
        with loaded.loaded_again(precision="fp16") as plain:
            assert plain.policy == {"default": "fp16"}


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"default": "fp16", "square": "bf16"}, "one lower precision.*'bf16' and 'fp16'.*expected it for 'square'"),
        ({"square": "fp16", "default": "bf16"}, "one lower precision.*'bf16' and 'fp16'.*expected it for 'square'"),
        ({"default": "fp16", "square": "fp8"}, "'square'.*'fp8'"),
        ({"square": "fp32"}, "'default'"),
        ({"default": "fp16", "wobble": "fp32"}, "nodes of model.*'wobble'"),
        ({"default": "fp16", "wob*": "fp32", "square": "fp32"}, r"'wob\*'"),
        ({"default": "fp16", "op:Wobble": "fp32"}, "'op:Wobble'"),
    ],
)
def test_policies_that_are_none(context: pumice.Context, policy: dict[str, str], text: str, tmp_path: Path) -> None:
    with pytest.raises(pumice.base.errors.InputError, match=text):
        pumice.load(squares(), context, policy)
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy))
    with pytest.raises(pumice.base.errors.InputError, match=r"policy\.json"):
        pumice.load(squares(), context, path)


@pytest.mark.parametrize("text", ["{", "[]", '"fp16"'])
def test_files_that_are_none(context: pumice.Context, text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(pumice.base.errors.InputError, match=r"policy\.json.*expected"):
        pumice.load(squares(), context, path)


def branching() -> onnx.ModelProto:
    """An If: x * x / 1024 in one branch, x in the other."""
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32) / 1024, "w")
    then = helper.make_graph(
        [node("Mul", ["x", "x"], ["s"], name="square"), node("MatMul", ["s", "w"], ["t"], name="scaled")],
        "then", [], [helper.make_tensor_value_info("t", 1, [2, 4])], [weights],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Identity", ["x"], ["o"], name="same")], "other", [], [helper.make_tensor_value_info("o", 1, [2, 4])]
    )
    proto = model(
        [node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)],
        [value("x", [2, 4]), value("c", [1], TensorProto.BOOL)],
    )
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [2, 4]))
    return proto


@pytest.mark.parametrize("names", [("square", "scaled"), ("if",), ("if.*/s*",), ("op:M*",)])
def test_nodes_in_branches(context: pumice.Context, names: tuple[str, ...]) -> None:
    with pumice.load(branching(), context, "fp16") as plain:
        assert not np.isfinite(plain(X, np.array([True]))).any()
    with pumice.load(branching(), context, {"default": "fp16", **dict.fromkeys(names, "fp32")}) as loaded:
        np.testing.assert_allclose(loaded(X, np.array([True])), X * X / 1024, rtol=1e-6)


@pytest.mark.parametrize("name", ["norm", "nor?", "op:LayerNormalization"])
def test_what_a_node_becomes_in_the_engine_is_all_in_float32(context: pumice.Context, name: str) -> None:
    """SkipLayerNormalization expands to Add and LayerNormalization."""
    norm = node("SkipLayerNormalization", ["x", "x", "g"], name="norm", domain="com.microsoft")
    proto = model([norm], [value("x", [2, 4])], constants={"g": np.linspace(0.1, 0.7, 4, dtype=np.float32)})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    array = np.array([[3, 31, 32.1, 330], [1, 2, 3, 5]], np.float32) * 100
    with pumice.load(proto, context, {"default": "fp16", name: "fp32"}, fuse=False) as loaded:
        loaded(array)
        own = {row["node"]: row["precision"] for row in loaded.report() if not row["added"]}
        assert own["norm"] == "fp32"
        assert own["norm/Add.0"] in ({"fp32"} if name[0] == "n" else {"fp16", "fp16_packed"})
        assert len(own) == 2
        with pumice.load(proto, context, fuse=False) as exact:
            assert np.array_equal(loaded(array), exact(array)) == (name[0] == "n")


def test_names_with_marks_of_patterns_are_names_too() -> None:
    policy = PrecisionPolicy({"default": "fp16", "a[0]": "fp32"})
    assert policy.get_precision("a[0]", "Mul") == policy.get_precision("a0", "Mul") == "fp32"
    assert policy.get_precision("a1", "Mul") == "fp16"
    assert policy.get_precision("norm (Function)/Mul_1", "Mul") == "fp16"


@pytest.mark.parametrize("name", ["default", "op:Relu", "a*", "a[b]", "?", "[", "]", "!", "plain", "a\\b"])
def test_a_literal_entry_matches_nodes_of_its_name_alone(name: str) -> None:
    policy = parse_policy({"default": "fp16", escape_literal(name): "fp32"})
    assert policy.get_precision(name, "Relu") == "fp32"
    for other in ("default", "op:Relu", "ab", "a*b", "b", "x"):
        assert other == name or policy.get_precision(other, "Relu") == "fp16", other
    policy.check_all_matched("m")


def test_a_node_called_default_has_a_precision_of_its_own(context: pumice.Context) -> None:
    """The entry "default" applies to all nodes; the pattern "[d]efault" matches the node."""
    nodes = [node("Softmax", ["x"], ["h"], name="default"), node("Softmax", ["h"], ["y"], name="other")]
    proto = model(nodes)

    def precisions(policy: dict[str, str]) -> dict[str, str]:
        with pumice.load(proto, context, policy, fuse=False) as loaded:
            loaded(np.ones((2, 4), np.float32))
            return {row["node"]: row["precision"].split()[0] for row in loaded.report() if not row["added"]}

    item = precisions({"default": "fp16", "other": "fp32"})
    two = precisions({"default": "fp16", "[d]efault": "fp32"})
    assert (item["default"], item["other"]) == (two["other"], two["default"])
    assert item["default"] != item["other"]


def test_the_policy_of_a_part_keeps_its_default() -> None:
    """A node called "default" in fp32 does not set the whole subgraph to fp32."""
    proto = model([node("Relu", ["x"], ["h"], name="default"), node("Relu", ["h"], ["y"], name="a*")])
    part = make_subgraph_precision({"default": "fp16", "[d]efault": "fp32"}, proto)
    policy = parse_policy(part)
    assert policy.default == "fp16"
    assert (
        policy.get_precision("default", "Relu"),
        policy.get_precision("a*", "Relu"),
        policy.get_precision("ab", "Relu"),
    ) == ("fp32", "fp16", "fp16")
