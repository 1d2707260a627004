"""Strings that a model moves, looks up and returns as labels match ONNX Runtime; computing with them is rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import model, node, subgraph, value
from pumice.base.string_table import PerCallStringTable, StringTable
from pumice.onnx import import_graph
from pumice.tools.cli import main
from string_models import string_loop_body

Array = np.ndarray[Any, Any]
STRING, INT64 = TensorProto.STRING, TensorProto.INT64
X = np.array([["pear", "", "fig"], ["Äpfel", "fig", "日本"]], object)


def typed(proto: onnx.ModelProto, **types: int) -> onnx.ModelProto:
    for output in proto.graph.output:
        output.CopyFrom(value(output.name, None, types.get(output.name, STRING)))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return proto


def check(context: pumice.Context, proto: onnx.ModelProto, **inputs: Any) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    loaded = pumice.load(proto, context)
    results = [loaded(**inputs)] if len(expected) == 1 else list(loaded(**inputs))
    for ours, theirs, declared in zip(results, expected, loaded.outputs, strict=True):
        both = (ours, theirs) if isinstance(theirs, list) else ([ours], [theirs])
        for actual, wanted in zip(*both, strict=True):
            assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
            assert actual.dtype == declared.dtype
            if wanted.dtype == object:
                assert actual.tolist() == wanted.tolist()
            else:
                np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    return results


X_IN = value("x", ["rows", 3], STRING)
MOVES: dict[str, tuple[list[onnx.NodeProto], dict[str, Array]]] = {
    "Identity": ([node("Identity")], {}),
    "Reshape": ([node("Reshape", ["x", "k"])], {"k": np.array([3, -1])}),
    "Flatten": ([node("Flatten", axis=0)], {}),
    "Unsqueeze and Squeeze": (
        [node("Unsqueeze", ["x", "k"], ["z"]), node("Squeeze", ["z", "k"])],
        {"k": np.array([1])},
    ),
    "Transpose": ([node("Transpose", perm=[1, 0])], {}),
    "Gather": ([node("Gather", ["x", "k"], axis=1)], {"k": np.array([[2, 0], [-1, 1]])}),
    "GatherElements": ([node("GatherElements", ["x", "k"], axis=1)], {"k": np.array([[2, 0], [1, 1]])}),
    "GatherND": ([node("GatherND", ["x", "k"])], {"k": np.array([[1, 0], [0, 2]])}),
    "Slice": ([node("Slice", ["x", "b", "e"])], {"b": np.array([0, 1]), "e": np.array([2, 3])}),
    "Concat": ([node("Concat", ["x", "c", "x"], axis=0)], {"c": np.array([["fig", "new", "日本"]], object)}),
    "Split": ([node("Split", ["x", "k"], ["z", "y"], axis=1)], {"k": np.array([1, 2])}),
    "Expand": ([node("Expand", ["x", "k"])], {"k": np.array([2, 1, 1])}),
    "Tile": ([node("Tile", ["x", "k"])], {"k": np.array([2, 1])}),
    "Where": (
        [node("Where", ["k", "x", "c"])],
        {"k": np.array([[True, False, True]]), "c": np.array("no", object)},
    ),
    "Compress": ([node("Compress", ["x", "k"], axis=1)], {"k": np.array([True, False, True])}),
    "ScatterND": (
        [node("ScatterND", ["x", "k", "c"])],
        {"k": np.array([[1, 2]]), "c": np.array(["put"], object)},
    ),
    "SplitToSequence and SequenceAt": (
        [node("SplitToSequence", ["x"], ["s"], axis=1), node("SequenceAt", ["s", "k"])],
        {"k": np.array(-1)},
    ),
    "ConcatFromSequence": (
        [
            node("SequenceConstruct", ["x", "x"], ["s"]),
            node("SequenceInsert", ["s", "c"], ["t"]),
            node("ConcatFromSequence", ["t"], axis=0),
        ],
        {"c": np.array([["in", "the", "end"]], object)},
    ),
}


@pytest.mark.parametrize("what", MOVES)
def test_what_moves_tensors_moves_strings(context: pumice.Context, what: str) -> None:
    nodes, constants = MOVES[what]
    results = check(context, typed(model(nodes, [X_IN], ["y"], constants)), x=X)
    assert "fig" in results[0].reshape(-1).tolist()


@pytest.mark.parametrize("given", [True, False])
def test_padding_is_the_empty_string_or_what_is_given(context: pumice.Context, given: bool) -> None:
    constants = {"k": np.array([1, 0, 0, 2]), **({"c": np.array("none", object)} if given else {})}
    pad = node("Pad", ["x", "k", "c"] if given else ["x", "k"])
    expected = np.pad(X, [(1, 0), (0, 2)], constant_values="none" if given else "")
    assert pumice.load(model([pad], [X_IN], ["y"], constants), context)(X).tolist() == expected.tolist()


def test_what_counts_strings_gives_numbers(context: pumice.Context) -> None:
    nodes = [node("Shape", outputs=["y"]), node("Size", outputs=["n"])]
    check(context, typed(model(nodes, [X_IN], ["y", "n"]), y=INT64, n=INT64), x=X)


def test_constants_and_inputs_that_are_outputs(context: pumice.Context) -> None:
    one = node("Constant", [], ["one"], value_string="alone")
    row = node("Constant", [], ["row"], value_strings=["a", "fig"])
    outputs = ["x", "one", "row", "c"]
    nodes = [one, row, node("Identity", ["c"], ["y"])]
    constants = {"c": np.array([["stored", ""]], object)}
    check(context, typed(model(nodes, [X_IN], ["y", *outputs[1:3]], constants)), x=X)


def test_each_call_has_its_own_strings(context: pumice.Context) -> None:
    loaded = pumice.load(model([node("Concat", ["x", "x"], axis=0)], [value("x", [2], STRING)]), context)
    runs = [loaded.run_async(np.array([f"a{i}", "shared"])) for i in range(3)]
    for i, run in enumerate(runs):
        assert run.result().tolist() == [f"a{i}", "shared"] * 2
    assert str(loaded.inputs[0]) == "x: string[2]"
    assert loaded(np.zeros(2, "U3")).tolist() == [""] * 4


def test_sequences_of_strings(context: pumice.Context) -> None:
    nodes = [
        node("SequenceErase", ["x", "k"], ["short"]),
        node("SequenceEmpty", [], ["none"], dtype=STRING),
        node("SequenceInsert", ["none", "c"], ["single"]),
        node("SequenceLength", ["short"], ["n"]),
    ]
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(STRING, None))
    given = helper.make_value_info("x", kind)
    proto = model(nodes, [given], ["short", "single", "n"], {"k": np.array(0), "c": np.array(["c"], object)})
    for output in proto.graph.output[:2]:
        output.CopyFrom(helper.make_value_info(output.name, kind))
    proto.graph.output[2].CopyFrom(value("n", [], INT64))
    loaded = pumice.load(proto, context)
    short, single, n = loaded([X[0], X[1, :1], np.array("scalar", object)])
    assert [one.tolist() for one in short] == [["Äpfel"], "scalar"]
    assert [one.tolist() for one in single] == [["c"]]
    assert n == 2
    assert str(loaded.inputs[0]) == "x: sequence of string"


@pytest.mark.parametrize("flag", [True, False])
def test_branches_give_strings(context: pumice.Context, flag: bool) -> None:
    then = subgraph([node("Transpose", ["x"], ["t"])], [], [value("t", None, STRING)])
    orelse = subgraph([node("Identity", ["c"], ["e"])], [], [value("e", None, STRING)], c=np.array([["else"]], object))
    nodes = [node("If", ["flag"], then_branch=then, else_branch=orelse)]
    proto = typed(model(nodes, [X_IN, value("flag", [], TensorProto.BOOL)]))
    check(context, proto, x=X, flag=np.array(flag))


@pytest.mark.parametrize("trips", [0, 3])
def test_loops_carry_and_gather_strings(context: pumice.Context, trips: int) -> None:
    constants = {"first": np.array(["first"], object), "go": np.array(True)}
    nodes = [node("Loop", ["trips", "go", "first"], ["y", "z"], body=string_loop_body())]
    proto = typed(model(nodes, [value("x", [2, 3], STRING), value("trips", [], INT64)], ["y", "z"], constants))
    check(context, proto, x=X, trips=np.array(trips))


def ml(op: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x"], ["y"], name="it", domain="ai.onnx.ml", **attributes)


WORDS = {"keys_strings": ["fig", "日本", ""], "default_int64": -5}


def test_strings_stand_for_numbers_and_numbers_for_strings(context: pumice.Context) -> None:
    to_int = ml("LabelEncoder", values_int64s=[10, 20, 30], **WORDS)
    check(context, typed(model([to_int], [X_IN]), y=INT64), x=X)
    to_float = ml("LabelEncoder", keys_strings=["fig", ""], values_floats=[0.5, -1.0], default_float=9.0)
    check(context, typed(model([to_float], [X_IN]), y=TensorProto.FLOAT), x=X)
    other = ml("LabelEncoder", keys_strings=["fig", ""], values_strings=["FIG", "empty"], default_string="?")
    check(context, typed(model([other], [X_IN])), x=X)
    unsaid = ml("LabelEncoder", keys_strings=["fig"], values_strings=["FIG"])
    check(context, typed(model([unsaid], [X_IN])), x=X)
    numbers = value("x", [None], INT64)
    back = ml("LabelEncoder", keys_int64s=[1, 2], values_strings=["one", "two"], default_string="many")
    check(context, typed(model([back], [numbers])), x=np.array([2, 1, 7]))
    pairs = {"cats_strings": ["fig", "日本"], "cats_int64s": [4, 8], "default_string": "none", "default_int64": -3}
    check(context, typed(model([ml("CategoryMapper", **pairs)], [X_IN]), y=INT64), x=X)
    check(context, typed(model([ml("CategoryMapper", **pairs)], [numbers])), x=np.array([8, 4, 5]))


def test_categories_and_columns(context: pumice.Context) -> None:
    one_hot = ml("OneHotEncoder", cats_strings=["fig", "", "pear"])
    check(context, typed(model([one_hot], [value("x", [None], STRING)]), y=TensorProto.FLOAT), x=X[0])
    columns = helper.make_node("ArrayFeatureExtractor", ["x", "k"], ["y"], domain="ai.onnx.ml")
    check(context, typed(model([columns], [X_IN], constants={"k": np.array([2, 0])})), x=X)


def test_sequences_of_words_are_counted(context: pumice.Context) -> None:
    pool = {"pool_strings": ["fig", "pear", "fig", "fig"], "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2]}
    lengths = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "mode": "TF"}
    counted = node("TfIdfVectorizer", **pool, **lengths)
    x = np.array([["fig", "fig", "pear"], ["pear", "x", "fig"]], object)
    check(context, typed(model([counted], [value("x", [2, 3], STRING)]), y=TensorProto.FLOAT), x=x)


@pytest.mark.parametrize("op", ["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"])
def test_labels_of_classifiers(context: pumice.Context, op: str) -> None:
    labels = ["spam", "ham", "日本"]
    attributes: dict[str, Any] = {
        "LinearClassifier": {"coefficients": [0.3, -1, 1, 0.5, -0.25, 0.75], "intercepts": [0.0, 0.1, 0.2]},
        "SVMClassifier": {
            "coefficients": [1.0, -1, 0.5, 0.25, 1, -0.5],
            "vectors_per_class": [1, 1, 1],
            "rho": [0.1, -0.2, 0.3],
            "support_vectors": [1.0, 0, 0, 1, 1, 1],
            "kernel_type": "LINEAR",
            "kernel_params": [0.0, 0, 0],
        },
        "TreeEnsembleClassifier": {
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [0, 0, 0],
            "nodes_values": [0.5, 0, 0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [2, 0],
            "class_weights": [1.0, 2],
        },
    }[op]
    named = helper.make_node(op, ["x"], ["y", "z"], domain="ai.onnx.ml", classlabels_strings=labels, **attributes)
    x = np.array([[0, 1], [1, -1], [2, 3], [-1, 0.5]], np.float32)
    proto = typed(model([named], [value("x", [None, 2])], ["y", "z"]), z=TensorProto.FLOAT)
    assert len(set(check(context, proto, x=x)[0].tolist())) > 1


REFUSED = {
    "Equal": node("Equal", ["x", "x"]),
    "StringConcat": node("StringConcat", ["x", "x"]),
    "StringNormalizer": node("StringNormalizer", case_change_action="UPPER"),
    "Unique": node("Unique"),
    "Cast": node("Cast", to=TensorProto.FLOAT),
}


@pytest.mark.parametrize("op", REFUSED)
def test_what_computes_with_strings_is_rejected_by_name(op: str) -> None:
    nodes = [node("Identity", ["x"], ["z"]), REFUSED[op], node("Det", ["q"], ["w"])]
    nodes[1].input[:] = ["z"] * len(nodes[1].input)
    inputs = [X_IN, value("q", [2, 2])]
    with pytest.raises(pumice.UnsupportedError, match=rf"operator {op}: strings \('z'\)") as caught:
        pumice.load(model([*nodes, node("Missing", ["q"], ["u"])], inputs, ["y", "w", "u"], opset=20))
    assert len(caught.value.items) == 2  # type: ignore[attr-defined]


def test_numbers_do_not_become_strings() -> None:
    for dtype in (STRING, TensorProto.FLOAT):
        cast = model([node("Cast", to=STRING)], [value("x", [2], dtype)])
        with pytest.raises(pumice.UnsupportedError, match="Cast"):
            pumice.load(cast)
    mixed = model([node("Concat", ["x", "q"], axis=0)], [value("x", [2], STRING), value("q", [2], INT64)])
    with pytest.raises(pumice.GraphError, match=r"expected all or none of \['x', 'q'\] to be strings"):
        pumice.load(mixed)
    encoder = typed(model([ml("LabelEncoder", values_int64s=[1, 2, 3], **WORDS)], [value("x", [2], INT64)]))
    with pytest.raises(pumice.GraphError, match="expected strings, like the keys in its attributes, given numbers"):
        pumice.load(encoder)


@pytest.mark.parametrize("given", [np.zeros(2), np.array(["a", 1], object), np.array([b"a", b"b"]), [1, 2]])
def test_what_holds_no_strings_is_rejected(context: pumice.Context, given: Any) -> None:
    loaded = pumice.load(model([node("Identity")], [value("x", [2], STRING)]), context)
    with pytest.raises(pumice.BindingError, match="input 'x': expected an array of str; given"):
        loaded(given)
    with pytest.raises(pumice.BindingError, match=r"expected shape \[2\]; given shape \[3\]"):
        loaded(np.array(["a", "b", "c"]))


def test_a_nul_at_the_end_is_kept(context: pumice.Context) -> None:
    texts = ["a\0", "a", "\0"]
    loaded = pumice.load(model([node("Identity")], [value("x", [3], STRING)]), context)
    for given in (texts, tuple(texts), np.array(texts, object)):
        assert loaded(given).tolist() == texts
    single = pumice.load(model([node("Identity")], [value("x", [], STRING)]), context)
    assert single("b\0").tolist() == "b\0"


def test_strings_of_the_model_and_of_the_call_are_distinguished() -> None:
    strings = PerCallStringTable(StringTable(["a", "b"]))
    places = strings.encode(np.array([["b", "x"], ["y", "a"]], object), "x")
    assert strings.decode(places).tolist() == [["b", "x"], ["y", "a"]]
    for place, text in enumerate(["a", "b", "x", "y"]):
        single = strings.decode(np.array(place))
        assert (single.shape, single.dtype, single.item()) == ((), object, text)
    known = strings.decode(np.array([1, 1, 0]))
    known[0] = "changed"
    assert strings.decode(np.array([1])).tolist() == ["b"]


def test_a_mapper_without_categories_is_rejected() -> None:
    for attributes in ({"cats_int64s": [1]}, {}):
        with pytest.raises(
            pumice.GraphError, match="node 'it': attribute 'cats_strings': expected strings, given None"
        ):
            pumice.load(typed(model([ml("CategoryMapper", **attributes)], [X_IN]), y=INT64))


def test_the_command_line_reads_and_writes_strings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model([node("Concat", ["x", "x"], axis=0)], [value("x", [2], STRING)]), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array(["fig", "ü"]))
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "out")]
    assert main(["run", str(tmp_path / "m.onnx"), *given]) == 0
    assert np.load(tmp_path / "out" / "y.npy").tolist() == ["fig", "ü"] * 2
    assert main(["bench", str(tmp_path / "m.onnx")]) != 0
    assert "'x' holds strings" in capsys.readouterr().err


def test_graphs_have_no_strings() -> None:
    proto = model([node("Identity")], [value("x", [2], STRING)])
    with pytest.raises(pumice.UnsupportedError, match="'x': strings"):
        import_graph(proto)


def test_strings_come_back_from_the_cache_and_are_defaults(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    constants = {"c": np.array(["ü", "fig"], object)}
    inputs = [value("x", [2], STRING), value("c", [None], STRING)]
    path = tmp_path / "model.onnx"
    onnx.save(model([node("Concat", ["c", "x"], axis=0)], inputs, constants=constants), path)
    for _ in range(2):
        loaded = pumice.load(path, context, overridable=True)
        assert loaded(np.array(["x", "fig"])).tolist() == ["ü", "fig", "x", "fig"]
        assert loaded(np.array(["x", "fig"]), c=np.array(["own"])).tolist() == ["own", "x", "fig"]
    assert len(list((tmp_path / "cache" / "pumice" / "graphs").iterdir())) == 1


LEARNT = ["logistic", "neighbours", "forest", "machine", "bayes", "one-hot", "ordinal"]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # skl2onnx uses deprecated names
@pytest.mark.parametrize("name", LEARNT)
def test_pipelines_of_scikit_learn_with_labels_or_columns_of_words(context: pumice.Context, name: str) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn import ensemble, linear_model, naive_bayes, neighbors, preprocessing, svm

    random = np.random.default_rng(5)
    x = random.standard_normal((90, 4)).astype(np.float32)
    labels = np.array(["red", "grün", "blue"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    words = np.stack([labels, np.where(x[:, 2] > 0, "yes", "no")], 1)
    encoder = {
        "one-hot": preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        "ordinal": preprocessing.OrdinalEncoder(),
    }.get(name)
    classifier = {
        "logistic": linear_model.LogisticRegression(),
        "neighbours": neighbors.KNeighborsClassifier(3),
        "forest": ensemble.RandomForestClassifier(5, random_state=0),
        "machine": svm.SVC(probability=True, random_state=0),
        "bayes": naive_bayes.GaussianNB(),
    }.get(name)
    fitted = encoder.fit(words) if encoder else classifier.fit(x, labels)
    kind, width = (StringTensorType, 2) if encoder else (FloatTensorType, 4)
    proto = skl2onnx.convert_sklearn(
        fitted,
        initial_types=[("x", kind([None, width]))],
        options=None if encoder else {id(fitted): {"zipmap": False}},
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    results = check(context, proto, x=words.astype(object) if encoder else x)
    assert results[0].tolist() == (fitted.transform(words) if encoder else fitted.predict(x)).tolist()


@pytest.mark.parametrize("op", ["Loop", "Scan", "SequenceMap"])
def test_a_body_under_another_name_is_rejected_by_the_node(op: str) -> None:
    inner = subgraph([node("Identity", ["i"], ["j"])], [value("i", [])], [value("j", [])])
    proto = model([node(op, ["", "", "x"], ["y"], name="looped", bodi=inner)], [value("x", [])], ["y"])
    with pytest.raises(pumice.Error, match="looped"):
        pumice.load(proto, folder=".")
