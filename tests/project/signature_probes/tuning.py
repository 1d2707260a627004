"""Tuned kernel variants of model steps."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import gemm
from pumice.base.progress import Progress
from signature_probes.probe import covers, differ, expect_error

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


def product() -> pumice.Graph:
    graph = pumice.Graph()
    weights = graph.constant(np.ones((40, 72), "float32"))
    graph.output("y", graph.add("MatMul", graph.input("x", "float32", [6, 40]), weights))
    return graph


@covers("Graph.compile.measured", "Graph.compile.list_variants")
def variants_of_steps(context: pumice.Context) -> None:
    plans = [product().compile(context, list_variants=listed).plan([[6, 40]]) for listed in (False, True)]
    (choice,) = (step["choice"] for step in plans[1] if "choice" in step)
    assert not [step for step in plans[0] if "choice" in step]
    taken = [product().compile(context, measured={choice["kind"]: one}).report() for one in choice["variants"][:2]]
    differ(*([row["note"] for row in rows] for rows in taken))


@covers(
    "Model.__init__.tuned",
    "Model.loaded_again.tuned",
    "Model.tune.**by_name",
    "Model.tune.runs",
    "Model.tune.again",
    "Model.tune.progress",
)
def tuned_models(context: pumice.Context) -> None:
    expect_error(lambda: pumice.load(gemm(), context, tuned=3), "tuned")  # type: ignore[arg-type]
    with (
        TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patched,
        pumice.load(gemm(), context) as loaded,
    ):
        patched.delenv("PUMICE_NO_CACHE", raising=False)
        patched.setenv("PUMICE_CACHE_DIR", folder)
        expect_error(lambda: loaded.loaded_again(tuned=3), "tuned")  # type: ignore[arg-type]
        name = loaded.inputs[0].name
        first = loaded.tune(**{name: X}, runs=1, progress=False)
        assert first.measured > 1
        differ(*(loaded.tune(X, runs=1, again=again, progress=False).measured for again in (False, True)))
        expect_error(lambda: loaded.tune(X, runs=0), "runs")
        expect_error(lambda: loaded.tune(wobble=X), "wobble")
        (step,) = first.steps[:1]
        other = next(one.variant for one in step.variants if one.variant != step.default_variant)
        notes: list[Any] = []
        for tuned in ({}, {step.kind: other}):
            with pumice.load(gemm(), context, tuned=tuned) as model, model.loaded_again(tuned=tuned) as again:
                model(X), again(X)
                assert str(model.report()) == str(again.report())
                notes.append([row["note"] for row in model.report()])
        differ(*notes)
        bars: list[bool] = []
        patched.setattr(
            "pumice.model.step_tuning.Progress", lambda what, wanted: bars.append(wanted) or Progress(what, False)
        )
        for progress in (True, False):
            loaded.tune(X, runs=1, progress=progress)
        assert bars == [True, False]
