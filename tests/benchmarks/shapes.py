"""The host cost of a new input shape: an encoder, and a decoder whose cache grows by one row per step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import pumice
from onnx_transformers import decoder, encoder

from .contender import Array
from .rows import Row, Table, timed
from .session import Session
from .timing import Times, sample

MS, US = 1e3, 1e6
LAYERS, MORE_LAYERS, WIDTH, HEADS = 8, 12, 64, 4  # about 500 nodes, and the layer count of the smallest GPT-2
FIRST, STEPS = 16, 40  # bound lengths


def encoder_inputs(length: int) -> tuple[Array, ...]:
    return (np.ones((1, length), "int64"),) * 2


def decoder_inputs(layers: int, past: int) -> tuple[Array, ...]:
    cache = np.zeros((1, HEADS, past, WIDTH // HEADS), "float32")
    return (np.zeros((1, 1), "int64"), *[cache] * (2 * layers))


def host_seconds(program: pumice.Program, inputs: Callable[[int], tuple[Array, ...]]) -> Times:
    """Return the seconds from a call with new shapes to the submission of its work."""
    program.call(inputs(FIRST - 1))
    seconds = []
    for length in range(FIRST, FIRST + STEPS):
        given = inputs(length)
        begin = time.perf_counter()
        run = program.run_async(given)
        seconds.append(time.perf_counter() - begin)
        run.result()
    return Times([seconds])


def rows(session: Session) -> Iterator[Row]:
    large = encoder(LAYERS, WIDTH, HEADS)
    program = pumice.Model(large, session.context).program
    nodes = len(large.graph.node)
    row = timed(f"encoder of {nodes} nodes, a new length", host_seconds(program, encoder_inputs), MS, 10.0)
    row.note = f"{len(program.plan([[1, FIRST]] * 2))} dispatches"
    yield row
    given = encoder_inputs(FIRST + STEPS - 1)
    program.call(given)
    seen = Times([sample(lambda: program.compiled([list(array.shape) for array in given]), 200)])
    yield timed("  a length seen before", seen, MS, 0.05)
    for layers, target in ((LAYERS, 2.0), (MORE_LAYERS, None)):
        grown = decoder(layers, WIDTH, HEADS)
        program = pumice.Model(grown, session.context).program
        inputs = partial(decoder_inputs, layers)
        row = timed(f"decoder of {len(grown.graph.node)} nodes, a step", host_seconds(program, inputs), MS, target)
        row.note = f"{len(program.plan([list(array.shape) for array in inputs(FIRST)]))} dispatches"
        yield row


def run(session: Session) -> Iterator[Table]:
    yield Table("Host time of a call before its work is submitted", "ms", list(rows(session)))
