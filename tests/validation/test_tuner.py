"""The precision tuner: which nodes have to stay in float32, and why."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import model, node, value
from precision_models import TRAPS, precision_model
from pumice.base.errors import InputError
from pumice.validation.search.precision_loss import AMPLIFIED, CANCELLATION, LONG_SUM, OVERFLOW, UNDERFLOW
from pumice.validation.search.precision_tuner import measure_best_seconds

LIMIT = 0.02
# The expected reason that a node stays in float32.
KINDS = {
    "overflow_before_layer_normalization": OVERFLOW,
    "overflow_before_instance_normalization": LONG_SUM,
    "variance_by_difference": CANCELLATION,
    "long_product": LONG_SUM,
    "long_window": LONG_SUM,
    "large_softmax": OVERFLOW,
    "softmax_of_close_scores": AMPLIFIED,
    "growing_stream": OVERFLOW,
    "massive_channel": OVERFLOW,
    "large_offset": CANCELLATION,
    "angles": AMPLIFIED,
    "squared_distance": CANCELLATION,
    "underflow": UNDERFLOW,
    "logarithm_of_small": UNDERFLOW,
    "norm_by_squares": OVERFLOW,
    "softmax_by_exponentials": OVERFLOW,
    "near_one": CANCELLATION,
    "differences_of_times": CANCELLATION,
    "cubes": OVERFLOW,
    "sum_before_mean": OVERFLOW,
}


def error(model: onnx.ModelProto, case: dict[str, Any], precision: Any, context: pumice.Context) -> float:
    with pumice.load(model, context, precision) as narrow, pumice.load(model, context) as exact:
        given, wanted = narrow(**case), exact(**case)
    if not np.isfinite(given).all():
        return np.inf
    return float(np.abs(given - wanted).max() / np.abs(wanted).max())


def dispatches(model: onnx.ModelProto, case: dict[str, Any], precision: Any, context: pumice.Context) -> int:
    with pumice.load(model, context, precision) as loaded:
        return len(loaded.program.plan([case[one.name] for one in loaded.program.inputs]))


def test_there_are_twenty() -> None:
    assert sorted(KINDS) == sorted(TRAPS)
    assert len(TRAPS) == 20


@pytest.mark.parametrize("name", TRAPS)
def test_models_that_break_in_fp16_are_repaired(context: pumice.Context, name: str) -> None:
    """At most 5 percent of the nodes stay in float32, and none of them can return to fp16."""
    proto, case = precision_model(name)
    assert not error(proto, case, "fp16", context) <= LIMIT
    found = pumice.tune_precision(proto, [case], limit=LIMIT, context=context)
    assert 1 <= len(found.nodes) <= max(0.05 * len(proto.graph.node), 1)
    assert error(proto, case, found.policy, context) <= LIMIT
    for one in found.nodes:
        fewer = {node: precision for node, precision in found.policy.items() if node != one.node}
        assert not error(proto, case, fewer, context) <= LIMIT
    assert KINDS[name] in {one.kind for one in found.nodes}, str(found)
    assert found.value <= LIMIT < found.default_value
    assert found.total == len(proto.graph.node)
    assert dispatches(proto, case, found.policy, context) <= dispatches(proto, case, "fp16", context) + 3
    record = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [one["node"] for one in record["nodes"]] == [one.node for one in found.nodes]
    assert record["default_value"] == (found.default_value if np.isfinite(found.default_value) else None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long_product", "large_softmax", "underflow"])
def test_fp32_matmuls_run_on_tensor_cores_within_bounds(name: str, pumice_context: pumice.Context) -> None:
    """The policy's GEMMs have weights that fp16 does not represent. Validation learns of the hi/lo split from the number of roundings."""
    proto, case = precision_model(name, rows=8, width=256)
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", quirks=["emulated_fragments"]) as emulating:
        found = pumice.tune_precision(proto, [case], limit=0.05, context=emulating, progress=False)
        assert found.value <= 0.05 < found.default_value
        with pumice.load(proto, emulating, found.policy) as loaded:
            rows = [row for row in loaded.program.report() if "gemm_split_fp16.comp" in str(row["kernel"])]
            assert {row["node"] for row in rows} <= {one.node for one in found.nodes}
            assert rows
        report = pumice.validate(proto, [case], context=emulating, precision=found.policy)
    assert not [str(row) for row in (*report.rows, *report.kernels) if row.verdict == "wrong"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAPS)
