"""Sums, products, normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_nodes.maker import FLOATS, Maker, SkipError
from random_nodes.movement import axis_of
from random_nodes.table import makes

REAL = ("float32", "float32", "float32", "float16")


@makes(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
)
def reductions(m: Maker, op: str) -> None:
    kinds: tuple[str, ...] = (*FLOATS, "int32", "int64")
    if op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        kinds = FLOATS
    if op in ("ReduceMax", "ReduceMin"):
        kinds = (*kinds, "uint8", "int8")
    options: dict[str, Any] = {"ReduceLogSum": {"low": 0.125, "high": 20}, "ReduceProd": {"low": -3, "high": 3}}.get(
        op, {}
    )
    x = m.pick(kinds, 0, 5, nonempty=True, **options)
    inputs, attributes = [x], {"keepdims": m.one([None, 0, 1])}
    if m.chance(0.85) and x.rank:
        axes = [int(k) for k in m.random.choice(x.rank, m.whole(1, x.rank), replace=False)]
        told = [k if m.chance(0.6) else k - x.rank for k in axes]
        if op == "ReduceSum" or m.opset >= 18:
            inputs.append(m.list_of(told, computed=False))
        else:
            attributes["axes"] = told
    elif (op == "ReduceSum" or m.opset >= 18) and m.chance(0.3):
        attributes["noop_with_empty_axes"] = 1
    m.node(op, *inputs, **attributes)


@makes("CumSum CumProd")
def scans(m: Maker, op: str) -> None:
    high = 1e3 if op == "CumSum" else 2
    x = m.pick((*FLOATS, "int32", "int64"), 1, 4, low=-high, high=high)
    axis = m.constant(np.array(axis_of(m, x)[1], m.one(["int64", "int32"])))
    m.node(op, x, axis, exclusive=m.one([None, 1]), reverse=m.one([None, 1]))


@makes("Softmax LogSoftmax")
def softmax(m: Maker, op: str) -> None:
    x = m.pick(FLOATS, 1, 5, low=-30, high=30)
    m.node(op, x, axis=axis_of(m, x)[1] if m.chance(0.8) else None)


@makes("LpNormalization")
def lp_normalization(m: Maker, op: str) -> None:
    x = m.pick(REAL, 1, 4, low=0.125)
    m.node(op, x, axis=axis_of(m, x)[1], p=m.one([1, 2]))


@makes("LayerNormalization RMSNormalization")
def layer_normalization(m: Maker, op: str) -> None:
    x = m.pick(REAL, 1, 4, nonempty=True)
    axis, told = axis_of(m, x)
    sizes = x.sizes[axis:]
    if op == "LayerNormalization" and m.chance(0.3):
        sizes = [one if m.chance(0.6) else m.fixed(1)[0] for one in sizes]
    scale = m.leaf(x.dtype, sizes, 0.5, 2)
    bias = m.leaf(x.dtype, sizes) if m.chance(0.6) and op == "LayerNormalization" else None
    outputs = m.one([1, 1, 1, 3]) if op == "LayerNormalization" and x.dtype == "float32" else 1
    m.node(op, x, scale, bias, axis=told, epsilon=m.one([None, 0.1, 1e-3]), outputs=outputs)


@makes("InstanceNormalization BatchNormalization")
def channel_normalization(m: Maker, op: str) -> None:
    x = m.pick(REAL, 3 if op == "InstanceNormalization" else 2, 5, nonempty=True)
    channels = [x.sizes[1]]
    inputs = [m.leaf(x.dtype, channels, 0.5, 2), m.leaf(x.dtype, channels)]
    if op == "BatchNormalization":
        inputs += [m.leaf(x.dtype, channels), m.leaf(x.dtype, channels, 0.5, 4)]
    m.node(op, x, *inputs, epsilon=m.one([None, 0.1, 1e-3]))


@makes("GroupNormalization")
def group_normalization(m: Maker, op: str) -> None:
    groups, each = m.one([1, 2, 3]), m.one([1, 2, 4])
    x = m.pick(
        REAL, sizes=[m.size(), *m.fixed(groups * each), *[m.size() for _ in range(m.whole(1, 3))]], nonempty=True
    )
    if x.least == 0:
        raise SkipError("nothing to average")
    count = groups * each if m.opset >= 21 else groups
    inputs = [m.leaf(x.dtype, m.fixed(count), 0.5, 2), m.leaf(x.dtype, m.fixed(count))]
    m.node(op, x, *inputs, num_groups=groups, epsilon=m.one([None, 0.1]))


@makes("MeanVarianceNormalization")
def mvn(m: Maker, op: str) -> None:
    x = m.pick(("float32",), 4, 4, nonempty=True)
    m.node(op, x, axes=m.one([None, [0, 2, 3], [2, 3]]))


@makes("LRN")
def lrn(m: Maker, op: str) -> None:
    x = m.pick(("float32",), 4, 4, nonempty=True, low=-20, high=20)
    m.node(op, x, size=m.one([1, 3, 5]), alpha=m.one([None, 0.1]), beta=m.one([None, 0.5]), bias=m.one([None, 2.0]))


@makes("MatMul")
def matmul(m: Maker, op: str) -> None:
    a = m.pick((*FLOATS, "int32", "int64"), 1, 4, low=-60, high=60)
    depth = a.sizes[-1]
    batch = [size if m.chance(0.6) else m.fixed(1)[0] for size in a.sizes[:-2]][m.whole(0, max(a.rank - 2, 0)) :]
    sizes = [*batch, depth, m.size()] if m.chance(0.9) else [depth]
    b = m.pick(a.dtype, sizes=sizes, low=-60, high=60)
    if m.chance(0.2):
        turned = [*range(b.rank - 2), b.rank - 1, b.rank - 2]
        if b.rank > 1:
            (b,) = m.node(
                "Transpose", m.pick(a.dtype, sizes=[b.sizes[k] for k in turned], low=-60, high=60), perm=turned
            )
    m.node(op, a, b)


@makes("Gemm")
def gemm(m: Maker, op: str) -> None:
    a = m.pick((*FLOATS,), 2, 2, low=-60, high=60)
    flip_a, flip_b = m.chance(0.3), m.chance(0.3)
    rows, depth = (a.sizes[1], a.sizes[0]) if flip_a else (a.sizes[0], a.sizes[1])
    columns = m.size()
    b = m.pick(a.dtype, sizes=[columns, depth] if flip_b else [depth, columns], low=-60, high=60)
    one = m.fixed(1)[0]
    c_sizes = m.one([[], [columns], [rows, columns], [one, columns], [rows, one], [one]])
    c = m.pick(a.dtype, sizes=c_sizes) if m.chance(0.7) else None
    attributes: dict[str, Any] = {"transA": int(flip_a) or None, "transB": int(flip_b) or None}
    if m.chance(0.3):
        attributes.update(alpha=m.one([0.5, 2.0, 0.1]), beta=m.one([None, 0.5, 0.0]))
    m.node(op, a, b, c, **attributes)


EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bij,bkj->bik", "ij->ji", "ij->i", "ij->", "ii->i", "i,j->ij", "ij,ij->ij",
    "bhid,bhjd->bhij", "...ij,jk->...ik", "ij,jk,kl->il", "i,i->", "bij->bj", "ij,j->i", "...i->...", "bi,bj->bij", "ij,jk",
)  # fmt: skip


@makes("Einsum")
def einsum(m: Maker, op: str) -> None:
    equation = m.one(EQUATIONS)
    letters = {letter: m.size() for letter in "ijklbhd"}
    inputs = []
    dtype = m.one(["float32", "float32", "float64", "float16", "int64"])
    dots = [m.size() for _ in range(m.whole(0, 2))]
    for term in equation.split("->")[0].split(","):
        sizes = (
            [*dots, *[letters[one] for one in term[3:]]] if term.startswith("...") else [letters[one] for one in term]
        )
        inputs.append(m.pick(dtype, sizes=sizes, low=-20, high=20))
    m.node(op, *inputs, equation=equation)


@makes("Det")
def det(m: Maker, op: str) -> None:
    size = m.one([1, 2, 3, 4])
    m.node(op, m.pick(("float32", "float64"), sizes=[*m.shape(0, 2), *m.fixed(size, size)], low=-6, high=6))


@makes("DFT")
def dft(m: Maker, op: str) -> None:
    inverse = m.one([None, None, 1])
    sizes = [*m.shape(1, 2), *m.fixed(m.one([1, 2, 4, 5, 8]), 2 if inverse else m.one([1, 2]))]
    x = m.pick(("float32",), sizes=sizes, nonempty=True)
    onesided = 1 if not inverse and x.sizes[-1][0] == 1 and m.chance(0.5) else None
    axis = m.constant(np.array(x.rank - 2)) if m.opset >= 20 and m.chance(0.7) else None
    if m.opset < 20:
        m.node(op, x, axis=x.rank - 2, inverse=inverse, onesided=onesided)
        return
    length = m.constant(np.array(m.one([4, 6, 8]))) if m.chance(0.3) else None
    m.node(op, x, length, axis, inverse=inverse, onesided=onesided)


@makes("STFT")
def stft(m: Maker, op: str) -> None:
    batch, length = m.size(), m.one([8, 12, 16])
    x = m.leaf("float32", [batch, *m.fixed(length, 1)])
    frame = m.one([4, 8])
    window = m.leaf("float32", m.fixed(frame)) if m.chance(0.6) else None
    step = m.constant(np.array(m.one([2, 3, 4])))
    m.node(op, x, step, window, m.constant(np.array(frame)), onesided=m.one([None, 0, 1]))


@makes("MelWeightMatrix")
def mel(m: Maker, op: str) -> None:
    given = [m.constant(np.array(one)) for one in (m.one([4, 8]), m.one([16, 32]), 8000)]
    m.node(op, *given, *[m.constant(np.array(one, np.float32)) for one in (0.0, m.one([3000.0, 4000.0]))])


@makes("RotaryEmbedding")
def rotary(m: Maker, op: str) -> None:
    heads, half = m.one([1, 2, 4]), m.one([1, 2, 4])
    batch, steps = m.size(), m.size()
    dtype = m.one(["float32", "float32", "float16"])
    attributes: dict[str, Any] = {"interleaved": m.one([None, 0, 1])}
    if m.chance(0.5):
        x = m.pick(dtype, sizes=[batch, m.fixed(heads)[0], steps, m.fixed(2 * half)[0]])
    else:
        x = m.pick(dtype, sizes=[batch, steps, m.fixed(2 * half * heads)[0]])
        attributes["num_heads"] = heads
    if m.chance(0.5):
        sizes = [batch, steps, m.fixed(half)[0]]
        caches = [m.leaf(dtype, sizes, -1, 1) for _ in range(2)]
        m.node(op, x, *caches, **attributes)
    else:
        caches = [m.leaf(dtype, m.fixed(8, half), -1, 1) for _ in range(2)]
        places = m.leaf("int64", [batch, steps], 0, 7)
        m.node(op, x, *caches, places, **attributes)


@makes("Attention")
def attention(m: Maker, op: str) -> None:
    heads, groups = m.one([1, 2]), m.one([1, 1, 2])
    batch, rows, columns = m.size(), m.size(), m.size()
    width, width_v = m.one([2, 4, 8]), m.one([2, 4, 8])
    dtype = m.one(["float32", "float32", "float16"])
    if m.chance(0.6):
        q = m.pick(dtype, sizes=[batch, m.fixed(heads * groups)[0], rows, m.fixed(width)[0]], low=-6, high=6)
        k = m.pick(dtype, sizes=[batch, m.fixed(heads)[0], columns, m.fixed(width)[0]], low=-6, high=6)
        v = m.pick(dtype, sizes=[batch, m.fixed(heads)[0], columns, m.fixed(width_v)[0]], low=-6, high=6)
        attributes: dict[str, Any] = {}
    else:
        q = m.pick(dtype, sizes=[batch, rows, m.fixed(heads * groups * width)[0]], low=-6, high=6)
        k = m.pick(dtype, sizes=[batch, columns, m.fixed(heads * width)[0]], low=-6, high=6)
        v = m.pick(dtype, sizes=[batch, columns, m.fixed(heads * width_v)[0]], low=-6, high=6)
        attributes = {"q_num_heads": heads * groups, "kv_num_heads": heads}
    if min(q.least, k.least, v.least) == 0:
        raise SkipError("no rows")
    mask = None
    kind = m.random.random()
    if kind < 0.3:
        mask = m.leaf(dtype, [rows, columns])
    elif kind < 0.4:
        mask = m.leaf(dtype, [batch, m.fixed(1)[0], rows, columns])
    elif kind < 0.6:
        attributes["is_causal"] = 1
    if m.chance(0.2):
        attributes["scale"] = 0.5
    if m.chance(0.15):
        attributes["softcap"] = 2.0
    m.node(op, q, k, v, mask, **attributes)
