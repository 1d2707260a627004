"""Every operator at every opset that changed it: matches onnx.reference or ONNX Runtime, or is rejected."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

import pumice
from cases import CASES, Case
from exact_sessions import exact_session
from features import reason_of_refusal
from operator_references import OWN_REFERENCES
from pumice.importer.rewrites.rewrite_table import MAX_OPSET, MIN_OPSET, UPGRADES
from pumice.importer.translators.operator_table import TRANSLATORS
from pumice.testing import assert_close

Array = np.ndarray[Any, Any]
EACH = 2  # cases per operator version
FIRST_COMPARED = 7  # oldest opset that ONNX Runtime and the reference support


def views() -> dict[str, list[Any]]:
    """Return for each operator the schemas in effect at any opset from MIN_OPSET on, oldest first."""
    found: dict[str, list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= MAX_OPSET:
            found.setdefault(schema.name, []).append(schema)
    for name, schemas in found.items():
        schemas.sort(key=lambda schema: schema.since_version)
        later = [*(schema.since_version for schema in schemas[1:]), MAX_OPSET + 1]
        found[name] = [one for one, end in zip(schemas, later, strict=True) if end > MIN_OPSET and not one.deprecated]
    return found


VIEWS = views()


def onnx_types(schema: Any, argument: Any) -> set[str]:
    for constraint in schema.type_constraints:
        if constraint.type_param_str == argument.type_str:
            return set(constraint.allowed_type_strs)
    return {argument.type_str}


def fits(case: Case, schema: Any, arrays: list[Array | None]) -> bool:
    """Return whether that operator version accepts the case's attributes, inputs and outputs."""
    if not set(case.attributes) <= set(schema.attributes) or case.outputs > schema.max_output:
        return False
    if not schema.min_input <= len(arrays) <= schema.max_input:
        return False
    for i, array in enumerate(arrays):
        argument = schema.inputs[min(i, len(schema.inputs) - 1)]
        if array is None:
            continue
        name = helper.tensor_dtype_to_string(helper.np_dtype_to_tensor_dtype(array.dtype)).removeprefix("TensorProto.")
        if f"tensor({name.lower()})" not in onnx_types(schema, argument):
            return False
    return True


