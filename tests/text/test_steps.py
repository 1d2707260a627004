"""What a decoder's step of one token consists of: dispatches and barriers for each layer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import pumice
from benchmarks.text import TINY, Writer
from pumice.importer.load import graph_of
from pumice.text.device import Device
from pumice.text.folder import Folder
from pumice.text.room import in_room
from pumice.text.rows import Rows

pytest.importorskip("tokenizers")

PLACES, ROOM = 512, 256


def device_of(context: pumice.Context, layers: int, fuse: bool = True) -> Device:
    """A decoder as onnxruntime-genai exports it, with random weights of 4 bits."""
    shape = dataclasses.replace(TINY, layers=layers)
    roomy = in_room(Writer(shape, PLACES).recipe(), Folder("", "", "model.onnx", ""), "fp32")
    return Device(context, graph_of(roomy.recipe).compile(context, "fp32", fuse=fuse), roomy, shape.words)


def counted(device: Device, rows: int = 1) -> tuple[int, int]:
    """Dispatches and barriers of a recorded step."""
    texts = Rows(device, 1, None)
    texts.tokens = [[1] * rows]
    texts.make_room(ROOM)
    recorded = texts._prompt(rows, 1, False).recorded.commands
    texts.close()
    return recorded.dispatches, recorded.barriers


@pytest.fixture(scope="module")
def gpu_kernels(pumice_context: pumice.Context):
    """A device for which the kernels of CPU drivers are not taken."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as made:
        yield made


def test_a_layer_takes_at_most_nine_dispatches(gpu_kernels: pumice.Context) -> None:
    """The difference of decoders of two and of three layers: products of qkv, o, gate and up, down; rotary embedding; attention."""
    (two, first), (three, second) = (counted(device_of(gpu_kernels, layers)) for layers in (2, 3))
    assert three - two <= 7
    assert second - first <= three - two


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_logits_are_those_of_the_layers_as_they_are_written(rows: int, gpu_kernels: pumice.Context) -> None:
    """Both round the sums of a layer, whose terms are random: by far less than the difference of two tokens' logits."""
    made = []
    for fuse in (True, False):
        texts = Rows(device_of(gpu_kernels, 2, fuse), 1, None)
        texts.tokens = [[int(one) for one in np.random.default_rng(rows).integers(0, TINY.words, rows)]]
        texts.read()
        made.append(texts.logits()[0].astype(np.float64))
        texts.close()
    spread = made[1].std()
    assert np.abs(made[0] - made[1]).max() < 1e-3 * spread
    assert made[0].argmax() == made[1].argmax()
