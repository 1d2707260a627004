"""The `onnx` package's own node tests through pumice.onnx.backend: nothing is wrong, and the page tells what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_node_tests
import pumice
import pumice.onnx.backend
from features import lacking_features
from onnx_node_tests import PAGE, PASSED, RANDOM, REFUSED, WRONG

EACH = 8  # tests, of which the fast tier takes one


def sample() -> list[str]:
    return sorted(onnx_node_tests.all_tests())[::EACH]


def refused_on_the_page() -> set[str]:
    return {line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| test_")}


@pytest.mark.skipif(onnx.__version__ not in PAGE.read_text().splitlines()[2], reason="the page is of another onnx")
def test_a_sample_of_the_node_tests(context: pumice.Context) -> None:
    known = refused_on_the_page()
    for outcome in onnx_node_tests.outcomes(sample()):
        if outcome.kind == REFUSED and lacking_features(outcome.reason, context):
            continue
        assert outcome.kind in ((REFUSED,) if outcome.name in known else (PASSED, RANDOM)), outcome


@pytest.mark.slow
@pytest.mark.skipif(onnx.__version__ not in PAGE.read_text().splitlines()[2], reason="the page is of another onnx")
def test_all_node_tests_and_their_page() -> None:
    everything = list(onnx_node_tests.outcomes(onnx_node_tests.all_tests()))
    assert [outcome for outcome in everything if outcome.kind == WRONG] == []
    assert onnx_node_tests.page(everything) == PAGE.read_text()


def test_the_interface_of_backends() -> None:
    backend = pumice.onnx.backend
    node = helper.make_node("Add", ["a", "b"], ["y"])
    a, b = np.arange(6, dtype="float32").reshape(2, 3), np.ones(3, "float32")
    np.testing.assert_array_equal(backend.run_node(node, [a, b]).y, a + b)
    shown = backend.run_node(node, [a, b], outputs_info=[(np.dtype("float32"), (2, 3))])
    np.testing.assert_array_equal(shown[0], a + b)
    values = [helper.make_tensor_value_info(name, 1, None) for name in "aby"]
    model = helper.make_model(helper.make_graph([node], "g", values[:2], values[2:]))
    prepared = backend.prepare(model, "VULKAN:0")
    for given in ([a, b], (a, b), {"b": b, "a": a}, [onnx.numpy_helper.from_array(a), b]):
        np.testing.assert_array_equal(prepared.run(given).y, a + b)
    assert backend.is_compatible(model)
    model.graph.node[0].op_type = "NoSuchOperator"
    assert not backend.is_compatible(model)
    assert not backend.supports_device("CUDA")
    with pytest.raises(pumice.UnsupportedError, match="CUDA"):
        backend.prepare(model, "CUDA")
