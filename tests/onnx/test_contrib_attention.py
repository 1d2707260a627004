"""com.microsoft attention and rotary embedding against ONNX Runtime's CPU provider, or NumPy for forms it lacks."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from contrib_nodes import Array, Case, expect_error, ids, random

BATCH, ROWS, KEYS, HEADS, SIZE, PAST = 2, 5, 7, 4, 6, 3
W = HEADS * SIZE
Q, K, V = random(BATCH, ROWS, W), random(BATCH, KEYS, W, seed=1), random(BATCH, KEYS, W, seed=2)
APART = {"q": Q, "k": K, "v": V}
PASTS = {
    "past_k": random(BATCH, HEADS, PAST, SIZE, seed=5),
    "past_v": random(BATCH, HEADS, PAST, SIZE, seed=6),
}
SEEN = (ids(BATCH, KEYS, below=3) > 0).astype("int32")


def multi(inputs: dict[str, Array], order: str, outputs: str = "y", constants: Any = None, **attributes: Any) -> Case:
    attributes.setdefault("num_heads", HEADS)
    return Case("MultiHeadAttention", inputs, constants or {}, outputs, order=order.split(","), **attributes)


def whole(inputs: dict[str, Array], order: str, outputs: str = "y", **attributes: Any) -> Case:
    weights = {"w": random(10, 3 * W, seed=8), "b": random(3 * W, seed=9)}
    given = {"x": random(BATCH, ROWS, 10), **inputs}
    return Case("Attention", given, weights, outputs, order=order.split(","), num_heads=HEADS, **attributes)


CASES = {
    "apart": multi(APART, "q,k,v"),
    "bias": multi({**APART, "b": random(3 * W, seed=4)}, "q,k,v,b", scale=0.5),
    "constant bias, other values": multi(
        {**APART, "v": random(BATCH, KEYS, 2 * W, seed=2)}, "q,k,v,b", constants={"b": random(4 * W, seed=4)}
    ),
    "mask of all": multi({**APART, "m": SEEN}, "q,k,v,,m"),
    "mask of lengths": multi({**APART, "m": np.array([7, 3], "int32")}, "q,k,v,,m"),
    "mask of nothing seen": multi({**APART, "m": SEEN * np.array([[1], [0]], "int32")}, "q,k,v,,m"),
    "mask of rows": multi({**APART, "m": ids(BATCH, ROWS, KEYS, below=2)}, "q,k,v,,m", mask_filter_value=-50.0),
    "mask and bias": multi({**APART, "m": SEEN, "more": random(1, HEADS, ROWS, KEYS)}, "q,k,v,,m,more"),
    "past": multi({**APART, **PASTS}, "q,k,v,,,,past_k,past_v", "y,present_k,present_v"),
    "past, mask, bias": multi(
        {**APART, **PASTS, "m": ids(BATCH, KEYS + PAST, below=2), "more": random(BATCH, 1, ROWS, KEYS + PAST)},
        "q,k,v,,m,more,past_k,past_v",
        "y,present_k,present_v",
    ),
    "causal, past": multi(
        {"q": Q, "k": K[:, :ROWS], "v": V[:, :ROWS], **PASTS},
        "q,k,v,,,,past_k,past_v",
        "y,present_k,present_v",
        unidirectional=1,
    ),
    "no past, present": multi(APART, "q,k,v", "y,present_k,present_v"),
    "scores": multi(APART, "q,k,v", "y,,,qk"),
    "scores, mask": multi({**APART, "m": SEEN}, "q,k,v,,m", "y,,,qk"),
    "scores, bias": multi({**APART, "more": random(1, HEADS, ROWS, KEYS)}, "q,k,v,,,more", "y,,,qk"),
    "keys in heads": multi(
        {"q": Q, "k": random(BATCH, HEADS, KEYS, SIZE, seed=1), "v": random(BATCH, HEADS, KEYS, SIZE, seed=2)}, "q,k,v"
    ),
    "keys in heads, bias": multi(
        {
            "q": Q,
            "k": random(BATCH, HEADS, KEYS, SIZE, seed=1),
            "v": random(BATCH, HEADS, KEYS, SIZE, seed=2),
            "b": random(3 * W, seed=4),
        },
        "q,k,v,b",
    ),
    "whole": whole({}, "x,w,b"),
    "whole, causal": whole({}, "x,w,b", unidirectional=1, scale=0.3),
    "whole, present": whole({}, "x,w,b", "y,present"),
    "whole, lengths": whole({"m": np.array([5, 2], "int32")}, "x,w,b,m"),
    "whole, ends and begins": whole({"m": np.array([5, 4, 0, 2], "int32")}, "x,w,b,m"),
    "whole, mask": whole({"m": ids(BATCH, ROWS, below=2)}, "x,w,b,m"),
    "whole, mask of rows, causal": whole({"m": ids(BATCH, ROWS, ROWS, below=2)}, "x,w,b,m", unidirectional=1),
    "whole, past": whole(
        {"past": random(2, BATCH, HEADS, PAST, SIZE, seed=5), "m": ids(BATCH, ROWS + PAST, below=2)},
        "x,w,b,m,past",
        "y,present",
        unidirectional=1,
    ),
    "whole, bias of scores": whole({"more": random(1, HEADS, ROWS, ROWS)}, "x,w,b,,,more"),
}


def check(context: pumice.Context, case: Case, rows: list[int] | None = None) -> None:
    """Compare with ONNX Runtime. `rows`: valid rows of each batch item; the others may have any value."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, case.inputs)
    given = pumice.load(case.model, context)(**case.inputs)
    for i, (one, other) in enumerate(zip(given if isinstance(given, tuple) else [given], expected, strict=True)):
        assert one.shape == other.shape
        if rows is None:
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
            continue
        for image, count in enumerate(rows):
            part = (image, slice(count)) if i == 0 else (image, slice(None), slice(count))
            np.testing.assert_allclose(one[part], other[part], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_onnx_runtime(name: str, context: pumice.Context) -> None:
    check(context, CASES[name])


def attention(q: Array, k: Array, v: Array, bias: Any = 0.0) -> Array:
    """Attention of [batch, heads, seq, head_size], returned as [batch, seq, heads * head_size]."""
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + bias
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    made = shares / shares.sum(-1, keepdims=True) @ v
    return made.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)


