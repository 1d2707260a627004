"""Symbolic sizes: equal names mean equal sizes, except for placeholder names of converters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import pumice
from onnx_models import model, node, value

UNKNOWN = ["?", "", "unk", "None", "none", "-1", "unknown", "Unknown", "*", "null", "nan", "any", "dynamic", " ? "]
EQUAL = ["N", "batch_size", "s0", "unk__12", "seq", "none_1", "DynamicDimension.0", "1"]


def sums(name: str) -> Any:
    """Two inputs, each with two sizes of that name, and the sum of each."""
    nodes = [node("ReduceSum", [x, "axes"], [f"{x}.sum"], keepdims=0) for x in ("a", "b")]
    return model(
        [*nodes, node("Add", ["a.sum", "b.sum"])],
        [value("a", [name, name]), value("b", [name, 3])],
        constants={"axes": np.array([0, 1])},
    )


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_name_that_stands_for_unknown_binds_nothing(context: pumice.Context, name: str) -> None:
    with pumice.load(sums(name), context) as loaded:
        assert [given.shape for given in loaded.inputs] == [(None, None), (None, 3)]
        for rows, columns, others in ((2, 5, 4), (1, 1, 7), (3, 3, 3)):
            a, b = np.ones((rows, columns), "float32"), np.ones((others, 3), "float32")
            assert loaded(a, b) == rows * columns + others * 3


@pytest.mark.parametrize("name", EQUAL)
def test_any_other_name_is_an_equality(context: pumice.Context, name: str) -> None:
    with pumice.load(sums(name), context) as loaded:
        assert loaded.inputs[0].shape == (name, name)
        assert loaded(np.ones((4, 4), "float32"), np.ones((4, 3), "float32")) == 28
        for a, b, where in (((4, 5), (4, 3), "a"), ((4, 4), (5, 3), "b")):
            with pytest.raises(pumice.BindingError, match=f"{name} = 4 as in 'a'") as caught:
                loaded(np.ones(a, "float32"), np.ones(b, "float32"))
            assert (caught.value.rule, caught.value.tensor) == ("K10", where)


def test_sizes_of_such_names_are_distinguished_in_loops(context: pumice.Context) -> None:
    """A loop output is as long as what it gathers; two inputs called "?" may have different sizes."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["b", "b"], ["row"])],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("row", 1, None)],
    )
    proto = model(
        [node("Loop", ["trips", ""], ["rows"], body=body), node("ReduceSum", ["a"], ["s"]), node("Add", ["rows", "s"])],
        [value("a", ["?"]), value("b", ["?"]), value("trips", [], 7)],
    )
    with pumice.load(proto, context) as loaded:
        for first, second in ((3, 5), (5, 3), (4, 4)):
            made = loaded(np.ones(first, "float32"), np.ones(second, "float32"), np.array(2))
            np.testing.assert_array_equal(made, np.full((2, second), 2 + first))
