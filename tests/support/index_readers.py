"""Nodes with indices, and out-of-range indices for them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Reader(NamedTuple):
    """A node with indices: `add` builds it from the indices and creates its other operands."""

    op: str
    input: int  # input number of the indices
    shape: Shape  # shape of the indices
    sizes: tuple[int, ...]  # sizes of the indexed axes, in order along the last axis of the indices
    add: Callable[[Any, Any, bool], Any]
    from_end: bool = True
    dtype: str = "int64"


def float_input(graph: Any, name: str, *shape: int, known: bool = True) -> Any:
    return graph.input(name, "float32", list(shape) if known else [None] * len(shape))


def gather(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("Gather", float_input(graph, "x", 3, 5, 2, known=known), indices, axis=1, name="node")


def gather_elements(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("GatherElements", float_input(graph, "x", 3, 5, known=known), indices, axis=-1, name="node")


def gather_nd(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 2, 3, 5, 4, known=known)
    return graph.add("GatherND", x, indices, batch_dims=1, name="node")


def scatter_elements(graph: Any, indices: Any, known: bool) -> Any:
    operands = float_input(graph, "x", 5, 3, known=known), indices, float_input(graph, "updates", 2, 3)
    return graph.add("ScatterElements", *operands, axis=0, reduction="add", name="node")


def scatter_nd(graph: Any, indices: Any, known: bool) -> Any:
    operands = float_input(graph, "x", 3, 5, 2, known=known), indices, float_input(graph, "updates", 4, 2)
    return graph.add("ScatterND", *operands, name="node")


def max_unpool(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 1, 2, 3, known=known)
    return graph.add("MaxUnpool", x, indices, kernel_shape=[2], strides=[2], name="node")


def tensor_scatter(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 2, 6, 3, known=known)
    return graph.add("TensorScatter", x, float_input(graph, "update", 2, 2, 3), indices, axis=1, name="node")


def rotary_embedding(graph: Any, indices: Any, known: bool) -> Any:
    x, tables = float_input(graph, "x", 2, 3, 4, 8), [float_input(graph, name, 7, 4, known=known) for name in "cs"]
    return graph.add("RotaryEmbedding", x, *tables, indices, name="node")


def roi_align(graph: Any, indices: Any, known: bool) -> Any:
    x, boxes = float_input(graph, "x", 3, 2, 6, 6, known=known), float_input(graph, "boxes", 4, 4)
    return graph.add("RoiAlign", x, boxes, indices, name="node")


def reverse_sequence(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 5, 4, 2, known=known)
    return graph.add("ReverseSequence", x, indices, time_axis=0, batch_axis=1, name="node")


def rnn(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 5, 4, 2, known=known)
    weights = [np.ones((1, 3, size), np.float32) for size in (2, 3)]
    return graph.add("RNN", x, *weights, None, indices, hidden_size=3, name="node")


def attention(graph: Any, indices: Any, known: bool) -> Any:
    q = float_input(graph, "q", 3, 2, 4, 8, known=known)
    k, v = (float_input(graph, name, 3, 2, 6, 8, known=known) for name in "kv")
    return graph.add("Attention", q, k, v, None, None, None, indices, name="node")


def max_roi_pool(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 3, 2, 6, 6, known=known)
    return graph.add("MaxRoiPool", x, indices, pooled_shape=[2, 2], name="node")


def soft_nms(graph: Any, indices: Any, known: bool) -> Any:
    boxes, scores = float_input(graph, "boxes", 4, 3, 4), float_input(graph, "scores", 4, 3)
    return graph.add("pumice::SoftNMS", boxes, scores, indices, outputs=4, name="node")[0]


def nnapi_roi_pooling(graph: Any, indices: Any, known: bool) -> Any:
    x, boxes = float_input(graph, "x", 3, 6, 6, 2, known=known), float_input(graph, "boxes", 4, 4)
    return graph.add("nnapi::ROI_POOLING", x, boxes, indices, 2, 2, 1.0, 1.0, False, name="node")


def nnapi_roi_align(graph: Any, indices: Any, known: bool) -> Any:
    x, boxes = float_input(graph, "x", 3, 6, 6, 2, known=known), float_input(graph, "boxes", 4, 4)
    return graph.add("nnapi::ROI_ALIGN", x, boxes, indices, 2, 2, 1.0, 1.0, 2, 2, False, name="node")


def nnapi_box_transform(graph: Any, indices: Any, known: bool) -> Any:
    boxes, deltas = float_input(graph, "boxes", 4, 4), float_input(graph, "deltas", 4, 8)
    sizes = float_input(graph, "sizes", 3, 2, known=known)
    return graph.add("nnapi::AXIS_ALIGNED_BBOX_TRANSFORM", boxes, deltas, indices, sizes, name="node")


def nnapi_gather(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("nnapi::GATHER", float_input(graph, "x", 3, 5, 2, known=known), 1, indices, name="node")


def embedding_lookup(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("nnapi::EMBEDDING_LOOKUP", indices, float_input(graph, "x", 5, 3, known=known), name="node")


READERS = (
    Reader("Gather", 1, (2, 3), (5,), gather),
    Reader("Gather", 1, (), (5,), gather),
    Reader("Gather", 1, (4,), (5,), gather, dtype="int32"),
    Reader("GatherElements", 1, (3, 4), (5,), gather_elements),
    Reader("GatherND", 1, (2, 4, 2), (3, 5), gather_nd),
    Reader("ScatterElements", 1, (2, 3), (5,), scatter_elements),
    Reader("ScatterND", 1, (4, 2), (3, 5), scatter_nd, dtype="int32"),
    Reader("MaxUnpool", 1, (1, 2, 3), (12,), max_unpool, from_end=False),
    Reader("TensorScatter", 2, (2,), (5,), tensor_scatter, from_end=False),
    Reader("RotaryEmbedding", 3, (2, 4), (7,), rotary_embedding, from_end=False),
    Reader("RoiAlign", 2, (4,), (3,), roi_align, from_end=False),
    Reader("ReverseSequence", 1, (4,), (6,), reverse_sequence, from_end=False),
    Reader("RNN", 4, (4,), (6,), rnn, from_end=False, dtype="int32"),
    Reader("Attention", 6, (3,), (7,), attention, from_end=False),
    Reader("ROI_POOLING", 0, (4,), (3,), nnapi_roi_pooling, from_end=False, dtype="int32"),
    Reader("ROI_ALIGN", 2, (4,), (3,), nnapi_roi_align, from_end=False, dtype="int32"),
    Reader("BOX_TRANSFORM", 0, (4,), (3,), nnapi_box_transform, from_end=False, dtype="int32"),
    Reader("GATHER", 1, (4,), (5,), nnapi_gather, from_end=False, dtype="int32"),
    Reader("EMBEDDING_LOOKUP", 1, (4,), (5,), embedding_lookup, from_end=False, dtype="int32"),
)
IDS = [f"{reader.op}{reader.shape}".replace(" ", "") for reader in READERS]


def indices_of(reader: Reader, seed: int, wrong: int) -> tuple[Array, list[int]]:
    """Return random indices, `wrong` of them out of range, and their positions in row-major order."""
    numbers = random.Random(seed)
    count = int(np.prod(reader.shape))
    places = sorted(numbers.sample(range(count), min(wrong, count)))
    flat = []
    for i in range(count):
        size = reader.sizes[i % len(reader.sizes)]
        least = -size if reader.from_end else 0
        beyond = [size, size + 1, least - 1, 2**31 - 1, -(2**31)]
        flat.append(numbers.choice(beyond) if i in places else numbers.randrange(least, size))
        if reader.dtype == "int64" and i in places and numbers.random() < 0.3:
            flat[-1] = numbers.choice([2**32, -(2**32), 2**32 + 1, 2**40])
    return np.array(flat, reader.dtype).reshape(reader.shape), places


def unchecked_reader(reader: Reader) -> Reader:
    """Allow negative indices for NNAPI operations: without checks, the node they expand to accepts them."""
    counting = (nnapi_gather, embedding_lookup, nnapi_box_transform)
    return reader._replace(from_end=True) if reader.add in counting else reader


OF_NNAPI = (nnapi_gather, embedding_lookup, nnapi_roi_pooling, nnapi_roi_align, nnapi_box_transform)


def told(reader: Reader, indices: Array, position: int, constant: bool = False) -> str:
    if constant and reader.add in OF_NNAPI:
        return r"non-negative (image )?indices.* expected.*; given -?\d+"
    size = reader.sizes[position % len(reader.sizes)]
    element = [int(i) for i in np.unravel_index(position, reader.shape)] if reader.shape else []
    expected = f"expected {-size if reader.from_end else 0} to {size - 1}"
    return re.escape(f"index {indices.reshape(-1)[position]} at {element}; {expected}")


def floats(graph: Any) -> dict[str, Array]:
    """Return values for every float input of known shape. Box corners are ordered, as NNAPI requires."""
    numbers = np.random.default_rng(0)
    inputs = [value for value in graph.inputs if value.dtype == "float32"]
    result = {item.name: numbers.random([size or 1 for size in item.shape]).astype(np.float32) for item in inputs}
    return {name: np.sort(array) if name == "boxes" else array for name, array in result.items()}