def test_few_nodes_stay_where_layers_are_large(context: pumice.Context, name: str) -> None:
    """The same traps at the size at which `python tests/validation_figures.py tuner` measures the remaining speedup."""
    if context.info.kind == "software":
        pytest.skip("a software device computes in float32 whatever it stores")
    proto, case = precision_model(name, rows=4096, width=512)
    found = pumice.tune_precision(proto, [case], limit=0.05, context=context)
    assert 1 <= len(found.nodes) <= 0.05 * found.total, str(found)
    assert error(proto, case, found.policy, context) <= 0.05


def test_what_passes_needs_no_node(context: pumice.Context) -> None:
    found = pumice.tune_precision(model([node("Relu")]), [np.ones((2, 4), np.float32)], context=context)
    assert (found.policy, found.nodes, found.limit) == ({"default": "fp16"}, (), 16 * 2.0**-11)
    assert set(found.seconds) == {"fp32", "fp16", "policy"}
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_bfloat16_is_tuned_too(context: pumice.Context) -> None:
    """bfloat16 has the range but not the precision, so other nodes stay than in fp16."""
    proto, case = precision_model("large_offset")
    found = pumice.tune_precision(proto, [case], limit=0.1, default="bf16", context=context)
    assert found.policy["default"] == "bf16"
    assert error(proto, case, found.policy, context) <= 0.1 < error(proto, case, "bf16", context)
    assert any(one.kind == CANCELLATION for one in found.nodes)


def agreement(wanted: list[Any]) -> Any:
    """Return the share of rows whose argmax is that of float32."""

    def share(results: list[Any]) -> float:
        pairs = zip(results, wanted, strict=True)
        return float(np.mean([np.argmax(one, 1) == np.argmax(other, 1) for one, other in pairs]))

    return share


def test_a_metric_decides(context: pumice.Context) -> None:
    proto, case = precision_model("large_offset")
    cases = [{"x": case["x"] * factor} for factor in (1, 0.5, -1)]
    with pumice.load(proto, context) as exact:
        metric = agreement([exact(**one) for one in cases])
    found = pumice.tune_precision(proto, cases, metric=metric, limit=0.9, context=context)
    assert found.value >= 0.9 > found.default_value
    assert 1 <= len(found.nodes) <= 3
    with pytest.raises(InputError, match="fp32 is 1, below 1.5"):
        pumice.tune_precision(proto, cases, metric=metric, limit=1.5, context=context)


@pytest.mark.slow
def test_a_search_that_was_broken_off_goes_on(context: pumice.Context, tmp_path: Path) -> None:
    proto, case = precision_model("variance_by_difference")
    with pumice.load(proto, context) as exact:
        wanted = exact(**case)
    calls, most = 0, 12

    def closeness(results: list[Any]) -> float:
        nonlocal calls
        calls += 1
        if calls > most:
            raise KeyboardInterrupt
        return -float(np.nan_to_num(np.abs(results[0] - wanted).max(), nan=np.inf))

    def tuned(folder: Path) -> pumice.TunedPrecision:
        return pumice.tune_precision(proto, [case], metric=closeness, limit=-0.01, context=context, folder=folder)

    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "broken")
    (kept,) = (tmp_path / "broken").iterdir()  # no policy, and no partial file
    known = json.loads(kept.read_text())
    assert len(known) >= most - 1
    calls, most = 0, 10**6
    found = tuned(tmp_path / "broken")
    after = calls
    calls = 0
    whole = tuned(tmp_path / "whole")
    assert after <= calls - len(known) + 1
    assert (found.policy, found.nodes, found.trials) == (whole.policy, whole.nodes, whole.trials)
    policy = tmp_path / "broken" / "policy.json"
    assert json.loads(policy.read_text()) == found.policy
    with pumice.load(proto, context, policy) as loaded:
        assert loaded.policy == found.policy
    kept.write_text("{")
    assert tuned(tmp_path / "broken").policy == found.policy