def apart(rows: Array, heads: int = HEADS) -> Array:
    return rows.reshape(*rows.shape[:2], heads, -1).swapaxes(1, 2)


def test_queries_keys_and_values_in_one(context: pumice.Context) -> None:
    packed = random(BATCH, ROWS, HEADS, 3, SIZE)
    case = multi({"qkv": packed}, "qkv")
    expected = attention(*(packed[:, :, :, i].swapaxes(1, 2) for i in range(3)))
    np.testing.assert_allclose(pumice.load(case.model, context)(packed), expected, rtol=2e-5, atol=2e-5)
    both = random(BATCH, KEYS, HEADS, 2, SIZE, seed=1)
    case = multi({"q": Q, "kv": both, "m": np.array([4, 7], "int32")}, "q,kv,,,m")
    hidden = np.where(np.arange(KEYS) < np.array([[4], [7]]), 0.0, -1e4)[:, None, None]
    expected = attention(apart(Q), both[:, :, :, 0].swapaxes(1, 2), both[:, :, :, 1].swapaxes(1, 2), hidden)
    np.testing.assert_allclose(pumice.load(case.model, context)(**case.inputs), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("past", [0, PAST])
def test_a_mask_of_all_positions(context: pumice.Context, past: int) -> None:
    """The queries use the mask rows after the past, the keys its first past + seq_len columns."""
    mask = ids(BATCH, 1, 12, 12, below=2)
    mask[..., 0] = 1
    before = random(2, BATCH, HEADS, past, SIZE, seed=5)
    case = whole({"m": mask, "past": before}, "x,w,b,m,past", "y,present")
    weights, bias = random(10, 3 * W, seed=8), random(3 * W, seed=9)
    q, k, v = (apart(part) for part in np.split(case.inputs["x"] @ weights + bias, 3, axis=-1))
    keys, values = np.concatenate([before[0], k], 2), np.concatenate([before[1], v], 2)
    hidden = np.where(mask[:, :, past : past + ROWS, : past + ROWS], 0, -1e4)
    y, present = pumice.load(case.model, context)(**case.inputs)
    np.testing.assert_allclose(y, attention(q, keys, values, hidden), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(present, np.stack([keys, values]), rtol=2e-5, atol=2e-5)


# ---- RotaryEmbedding


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("single", [True, False])
def test_turns(context: pumice.Context, interleaved: int, flat: bool, single: bool) -> None:
    tables = {"cosines": random(9, SIZE // 2), "sines": random(9, SIZE // 2, seed=1)}
    x = random(BATCH, ROWS, W) if flat else random(BATCH, HEADS, ROWS, SIZE)
    at = np.array([3], "int64") if single else ids(BATCH, ROWS, below=9).astype("int64")
    check(context, Case("RotaryEmbedding", {"x": x, "at": at}, tables, interleaved=interleaved))


def test_part_of_each_head_is_rotated(context: pumice.Context) -> None:
    tables = {"cosines": random(9, 2), "sines": random(9, 2, seed=1)}
    inputs = {"x": random(BATCH, ROWS, W), "at": ids(BATCH, ROWS, below=9).astype("int64")}
    check(context, Case("RotaryEmbedding", inputs, tables, num_heads=HEADS, rotary_embedding_dim=4))


# ---- GroupQueryAttention

GROUPS, WIDE, MOST = 2, 16, 12  # KV heads, head size, KV cache capacity


def grouped(
    lengths: list[int],
    rows: int,
    past: int,
    *,
    packed: bool = False,
    more: dict[str, Array] | None = None,
    rotary: bool = False,
    **attributes: Any,
) -> Case:
    """`lengths`: total sequence length of each batch item; `past`: length of the given KV cache."""
    batch = len(lengths)
    q, k, v = (random(batch, rows, n * WIDE, seed=i) for i, n in enumerate((HEADS, GROUPS, GROUPS)))
    inputs = {"q": np.concatenate([q, k, v], -1)} if packed else {"q": q, "k": k, "v": v}
    inputs["past_k"] = random(batch, GROUPS, past, WIDE, seed=3)
    inputs["past_v"] = random(batch, GROUPS, past, WIDE, seed=4)
    inputs["lengths"] = np.array(lengths, "int32") - 1
    inputs["total"] = np.array(max(lengths), "int32")
    constants = {"cosines": random(MOST, WIDE // 2, seed=5), "sines": random(MOST, WIDE // 2, seed=6)} if rotary else {}
    inputs.update(more or {})
    order = ["q", *(["", ""] if packed else ["k", "v"]), "past_k", "past_v", "lengths", "total"]
    order += ["cosines", "sines"] if rotary else ["", ""]
    order += [name if name in inputs else "" for name in ("places", "bias", "sink")]
    attributes.update(num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=int(rotary))
    return Case("GroupQueryAttention", inputs, constants, "y,present_k,present_v", order=order, **attributes)


GROUPED: dict[str, tuple[Case, list[int] | None]] = {
    "prompt": (grouped([6, 6], 6, 0), None),
    "packed prompt": (grouped([6, 6], 6, 0, packed=True), None),
    "prompt of unequal lengths": (grouped([6, 4], 6, 0), [6, 4]),
    "prompt, rotary": (grouped([6, 6], 6, 0, rotary=True), None),
    "prompt of unequal lengths, rotary": (grouped([4, 6], 6, 0, rotary=True), [4, 6]),
    "packed prompt, interleaved": (grouped([6, 6], 6, 0, packed=True, rotary=True, rotary_interleaved=1), None),
    "prompt into a cache with room": (grouped([6, 6], 6, MOST), [6, 6]),
    "one more": (grouped([6, 6], 1, 5), None),
    "one more, rotary": (grouped([6, 6], 1, 5, rotary=True), None),
    "one more, packed": (grouped([6, 6], 1, 5, rotary=True, packed=True), None),
    "one more, room": (grouped([8, 8], 1, MOST, rotary=True), [8, 8]),
    "several more": (grouped([9], 3, 6, rotary=True), None),
    "several more, room": (grouped([9], 3, MOST, rotary=True), [9]),
    "window, prompt": (grouped([6, 6], 6, 0, local_window_size=2), None),
    "window, one more": (grouped([9, 9], 1, 8, local_window_size=3, rotary=True), None),
    "softcap": (grouped([6, 6], 6, 0, softcap=0.5), None),
    "scale": (grouped([6, 6], 1, 5, scale=0.7, softcap=2.0), None),
    "bias": (grouped([6, 6], 6, 0, more={"bias": random(2, HEADS, 6, 6, seed=9)}), None),
    "bias, one more": (grouped([7, 7], 1, 6, more={"bias": random(1, 1, 1, 7, seed=9)}), None),
    "sink of zeros": (grouped([6, 6], 6, 0, smooth_softmax=1), None),
    "sink": (grouped([6, 6], 6, 0, more={"sink": random(HEADS, seed=9)}), None),
    "sink, one more, softcap": (grouped([6, 6], 1, 5, more={"sink": random(HEADS, seed=9)}, softcap=0.7), None),
    "sink, window": (grouped([6, 6], 6, 0, more={"sink": random(HEADS, seed=9)}, local_window_size=2), None),
    "sink, window, one more": (
        grouped([9, 9], 1, 8, more={"sink": random(HEADS, seed=9)}, rotary=True, local_window_size=3),
        None,
    ),
    "sink, bias, window": (
        grouped(
            [6, 6],
            6,
            0,
            more={"sink": random(HEADS, seed=9), "bias": random(1, HEADS, 6, 6, seed=8)},
            local_window_size=4,
        ),
        None,
    ),
    "places": (
        grouped([6, 6], 6, 0, rotary=True, more={"places": np.tile(np.arange(6, dtype="int64"), (2, 1))}),
        None,
    ),
}


@pytest.mark.parametrize("name", GROUPED)
def test_grouped_heads_are_the_same_as_onnx_runtime(name: str, context: pumice.Context) -> None:
    check(context, *GROUPED[name])


@pytest.mark.parametrize("name", ["mask of lengths", "past, mask, bias", "whole, ends and begins", "whole, past"])
def test_sizes_that_are_not_known_before(name: str, context: pumice.Context) -> None:
    check(context, with_open_sizes(CASES[name]))


@pytest.mark.parametrize(("images", "count"), [(3, 1), (2, 3), (2, 6), (2, 8), (2, 0), (1, 3), (1, 5)])
def test_a_mask_of_another_length_is_rejected_when_it_is_known(
    images: int, count: int, context: pumice.Context
) -> None:
    loaded = pumice.load(with_open_sizes(CASES["whole, ends and begins"]).model, context)
    x = random(images, ROWS, 10)
    for fitting in (images, 2 * images):
        loaded(x=x, m=np.arange(fitting, dtype="int32"))
    with pytest.raises(pumice.Error, match="'attention/a mask of 1 or 2 numbers for each image"):
        loaded(x=x, m=np.arange(count, dtype="int32"))


def with_open_sizes(case: Case) -> Case:
    """Make all dimensions symbolic except the last axis, which matches the weights."""
    made = copy.copy(case)
    made.model = onnx.ModelProto.FromString(case.model.SerializeToString())
    for given in made.model.graph.input:
        for i, size in enumerate(given.type.tensor_type.shape.dim[: None if given.name in ("m", "more") else -1]):
            size.dim_param = f"{given.name}{i}"
    return made


def test_ranks_that_are_not_known_before(context: pumice.Context) -> None:
    case = copy.copy(CASES["bias"])
    case.model = onnx.ModelProto.FromString(case.model.SerializeToString())
    for given in case.model.graph.input[:3]:
        given.type.tensor_type.ClearField("shape")
    check(context, case)


def test_a_model_is_prompted_and_goes_on(context: pumice.Context) -> None:
    """Prefill and decode with one loaded model, with a growing and a static KV cache, equal one prefill of all tokens."""
    rows, prompt = 8, 5
    case = with_open_sizes(grouped([rows, rows], rows, 0, rotary=True))
    loaded = pumice.load(case.model, context)
    expected = loaded(**case.inputs)
    for room in (0, MOST):
        caches = {name: np.zeros((2, GROUPS, room, WIDE), np.float32) for name in ("past_k", "past_v")}
        begin = 0
        for end in (prompt, *range(prompt + 1, rows + 1)):
            now = {name: case.inputs[name][:, begin:end] for name in ("q", "k", "v")}
            counts = {"lengths": np.full(2, end - 1, np.int32), "total": np.array(end, np.int32)}
            y, *made = loaded(**now, **caches, **counts)
            caches = dict(zip(caches, made, strict=True))
            np.testing.assert_allclose(y, expected[0][:, begin:end], rtol=2e-5, atol=2e-5)
            assert made[0].shape[2] == max(end, room)
            begin = end
        for cache, whole_one in zip(caches.values(), expected[1:], strict=True):
            np.testing.assert_allclose(cache[:, :, :rows], whole_one, rtol=2e-5, atol=2e-5)


def test_images_of_unequal_lengths_go_on_each_from_its_own(context: pumice.Context) -> None:
    """In a static KV cache, each batch item has its own length."""
    case = grouped([9, 5, 7], 1, MOST, rotary=True, local_window_size=4)
    onnxruntime = pytest.importorskip("onnxruntime")
    expected = onnxruntime.InferenceSession(case.model.SerializeToString()).run(None, case.inputs)
    given = pumice.load(case.model, context)(**case.inputs)
    np.testing.assert_allclose(given[0], expected[0], rtol=2e-5, atol=2e-5)
    for one, other in zip(given[1:], expected[1:], strict=True):
        for image, length in enumerate([9, 5, 7]):
            np.testing.assert_allclose(one[image, :, :length], other[image, :, :length], rtol=2e-5, atol=2e-5)


def test_present_outputs_that_nothing_reads(context: pumice.Context) -> None:
    """They are required if there is a past, even if unused."""
    case = CASES["past"]
    unread = copy.deepcopy(case.model)
    del unread.graph.output[1:]
    results = []
    for proto in (case.model, unread):
        with pumice.load(proto, context) as loaded:
            results.append(loaded(*(case.inputs[one.name] for one in loaded.inputs)))
    np.testing.assert_array_equal(results[1], results[0][0])


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (grouped([6], 6, 0, qk_output=1), "qk_output=1"),
        (grouped([6], 6, 0, sliding_window_cache=1), "sliding_window_cache=1"),
        (whole({}, "x,w,b", do_rotary=1), "do_rotary=1"),
        (multi({**APART, "m": random(1, 1, 1, 1, 1)}, "q,k,v,,m"), "a mask of rank 5"),
        (multi({**APART, "m": np.arange(8, dtype="int32")}, "q,k,v,,m"), "a mask of 8 numbers for 2 images"),
        (multi({**APART, "at": np.array([1], "int32")}, "q,k,v,,,,,,at"), "the input 'past_sequence_length'"),
        (multi({**APART, **PASTS}, "q,k,v,,,,past_k,past_v"), "without the outputs present_key and present_value"),
        (multi({**APART, **PASTS}, "q,k,v,,,,past_k,past_v", "y,present_k"), "without the outputs present_key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_known_is_rejected_by_name(case: Case, reason: str, context: pumice.Context) -> None:
    expect_error(case, reason, context)
