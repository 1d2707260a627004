"""ai.onnx.ml operators on numbers, against onnx.reference, ONNX Runtime and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

import pumice

Array = np.ndarray[Any, Any]
X = np.random.default_rng(7).standard_normal((11, 4)).astype(np.float32)
NAN = np.array([[1, np.nan, 3], [np.nan, 5, 6]], np.float32)


def ml(op: str, arrays: list[Array], outputs: int = 1, version: int = 3, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op, names, [f"y{j}" for j in range(outputs)], domain="ai.onnx.ml", name="ml", **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    results = [ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "one", values, results)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(context: pumice.Context, model: onnx.ModelProto, arrays: list[Array]) -> list[Array]:
    with pumice.load(model, context) as loaded:
        given = loaded(*arrays)
        return [given] if len(loaded.outputs) == 1 else list(given)


def compare(context: pumice.Context, model: onnx.ModelProto, arrays: list[Array], wanted: list[Array]) -> None:
    for one, other in zip(run(context, model, arrays), wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, one.shape, other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


KEYS = {"keys_int64s": [1, 5, 7], "values_floats": [0.5, 1.5, 2.5], "default_float": -3.0}
SIMPLE: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("ArrayFeatureExtractor", [X, np.array([2, 0, 2])], {}),
    ("ArrayFeatureExtractor", [X[0], np.array([[1]])], {}),
    ("Binarizer", [X], {"threshold": 0.25}),
    ("Scaler", [X], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 2.0, 1.0, -1.0]}),
    ("Scaler", [X], {"offset": [1.0], "scale": [0.5]}),
    *(("Normalizer", [X], {"norm": norm}) for norm in ("MAX", "L1", "L2")),
    ("Imputer", [NAN], {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")}),
    ("Imputer", [np.nan_to_num(NAN)], {"imputed_value_floats": [7.0], "replaced_value_float": 0.0}),
    ("Imputer", [np.array([[1, 2], [2, 1]])], {"imputed_value_int64s": [7, 8], "replaced_value_int64": 2}),
    ("OneHotEncoder", [np.array([[3, 1], [2, 9]])], {"cats_int64s": [1, 2, 3], "zeros": 1}),
    ("OneHotEncoder", [np.array([3.0, 1.0], np.float32)], {"cats_int64s": [1, 2, 3], "zeros": 1}),
    ("FeatureVectorizer", [X, X[:, :1]], {"inputdimensions": [4, 1]}),
    ("LabelEncoder", [np.array([5, 1, 2, 7])], KEYS),
    ("LabelEncoder", [np.array([5.5, 1.0], np.float32)], {"keys_floats": [1.0, 5.5], "values_int64s": [4, 3], "default_int64": -1}),
    ("LinearRegressor", [X], {"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [0.5], "targets": 1}),
    ("LinearRegressor", [X], {"coefficients": [0.1 * i for i in range(8)], "intercepts": [0.5, 1.0], "targets": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arrays", "attributes"), SIMPLE)
def test_simple_ones(context: pumice.Context, op: str, arrays: list[Array], attributes: dict[str, Any]) -> None:
    model = ml(op, arrays, **attributes)
    given = {f"x{i}": array for i, array in enumerate(arrays)}
    compare(context, model, arrays, ReferenceEvaluator(model).run(None, given))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifiers(context: pumice.Context, transform: str, classes: int) -> None:
    rows = 1 if classes == 2 else classes
    random = np.random.default_rng(classes)
    attributes: dict[str, Any] = {
        "coefficients": random.standard_normal(rows * 4).tolist(),
        "intercepts": random.standard_normal(rows).tolist(),
        "classlabels_ints": [10, 20, 30][:classes],
        "post_transform": transform,
    }
    model = ml("LinearClassifier", [X], 2, **attributes)
    compare(context, model, [X], ReferenceEvaluator(model).run(None, {"x0": X}))


def onnx_runtime(model: onnx.ModelProto, arrays: list[Array]) -> list[Array]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"x{i}": array for i, array in enumerate(arrays)}))


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID", "none"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vector_regression(context: pumice.Context, kernel: str, one_class: int) -> None:
    random = np.random.default_rng(3)
    count = 0 if kernel == "none" else 6
    attributes: dict[str, Any] = {
        "kernel_type": "LINEAR" if kernel == "none" else kernel,
        "kernel_params": [0.3, 0.5, 3.0],
        "n_supports": count,
        "support_vectors": random.standard_normal(count * 4).tolist(),
        "coefficients": random.standard_normal(count or 4).tolist(),
        "rho": [0.25],
        "one_class": one_class,
    }
    if not count:
        del attributes["support_vectors"]
    model = ml("SVMRegressor", [X], 1, 1, **attributes)
    compare(context, model, [X], onnx_runtime(model, [X]))


def forest(random: np.random.Generator, trees: int, targets: int, role: str, depth: int = 4) -> dict[str, Any]:
    """Return attributes of random trees with every comparison mode."""
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    made: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                     "missing_value_tracks_true")
    } | {f"{role}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}  # fmt: skip

    def add(tree: int, level: int, number: list[int]) -> int:
        own = number[0]
        number[0] += 1
        leaf = level == depth or (level > 1 and random.random() < 0.2)
        at = len(made["nodes_treeids"])
        row = (tree, own, random.integers(4), "LEAF" if leaf else random.choice(modes), random.integers(-4, 5) / 4, 0, 0,
               random.integers(2))  # fmt: skip
        for values, one in zip(list(made.values())[:8], row, strict=True):
            values.append(one.item() if isinstance(one, np.generic) else one)
        if leaf:
            for target in random.permutation(targets)[: random.integers(1, targets + 1)]:
                weight = float(np.float32(random.random()))
                for name, one in (("treeids", tree), ("nodeids", own), ("ids", int(target)), ("weights", weight)):
                    made[f"{role}_{name}"].append(one)
            return own
        made["nodes_truenodeids"][at] = add(tree, level + 1, number)
        made["nodes_falsenodeids"][at] = add(tree, level + 1, number)
        return own

    for tree in range(trees):
        add(tree, 0, [0])
    made["nodes_modes"] = [str(mode) for mode in made["nodes_modes"]]
    return made


ROWS = (np.random.default_rng(2).integers(-4, 5, (37, 4)) / 4).astype(np.float32)


@pytest.mark.parametrize("fold", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_regression_by_trees(context: pumice.Context, fold: str, targets: int) -> None:
    attributes = forest(np.random.default_rng(targets), 7, targets, "target")
    model = ml("TreeEnsembleRegressor", [ROWS], 1, 1, aggregate_function=fold, n_targets=targets, **attributes)
    compare(context, model, [ROWS], onnx_runtime(model, [ROWS]))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_by_trees(context: pumice.Context, transform: str, classes: int) -> None:
    attributes = forest(np.random.default_rng(classes), 5, classes, "class")
    labels = [0, 1] if classes == 2 else [4, 8, 15]
    model = ml(
        "TreeEnsembleClassifier", [ROWS], 2, 1, classlabels_int64s=labels, post_transform=transform, **attributes
    )
    # With two classes, ONNX Runtime picks the second if its score is above 0.
    wanted = onnx_runtime(model, [ROWS]) if classes > 2 else ReferenceEvaluator(model).run(None, {"x0": ROWS})
    compare(context, model, [ROWS], wanted)


def test_missing_values_go_where_the_node_says(context: pumice.Context) -> None:
    rows = ROWS.copy()
    rows[::3, 1] = np.nan
    attributes = forest(np.random.default_rng(5), 6, 2, "target")
    model = ml("TreeEnsembleRegressor", [rows], 1, 1, n_targets=2, **attributes)
    compare(context, model, [rows], onnx_runtime(model, [rows]))


def test_trees_that_are_none_are_rejected(context: pumice.Context) -> None:
    attributes = forest(np.random.default_rng(5), 1, 1, "target")
    attributes["nodes_truenodeids"][0] = 0
    with pytest.raises(pumice.GraphError, match="nodes in a cycle"):
        pumice.load(ml("TreeEnsembleRegressor", [ROWS], 1, 1, n_targets=1, **attributes), context)
    attributes["nodes_truenodeids"][0] = 99
    with pytest.raises(pumice.GraphError, match="child indices below"):
        pumice.load(ml("TreeEnsembleRegressor", [ROWS], 1, 1, n_targets=1, **attributes), context)


def test_rejections(context: pumice.Context) -> None:
    for op, attributes, why in (
        ("LinearRegressor", {"coefficients": [1.0] * 4, "post_transform": "PROBIT"}, "PROBIT"),
        ("ZipMap", {"classlabels_int64s": [0, 1]}, "zipmap=False"),
    ):
        with pytest.raises(pumice.UnsupportedError, match=why):
            pumice.load(ml(op, [X], **attributes), context)
    with pytest.raises(pumice.UnsupportedError, match="float64"):
        pumice.load(ml("Scaler", [X.astype(np.float64)], scale=[2.0]), context)
    with pytest.raises(pumice.GraphError, match="coefficients for each"):
        pumice.load(ml("LinearRegressor", [X], coefficients=[1.0] * 3, targets=2), context)


PIPELINES = [
    "logistic",
    "forest",
    "boosting",
    "regression",
    "boosted regression",
    "ridge",
    "support vectors",
    "encoder",
    "two classes",
    "three classes",
    "probabilities of two",
    "probabilities of many",
]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # skl2onnx uses deprecated names
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_of_scikit_learn(context: pumice.Context, name: str) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn import base, ensemble, impute, linear_model, pipeline, preprocessing, svm

    random = np.random.default_rng(11)
    data = random.standard_normal((200, 5)).astype(np.float32)
    classes = (data[:, 0] + data[:, 1] ** 2 > 0.5).astype(int) + (data[:, 2] > 1)
    numbers = data[:, 0] * 2 - data[:, 3] ** 2
    scaled = [preprocessing.StandardScaler()]
    steps, wanted = {
        "logistic": ([impute.SimpleImputer(), *scaled, linear_model.LogisticRegression()], classes),
        "forest": ([preprocessing.MinMaxScaler(), ensemble.RandomForestClassifier(9, random_state=0)], classes),
        "boosting": ([ensemble.GradientBoostingClassifier(n_estimators=9, random_state=0)], classes > 0),
        "regression": ([preprocessing.Normalizer(), ensemble.RandomForestRegressor(9, random_state=0)], numbers),
        "boosted regression": ([ensemble.GradientBoostingRegressor(n_estimators=9, random_state=0)], numbers),
        "ridge": ([preprocessing.Binarizer(), linear_model.Ridge()], numbers),
        "support vectors": ([*scaled, svm.SVR()], numbers),
        "two classes": ([*scaled, svm.SVC()], classes > 0),
        "three classes": ([*scaled, svm.SVC(kernel="poly")], classes),
        "probabilities of two": ([*scaled, svm.SVC(probability=True, random_state=0)], classes > 0),
        "probabilities of many": (
            [*scaled, svm.SVC(probability=True, random_state=0)],
            np.where(data[:, 4] > 0.5, classes + 3, classes),
        ),
        "encoder": ([preprocessing.PolynomialFeatures(2), *scaled, linear_model.LinearRegression()], numbers),
    }[name]
    fitted = pipeline.make_pipeline(*steps).fit(data, wanted)
    options = {id(fitted): {"zipmap": False}} if base.is_classifier(fitted) else None
    proto = skl2onnx.convert_sklearn(
        fitted,
        initial_types=[("x0", FloatTensorType([None, 5]))],
        options=options,
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    results = run(context, proto, [data])
    for one, other in zip(results, onnx_runtime(proto, [data]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    if base.is_classifier(fitted):
        assert np.mean(results[0] == fitted.predict(data)) > 0.99
    if hasattr(fitted, "predict_proba"):
        # Both engines iterate for pairwise probabilities, and stop before full convergence.
        atol = 5e-3 if "probabilities" in name else 1e-4
        np.testing.assert_allclose(results[1], fitted.predict_proba(data), atol=atol)


@pytest.mark.parametrize("member", [False, True])
def test_trees_of_the_newest_form(context: pumice.Context, member: bool) -> None:
    """Two trees: a single node, and a set membership or comparison node over two leaves and another node."""

    def tensor(values: list[float], dtype: int = TensorProto.FLOAT) -> onnx.TensorProto:
        return helper.make_tensor("t", dtype, [len(values)], values)

    attributes: dict[str, Any] = {
        "nodes_splits": tensor([0.5, 0.25, -0.5]),
        "nodes_featureids": [0, 2, 1],
        "nodes_modes": tensor([6 if member else 3, 0, 1], TensorProto.UINT8),
        "nodes_truenodeids": [1, 0, 2],
        "nodes_falsenodeids": [3, 1, 4],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 1],
        "leaf_weights": tensor([1.0, 2.0, 4.0, 8.0, 16.0]),
        "tree_roots": [0, 2],
        "n_targets": 2,
    }
    if member:
        attributes["membership_values"] = tensor([0.5, -0.75, 1.0, float("nan")])
    model = ml("TreeEnsemble", [ROWS], 1, 5, **attributes)
    compare(context, model, [ROWS], [np.asarray(ReferenceEvaluator(model).run(None, {"x0": ROWS})[0], np.float32)])
