"""Strings are exact: nodes that move, look up, count or return them are either right or wrong, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_models import model, node, value
from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import ProgramTypes
from string_models import string_loop_body

Array = np.ndarray[Any, Any]
STRING, INT64, FLOAT = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT
X = np.array([["pear", "", "fig"], ["Äpfel", "fig", "日本"]], object)
NEW = np.array([["unknown", "fig", "a\0"], ["", "", "pear"]], object)  # strings that are known only at a call
X_IN = value("x", ["rows", 3], STRING)


def ml(op: str, inputs: str = "x", output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, [inputs], [output], name=f"{op} of {inputs}", domain="ai.onnx.ml", **attributes)


def typed(proto: onnx.ModelProto, *types: int) -> onnx.ModelProto:
    for output, kind in zip(proto.graph.output, types, strict=True):
        output.CopyFrom(value(output.name, None, kind))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return proto


def moves() -> onnx.ModelProto:
    nodes = [
        node("Gather", ["x", "k"], ["a"], axis=1),
        node("Concat", ["a", "c"], ["b"], axis=1),
        node("Pad", ["b", "pads"], ["p"]),
        node("Transpose", ["p"], ["t"]),
        node("Where", ["mask", "t", "none"], ["y"]),
        node("Shape", ["y"], ["n"]),
    ]
    constants = {
        "k": np.array([2, 0]),
        "c": np.array([["new"], ["日本"]], object),
        "pads": np.array([0, 0, 0, 2]),
        "mask": np.array([[True, False]]),
        "none": np.array("none", object),
    }
    return typed(model(nodes, [X_IN], ["y", "n"], constants), STRING, INT64)


def encoders() -> onnx.ModelProto:
    """Return a chain of string encoders; inner() has strings only inside, with numeric inputs and outputs."""
    nodes = [
        ml("LabelEncoder", "x", "i", keys_strings=["fig", "日本", ""], values_int64s=[10, 20, 30], default_int64=-5),
        ml("LabelEncoder", "i", "s", keys_int64s=[10, -5], values_strings=["ten", "other"], default_string="rest"),
        ml("LabelEncoder", "s", "f", keys_strings=["ten", "rest"], values_floats=[0.1, -1.0], default_float=9.0),
        ml("LabelEncoder", "s", "t", keys_strings=["ten"], values_strings=["TEN"]),
        ml("CategoryMapper", "t", "m", cats_strings=["TEN", "_Unused"], cats_int64s=[4, 8]),
        ml("CategoryMapper", "m", "y", cats_strings=["four", "eight"], cats_int64s=[4, 8], default_string="?"),
        ml("OneHotEncoder", "y", "h", cats_strings=["four", "eight"]),
    ]
    return typed(model(nodes, [X_IN], ["y", "i", "f", "h"]), STRING, INT64, FLOAT, FLOAT)


def inner() -> onnx.ModelProto:
    nodes = [
        ml("LabelEncoder", "x", "s", keys_int64s=[1, 2], values_strings=["one", "two"], default_string="many"),
        node("Transpose", ["s"], ["t"]),
        ml("LabelEncoder", "t", "y", keys_strings=["two", "many"], values_int64s=[2, 99]),
    ]
    return typed(model(nodes, [value("x", [2, 3], INT64)]), INT64)


def counted(mode: str = "TFIDF") -> onnx.ModelProto:
    pool = {
        "pool_strings": ["fig", "", "fig", "fig", "", "pear"],
        "ngram_counts": [0, 2],
        "ngram_indexes": [3, 0, 1, 2],
    }
    lengths = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1, "weights": [0.1, 2.0, 3.0, 0.5]}
    return typed(model([node("TfIdfVectorizer", mode=mode, **pool, **lengths)], [value("x", [2, 3], STRING)]), FLOAT)


def loop() -> onnx.ModelProto:
    constants = {"first": np.array(["first"], object), "go": np.array(True), "trips": np.array(2)}
    nodes = [node("Loop", ["trips", "go", "first"], ["y", "z"], body=string_loop_body())]
    return typed(model(nodes, [value("x", [2, 3], STRING)], ["y", "z"], constants), STRING, STRING)


def sequence() -> onnx.ModelProto:
    nodes = [node("SplitToSequence", ["x"], ["s"], axis=1), node("SequenceAt", ["s", "k"], ["y"])]
    return typed(model(nodes, [X_IN], ["y"], {"k": np.array(-1)}), STRING)


def labels() -> onnx.ModelProto:
    tree = {"treeids": [0, 0, 0], "nodeids": [0, 1, 2], "featureids": [0, 0, 0], "values": [0.5, 0, 0]}
    links = {"truenodeids": [1, 0, 0], "falsenodeids": [2, 0, 0], "modes": ["BRANCH_LEQ", "LEAF", "LEAF"]}
    trees = {f"nodes_{name}": one for name, one in {**tree, **links}.items()}
    weights = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [2, 0], "class_weights": [1.0, 2]}
    names = {"classlabels_strings": ["spam", "ham", "日本"]}
    lines = {"coefficients": [0.3, -1, 1, 0.5, -0.25, 0.75], "intercepts": [0.0, 0.1, 0.2]}
    nodes = [
        helper.make_node("TreeEnsembleClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", **trees, **weights, **names),
        helper.make_node("LinearClassifier", ["x"], ["v", "w"], domain="ai.onnx.ml", **lines, **names),
    ]
    return typed(model(nodes, [value("x", [None, 2])], ["y", "z", "v", "w"]), STRING, FLOAT, STRING, FLOAT)


NUMBERS = np.array([[1, 2, 3], [2, 7, 1]])
ROWS = np.array([[0, 1], [1, -1], [2, 3], [-1, 0.5]], np.float32)
MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], list[Array]]] = {
    "moves": (moves, [X, NEW]),
    "encoders": (encoders, [X, NEW]),
    "inner": (inner, [NUMBERS]),
    "counted": (counted, [X, NEW]),
    "loop": (loop, [NEW]),
    "sequence": (sequence, [X, NEW]),
    "labels": (labels, [ROWS]),
}
MODES: dict[str, dict[str, Any]] = {
    "both": {},
    "bisect": {"mode": "bisect"},
    "alone": {"mode": "isolated", "inputs": "reference"},
    "repeat": {"repeat": 2},
    "onnxruntime": {"reference": "onnxruntime"},
    "device": {"reference": "fp32"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_strings_are_right(context: pumice.Context, name: str, mode: str) -> None:
    make, cases = MODELS[name]
    precision = "fp32" if name == "labels" or mode == "alone" else "fp16"  # tree decisions are undecided in fp16
    if mode == "onnxruntime":
        pytest.importorskip("onnxruntime")
    allowed = ["SplitToSequence", "SequenceAt"] if mode == "alone" else []  # sequences do not cross programs
    report = pumice.validate(
        make(), cases, context=context, precision=precision, allow_unchecked=allowed, **MODES[mode]
    )
    if name == "sequence" and mode == "alone":
        return
    report.raise_if_failed()
    assert report.state == "right"


def test_windows_of_a_model_with_strings(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window has its own string table."""
    monkeypatch.setattr("pumice.validation.reference.streaming.WINDOW_BYTES", 1)
    nodes = [
        ml("LabelEncoder", "x", "i", keys_strings=["fig"], values_int64s=[10]),
        node("Cast", ["i"], ["c"], to=FLOAT),
    ]
    nodes += [node("Relu", ["c"], ["r"]), node("Cast", ["r"], ["n"], to=INT64)]
    nodes += [ml("LabelEncoder", "n", "y", keys_int64s=[10], values_strings=["ten"], default_string="none")]
    proto = typed(model([*nodes, node("Transpose", ["x"], ["z"])], [X_IN], ["y", "z"]), STRING, STRING)
    proto = onnx.shape_inference.infer_shapes(proto)
    pumice.validate(proto, [X, NEW], context=context).raise_if_failed()


