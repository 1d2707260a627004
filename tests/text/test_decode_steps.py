"""Dispatches and barriers per layer of a decoder's single-token step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import pumice
from benchmarks.text import TINY, Writer
from pumice.importer.load_graph import build_recipe_graph
from pumice.text.decode_state import DecodeState
from pumice.text.decoder import Decoder
from pumice.text.model_folder import ModelFolder
from pumice.text.static_kv_cache import to_static_kv_cache

pytest.importorskip("tokenizers")

PLACES, ROOM = 512, 256


class Exported(Writer):
    """A decoder with separate matmuls for Q, K and V, and residual adds in SkipSimplifiedLayerNormalization, which
    the importer expands to Add and RMSNormalization."""

    def layer(self, i: int, x: str) -> str:
        shape, base = self.shape, f"l{i}."
        inner, whole = (self.norm(base + "n1", x), x) if i == 0 else self.skip(base + "n1", *x.split("|"))
        widths = {"q": shape.width, "k": shape.groups * shape.head, "v": shape.groups * shape.head}
        rows = [self.product(base + name, inner, shape.width, width) for name, width in widths.items()]
        caches = [f"past_key_values.{i}.{element}" for element in ("key", "value")]
        result = [f"present.{i}.{item}" for item in ("key", "value")]
        numbers = {"num_heads": shape.heads, "kv_num_heads": shape.groups, "do_rotary": 1}
        inputs = [*rows, *caches, "lengths", "total", "cos", "sin"]
        mixed = self.add("GroupQueryAttention", inputs, [base + "mix", *result], "com.microsoft", **numbers)
        inner, whole = self.skip(base + "n2", whole, self.product(base + "o", mixed, shape.width, shape.width))
        gate, up = (self.product(base + name, inner, shape.width, shape.inner) for name in ("gate", "up"))
        silu = self.add("Mul", [gate, self.add("Sigmoid", [gate], [base + "sig"])], [base + "silu"])
        down = self.product(base + "down", self.add("Mul", [silu, up], [base + "in"]), shape.inner, shape.width)
        return f"{whole}|{down}"

    def skip(self, name: str, x: str, more: str) -> tuple[str, str]:
        """Return the normalised sum, and the sum."""
        whole = self.add("Add", [x, more], [f"{name}.sum"])
        return super().norm(name, whole), whole

    def norm(self, name: str, x: str) -> str:
        return self.skip(name, *x.split("|"))[0] if "|" in x else super().norm(name, x)


def device_of(context: pumice.Context, layers: int, fuse: bool = True, form: type[Writer] = Writer) -> Decoder:
    """A decoder as onnxruntime-genai exports it, with random 4-bit weights."""
    shape = dataclasses.replace(TINY, layers=layers)
    decoder_recipe = to_static_kv_cache(form(shape, PLACES).recipe(), ModelFolder("", "", "model.onnx", ""), "fp32")
    return Decoder(
        context,
        build_recipe_graph(decoder_recipe.recipe).compile(context, "fp32", fuse=fuse),
        decoder_recipe,
        shape.words,
    )


def counted(device: Decoder, rows: int = 1) -> tuple[int, int]:
    """Return the dispatches and barriers of a recorded step."""
    texts = DecodeState(device, 1, None)
    texts.tokens = [[1] * rows]
    texts.ensure_capacity(ROOM)
    recorded = texts._get_run(rows, 1, None).commands
    texts.close()
    return recorded.dispatches, recorded.barriers


@pytest.mark.parametrize(("form", "most"), [(Writer, 7), (Exported, 9)])
def test_a_layer_takes_at_most_nine_dispatches(form: type[Writer], most: int, gpu_kernels: pumice.Context) -> None:
    """The difference between decoders of three and of two layers: matmuls of qkv (one or three), o, gate and up,
    down; RoPE with the KV cache write; attention and its merge. Independent matmuls have no barrier between them."""
    (two, first), (three, second) = (counted(device_of(gpu_kernels, layers, form=form)) for layers in (2, 3))
    # rotary_kv_cache.comp takes the place of three dispatches.
    is_fused = gpu_kernels.limit("maxPerStageDescriptorStorageBuffers") >= 10
    assert three - two <= most + (0 if is_fused else 2)
    assert second - first <= 7


def test_a_layer_takes_at_most_nine_dispatches_by_the_kernels_of_cpu_drivers(context: pumice.Context) -> None:
    two, three = (counted(device_of(context, layers))[0] for layers in (2, 3))
    assert three - two <= 9


@pytest.mark.parametrize("form", [Writer, Exported])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_logits_are_those_of_the_layers_as_they_are_written(
    rows: int, form: type[Writer], gpu_kernels: pumice.Context
) -> None:
    """Both round a layer's sums, far below the spread of the logits; fp16 logits differ by at most one ulp."""
    result = []
    for fuse in (True, False):
        texts = DecodeState(device_of(gpu_kernels, 2, fuse, form), 1, None)
        texts.tokens = [[int(number) for number in np.random.default_rng(rows).integers(0, TINY.words, rows)]]
        texts.prefill()
        result.append(texts.logits()[0].astype(np.float64))
        texts.close()
    step = float(np.spacing(np.float16(np.abs(result[1]).max())))
    assert np.abs(result[0] - result[1]).max() <= step + 1e-4 * result[1].std()
    assert result[1].std() > 100 * step, "logits of different tokens differ"
