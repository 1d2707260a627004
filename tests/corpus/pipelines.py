"""scikit-learn pipelines, fitted to seeded data, as exported by skl2onnx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from skl2onnx import to_onnx
from sklearn import (
    cluster,
    decomposition,
    ensemble,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.pipeline import make_pipeline

from .case import Case, floats


def data(classes: int = 3) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(5)
    x = random.normal(size=(120, 6)).astype(np.float32)
    target = x @ random.normal(size=6).astype(np.float32) + 0.3 * x[:, 0] ** 2
    return x, target, np.digitize(target, [-1, 1][: classes - 1])


def fitted(estimator: Any, classes: int, zipped: bool) -> onnx.ModelProto:
    x, target, kinds = data(classes)
    estimator.fit(x, kinds if classes else target)
    plain = (
        classes and not zipped and not isinstance(estimator, svm.LinearSVC)
    )  # an array of probabilities, not a list of dictionaries
    options = {id(estimator): {"zipmap": False}} if plain else None
    return to_onnx(estimator, x[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})


def case(
    name: str,
    estimator: Callable[[], Any],
    outputs: tuple[str, ...] = ("variable",),
    classes: int = 0,
    zipped: bool = False,
) -> Case:
    return Case(
        f"sklearn_{name}",
        lambda: fitted(estimator(), classes, zipped),
        {"X": floats("rows", 6)},
        outputs,
        [{"rows": 5}, {"rows": 1}, {"rows": 17}],
        exporters=("sklearn",),
    )


BOTH = ("label", "probabilities")

CASES = [
    case(
        "scaler",
        lambda: make_pipeline(preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.Normalizer()),
    ),
    case("pca", lambda: make_pipeline(preprocessing.RobustScaler(), decomposition.PCA(3, random_state=0))),
    case("linear", lambda: make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge())),
    case("logistic", lambda: make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()), BOTH, 3),
    case("dictionaries", lambda: linear_model.LogisticRegression(), BOTH, 3, zipped=True),
    case(
        "mlp_classifier",
        lambda: neural_network.MLPClassifier(hidden_layer_sizes=(12,), max_iter=60, random_state=0),
        BOTH,
        3,
    ),
    case(
        "mlp_regressor",
        lambda: neural_network.MLPRegressor(hidden_layer_sizes=(12, 8), activation="tanh", max_iter=60, random_state=0),
    ),
    case("kmeans", lambda: cluster.KMeans(4, n_init=1, random_state=0), ("label", "scores")),
    case("svm_classifier", lambda: svm.SVC(random_state=0), BOTH, 3),
    case("svm_polynomial", lambda: svm.SVC(kernel="poly", random_state=0), BOTH, 2),
    case("svm_probabilities", lambda: svm.SVC(probability=True, random_state=0), BOTH, 3),
    case("logistic_binary", lambda: linear_model.LogisticRegression(), BOTH, 2),
    case("tree_binary", lambda: tree.DecisionTreeClassifier(max_depth=4, random_state=0), BOTH, 2),
    case("boosting_binary", lambda: ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0), BOTH, 2),
    case("boosting_classes", lambda: ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0), BOTH, 3),
    case("extra_trees", lambda: ensemble.ExtraTreesRegressor(4, max_depth=5, random_state=0)),
    case("isolation_forest", lambda: ensemble.IsolationForest(n_estimators=5, random_state=0), ("label", "scores")),
    case("imputer", lambda: make_pipeline(impute.SimpleImputer(), preprocessing.KBinsDiscretizer(3, encode="ordinal"))),
    case("svm_linear", lambda: svm.LinearSVC(random_state=0), BOTH, 3),
    case("svm_regressor", lambda: svm.SVR()),
    case("bayes", lambda: naive_bayes.GaussianNB(), BOTH, 3),
    case("neighbours", lambda: neighbors.KNeighborsRegressor(3)),
    case("tree", lambda: tree.DecisionTreeRegressor(max_depth=4, random_state=0)),
    case("forest", lambda: ensemble.RandomForestClassifier(5, max_depth=4, random_state=0), BOTH, 3),
    case("boosting", lambda: ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0)),
]
