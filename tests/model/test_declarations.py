"""Wrong shape declarations and newer file versions are accepted and reported."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import model, node, value

X = np.ones((2, 4), "float32")


def declared(*outputs: onnx.ValueInfoProto, shape: Any = ("N", 4), nodes: Any = None) -> onnx.ModelProto:
    proto = model(nodes or [node("Relu")], [value("x", shape)])
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    return proto


def info(dtype: int, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("y", dtype, shape)


def loaded(context: pumice.Context, proto: onnx.ModelProto, caplog: pytest.LogCaptureFixture) -> pumice.Model:
    """Load the model and check that its warnings are logged once, kept and reported."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pumice"):
        loaded_model = pumice.load(proto, context)
        loaded_model(X)
        loaded_model(X)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [f"model '{loaded_model.name}': {text}" for text in loaded_model.warnings]
    report = loaded_model.report()
    assert list(report.warnings) == loaded_model.warnings
    assert all(f"warning: {text}" in str(report) for text in loaded_model.warnings)
    assert all(text.split(",")[0] in report._repr_html_().replace("&#x27;", "'") for text in loaded_model.warnings)
    return loaded_model


FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("proto", "warnings"),
    [
        (declared(info(DOUBLE, ["N", 4])), ["output 'y' is declared as float64, but is float32"]),
        (declared(info(FLOAT, ["N", 5])), ["output 'y' is declared with shape [N, 5], but has shape [N, 4]"]),
        (declared(info(FLOAT, ["N"])), ["output 'y' is declared with shape [N], but has shape [?, 4]"]),
        (declared(info(FLOAT, [1, 4])), ["output 'y' is declared with shape [1, 4], but has shape [2, 4]"]),
        (
            declared(info(FLOAT, [3]), shape=None),
            ["output 'y' is declared with shape [3], but has shape [2, 4]"],
        ),
        (
            declared(info(DOUBLE, [3]), shape=(2, 4)),
            [
                "output 'y' is declared as float64, but is float32",
                "output 'y' is declared with shape [3], but has shape [2, 4]",
            ],
        ),
        (declared(info(FLOAT, ["N", 4])), []),
        (declared(info(FLOAT, ["M", "K"])), []),
        (declared(info(FLOAT, None)), []),
        (declared(onnx.ValueInfoProto(name="y")), []),
        (declared(info(0, ["N", 4])), []),
    ],
)
def test_an_output_that_is_declared_otherwise_is_a_warning(
    context: pumice.Context,
    caplog: pytest.LogCaptureFixture,
    proto: onnx.ModelProto,
    warnings: list[str],
    cached: bool,
) -> None:
    data = proto.SerializeToString()
    for source in [data] * (2 if cached else 1):
        assert loaded(context, onnx.load_from_string(source) if not cached else source, caplog).warnings == warnings


@pytest.mark.parametrize("op", ["Identity", "SequenceConstruct"])
def test_strings_that_are_declared_so_are_no_warning(op: str, context: pumice.Context) -> None:
    string = value("x", ["n"], TensorProto.STRING)
    result = info(TensorProto.STRING, ["n"])
    if op == "SequenceConstruct":
        result = helper.make_tensor_sequence_value_info("y", TensorProto.STRING, ["n"])
    proto = declared(result, nodes=[node(op)])
    proto.graph.input[0].CopyFrom(string)
    with pumice.load(proto, context) as model_of_strings:
        assert model_of_strings.warnings == []


def test_a_sequence_that_is_declared_a_tensor_is_a_warning(
    context: pumice.Context, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [node("SequenceConstruct", ["x", "x"])]
    result = loaded(context, declared(info(FLOAT, ["N", 4]), nodes=nodes), caplog)
    assert result.warnings == ["output 'y' is declared as float32, but is sequence(float32)"]
    right = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    assert loaded(context, declared(right, nodes=nodes), caplog).warnings == []


def test_a_format_that_is_newer_than_what_is_known_is_a_warning(
    context: pumice.Context, caplog: pytest.LogCaptureFixture
) -> None:
    proto = model([node("Relu")])
    proto.ir_version = 999
    (warning,) = loaded(context, proto, caplog).warnings
    assert f"ir_version 999 is newer than {onnx.IR_VERSION}" in warning
    proto.ir_version = onnx.IR_VERSION
    assert loaded(context, proto, caplog).warnings == []


@pytest.mark.parametrize(
    ("imports", "warning"),
    [
        ([("", 13), ("", 17)], "domain 'ai.onnx' are imported 2 times, with versions 13, 17: 17 is used"),
        ([("", 17), ("ai.onnx", 17)], "domain 'ai.onnx' are imported 2 times, with versions 17, 17: 17 is used"),
        ([("", 17), ("other", 1), ("other", 2)], "domain 'other' are imported 2 times, with versions 1, 2: 2 is used"),
        ([("", 17), ("other", 1)], ""),
    ],
)
def test_a_domain_that_is_imported_twice_is_a_warning(
    context: pumice.Context, caplog: pytest.LogCaptureFixture, imports: list[tuple[str, int]], warning: str
) -> None:
    proto = model([node("Relu")])
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in imports)
    warnings = loaded(context, proto, caplog).warnings
    assert len(warnings) == bool(warning)
    assert all(warning in text for text in warnings)


def test_operators_of_the_engines_own_domain_are_imported(context: pumice.Context) -> None:
    """A file may use every operator of the table, even operators that ONNX lacks, such as FloorDivide."""
    x = np.arange(-4, 4, dtype="int32").reshape(2, 4)
    inputs = [value("x", ["N", 4], TensorProto.INT32)]
    proto = model([node("FloorDivide", ["x", "d"], domain="pumice")], inputs, constants={"d": np.full(4, 3, "int32")})
    proto.opset_import.append(helper.make_opsetid("pumice", 1))
    with pumice.load(proto, context) as loaded_model:
        np.testing.assert_array_equal(loaded_model(x), np.floor_divide(x, 3))
    for row in pumice.operators():
        domain, _, name = row.name.rpartition("::")
        if domain != "nnapi" and row.skeleton != "composed":
            assert pumice.has_operator(name, domain), row.name
            assert not pumice.has_operator(name, "wobble")
    foreign = model([node("Relu", domain="wobble")])
    with pytest.raises(pumice.UnsupportedError, match="operator wobble::Relu"):
        pumice.load(foreign, context)
