"""Tuned kernel variants of model steps: stored choices are used, illegal ones are reported, results stay right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from process import output_of
from pumice.device import tuning_store
from pumice.model.step_tuning import _StepTuningRun
from pumice.model.step_variants import StepVariants, load_measured_variants, make_empty_record
from pumice.tools.cli import main
from step_choices import choice_of

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(6, 40)).astype("float32")
B = RANDOM.normal(size=(40, 72)).astype("float32")
PICTURE = RANDOM.normal(size=(1, 3, 20, 20)).astype("float32")
FILTERS = RANDOM.normal(size=(24, 3, 3, 3)).astype("float32")


def product_model() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "b"], ["h"], "product"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    inputs, outputs = [value("x", TensorProto.FLOAT, ["n", 40])], [value("y", TensorProto.FLOAT, ["n", 72])]
    graph = helper.make_graph(nodes, "one_product", inputs, outputs, [numpy_helper.from_array(B, "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv_model() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])]
    inputs = [value("x", TensorProto.FLOAT, PICTURE.shape)]
    outputs = [value("y", TensorProto.FLOAT, [1, 24, 20, 20])]
    graph = helper.make_graph(nodes, "one_conv", inputs, outputs, [numpy_helper.from_array(FILTERS, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODELS = {"gemm": (product_model, X), "convolution": (conv_model, PICTURE)}


pytestmark = pytest.mark.usefixtures("empty_store")


@pytest.fixture(params=["own", "tiled", "apart"])
def device(request: pytest.FixtureRequest, context: pumice.Context) -> Iterator[pumice.Context]:
    """The device as is; without subgroupShuffle (software drivers then use shared memory), and without unified
    memory. Includes variants that spill registers."""
    without = {"own": [], "tiled": ["subgroupShuffle"], "apart": ["unifiedMemory"]}[request.param]
    with pumice.Context(f"uuid:{context.info.uuid}", without=[*without, "pipelineExecutableInfo"]) as other_context:
        yield other_context


def listed(make: Any, x: Any, context: pumice.Context, taken: dict[str, str] | None = None) -> dict[str, Any]:
    with pumice.load(make(), context, tuned=StepVariants.with_variant_listing(taken or {})) as model:
        model(x)
        return choice_of(model, x)


@pytest.mark.parametrize("kind", MODELS)
def test_every_variant_that_a_step_can_take_is_right(device: pumice.Context, kind: str) -> None:
    make, x = MODELS[kind]
    with pumice.load(make(), device) as model:
        expected = model(x)
    choice = listed(make, x, device)
    assert choice["kind"].startswith(f"{kind} float32 ")
    assert choice["own"] == choice["taken"] and choice["own"] in choice["variants"] and len(choice["variants"]) > 1
    for variant in choice["variants"]:
        with pumice.load(make(), device, tuned={choice["kind"]: variant}) as model:
            np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)
            (row,) = [item for item in model.report() if item["kernel"].startswith(("conv_", "gemv", "gemm"))]
            assert row["kernel"].removesuffix(".comp").startswith(variant.split()[0])
            message = f"measured: {variant} for {choice['own']}"
            assert row["note"] == ("" if variant == choice["own"] else message)


@pytest.mark.parametrize("rows", [1, 2, 5, 40, 130])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("device", ["own"], indirect=True)
def test_every_variant_of_a_matmul_with_a_constant_is_right(device: pumice.Context, precision: str, rows: int) -> None:
    """With fp16 cooperative matrices, a variant may need another packing order of the matrix."""
    x, b = (RANDOM.normal(size=shape).astype("float32") for shape in ((rows, 512), (512, 264)))
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", TensorProto.FLOAT, x.shape)], [value("y", TensorProto.FLOAT, (rows, 264))]
    node = helper.make_node("MatMul", ["x", "b"], ["y"], "product")
    graph = helper.make_graph([node], "one_product", inputs, outputs, [numpy_helper.from_array(b, "b")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    expected = x.astype("float64") @ b
    with pumice.load(proto, device, precision, tuned=StepVariants.with_variant_listing({})) as model:
        choice = choice_of(model, x)
    assert choice["own"] in choice["variants"]
    for variant in choice["variants"]:
        with pumice.load(
            proto, device, precision, tuned=StepVariants.with_variant_listing({choice["kind"]: variant})
        ) as model:
            error = np.abs(model(x) - expected).max() / np.abs(expected).max()
            taken = choice_of(model, x)
        assert error < {"fp32": 1e-5, "fp16": 4e-3}[precision], variant
        assert (taken["taken"], taken["refused"], taken["own"]) == (variant, "", choice["own"])


def test_a_variant_that_a_step_cannot_take_is_named_and_not_taken(device: pumice.Context) -> None:
    choice = listed(product_model, X, device)
    for variant in ("conv_coopmat 7x7 of 7x7 k 1 split 1", "gemm_mma nonsense", ""):
        with pumice.load(product_model(), device, tuned={choice["kind"]: variant}) as model:
            np.testing.assert_allclose(model(X), np.maximum(X @ B, 0), rtol=1e-4, atol=1e-4)
            (row,) = [item for item in model.report() if item["op"] == "MatMul"]
            assert (row["note"] == f"measured: cannot take {variant}") == bool(variant)


def test_what_is_no_table_of_variants_is_rejected(context: pumice.Context) -> None:
    for argument in (3, ["a"], {"kind": 1}):
        with pytest.raises(pumice.BindingError, match="'tuned'.*True, False or a dict of kinds"):
            pumice.load(product_model(), context, tuned=argument)  # type: ignore[arg-type]


def kept(context: pumice.Context, kind: str, variants: dict[str, float], default: str) -> None:
    """Write times into the store as if they had been measured."""
    for variant, seconds in variants.items():
        assert tuning_store.write_record(
            make_empty_record(context.info, kind, variant, default)._replace(seconds=seconds)
        )


def test_the_store_decides_what_a_model_runs(context: pumice.Context, empty_store: Path) -> None:
    choice = listed(product_model, X, context)
    default, other = choice["own"], next(variant for variant in choice["variants"] if variant != choice["own"])
    assert load_measured_variants(context) == {}
    kept(context, choice["kind"], {default: 2e-6, other: 1e-6}, default)
    assert load_measured_variants(context) == {choice["kind"]: other}
    with pumice.load(product_model(), context) as model:
        y = model(X)
        assert f"measured: {other} for {default}" in str(model.report())
        assert choice_of(model, X)["taken"] == other
        with model.loaded_again() as again:
            again(X)
            assert f"measured: {other} for {default}" in str(again.report())
    with pumice.load(product_model(), context, tuned=False) as model:
        np.testing.assert_allclose(model(X), y, rtol=1e-5, atol=1e-5)
        assert "measured" not in str(model.report())
    kept(context, choice["kind"], {default: 1.01e-6}, default)  # a gain below 2% counts as noise
    assert load_measured_variants(context) == {}


def test_a_validation_judges_the_variants_that_a_model_runs(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = listed(product_model, X, context)
    taken = {choice["kind"]: next(variant for variant in choice["variants"] if variant != choice["own"])}
    calls: list[Any] = []
    compile_graph = pumice.Graph.compile

    def compiled(self: Any, *argument: Any, **options: Any) -> Any:
        calls.append(options.get("measured"))
        return compile_graph(self, *argument, **options)

    with pumice.load(product_model(), context, tuned=taken) as model:
        monkeypatch.setattr(pumice.Graph, "compile", compiled)
        assert pumice.validate(model, [X]).ok
    assert calls and all(item == taken for item in calls)


@pytest.mark.parametrize("damage", ["truncated", "foreign", "another driver", "no variant"])
def test_what_is_not_whole_or_not_of_this_driver_is_not_read(
    context: pumice.Context, empty_store: Path, damage: str
) -> None:
    choice = listed(product_model, X, context)
    default, other = choice["own"], next(variant for variant in choice["variants"] if variant != choice["own"])
    kept(context, choice["kind"], {default: 2e-6, other: 1e-6}, default)
    record = make_empty_record(context.info, choice["kind"], other, default)
    victim = empty_store / f"{record.entry_name}.tuning"
    if damage == "truncated":
        victim.write_bytes(victim.read_bytes()[:-5])
    elif damage == "foreign":
        victim.write_bytes(b"#!/bin/sh\n")
    else:
        forged = record._replace(seconds=1e-6)
        forged = forged._replace(driver="another") if damage == "another driver" else forged._replace(config={})
        pumice._pumice.write_cache_entry("tuning", record.entry_name, json.dumps(forged._asdict()).encode())
    assert load_measured_variants(context) == {}
    with pumice.load(product_model(), context) as model:
        model(X)
        assert choice["own"].split()[0] in str(model.report())


def test_a_model_is_tuned_once(device: pumice.Context, empty_store: Path) -> None:
    with pumice.load(product_model(), device) as model:
        found = model.tune(X, runs=2, progress=False)
        (step,) = found.steps
        assert found.measured == len(step.variants) > 1
        assert all(variant.seconds is not None and not variant.rejected for variant in step.variants)
        assert step.nodes == ("product",) and step.seconds(step.default_variant)
        assert found.before > 0 and found.after > 0
        again = model.tune(X, runs=1, progress=False)
        assert (again.measured, again.steps) == (0, found.steps)
        assert model.tune(X, runs=1, again=True, progress=False).measured == found.measured
        assert step.kind in repr(found) and step.kind in found._repr_html_()
    assert json.loads(json.dumps(found.as_dict()))["steps"][0]["kind"] == step.kind


def test_a_wrong_variant_is_rejected(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice.model.step_tuning.get_default_tolerance", lambda _: -1.0)  # no error is that small
    with pumice.load(product_model(), context) as model:
        (step,) = model.tune(X, runs=1, progress=False).steps
    others = [variant for variant in step.variants if variant.variant != step.default_variant]
    assert others and all(other.rejected.startswith("is wrong: 'y' differs by") for other in others)
    assert step.chosen == step.default_variant and step.gain == 1.0


def test_one_wrong_variant_does_not_condemn_the_others(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results after a wrong tensor are wrong in the same trial, so these variants are retried separately."""
    value = helper.make_tensor_value_info
    second = RANDOM.normal(size=(72, 16)).astype("float32")
    weights = [numpy_helper.from_array(B, "b"), numpy_helper.from_array(second, "d")]
    nodes = [
        helper.make_node("MatMul", ["x", "b"], ["h"], "first"),
        helper.make_node("MatMul", ["h", "d"], ["y"], "second"),
    ]
    inputs, outputs = [value("x", TensorProto.FLOAT, X.shape)], [value("y", TensorProto.FLOAT, [6, 16])]
    graph = helper.make_graph(nodes, "two_products", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    trials: list[set[str]] = []
    plain = _StepTuningRun._find_mismatches

    def wrong(self: Any, program: Any, kinds: Any) -> dict[str, str]:
        trials.append({kind.kind for kind in kinds})
        first = next((kind.kind for kind in kinds if kind.nodes == ["first"]), None)
        return {kind.kind: "is wrong: for the test" for kind in kinds} if first else plain(self, program, kinds)

    monkeypatch.setattr(_StepTuningRun, "_find_mismatches", wrong)
    with pumice.load(proto, context) as model:
        steps = {step.nodes[0]: step for step in model.tune(X, runs=1, progress=False).steps}
    assert max(map(len, trials)) == 2 and min(map(len, trials)) == 1
    assert all(item.rejected for item in steps["first"].variants if item.variant != steps["first"].default_variant)
    assert all(variant.seconds for variant in steps["second"].variants)


def test_what_cannot_be_tuned_is_rejected(context: pumice.Context) -> None:
    with pumice.load(product_model(), context) as model:
        with pytest.raises(pumice.Error, match="runs: expected a positive number, given 0"):
            model.tune(X, runs=0)
        with pytest.raises(pumice.BindingError, match="K10"):
            model.tune(X[:, :3])


def test_the_command_tunes_and_a_second_process_does_not(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "one_product.onnx")
    onnx.save(product_model(), path)
    assert main(["tune", path, "--dim", "n=6", "--runs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "one_product: " in shown and "default us" in shown and "gemm float32 8/2 by 64/8 by 128/8" in shown
    second = json.loads(output_of("-m", "pumice", "tune", path, "--dim", "n=6", "--runs", "1", "--json"))
    assert second["measured"] == 0 and len(second["steps"][0]["variants"]) > 1
    assert main(["info"]) == 0
    assert "step of a model (gemm float32 8/2 by 64/8 by 128/8" in capsys.readouterr().out
    exported = tmp_path / "exported.json"
    assert pumice.export_tuning(exported) == len(second["steps"][0]["variants"])
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "another"))
    assert pumice.import_tuning(exported) == len(second["steps"][0]["variants"])
    with pumice.load(path, context) as model:
        assert model.tune(X, runs=1, progress=False).measured == 0
