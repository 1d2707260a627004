"""The `onnx` package's own node tests through pumice.onnx.backend: no failures, and the docs page lists the rejected tests."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_node_tests
import pumice
import pumice.onnx.backend
from features import reason_of_refusal
from onnx_node_tests import PAGE, REFUSED, WRONG

PARTS = 16  # shards of the node tests, distributed over the workers of a run


def part(k: int) -> list[str]:
    return sorted(onnx_node_tests.all_tests())[k::PARTS]


def rows(text: str) -> dict[str, str]:
    """Return the reasons on a page, by test."""
    cells = [line.split(" | ", 1) for line in text.splitlines() if line.startswith("| test_")]
    return {name.removeprefix("| "): reason for name, reason in cells}


@pytest.mark.skipif(onnx.__version__ not in PAGE.read_text().splitlines()[2], reason="the page is of another onnx")
@pytest.mark.parametrize("k", range(PARTS))
def test_all_node_tests_pass_or_are_rejected_as_the_page_says(context: pumice.Context, k: int) -> None:
    names = part(k)
    outcomes = list(onnx_node_tests.outcomes(names))
    assert [outcome for outcome in outcomes if outcome.kind == WRONG] == []
    lacking = {one.name for one in outcomes if one.kind == REFUSED and reason_of_refusal(one.reason, context)}
    expected = {name: reason for name, reason in rows(PAGE.read_text()).items() if name in names}
    assert rows(onnx_node_tests.page([one for one in outcomes if one.name not in lacking])) == expected


@pytest.mark.skipif(onnx.__version__ not in PAGE.read_text().splitlines()[2], reason="the page is of another onnx")
def test_the_counts_of_the_page_are_those_of_its_rows() -> None:
    text = PAGE.read_text()
    total, passed, refused, wrong, random = (
        int(number.replace(",", ""))
        for number in re.findall(r"(?<![.\d])\d[\d,]*(?= (?:node|pass|use|are))", text.splitlines()[2])
    )
    assert total == len(onnx_node_tests.all_tests()) == passed + random + refused + wrong
    assert (len(rows(text)), wrong) == (refused, 0)


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
