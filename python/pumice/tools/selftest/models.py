"""ONNX models of the self-test's operator cases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.element_types import Array
from .operands import Case, Operand

_SEED = 20
_IR_VERSION = 8


def get_output_name(case_name: str, index: int = 0) -> str:
    """Return the name of a case's output."""
    return f"{case_name}: output {index}"


def build_model(area: str, opset: int, cases: Sequence[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model with a node for each case, and its inputs. Outputs that no case reads are outputs of the model."""
    random = np.random.default_rng(_SEED)
    inputs: dict[str, Array] = {}
    constants: dict[str, Array] = {}
    nodes = []
    for case in cases:
        operand_names = []
        for index, operand in enumerate(case.operands):
            name = _get_operand_name(case, index, operand)
            operand_names.append(name)
            if isinstance(operand, Operand):
                (constants if operand.constant else inputs)[name] = operand.generate(random)
        outputs = [get_output_name(case.name, index) for index in range(case.outputs)]
        nodes.append(
            helper.make_node(case.op, operand_names, outputs, name=case.name, domain=case.domain, **case.attributes)
        )
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        area,
        [make_value_info(name, array) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name not in read],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), inputs


def make_value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """Return the declaration of a value with the dtype and shape of an array."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _get_operand_name(case: Case, index: int, operand: Operand | str | None) -> str:
    if operand is None:
        return ""
    return get_output_name(operand) if isinstance(operand, str) else f"{case.name}: input {index}"
