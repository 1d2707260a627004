"""Elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from random_nodes.maker import ALL, FLOATS, INTEGERS, Maker, Value
from random_nodes.table import makes

NUMBERS = (*FLOATS, *INTEGERS)
SIGNED = (*FLOATS, "int64", "int32", "int16", "int8")


@makes("Acos Asin Atanh")
def inverses(m: Maker, op: str) -> None:
    m.node(op, m.pick(FLOATS, low=-0.9, high=0.9))


@makes("Acosh")
def acosh(m: Maker, op: str) -> None:
    m.node(op, m.pick(FLOATS, low=1.125, high=100))


@makes("Log Sqrt Reciprocal")
def of_positive(m: Maker, op: str) -> None:
    m.node(op, m.pick(FLOATS, low=0.125, high=1e3))


@makes("Exp Sinh Cosh")
def steep(m: Maker, op: str) -> None:
    m.node(op, m.pick(FLOATS, low=-6, high=6))


@makes("Tan")
def tangent(m: Maker, op: str) -> None:
    m.node(op, m.pick(FLOATS, low=-1.25, high=1.25))


@makes(
    "Asinh Atan Celu Cos Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish Selu Sigmoid Sin Softplus Softsign Swish Tanh"
)
def smooth(m: Maker, op: str) -> None:
    attributes: dict[str, Any] = {}
    x = m.pick(FLOATS, low=-60, high=60)
    if op in ("Celu", "Elu", "LeakyRelu", "Swish") and m.chance(0.5):
        attributes["alpha"] = m.one([0.5, 0.1, 2.0, 1.0])
    if op == "Selu" and m.chance(0.3):
        attributes.update(alpha=1.5, gamma=0.75)
    if op == "HardSigmoid" and m.chance(0.5):
        attributes.update(alpha=m.one([0.25, 0.1]), beta=m.one([0.5, 0.375]))
    if op == "Gelu" and m.chance(0.5):
        attributes["approximate"] = "tanh"
    m.node(op, x, **attributes)


@makes("Floor Ceil Round")
def steps(m: Maker, op: str) -> None:
    m.node(op, m.pick(FLOATS, exact=True))


@makes("Abs Sign")
def of_numbers(m: Maker, op: str) -> None:
    m.node(op, m.pick(NUMBERS, exact=op == "Sign"))


@makes("Neg Relu")
def of_signed(m: Maker, op: str) -> None:
    m.node(op, m.pick(SIGNED))


@makes("IsInf IsNaN")
def of_special(m: Maker, op: str) -> None:
    x = m.pick(FLOATS, exact=True)
    if m.chance(0.6):
        zero = m.constant(np.zeros([1] * max(x.rank, 1), x.dtype))
        mark = m.mark()
        try:
            (x,) = m.node("Div", x, zero, wild=True)
        finally:
            for one in list(m.values[mark[1] :]):
                m.values.remove(one)  # nothing else may read infinities
    attributes = {"detect_negative": 0} if op == "IsInf" and m.chance(0.3) else {}
    m.node(op, x, **attributes)


@makes("Add Sub Mul")
def arithmetic(m: Maker, op: str) -> None:
    x = m.pick(NUMBERS)
    a, b = (x, m.beside(x))
    if m.chance(0.3):
        a, b = b, a
    m.node(op, a, b)


@makes("Div")
def division(m: Maker, op: str) -> None:
    x = m.pick(NUMBERS)
    low = 1 if np.dtype(x.dtype).kind in "iu" else 0.125
    m.node(op, x, m.beside(x, low=low, high=100))


@makes("Mod")
def remainder(m: Maker, op: str) -> None:
    x = m.pick(NUMBERS, exact=True)
    floats = np.dtype(x.dtype).kind == "f"
    y = m.beside(x, exact=True, low=1 if not floats else 0.125, high=100)
    m.node(op, x, y, exact=True, fmod=1 if floats or m.chance(0.3) else None)


@makes("Pow")
def power(m: Maker, op: str) -> None:
    if m.chance(0.25):
        x = m.pick(("int32", "int64"), low=-6, high=6)
        y = m.beside(x, m.one(["int32", "int64", x.dtype]), low=0, high=4)
    else:
        x = m.pick(("float32", "float32", "float16"), low=0.125, high=8)
        y = m.beside(x, m.one([x.dtype, x.dtype, "int32", "float32"]), low=-3, high=3)
        if m.chance(0.4):
            y = m.constant(np.array(m.one([2, 3, 0.5, -1, 1, 0]), x.dtype))
    m.node(op, x, y)


@makes("Max Min Sum Mean")
def several(m: Maker, op: str) -> None:
    x = m.pick(FLOATS if op in ("Sum", "Mean") else NUMBERS)
    more = [m.beside(x) for _ in range(m.one([0, 1, 1, 1, 2, 3]))]
    m.node(op, x, *more, exact=None if op != "Sum" or len(more) > 1 else x.exact and all(one.exact for one in more))


@makes("Clip")
def clip(m: Maker, op: str) -> None:
    x = m.pick(NUMBERS)
    low = m.pick(x.dtype, sizes=[], low=0, high=1) if m.chance(0.7) else None
    high = m.pick(x.dtype, sizes=[], low=2, high=5) if m.chance(0.7) else None
    m.node(op, x, low, high)


@makes("PRelu")
def prelu(m: Maker, op: str) -> None:
    x = m.pick(FLOATS)
    sizes = [size if m.chance(0.5) else m.fixed(1)[0] for size in x.sizes]
    m.node(op, x, m.pick(x.dtype, sizes=sizes))


@makes("Shrink ThresholdedRelu")
def thresholds(m: Maker, op: str) -> None:
    x = m.pick(FLOATS, exact=True)
    attributes = {"lambd": 1.5, "bias": m.one([0.0, 0.5])} if op == "Shrink" else {"alpha": m.one([1.0, 0.75])}
    m.node(op, x, **attributes)


@makes("Less LessOrEqual Greater GreaterOrEqual Equal")
def comparisons(m: Maker, op: str) -> None:
    x = m.pick((*NUMBERS, "bool") if op == "Equal" else NUMBERS, exact=True)
    m.node(op, x, m.beside(x, exact=True))


@makes("And Or Xor Not")
def logic(m: Maker, op: str) -> None:
    x = m.pick("bool")
    m.node(op, x, *([] if op == "Not" else [m.beside(x)]))


@makes("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot")
def bits(m: Maker, op: str) -> None:
    x = m.pick(INTEGERS)
    m.node(op, x, *([] if op == "BitwiseNot" else [m.beside(x)]))


@makes("BitShift")
def shift(m: Maker, op: str) -> None:
    x = m.pick(("uint8", "uint16", "uint32", "uint64"))
    m.node(op, x, m.beside(x, low=0, high=7), direction=m.one(["LEFT", "RIGHT"]))


@makes("Where")
def where(m: Maker, op: str) -> None:
    x = m.pick(ALL)
    m.node(op, m.beside(x, "bool"), x, m.beside(x))


def castable(m: Maker, x: Value) -> list[str]:
    """Return the types that can represent its elements; other casts are undefined."""
    negative = x.dtype != "bool" and any((one < 0).any() for one in x.data)
    large = x.dtype != "bool" and any((np.abs(one.astype(np.float64)) > 120).any() for one in x.data)
    floats = np.dtype(x.dtype).kind == "f"
    return [
        t
        for t in (*ALL, "bool")
        if not (t[0] == "u" and negative and floats) and not (large and t in ("int8", "uint8"))
    ]


@makes("Cast CastLike")
def cast(m: Maker, op: str) -> None:
    x = m.pick(ALL)
    targets = castable(m, x)
    if not x.exact:
        targets = ["float32", "float16", "float64"]
    target = m.one(targets)
    if op == "Cast":
        m.node(op, x, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
    else:
        m.node(op, x, m.pick(target))


@makes("BitCast")
def bit_cast(m: Maker, op: str) -> None:
    widths = [
        ("float32", "int32", "uint32"),
        ("float16", "int16", "uint16"),
        ("float64", "int64", "uint64"),
        ("int8", "uint8"),
    ]
    group = m.one(widths)
    x = m.pick(group, exact=True)
    to = m.one([one for one in group if np.dtype(one).kind != "f"])
    m.node(op, x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@makes("Dropout Identity")
def passing(m: Maker, op: str) -> None:
    if op == "Identity":
        m.node(op, m.pick(ALL))
    else:
        m.node(op, m.pick(("float32", "float32", "float16")), outputs=m.one([1, 1, 2]))


@makes("Range")
def ranges(m: Maker, op: str) -> None:
    dtype = m.one(["int64", "int32", "float32", "int16"])
    start, count, delta = m.whole(-3, 3), m.one([1, 2, 3, 5, 8]), m.one([1, 2, -1])
    if m.symbolic and m.chance(0.6) and dtype == "int64":
        x = m.pick(ALL, 1, 4)
        axis = m.whole(0, x.rank - 1)
        (shape,) = m.node("Shape", x)
        (end,) = m.node("Gather", shape, m.constant(np.array(axis)))
        m.node(op, m.constant(np.array(0)), end, m.constant(np.array(1)))
        return
    scalars = [m.list_of(one, dtype) for one in (start, start + delta * count, delta)]  # type: ignore[arg-type]
    m.node(op, *scalars)


@makes("EyeLike")
def eye(m: Maker, op: str) -> None:
    x = m.pick(("float32", "float64", "int32", "int64", "uint8"), 2, 2)
    to = m.one([None, "float32", "int64", "int32"])
    m.node(op, x, k=m.one([None, 1, -1, 2]), dtype=helper.np_dtype_to_tensor_dtype(np.dtype(to)) if to else None)


@makes("Shape Size")
def sizes(m: Maker, op: str) -> None:
    x = m.pick(ALL)
    attributes: dict[str, Any] = {}
    if op == "Shape" and m.chance(0.4):
        attributes = {"start": m.one([0, 1, -1, -2]), "end": m.one([None, -1, 2, 9])}
    m.node(op, x, **attributes)


@makes("Constant ConstantOfShape")
def constants(m: Maker, op: str) -> None:
    dtype = m.one(["float32", "int64", "int32", "float16", "bool", "uint8", "float64"])
    if op == "Constant":
        sizes = [m.one([1, 2, 3, 4]) for _ in range(m.whole(0, 3))]
        m.node(op, value=_tensor(m.array(dtype, sizes, -6, 6, True)))
        return
    if m.symbolic and m.chance(0.6):
        (shape,) = m.node("Shape", m.pick(ALL, 0, 4))
    else:
        shape = m.list_of([m.one([1, 2, 3, 4]) for _ in range(m.whole(0, 4))])
    m.node(op, shape, value=_tensor(m.array(dtype, [1], -6, 6, True)) if m.chance(0.8) else None)


def _tensor(array: Any) -> Any:
    return numpy_helper.from_array(np.asarray(array))
