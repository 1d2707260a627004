"""Attention: masks, grouped heads, windows, KV caches, sizes around the kernels' tile sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.rows import EXACT, Case, Given, case, fixed, given, x

CLOSE: dict[str, Any] = {"fp32": (1e-4, 1e-4), "fp16": (4e-3, 4e-3)}


def heads(batch: int, count: int, rows: int, size: int) -> Given:
    return x(batch, count, rows, size)


def attentions() -> Iterator[Case]:
    def attention(note: str, *inputs: Given | None, **more: Any) -> Case:
        return case("Attention", note, *inputs, **CLOSE, **more)

    # Batch, heads of Q and of K and V, query length, key length, head sizes of K and of V.
    for batch, q, kv, rows, keys, size, v_size in (
        (1, 2, 2, 65, 67, 64, 64),
        (1, 6, 2, 5, 33, 16, 12),
        (1, 2, 1, 31, 37, 24, 136),
        (2, 2, 2, 17, 19, 7, 5),
        (1, 1, 1, 1, 1, 1, 1),
        (2, 4, 4, 1, 301, 32, 32),
        (1, 8, 2, 1, 1031, 128, 128),
        (1, 2, 2, 33, 21, 300, 260),
        (1, 2, 1, 33, 600, 64, 64),
    ):
        note = f"{batch} x {q} x {rows} x {size}, {keys} keys of {kv} heads, values of {v_size}"
        inputs = heads(batch, q, rows, size), heads(batch, kv, keys, size), heads(batch, kv, keys, v_size)
        yield attention(note, *inputs)
    yield attention("causal, parts", heads(1, 2, 530, 32), heads(1, 1, 530, 32), heads(1, 1, 530, 32), is_causal=1)
    yield attention("causal, tiles", heads(1, 2, 130, 64), heads(1, 2, 130, 64), heads(1, 2, 130, 64), is_causal=1)
    square = heads(1, 3, 37, 16), heads(1, 3, 70, 16), heads(1, 3, 70, 24)
    yield attention("keys before the rows", *square, x(37, 70), scale=0.125, softcap=2.0)
    for shape in ((37, 70), (3, 37, 70), (1, 1, 1, 70), (1, 3, 1, 70), (1, 1, 37, 41), (70,)):
        yield attention(f"a mask of {shape}", *square, x(*shape))
        causal = int(len(shape) > 1 and shape[-2] == 37)  # onnx's reference broadcasts any other mask over the queries
        yield attention(f"a bool mask of {shape}", *square, x(*shape, dtype="bool"), is_causal=causal)
    for left, right in ((3, -1), (-1, 5), (4, 2), (0, 0)):
        windows = {"left_window_size": left, "right_window_size": right}
        yield attention(f"a window from {left} to {right}", *square, **windows)
    yield attention("an unseen row", *square, fixed(np.arange(37)[:, None] % 3 > 0, "bool"), is_causal=0)
    hidden = np.where(np.arange(37)[:, None] % 2 > 0, 0, -np.inf) + np.zeros((37, 70))
    yield attention("a row of minus infinity", *square, given(hidden))
    flat = x(2, 7, 4 * 12), x(2, 9, 2 * 12), x(2, 9, 2 * 8)
    yield attention("rows of all heads", *flat, q_num_heads=4, kv_num_heads=2)
    past = heads(2, 2, 5, 12), heads(2, 2, 5, 8)
    yield attention("a past", *flat, None, *past, outputs=3, q_num_heads=4, kv_num_heads=2, is_causal=1)
    odd = x(2, 3, 3 * 7), x(2, 2, 3 * 7), x(2, 2, 3 * 5), None, heads(2, 3, 3, 7), heads(2, 3, 3, 5)
    yield attention("an odd past", *odd, outputs=3, q_num_heads=3, kv_num_heads=3)
    counted = heads(3, 4, 5, 16), heads(3, 2, 24, 16), heads(3, 2, 24, 16), None, None, None
    yield attention("counted keys", *counted, fixed([24, 3, 11]), is_causal=1)
    yield attention("counted keys, all or none", *counted, given([24, 0, 1], "int64"))
    for mode in range(4):
        inputs = *counted[:3], x(5, 24)
        more = {"is_causal": 1, "softcap": 1.5 if mode else 0.0, "qk_matmul_output_mode": mode}
        scores = case(
            "Attention", f"scores, mode {mode}", *inputs, None, None, fixed([24, 3, 11]), outputs=4, **CLOSE, **more
        )
        yield scores
    for rows, keys in ((0, 5), (3, 0)):
        yield attention(f"{rows} rows, {keys} keys", heads(1, 2, rows, 8), heads(1, 2, keys, 8), heads(1, 2, keys, 4))
    yield attention("no image", heads(0, 2, 3, 8), heads(0, 2, 3, 8), heads(0, 2, 3, 8))


def caches() -> Iterator[Case]:
    """Cases with rebuilt KV caches."""
    for dtype in ("float32", "float16", "int8", "int64"):
        for size in (8, 3):
            cache, update = x(2, 3, 11, size, dtype=dtype), x(2, 3, 4, size, dtype=dtype)
            yield case("TensorScatter", f"{dtype} of {size}", cache, update, given([2, 7], "int64"), **EXACT)
    flat = x(3, 7, 5), x(3, 2, 5), given([5, 0, 3], "int64")
    yield case("TensorScatter", "rank 3", *flat, **EXACT)
    yield case("TensorScatter", "in a circle", *flat[:2], given([6, 0, 5], "int64"), mode="circular", **EXACT)
    yield case("TensorScatter", "from the beginning", *flat[:2], **EXACT)
    yield case(
        "TensorScatter",
        "the first axis of several",
        x(2, 7, 3, 5),
        x(2, 1, 3, 5),
        given([6, 2], "int64"),
        axis=1,
        **EXACT,
    )
    yield case("TensorScatter", "no rows", x(2, 7, 5), x(2, 0, 5), given([6, 2], "int64"), **EXACT)


def rotations() -> Iterator[Case]:
    def rotation(note: str, *inputs: Given, **more: Any) -> Case:
        return case("RotaryEmbedding", note, *inputs, fp16=(4e-3, 4e-3), **more)

    for interleaved in (0, 1):
        more = {"interleaved": interleaved}
        note = "neighbours" if interleaved else "halves"
        yield rotation(f"{note}, heads before rows", x(2, 3, 5, 8), x(2, 5, 4), x(2, 5, 4), **more)
        yield rotation(f"{note}, rows of all heads", x(2, 5, 3 * 6), x(2, 5, 3), x(2, 5, 3), num_heads=3, **more)
        places = given([[3, 0, 1, 6, 2], [2, 2, 3, 0, 5]], "int64")
        part = x(2, 3, 5, 10), x(7, 3), x(7, 3), places
        yield rotation(f"{note}, a part at places", *part, rotary_embedding_dim=6, **more)
    yield rotation("no rows", x(2, 3, 0, 8), x(2, 0, 4), x(2, 0, 4))


# onnx's reference has no maximum over zero scores.
REFERENCES = {"Attention: 3 rows, 0 keys": lambda q, k, v: np.zeros((*q.shape[:3], v.shape[3]), q.dtype)}
