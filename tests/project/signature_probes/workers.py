"""Models in the workers of other engines, and on several devices."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import pumice
from onnx_models import gemm, relu
from signature_probes.models import beside
from signature_probes.probe import covers, differ, expect_error

X = np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4)


def predictor(context: pumice.Context, **options: Any) -> pumice.BatchPredictor:
    return pumice.BatchPredictor(gemm(), **{"device": f"uuid:{context.info.uuid}", **options})


@covers(
    "BatchPredictor.__init__.device",
    "BatchPredictor.__init__.precision",
    "BatchPredictor.__init__.batch_size",
    "BatchPredictor.__init__.ragged",
    "BatchPredictor.__init__.columns",
    "BatchPredictor.__init__.keep",
    "BatchPredictor.__init__.named",
    "BatchPredictor.__init__.depth",
    "BatchPredictor.__init__.folder",
    "BatchPredictor.__init__.**options",
)
def predicting(context: pumice.Context) -> None:
    expect_error(lambda: predictor(context, device="wobble")(X), "wobble")
    differ(*(predictor(context, precision=precision)(X)["sum"] for precision in ("fp32", "fp16")))
    expect_error(lambda: predictor(context, precision="wobble"), "wobble")
    expect_error(lambda: predictor(context, batch_size=0), "batch_size")
    differ(*(predictor(context, batch_size=size).batch_size for size in (None, 4)))
    expect_error(lambda: predictor(context, ragged="wobble"), "ragged")
    for ragged in ("pad", "rebind"):  # same results; tests/model/test_batch_predictor.py checks the runs
        predictor(context, ragged=ragged, batch_size=4)(X)
    assert "sum" in predictor(context, columns={"x": "pixels"})({"pixels": X})
    differ(*(sorted(predictor(context, keep=keep)({"x": X, "n": X})) for keep in ((), ["n"])))
    differ(*(type(predictor(context, named=named)(X)) for named in (False, True)))
    expect_error(lambda: predictor(context, depth=0)(X), "depth")
    with TemporaryDirectory() as folder:
        data = beside(folder)
        expect_error(lambda: pumice.BatchPredictor(data)(X), "folder")
        pumice.BatchPredictor(data, folder=folder)(X)
    expect_error(lambda: predictor(context, wobble=1), "wobble")
    differ(*(predictor(context, fuse=fuse).model.fuse for fuse in (True, False)))


@covers("load.context", "load.precision", "load.devices", "load.**options")
def opening(context: pumice.Context) -> None:
    assert pumice.load(gemm(), context).context is context
    differ(*(pumice.load(gemm(), context, precision)(X)["sum"] for precision in ("fp32", "fp16")))
    expect_error(lambda: pumice.load(gemm(), context, "wobble"), "wobble")
    expect_error(lambda: pumice.load(gemm(), context, wobble=1), "wobble")  # type: ignore[call-overload]
    expect_error(lambda: pumice.load(gemm(), devices="wobble"), "wobble")
    expect_error(lambda: pumice.load(gemm(), context, devices="all"), "both")  # type: ignore[call-overload]
    with pumice.load(gemm(), devices=[context, context], fuse=False) as loaded:
        assert [one.fuse for one in loaded.models] == [False, False]


@covers("ParallelModel.__call__.**by_name", "ParallelModel.map.depth", "ParallelModel.__init__.**options")
def on_several_devices(context: pumice.Context) -> None:
    with pumice.load(relu(), devices=[context, context]) as loaded:
        np.testing.assert_array_equal(loaded(x=X), np.maximum(X, 0))
        expect_error(lambda: loaded(wobble=X), "wobble")
        expect_error(lambda: loaded.map([X], depth=0), "depth")
        assert len(list(loaded.map([X] * 3, depth=3))) == 3
    expect_error(lambda: pumice.ParallelModel(relu(), [context], "fp32", wobble=1), "wobble")