def looping() -> onnx.ModelProto:
    """Return a loop that doubles x 12 times, and a division that undoes it."""
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"], name="same"),
            node("MatMul", ["s", "two"], ["t"], name="doubled"),
        ],
        "body",
        [helper.make_tensor_value_info(*one) for one in (("i", 7, []), ("go", 9, []), ("s", 1, [4, 4]))],
        [helper.make_tensor_value_info(*one) for one in (("on", 9, []), ("t", 1, [4, 4]))],
    )
    constants = {
        "two": 2 * np.eye(4, dtype=np.float32),
        "trips": np.array(12),
        "yes": np.array(True),
        "small": np.eye(4, dtype=np.float32) / 4096,
    }
    nodes = [node("Loop", ["trips", "yes", "x"], ["l"], name="loop", body=body), node("MatMul", ["l", "small"], ["y"])]
    return model(nodes, [value("x", [4, 4], TensorProto.FLOAT)], constants=constants)


def test_a_loop_stays_as_a_whole(context: pumice.Context) -> None:
    x = np.full((4, 4), 100.5, np.float32)
    found = pumice.tune_precision(looping(), [x], context=context)
    assert {one.node for one in found.nodes} == {"loop", "matmul.y"}
    with pumice.load(looping(), context, found.policy) as loaded:
        np.testing.assert_array_equal(loaded(x), x)


def test_names_that_look_like_patterns(context: pumice.Context) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="up[0]*"),
        node("MatMul", ["a", "v"], ["y"], name="up[0]"),
    ]
    weights = {"w": np.full((4, 4), 3e4, np.float32), "v": np.full((4, 4), 1e-5, np.float32)}
    found = pumice.tune_precision(model(nodes, constants=weights), [np.full((2, 4), 3, np.float32)], context=context)
    assert [one.node for one in found.nodes] == ["up[0]*", "up[0]"]
    assert len(found.policy) == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cases": []}, "at least one case"),
        ({"default": "fp32"}, "default.*'fp16' or 'bf16'.*'fp32'"),
        ({"metric": len}, "limit.*minimum value of the metric"),
        ({"metric": 3, "limit": 1}, "metric.*callable"),
        ({"limit": 0}, "positive relative error"),
        ({"limit": True}, "a number"),
        ({"limit": float("nan")}, "a number"),
    ],
)
def test_arguments_that_are_rejected(context: pumice.Context, options: dict[str, Any], text: str) -> None:
    cases = options.pop("cases", [np.ones((2, 4), np.float32)])
    with pytest.raises(InputError, match=text):
        pumice.tune_precision(model([node("Relu")]), cases, context=context, **options)


def test_random_models_need_a_seed(context: pumice.Context) -> None:
    proto = model([node("RandomNormalLike", ["x"])], [value("x", [2, 4])])
    x = np.ones((2, 4), np.float32)
    with pumice.load(proto, context) as loaded, pytest.raises(InputError, match="seed"):
        pumice.tune_precision(loaded, [x])
    with pumice.load(proto, context, seed=3) as loaded:
        assert not pumice.tune_precision(loaded, [x]).nodes


def test_a_policy_is_saved_as_json(context: pumice.Context, tmp_path: Path) -> None:
    found = pumice.tune_precision(model([node("Relu")]), [np.ones((2, 4), np.float32)], context=context)
    found.save(tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == {"default": "fp16"}
    with pytest.raises(InputError, match=r"\.json"):
        found.save(tmp_path / "p.txt")


def test_programs_that_are_timed_take_turns() -> None:
    called: list[str] = []
    best = measure_best_seconds({name: partial(called.append, name) for name in ("a", "b")}, min_seconds=0.0)
    assert called == ["a", "b"] * 8, "one call that is not counted, and seven"
    assert set(best) == {"a", "b"}
    assert np.isfinite([*best.values()]).all()
