"""Results of another runtime, checked with the same bounds: end to end, and per node if it returns intermediate tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import pumice
from corpus import store
from corpus.case import arrays
from onnx_models import gemm, model, node, value
from pumice.base.errors import InputError

FLOAT = np.float32
Array = np.ndarray[Any, Any]
DIGITS = Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx"
IMAGES = np.random.default_rng(0).random((3, 1, 8, 8)).astype(FLOAT)
X = np.random.default_rng(2).standard_normal((5, 4)).astype(FLOAT)
W, B = (np.random.default_rng(3).standard_normal(shape).astype(FLOAT) for shape in ((4, 3), 3))


@pytest.fixture
def runtime() -> Callable[..., Any]:
    """Return the digits model in ONNX Runtime."""
    pytest.importorskip("onnxruntime")
    return pumice.onnxruntime_candidate(DIGITS)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a program is compiled."""

    def compile(*given: Any, **options: Any) -> None:
        raise AssertionError("a candidate needs no device")

    monkeypatch.setattr("pumice.validation.checker.model_validation.load_graph", compile)
    monkeypatch.setattr("pumice.model.compiled_model.load_graph", compile)


def parts() -> onnx.ModelProto:
    return model(
        [
            node("MatMul", ["x", "w"], ["p"], name="product"),
            node("Add", ["p", "b"], ["s"], name="sum"),
            node("Relu", ["s"]),
        ],
        constants={"w": W, "b": B},
    )


def by_numpy(inputs: dict[str, Array]) -> dict[str, Array]:
    product = inputs["x"] @ W
    return {"p": product, "s": product + B, "y": np.maximum(product + B, 0)}


def test_a_runtime_is_right_node_by_node(runtime: Callable[..., Any], no_device: None) -> None:
    report = pumice.validate(DIGITS, [IMAGES, {"image": IMAGES[:1]}], candidate=runtime)
    assert report.ok, report.summary
    assert (report.device.split()[0], report.precision, report.cases) == ("onnxruntime", "declared", 2)
    nodes = [row.node for row in report.rows if row.op != "output"]
    assert nodes == ["conv1", "relu1", "conv2", "relu2", "pool", "flat", "fc1", "relu3", "logits", "probabilities"]
    assert all(row.local is not None for row in report.rows if row.op != "output")


@pytest.mark.parametrize("name", ["conv1", "pool", "logits"])
def test_a_perturbed_tensor_is_found_at_its_node(runtime: Callable[..., Any], name: str) -> None:
    def wrong(inputs: dict[str, Array]) -> dict[str, Array]:
        results = runtime(inputs)
        results[name] = results[name].copy()
        results[name].flat[7] += FLOAT(2e-3)
        return results

    first = pumice.validate(DIGITS, [IMAGES], candidate=wrong).first_divergence
    assert first is not None
    assert (first.node, first.output) == (name, name)
    assert first.deviation is not None
    assert first.deviation.error == pytest.approx(2e-3, rel=0.1)


def test_outputs_alone_are_checked_end_to_end(no_device: None) -> None:
    pytest.importorskip("onnxruntime")
    outputs = pumice.onnxruntime_candidate(DIGITS, intermediate=False)
    assert list(outputs({"image": IMAGES})) == ["probabilities"]
    report = pumice.validate(DIGITS, [IMAGES], candidate=outputs)
    assert report.ok, report.summary
    assert {row.output for row in report.rows} == {"probabilities"}
    wrong = pumice.validate(DIGITS, [IMAGES], candidate=lambda inputs: outputs(inputs)["probabilities"] + FLOAT(1e-3))
    assert wrong.state == "wrong"
    with pytest.raises(InputError, match="expected 'chained' or 'both'"):
        pumice.validate(DIGITS, [IMAGES], candidate=outputs, mode="isolated")


def test_some_tensors_are_checked_from_those_before_them(no_device: None) -> None:
    def some(inputs: dict[str, Array]) -> dict[str, Array]:
        results = by_numpy(inputs)
        del results["s"]
        return results

    report = pumice.validate(parts(), [X], candidate=some)
    assert report.ok, report.summary
    rows = {row.node: row for row in report.rows}
    assert rows["sum"].note == "not given by the candidate"

    def wrong(inputs: dict[str, Array]) -> dict[str, Array]:
        results = some(inputs)
        results["y"][0] += FLOAT(0.01)
        return results

    report = pumice.validate(parts(), [X], candidate=wrong)
    assert {row.output for row in report.rows if row.verdict == "wrong"} == {"y"}