def one_node(
    op: str, version: int, attributes: dict[str, Any], arrays: list[Array | None], constant: list[bool], outputs: int
) -> onnx.ModelProto:
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
    attributes = {
        key: numpy_helper.from_array(one) if isinstance(one, np.ndarray) else one for key, one in attributes.items()
    }
    node = helper.make_node(op, names, [f"y{j}" for j in range(outputs)], name="node", **attributes)
    held = [
        numpy_helper.from_array(a, n) for n, a, c in zip(names, arrays, constant, strict=True) if a is not None and c
    ]
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a, c in zip(names, arrays, constant, strict=True)
        if a is not None and not c
    ]
    graph = helper.make_graph([node], "one", values, [ValueInfoProto(name=name) for name in node.output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def expected(model: onnx.ModelProto, inputs: dict[str, Array]) -> Iterator[list[Array]]:
    """Return the results of ONNX Runtime and of the reference, if they run the model."""
    from onnx.reference import ReferenceEvaluator

    outputs = [output.name for output in model.graph.output]
    with contextlib.suppress(Exception):
        typed = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        session = exact_session(typed)
        yield list(session.run(outputs, inputs))
    with contextlib.suppress(Exception):
        yield list(ReferenceEvaluator(model).run(outputs, inputs))


def check(context: pumice.Context, model: onnx.ModelProto, inputs: dict[str, Array], fp32: tuple[float, float]) -> str:
    """Run a model. Return "right" if another engine agrees, "refused", or "unknown" if no other engine runs it. Raise if a device feature
    is missing.
    """
    try:
        with pumice.Model(model, context) as loaded:
            given = loaded(**inputs)
            results = [given] if len(loaded.outputs) == 1 else list(given)
    except pumice.UnsupportedError as error:
        if reason_of_refusal(str(error), context):
            raise
        assert "node" in str(error)
        return "refused"
    failure = None
    for wanted in expected(model, inputs):
        try:
            compare(results, wanted, fp32)
        except AssertionError as error:
            failure = error
        else:
            return "right"
    if failure:
        raise failure
    return "unknown"


def compare(results: list[Array], wanted: list[Array], fp32: tuple[float, float]) -> None:
    for one, other in zip(results, map(np.asarray, wanted), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape, (one.dtype, one.shape, other.dtype, other.shape)
        assert_close(one, other, rtol=max(fp32[0], 1e-5), atol=max(fp32[1], 1e-5))


def old_cases() -> Iterator[tuple[Case, int]]:
    """Yield cases of the operator test table with older versions that accept them."""
    taken: dict[tuple[str, int], int] = {}
    for case in CASES:
        if case.large or case.op in OWN_REFERENCES or str(case) in OWN_REFERENCES:
            continue
        arrays = case.arrays()
        schemas = VIEWS.get(case.op, [])
        for schema, following in itertools.pairwise(schemas):
            if following.since_version <= FIRST_COMPARED:
                continue  # not supported by either engine: test_first_opsets compares these with NumPy
            version = max(schema.since_version, FIRST_COMPARED)
            key = case.op, version
            if taken.get(key, 0) < EACH and fits(case, schema, arrays):
                taken[key] = taken.get(key, 0) + 1
                yield case, version


@pytest.mark.parametrize(("case", "version"), list(old_cases()), ids=lambda value: str(value))
def test_cases_at_older_versions(context: pumice.Context, case: Case, version: int) -> None:
    arrays = case.arrays()
    constant = [one is not None and one.constant for one in case.inputs]
    model = one_node(case.op, version, case.attributes, arrays, constant, case.outputs)
    inputs = {f"x{i}": array for i, array in enumerate(arrays) if array is not None and not constant[i]}
    assert check(context, model, inputs, case.fp32) == "right"


def r(*shape: int, dtype: str = "float32") -> Array:
    return (np.random.default_rng(sum(shape)).integers(-64, 65, shape) / 32).astype(dtype)


IMAGE = (2, 3, 8, 6)
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
# Forms that the newest version lacks: operator, versions, attributes, inputs (constants after the first), outputs.
OLD_FORMS: list[tuple[str, tuple[int, ...], dict[str, Any], list[Array | None], int]] = [
    ("BatchNormalization", (7, 9), {"epsilon": 1e-3}, [r(*IMAGE), r(3), r(3), r(3), r(3) ** 2 + 1], 1),
    ("Clip", (7,), {"min": -0.5}, [r(3, 7)], 1),
    ("Clip", (7,), {"min": -0.5, "max": 1.0}, [r(3, 7)], 1),
    ("Clip", (7,), {}, [r(3, 7)], 1),
    ("DFT", (17,), {}, [r(2, 12, 1)], 1),
    ("DFT", (17,), {"axis": 2, "inverse": 1}, [r(2, 3, 12, 2)], 1),
    ("DepthToSpace", (7, 11), {"blocksize": 2}, [r(1, 8, 3, 5)], 1),
    ("Dropout", (7, 10), {"ratio": 0.25}, [r(3, 7)], 1),
    ("Dropout", (10,), {"ratio": 0.25}, [r(3, 7)], 2),
    ("GridSample", (16,), {"mode": "bilinear"}, [r(1, 2, 5, 7), r(1, 3, 3, 2) / 2], 1),
    ("GridSample", (16,), {"mode": "bicubic"}, [r(1, 2, 5, 7), r(1, 3, 3, 2) / 2], 1),
    ("GridSample", (16,), {}, [r(1, 2, 5, 7), r(1, 3, 3, 2) / 2], 1),
    ("GroupNormalization", (18,), {"num_groups": 2}, [r(2, 6, 5), r(2), r(2)], 1),
    *((name, (7, 11), {"axis": axis}, [r(3, 4, 5)], 1) for name in ("Softmax", "LogSoftmax", "Hardmax") for axis in (0, 1, 2)),
    *((name, (7, 11), {}, [r(3, 4, 5)], 1) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    *((name, (11,), {"axis": -1}, [r(3, 4, 5)], 1) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    ("OneHot", (11,), {}, [np.array([0, 2, -1, 3, -3]), np.array(3), np.array([1.0, 5.0], np.float32)], 1),
    ("Pad", (7,), {"pads": [0, 1, 2, 3], "value": 1.5}, [r(3, 7)], 1),
    ("Pad", (7,), {"pads": [0, 1, 2, 3], "mode": "reflect"}, [r(3, 7)], 1),
    ("Pad", (7,), {"pads": [0, 1, 2, 3], "mode": "edge"}, [r(3, 7)], 1),
    *((f"Reduce{name}", (7, 11), {"axes": [1]}, [abs(r(3, 4, 5)) + 1], 1) for name in REDUCTIONS),
    *((f"Reduce{name}", (7, 11), {"keepdims": 0}, [abs(r(2, 3)) + 1], 1) for name in REDUCTIONS),
    *((f"Reduce{name}", (13,), {"axes": [-1, 0], "keepdims": 0}, [abs(r(3, 4, 5)) + 1], 1) for name in REDUCTIONS if name != "Sum"),
    ("Resize", (10,), {"mode": "nearest"}, [r(1, 2, 4, 5), np.array([1, 1, 2, 1.5], np.float32)], 1),
    ("Resize", (10,), {"mode": "linear"}, [r(1, 2, 4, 5), np.array([1, 1, 2, 1.5], np.float32)], 1),
    *(
        ("Resize", (11, 13), {"mode": mode, "coordinate_transformation_mode": how},
         [r(1, 2, 4, 5), np.zeros(0, np.float32), np.array([1, 1, 2, 1.6], np.float32)], 1)
        for mode in ("nearest", "linear", "cubic")
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    ("Resize", (11,), {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"},
     [r(1, 2, 4, 5), np.zeros(0, np.float32), np.array([1, 1, 2, 1.6], np.float32)], 1),
    ("Resize", (11, 13), {"mode": "linear"}, [r(1, 2, 4, 5), np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([1, 2, 7, 3])], 1),
    ("RoiAlign", (10,), {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
     [r(1, 2, 8, 8), np.array([[0, 0, 5, 5], [1, 2, 7, 6]], np.float32), np.array([0, 0])], 1),
    ("Slice", (7,), {"starts": [1, -3], "ends": [2**31 - 1, -1], "axes": [0, 1]}, [r(5, 7)], 1),
    ("Slice", (7,), {"starts": [1, 0], "ends": [3, 100]}, [r(5, 7)], 1),
    ("Split", (7, 11), {"axis": 1}, [r(3, 6)], 3),
    ("Split", (7, 11), {"axis": 1, "split": [1, 2, 3]}, [r(3, 6)], 3),
    ("Split", (13,), {"axis": 1}, [r(3, 6)], 3),
    ("Squeeze", (7, 11), {"axes": [1]}, [r(3, 1, 5, 1)], 1),
    ("Squeeze", (7, 11), {}, [r(3, 1, 5, 1)], 1),
    ("TopK", (7,), {"k": 3, "axis": 1}, [np.random.default_rng(1).permutation(21).reshape(3, 7).astype(np.float32)], 2),
    ("Unsqueeze", (7, 11), {"axes": [0, 2]}, [r(3, 5)], 1),
    ("Upsample", (7,), {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}, [r(1, 2, 4, 5)], 1),
    ("Upsample", (7,), {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, [r(1, 2, 4, 5)], 1),
    ("Upsample", (9,), {"mode": "nearest"}, [r(1, 2, 4, 5), np.array([1, 1, 2, 1.5], np.float32)], 1),
    ("Upsample", (9,), {"mode": "linear"}, [r(1, 2, 4, 5), np.array([1, 1, 2, 2], np.float32)], 1),
    ("MaxPool", (7, 8), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, [r(*IMAGE)], 1),
    ("AveragePool", (7, 10, 11), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}, [r(*IMAGE)], 1),
    ("AveragePool", (10, 11), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, [r(*IMAGE)], 1),
    ("LpPool", (7, 11), {"kernel_shape": [3, 2], "p": 3}, [r(*IMAGE)], 1),
    ("Flatten", (7, 9), {"axis": 0}, [r(3, 4, 5)], 1),
    ("Gemm", (7, 9), {"transB": 1, "alpha": 0.5}, [r(3, 4), r(5, 4), r(5)], 1),
    ("Mean", (7,), {}, [r(3, 4), r(3, 4)], 1),
    ("PRelu", (7, 9), {}, [r(2, 3, 4), r(3, 1)], 1),
    ("Cast", (7, 9), {"to": TensorProto.INT32}, [r(3, 4)], 1),
    ("Cast", (7, 9), {"to": TensorProto.BOOL}, [r(3, 4)], 1),
    ("QuantizeLinear", (10,), {}, [r(3, 4), np.array(0.1, np.float32), np.array(3, np.uint8)], 1),
    ("DequantizeLinear", (10,), {}, [np.arange(12, dtype=np.uint8), np.array(0.1, np.float32), np.array(3, np.uint8)], 1),
    ("ArgMax", (7, 11), {"axis": 1, "keepdims": 0}, [r(3, 7)], 1),
    ("Scatter", (9,), {"axis": 1}, [r(3, 5), np.array([[1, 3], [0, 2]]), r(2, 2)], 1),
    ("LSTM", (7,), {"hidden_size": 4}, [r(3, 2, 5), r(1, 16, 5), r(1, 16, 4)], 3),
    ("GRU", (7,), {"hidden_size": 4, "linear_before_reset": 1}, [r(3, 2, 5), r(1, 12, 5), r(1, 12, 4)], 2),
    ("RNN", (7,), {"hidden_size": 4}, [r(3, 2, 5), r(1, 4, 5), r(1, 4, 4)], 2),
    ("CumSum", (11,), {"reverse": 1}, [r(3, 5), np.array(1)], 1),
    ("Expand", (8,), {}, [r(3, 1), np.array([2, 3, 4])], 1),
    ("ConstantOfShape", (9,), {}, [np.array([2, 3])], 1),
    ("Hardmax", (11,), {"axis": -2}, [r(3, 4, 5)], 1),
    ("ThresholdedRelu", (10,), {"alpha": 0.5}, [r(3, 4)], 1),
    ("Mod", (10,), {}, [np.arange(-6, 6), np.full(12, 5)], 1),
    ("IsInf", (10,), {"detect_negative": 0}, [np.array([1, np.inf, -np.inf], np.float32)], 1),
    ("LpNormalization", (7,), {"p": 1, "axis": 1}, [r(3, 4)], 1),
    ("MeanVarianceNormalization", (9,), {}, [r(*IMAGE)], 1),
    ("EyeLike", (9,), {"k": 1}, [r(4, 5)], 1),
    ("BatchNormalization", (7,), {"spatial": 0}, [r(2, 3), r(3), r(3), r(3), r(3) ** 2 + 1], 1),
]  # fmt: skip
REFUSED = {"BatchNormalization 7 {'spatial': 0}"}


@pytest.mark.parametrize(
    ("form", "version"),
    [(form, version) for form in OLD_FORMS for version in form[1]],
    ids=lambda value: str(value) if isinstance(value, int) else f"{value[0]}{value[2]}",
)
def test_old_forms(context: pumice.Context, form: tuple[Any, ...], version: int) -> None:
    op, _, attributes, arrays, outputs = form
    constant = [i > 0 for i in range(len(arrays))]
    model = one_node(op, version, attributes, arrays, constant, outputs)
    wanted = "refused" if f"{op} {version} {attributes}" in REFUSED else "right"
    assert check(context, model, {"x0": arrays[0]}, (1e-5, 1e-5)) == wanted


def test_one_hot_of_set_9_knows_no_indices_below_0(context: pumice.Context) -> None:
    arrays = [np.array([0, 2, -1, 3]), np.array(3), np.array([1.0, 5.0], np.float32)]
    with pumice.load(one_node("OneHot", 9, {}, arrays, [False, True, True], 1), context) as loaded:
        np.testing.assert_array_equal(loaded(arrays[0]), [[5, 1, 1], [1, 1, 5], [1, 1, 1], [1, 1, 1]])


def test_changes_of_form_are_all_known() -> None:
    """If a version drops an attribute or moves an input, older nodes are converted to the newest form."""
    claimed = {row.name for row in pumice.operators() if row.domain == "ai.onnx"} | {
        name for name in TRANSLATORS if "::" not in name
    }
    for name in sorted(claimed & set(VIEWS)):
        for one, other in zip(VIEWS[name], VIEWS[name][1:], strict=False):
            # first_opsets removes consumed_inputs from any node
            dropped = set(one.attributes) - set(other.attributes) - {"consumed_inputs"}
            moved = [i.name for i in one.inputs] != [i.name for i in other.inputs][: len(one.inputs)]
            defaults = [
                key
                for key in set(one.attributes) & set(other.attributes)
                if one.attributes[key].default_value != other.attributes[key].default_value
            ]
            renamed = {"BatchNormalization", "Gemm", "Loop", "Attention", "MaxPool", "Mod"}
            if dropped or defaults or (moved and name not in renamed):
                since = [version for version, _ in UPGRADES.get(name, [])]
                assert any(version >= other.since_version for version in since), (
                    name,
                    other.since_version,
                    dropped,
                    defaults,
                    moved,
                )
