"""Elementwise operators and Cast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.rows import EXACT, SPECIAL, Case, case, fixed, given, w, x


def maps() -> Iterator[Case]:
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        second = x(5, 37, low=0.5, high=2) if op == "Div" else x(5, 37)
        yield case(op, "same shapes", x(5, 37), second)
    yield case("Add", "a channel's constant", x(2, 3, 5, 7), w(1, 3, 1, 1))
    yield case("Mul", "one number", x(3, 5, 7), fixed(0.5, "float32"))
    yield case("Add", "both broadcast", x(3, 1, 7), x(1, 5, 1))
    yield case("Add", "rank 0", fixed(1.25, "float32"), given(2.5))
    yield case("Add", "nothing", x(0, 3), x(0, 3))
    yield case("Add", "one element past a workgroup of fours", x(257), x(257))
    yield case("Add", "five axes, every other broadcast", x(3, 1, 5, 1, 7), x(1, 2, 1, 3, 1))
    yield case("Sub", "integers", x(5, 7, dtype="int32", low=-99, high=99), x(7, dtype="int32", low=-99, high=99))
    yield case(
        "Mul",
        "64-bit integers",
        x(5, 7, dtype="int64", low=-99, high=99),
        x(7, dtype="int64", low=-(2**40), high=2**40),
    )
    yield case("Add", "bytes wrap", x(5, 7, dtype="uint8", low=0, high=255), x(5, 7, dtype="uint8", low=0, high=255))
    yield case(
        "Div", "integers truncate", x(5, 7, dtype="int32", low=-99, high=99), x(5, 7, dtype="int32", low=1, high=9)
    )
    for op in ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Exp", "Erf", "Floor", "Ceil", "Round", "Sign"):
        yield case(op, "odd shape", x(3, 5, 7), fp16=(2e-3, 1e-3))
        yield case(op, "special numbers", given(SPECIAL), fp16=(2e-3, 1e-3))
    yield case("Sqrt", "special numbers", given(SPECIAL), fp16=(2e-3, 1e-3))
    yield case("Log", "odd shape", x(3, 5, 7, low=0.25, high=2), fp16=(2e-3, 1e-3))
    yield case("Reciprocal", "odd shape", x(3, 5, 7, low=0.25, high=2), fp16=(2e-3, 1e-3))
    yield case("Pow", "squares of negative numbers", x(5, 7), fixed(2.0, "float32"), fp16=(2e-3, 4e-3))
    yield case("LeakyRelu", "slope", x(3, 37), alpha=0.125)
    yield case("Elu", "odd shape", x(3, 37), alpha=0.5, fp16=(2e-3, 1e-3))
    yield case("HardSigmoid", "odd shape", x(3, 37), fp16=(2e-3, 1e-3))
    yield case("Softplus", "odd shape", x(3, 37), fp16=(2e-3, 1e-3))
    yield case("PRelu", "a slope a channel", x(2, 3, 5, 5), w(3, 1, 1))
    yield case("Clip", "both ends", x(3, 37), fixed(-0.5, "float32"), fixed(1.0, "float32"))
    yield case("Clip", "special numbers", given(SPECIAL), fixed(0.0, "float32"), fixed(6.0, "float32"))
    yield case("Clip", "one end", x(3, 37), None, fixed(0.5, "float32"))
    yield case("Equal", "integers", x(5, 7, dtype="int32", low=0, high=2), x(7, dtype="int32", low=0, high=2))
    yield case("Less", "floats", x(5, 37), x(5, 37))
    yield case("Greater", "NaN is not", given(SPECIAL), fixed(0.0, "float32"))
    yield case("And", "booleans", x(5, 7, dtype="bool"), x(7, dtype="bool"))
    yield case("Not", "booleans", x(5, 7, dtype="bool"))
    yield case("Where", "broadcast", x(5, 1, dtype="bool"), x(5, 7), x(7))
    yield case("Identity", "odd shape", x(3, 5, 7), **EXACT)


def elementary() -> Iterator[Case]:
    """Unary functions over their domain and at special values."""
    for op, low, high in (
        ("Sin", -2, 2),
        ("Cos", -2, 2),
        ("Tan", -1, 1),
        ("Asin", -1, 1),
        ("Acos", -1, 1),
        ("Atan", -2, 2),
        ("Sinh", -2, 2),
        ("Cosh", -2, 2),
        ("Asinh", -2, 2),
        ("Acosh", 1.25, 30),
        ("Atanh", -0.875, 0.875),
        ("Softsign", -2, 2),
        ("Mish", -2, 2),
        ("HardSwish", -4, 4),
        ("Gelu", -3, 3),
        ("Selu", -3, 3),
        ("Celu", -3, 3),
        ("ThresholdedRelu", -3, 3),
    ):
        yield case(op, "odd shape", x(3, 5, 7, low=low, high=high), fp16=(2e-3, 2e-3))
    yield case("Gelu", "tanh", x(3, 37, low=-4, high=4), approximate="tanh", fp16=(2e-3, 2e-3))
    yield case("Celu", "alpha", x(3, 37), alpha=0.5)
    yield case("ThresholdedRelu", "alpha", given([0.25, 0.5, 0.75, -1.0, np.inf]), alpha=0.5, **EXACT)
    yield case("IsNaN", "special numbers", given(SPECIAL))
    yield case("IsInf", "special numbers", given(SPECIAL))
    yield case("IsInf", "negative alone", given(SPECIAL), detect_positive=0)
    small = {"low": 0, "high": 3}
    yield case("Mod", "integers, the sign of the divisor", x(5, 7, dtype="int32", low=-9, high=9), fixed([-4], "int32"))
    yield case("Mod", "floats, the sign of the dividend", x(5, 7), fixed(0.75, "float32"), fmod=1, **EXACT)
    yield case("LessOrEqual", "integers", x(5, 7, dtype="int32", **small), x(7, dtype="int32", **small))
    yield case("GreaterOrEqual", "integers", x(5, 7, dtype="int64", **small), x(7, dtype="int64", **small))
    yield case("GreaterOrEqual", "NaN is not", given(SPECIAL), fixed(0.0, "float32"))
    yield case("Or", "booleans", x(5, 7, dtype="bool"), x(7, dtype="bool"))
    yield case("Xor", "booleans", x(5, 7, dtype="bool"), x(7, dtype="bool"))
    yield case("Sum", "three, broadcast", x(3, 5, 7), x(5, 1), x(7))
    yield case("Sum", "one", x(3, 5), **EXACT)
    yield case("Sum", "six", *[x(3, 5) for _ in range(6)], fp16=(2e-3, 4e-3))
    yield case("Max", "five", *[x(3, 5) for _ in range(5)], **EXACT)


def more_maps() -> Iterator[Case]:
    yield case("Swish", "odd shape", x(3, 5, 7, low=-4, high=4), alpha=1.5, fp16=(2e-3, 2e-3))
    yield case("Swish", "special numbers", given([np.nan, np.inf, -0.0, 0.0, 1.0]))
    yield case("Shrink", "hard", given(SPECIAL), **EXACT)
    yield case("Shrink", "soft", x(3, 37), lambd=0.75, bias=0.75)
    yield case("Mean", "three, broadcast", x(3, 5, 7), x(5, 1), x(7))
    yield case("Mean", "one", x(3, 5), **EXACT)
    for dtype, low, high in (
        ("uint8", 0, 255),
        ("int16", -999, 999),
        ("int32", -(2**31), 2**31 - 1),
        ("int64", -99, 99),
    ):
        yield case("BitwiseNot", dtype, x(5, 7, dtype=dtype, low=low, high=high))
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            pair = x(5, 7, dtype=dtype, low=low, high=high), x(7, dtype=dtype, low=low, high=high)
            yield case(op, f"{dtype}, broadcast", *pair)
    for dtype, most in (("uint8", 255), ("uint16", 65535), ("uint32", 2**32 - 1), ("uint64", 2**40)):
        for direction in ("LEFT", "RIGHT"):
            amount = given([0, 1, 5, 7, 3], dtype)
            yield case(
                "BitShift", f"{dtype}, {direction}", x(3, 5, dtype=dtype, high=most, low=0), amount, direction=direction
            )
    yield case(
        "BitShift", "by all bits", given([1, 2, 0xFFFFFFFF], "uint32"), fixed([32, 31, 40], "uint32"), direction="LEFT"
    )
    for dtype in ("int8", "int16", "int32", "int64"):
        for direction in ("LEFT", "RIGHT"):
            amount = given([0, 1, 5, 70, -1], dtype)
            yield case(
                "BitShift",
                f"{dtype}, {direction}",
                x(3, 5, dtype=dtype, high=100, low=-100),
                amount,
                direction=direction,
            )
    yield case("CastLike", "to integers", x(5, 7, low=-30, high=30), x(3, dtype="int32"))
    yield case("CastLike", "to floats", x(5, 7, dtype="int64", low=-30, high=30), x(1, 3))
    yield case("CastLike", "to booleans", x(5, 7, dtype="int32", low=-1, high=1), x(2, dtype="bool"))


def doubles() -> Iterator[Case]:
    """Elementwise operators that compute in float64."""
    tight = {"fp32": (1e-15, 1e-15)}
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum"):
        yield case(
            op, "doubles", x(5, 37, dtype="float64", low=0.5, high=2), x(37, dtype="float64", low=0.5, high=2), **tight
        )
    for op in (
        "Exp",
        "Tanh",
        "Sin",
        "Cos",
        "Sigmoid",
        "Sqrt",
        "Reciprocal",
        "Floor",
        "Ceil",
        "Round",
        "Abs",
        "Neg",
        "Sign",
        "Relu",
        "Softsign",
    ):
        yield case(
            op,
            "doubles",
            x(5, 37, dtype="float64", low=0.25 if op in ("Sqrt", "Reciprocal") else -9, high=9),
            fp32=(2e-15, 1e-15),
        )
        numbers = [n for n in SPECIAL if np.isfinite(n)] if op in ("Sin", "Cos") else [*SPECIAL, 1e300, 1e-300, -1e300]
        yield case(op, "special doubles", given(numbers, "float64"), fp32=(2e-15, 1e-15))
    ranges: dict[str, tuple[float, float]] = {"Log": (0.015625, 9), "Acosh": (1, 9)}
    ranges |= dict.fromkeys(("Asin", "Acos", "Atanh"), (-0.984375, 0.984375))
    trigonometric = ("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")
    bent = (
        "LeakyRelu",
        "ThresholdedRelu",
        "Elu",
        "Celu",
        "Selu",
        "HardSigmoid",
        "HardSwish",
        "Gelu",
        "Swish",
        "Shrink",
    )
    for op in ("Log", "Erf", "Softplus", "Mish", *trigonometric, *bent):
        low, high = ranges.get(op, (-9, 9))
        # Attributes are float32, and so are some of the references.
        close = {"fp32": (2e-7, 2e-7) if op in bent else (1e-14, 1e-14)}
        yield case(op, "doubles", x(5, 137, dtype="float64", low=low, high=high), **close)
        numbers = [n for n in SPECIAL if np.isfinite(n) and abs(n) < 1e4] if op == "Tan" else [*SPECIAL, 3.25, -5.5]
        if op == "ThresholdedRelu":  # propagates NaN
            numbers = numbers[1:]
        yield case(op, "special doubles", given(numbers, "float64"), **close)
    yield case(
        "Log", "small and large doubles", given([5e-324, 1e-310, 1e-300, 1e300, 1.0 + 2.0**-50], "float64"), **tight
    )
    yield case("Gelu", "doubles, by tanh", x(5, 37, dtype="float64"), approximate="tanh", fp32=(2e-7, 2e-7))
    yield case("Elu", "doubles, a factor", x(5, 37, dtype="float64"), alpha=0.25, fp32=(1e-14, 1e-14))
    yield case("PRelu", "doubles", x(5, 37, dtype="float64"), x(37, dtype="float64"), **tight)
    yield case("Mod", "doubles", x(5, 37, dtype="float64"), fixed(0.75, "float64"), fmod=1, **tight)
    for op in ("Less", "Equal", "GreaterOrEqual"):
        yield case(op, "doubles", x(5, 37, dtype="float64"), x(37, dtype="float64"))
    yield case("Where", "doubles", x(5, 1, dtype="bool"), x(5, 7, dtype="float64"), x(7, dtype="float64"))
    yield case("Clip", "doubles", x(5, 7, dtype="float64"), fixed(-0.1, "float64"), fixed(0.3, "float64"))
    yield case("IsNaN", "doubles", given(SPECIAL, "float64"))
    yield case("IsInf", "doubles", given(SPECIAL, "float64"))
    for target in ("float32", "int32", "int64", "bool", "float16"):
        yield case("Cast", f"float64 to {target}", x(5, 7, dtype="float64", low=-30, high=30), to=ONNX_TYPES[target])
    for source in ("float32", "int32", "int64", "bool", "uint8"):
        yield case("Cast", f"{source} to float64", x(5, 7, dtype=source, low=0, high=30), to=ONNX_TYPES["float64"])


def ranges() -> Iterator[Case]:
    for dtype in ("int16", "int32", "int64", "float32", "float64"):
        yield case("Range", f"{dtype}, up", fixed(3, dtype), fixed(17, dtype), fixed(4, dtype), **EXACT)
        yield case("Range", f"{dtype}, down", fixed(5, dtype), fixed(-7, dtype), fixed(-3, dtype), **EXACT)
        yield case("Range", f"{dtype}, nothing", fixed(5, dtype), fixed(5, dtype), fixed(2, dtype))
        many = fixed(0, dtype), fixed(5003, dtype), fixed(1, dtype)  # more elements than the host folds
        yield case("Range", f"{dtype}, many", *many, fp16=(1e-3, 1e-3))
    yield case("Range", "fractions", fixed(0.5, "float32"), fixed(2.5, "float32"), fixed(0.25, "float32"))
    yield case("Range", "64 bits", *(fixed(n, "int64") for n in (2**40, 2**40 + 6000 * 2**33, 2**33)))


ONNX_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}


def casts() -> Iterator[Case]:
    for source, low, high, targets in (
        ("float32", -30, 30, ("int32", "int8", "int64", "float16", "bool")),
        ("float32", 0, 31, ("uint8", "uint16", "uint32")),
        ("int32", -100, 100, ("float32", "int64", "int8", "bool", "float16")),
        ("int64", -100, 100, ("int32", "float32", "bool")),
        ("uint8", 0, 255, ("float32", "int32", "int64")),
        ("float16", -30, 30, ("float32", "int32")),
        ("bool", 0, 1, ("float32", "int32", "int64", "uint8")),
    ):
        for target in targets:
            yield case(
                "Cast", f"{source} to {target}", x(3, 37, dtype=source, low=low, high=high), to=ONNX_TYPES[target]
            )
