"""New input shapes of transformers: no new pipelines, the same results as the reference, bounded memory."""

from __future__ import annotations

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_transformers import decoder, encoder

# Batch 1 or more, M a multiple of 4 or not, small and large M: covers all kernel variants of a device.
SHAPES = ((1, 8), (1, 12), (3, 8), (2, 16), (1, 1), (1, 7), (2, 13), (4, 24), (3, 19), (1, 20), (1, 11), (1, 30))


def words(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 101, shape)


def test_an_encoder_takes_any_batch_and_length_without_a_new_pipeline(context: pumice.Context) -> None:
    written = encoder(layers=2)
    onnx.checker.check_model(written)
    model, reference = pumice.Model(written, context), ReferenceEvaluator(written)
    made: list[int] = []
    for batch, length in SHAPES:
        ids, mask = words(batch, length), np.ones((batch, length), "int64")
        mask[:, length - length // 3 :] = 0
        expected = reference.run(None, {"ids": ids, "mask": mask})[0]
        np.testing.assert_allclose(model(ids=ids, mask=mask), expected, rtol=2e-3, atol=2e-4)
        made.append(context.pipelines_created)
    for batch, length in ((3, 16), (3, 17), (1, 24), (1, 10)):
        ids = words(batch, length)
        model(ids=ids, mask=np.ones_like(ids))
    if context.info.kind == "software":  # GPUs have more GEMM variants than these shapes need
        assert context.pipelines_created == made[-1]


def test_a_decoder_steps_with_a_growing_cache_without_a_new_pipeline(context: pumice.Context) -> None:
    layers, width, heads = 2, 32, 2
    written = decoder(layers, width, heads)
    onnx.checker.check_model(written)
    model = pumice.Model(written, context)
    ids = words(1, 20)
    cache = {
        f"past_{part}_{i}": np.zeros((1, heads, 0, width // heads), "float32")
        for i in range(layers)
        for part in ("key", "value")
    }
    whole = ReferenceEvaluator(written).run(["logits"], {"ids": ids, **cache})[0]
    np.testing.assert_allclose(model(ids=ids, **cache)["logits"], whole, rtol=2e-3, atol=2e-4)
    made = []
    for place in range(20):
        results = model(ids=ids[:, place : place + 1], **cache)
        np.testing.assert_allclose(results["logits"][:, 0], whole[:, place], rtol=2e-3, atol=2e-4)
        cache = {
            f"past_{name}": array for name, array in zip(results._fields, results, strict=True) if name != "logits"
        }
        made.append(context.pipelines_created)
    more = made[-1] - made[11]  # register-cached kernels have a variant per power of two
    assert more == 0 if context.info.kind == "software" else more <= 4