@pytest.mark.parametrize("name", ["moves", "encoders", "counted", "labels"])
def test_another_string_or_position_is_wrong(context: pumice.Context, name: str) -> None:
    """The expected values are changed, so the program's results have to be reported as wrong."""
    make, cases = MODELS[name]
    with pumice.load(make(), context) as loaded:
        results = loaded(cases[0])
        named = dict(
            zip((one.name for one in loaded.outputs), results if isinstance(results, tuple) else [results], strict=True)
        )
        good = pumice.validate(loaded, cases[:1], reference=named)
        assert good.ok, str(good)
        for output, array in named.items():
            changed = np.array(array)
            changed.flat[-1] = "other" if changed.dtype == object else changed.flat[-1] + 1
            report = pumice.validate(loaded, cases[:1], reference={**named, output: changed})
            assert report.state == "wrong"
            assert {row.output for row in report.rows if row.verdict == "wrong"} == {output}


def test_a_wrong_string_of_a_program_is_wrong_at_its_node(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is not in the model's string table stays a number, which equals no string."""
    from pumice.base.string_table import TensorStringTable

    with pumice.load(moves(), context) as loaded:
        texts = TensorStringTable.decode_tensors

        def faulty(self: TensorStringTable, tensors: Any) -> dict[str, Any]:
            ours = {name: one for name, one in tensors.items() if name in ("p", "t", "y") and one.dtype == np.int64}
            return texts(self, {**tensors, **{name: np.where(one == 0, 1000, one) for name, one in ours.items()}})

        monkeypatch.setattr(TensorStringTable, "decode_tensors", faulty)
        report = pumice.validate(loaded, [X])
    assert report.state == "wrong"
    first = report.first_divergence
    assert first is not None and first.output == "p" and first.dtype == "string"
    assert first.deviation is not None and (first.deviation.actual, first.deviation.expected) == (1000, "")


def computed() -> onnx.ModelProto:
    """Return operators on strings that the engine lacks, for validation of another runtime."""
    nodes = [
        node("StringNormalizer", ["x"], ["upper"], case_change_action="UPPER"),
        node("StringConcat", ["upper", "x"], ["both"]),
        node("StringSplit", ["x"], ["parts", "count"], delimiter=" "),
        node("RegexFullMatch", ["x"], ["match"], pattern="f.*"),
        node("Equal", ["x", "c"], ["same"]),
        node("Unique", ["x"], ["sorted"], sorted=1),
    ]
    outputs = ["upper", "both", "parts", "count", "match", "same", "sorted"]
    types = [STRING, STRING, STRING, INT64, TensorProto.BOOL, TensorProto.BOOL, STRING]
    constants = {"c": np.array(["fig tree"], object)}
    return typed(model(nodes, [value("x", [4], STRING)], outputs, constants, opset=20), *types)


def test_operators_that_compute_with_strings_in_another_runtime() -> None:
    proto = computed()
    outputs = [one.name for one in proto.graph.output]
    session = ReferenceEvaluator(proto)

    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        return dict(zip(outputs, session.run(None, inputs), strict=True))

    x = np.array(["fig tree", "FIG", "pear", "fig tree"], object)
    report = pumice.validate(proto, [x], candidate=run)
    report.raise_if_failed()
    rows = {row.output: row.verdict for row in report.rows}
    assert set(rows) == {"upper", "both", "parts", "count", "match", "same", "sorted"}

    def wrong(inputs: dict[str, Array]) -> dict[str, Array]:
        made = dict(run(inputs))
        made["both"] = np.array(["x", *made["both"][1:]], object)
        return made

    report = pumice.validate(proto, [x], candidate=wrong)
    assert {row.output for row in report.rows if row.verdict == "wrong"} == {"both"}
    with pytest.raises(pumice.BindingError, match="input 'x': expected an array of str"):
        pumice.validate(proto, [np.array([1, 2, 3, "a"], object)], candidate=run)


@pytest.mark.parametrize("seed", range(12))
def test_the_rule_of_counted_words_is_that_of_onnxruntime(seed: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(seed)
    words: list[Any] = ["a", "b", "", "d"] if seed % 2 else [1, 2, 0, 7]
    grams = [list(random.integers(0, 4, (int(random.integers(1, 4)), length))) for length in (1, 2, 3)]
    grams = [[list(one) for one in {tuple(map(int, gram)) for gram in of}] for of in grams]
    flat = [words[at] for of in grams for gram in of for at in gram]
    starts = np.cumsum([0, *(sum(map(len, of)) for of in grams)])[:3]
    count = sum(map(len, grams))
    attributes = {
        "mode": ["TF", "IDF", "TFIDF"][seed % 3],
        "pool_strings" if seed % 2 else "pool_int64s": flat,
        "ngram_counts": [int(one) for one in starts],
        "ngram_indexes": [int(one) for one in random.permutation(count)],
        "weights": [float(one) for one in random.random(count)],
        "min_gram_length": int(random.integers(1, 3)),
        "max_gram_length": int(random.integers(2, 4)),
        "max_skip_count": int(random.integers(0, 3)),
    }
    x = np.array([[words[at] for at in row] for row in random.integers(0, 4, (3, 8))], object if seed % 2 else np.int64)
    proto = typed(
        model([node("TfIdfVectorizer", **attributes)], [value("x", [3, 8], STRING if seed % 2 else INT64)]), FLOAT
    )
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (made,) = RuleRunner({"": 20}, ProgramTypes()).run_node(proto.graph.node[0], [BoundedTensor(x)], {})
    assert isinstance(made, BoundedTensor)
    np.testing.assert_array_less(np.abs(made.value - expected), made.get_errors() + 1e-30)