@pytest.mark.parametrize("result", [list, tuple, lambda given: next(iter(given))])
def test_outputs_come_in_order_too(result: Callable[[Any], Any]) -> None:
    report = pumice.validate(parts(), [X], candidate=lambda inputs: result([by_numpy(inputs)["y"]]))
    assert report.ok, report.summary


def test_an_output_is_never_compared_with_itself() -> None:
    """The candidate's own numbers do not serve as the reference of an output without a rule."""
    made = model(
        [helper.make_node("MyOp", ["x"], ["m"], name="mine", domain="com.example"), node("Neg", ["m"], name="neg")]
    )
    made.opset_import.append(helper.make_opsetid("com.example", 1))

    def candidate(inputs: dict[str, Array]) -> dict[str, Array]:
        return {"m": np.sin(inputs["x"]), "y": -np.sin(inputs["x"])}

    report = pumice.validate(made, [X], candidate=candidate)
    assert report.state == "unproved"
    assert {row.output: row.verdict for row in report.rows if row.op != "output"} == {"m": "unproved", "y": "right"}

    def sine(attributes: dict[str, Any], inputs: list[Array]) -> tuple[Array, Array]:
        return np.sin(inputs[0]), np.full(inputs[0].shape, 1e-6)

    report = pumice.validate(made, [X], candidate=candidate, reference={"com.example::MyOp": sine})
    assert report.state == "right", report.summary
    off = {"com.example::MyOp": lambda a, i: (np.sin(i[0]) + 1e-4, 1e-6)}
    first = pumice.validate(made, [X], candidate=candidate, reference=off).first_divergence
    assert first is not None
    assert first.node == "mine"


def halves(inputs: dict[str, Array]) -> dict[str, Array]:
    """Compute in float16 throughout, except for sums."""
    x, w, b = (array.astype(np.float16) for array in (inputs["x"], W, B))
    product = (x.astype(FLOAT) @ w.astype(FLOAT)).astype(np.float16)
    return {"p": product, "s": product + b, "y": np.maximum(product + b, 0)}


def test_a_candidates_precision_makes_its_bounds() -> None:
    def widened(inputs: dict[str, Array]) -> dict[str, Array]:
        return {name: array.astype(FLOAT) for name, array in halves(inputs).items()}

    assert pumice.validate(parts(), [X], candidate=widened).state == "wrong"
    assert pumice.validate(parts(), [X], candidate=halves).state == "wrong"  # the dtype differs from the declared one
    for candidate in (widened, halves):
        report = pumice.validate(parts(), [X], candidate=candidate, candidate_precision="fp16")
        assert (report.state, report.precision) == ("right", "fp16"), report.summary
    coarse = pumice.validate(parts(), [X], candidate=halves, candidate_precision=("fp16", "fp16"))
    assert coarse.ok
    assert coarse.rows[0].deviation is not None
    fine = pumice.validate(parts(), [X], candidate=halves, candidate_precision="fp16").rows[0].deviation
    assert fine is not None
    assert coarse.rows[0].deviation.allowed > fine.allowed


def test_a_model_of_float16_is_checked_as_it_declares() -> None:
    half = model(
        [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"])],
        [value("x", [5, 4], TensorProto.FLOAT16)],
        constants={"w": W.astype(np.float16)},
    )

    def candidate(inputs: dict[str, Array]) -> dict[str, Array]:
        product = (inputs["x"].astype(FLOAT) @ W.astype(np.float16).astype(FLOAT)).astype(np.float16)
        return {"p": product, "y": np.maximum(product, 0)}

    assert pumice.validate(half, [X.astype(np.float16)], candidate=candidate).ok


@pytest.mark.parametrize("reference", ["float64", "onnx", "onnxruntime", "run", "fp32"])
def test_a_candidate_is_checked_against_every_reference(context: pumice.Context, reference: str) -> None:
    if reference == "onnxruntime":
        pytest.importorskip("onnxruntime")
    report = pumice.validate(parts(), [X], candidate=by_numpy, reference=reference)
    assert report.ok, report.summary


def test_a_loaded_model_names_the_file(context: pumice.Context) -> None:
    pytest.importorskip("onnxruntime")
    with pumice.load(DIGITS, context) as loaded:
        assert pumice.validate(loaded, [IMAGES], candidate=pumice.onnxruntime_candidate(loaded)).ok


def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    proto = onnx.load(DIGITS)
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    candidate = pumice.onnxruntime_candidate(tmp_path / "model.onnx")
    assert pumice.validate(tmp_path / "model.onnx", [IMAGES], candidate=candidate).ok
    data = (tmp_path / "model.onnx").read_bytes()
    candidate = pumice.onnxruntime_candidate(data, folder=tmp_path)
    expected = ReferenceEvaluator(str(DIGITS)).run(None, {"image": IMAGES})[0]
    np.testing.assert_allclose(candidate({"image": IMAGES})["probabilities"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (lambda inputs: {}, "expected an output 'y', given none"),
        (lambda inputs: [X, X], "expected 1 outputs \\(y\\), given 2"),
        (lambda inputs: {"y": X, "ghost": X}, "the model has no tensor 'ghost'"),
        (lambda inputs: {"y": None}, "expected an array as 'y', given a NoneType"),
    ],
)
def test_results_that_do_not_fit_are_rejected(candidate: Callable[..., Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        pumice.validate(parts(), [X], candidate=candidate)


def test_arguments_that_a_candidate_has_no_use_for_are_rejected(context: pumice.Context) -> None:
    for options in ({"context": context}, {"precision": "fp16"}):
        with pytest.raises(InputError, match="expected no context and no precision"):
            pumice.validate(parts(), [X], candidate=by_numpy, **options)
    with pytest.raises(InputError, match="expected a candidate with it"):
        pumice.validate(parts(), [X], candidate_precision="fp16", context=context)
    for precision in ("fp12", ("fp16",), ("fp16", "half")):
        with pytest.raises(InputError, match="candidate_precision: expected 'fp32'"):
            pumice.validate(parts(), [X], candidate=by_numpy, candidate_precision=precision)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ((X, X), "expected 1"),
        ({"ghost": X}, "ghost"),
        ({}, "expected an array of float32; given nothing"),
        (X.astype(np.float64), "expected an array of float32; given float64"),
        (X[0], "expected shape"),
    ],
)
def test_a_case_that_does_not_fit_is_rejected(case: Any, text: str) -> None:
    with pytest.raises(pumice.BindingError, match=text):
        pumice.validate(parts(), [case], candidate=by_numpy)


def test_a_candidate_may_write_into_what_it_is_given() -> None:
    def candidate(inputs: dict[str, Array]) -> dict[str, Array]:
        results = by_numpy(inputs)
        inputs["x"][:] = 0
        return results

    before = X.copy()
    assert pumice.validate(parts(), [X], candidate=candidate).ok
    np.testing.assert_array_equal(X, before)


def test_sequences_are_rejected_by_name() -> None:
    made = model(
        [node("SequenceLength", ["s"])], [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)]
    )
    with pytest.raises(pumice.UnsupportedError, match="input 's', which is not a tensor"):
        pumice.validate(made, [([X],)], candidate=lambda inputs: [X])


def test_providers_are_honoured_or_rejected() -> None:
    pytest.importorskip("onnxruntime")
    named = pumice.onnxruntime_candidate(gemm(), providers=["CPUExecutionProvider"])
    assert "CPUExecutionProvider" in getattr(named, "name", "")
    with pytest.raises(InputError, match="expected one of .*, given 'GhostProvider'"):
        pumice.onnxruntime_candidate(gemm(), providers=["GhostProvider"])


def corpus() -> Iterator[Any]:
    """Yield the names of exported models; most are for the slow tier."""
    sample = ("bert.fp16", "densenet.script", "inception.script", "sklearn_logistic", "swin.script")
    for name in store.names():
        if name != "sklearn_dictionaries":
            yield pytest.param(name, marks=[] if name in sample else [pytest.mark.slow])


@pytest.mark.parametrize("name", list(corpus()))
def test_no_tensor_of_onnx_runtime_is_called_wrong(name: str) -> None:
    pytest.importorskip("onnxruntime")
    stored = store.load(name)
    case = arrays(stored.inputs, stored.sizes[0])
    report = pumice.validate(stored.model, [case], candidate=pumice.onnxruntime_candidate(stored.model))
    assert report.first_divergence is None, report.summary
