"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Iterator

from cases.rows import Case, case, fixed, given, w, x

RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int4": (-8, 7),
    "uint4": (0, 15),
}


def quantizations() -> Iterator[Case]:
    scales = {"low": 0.03125, "high": 0.5}
    for dtype, (low, high) in RANGES.items():
        middle = fixed((low + high) // 2 + 1, dtype)
        data = x(3, 5, 7, low=-3, high=3)
        is_narrow = dtype.endswith("int4")  # programs have these types only internally, not as inputs or outputs
        make = w if is_narrow else x
        if not is_narrow:
            yield case("QuantizeLinear", f"{dtype}, one scale", data, fixed(0.0234375, "float32"), middle)
        zeros = w(5, dtype=dtype, low=low // 2, high=high // 2)
        if not is_narrow:
            yield case("QuantizeLinear", f"{dtype}, an axis", data, w(5, **scales), zeros)
        numbers = make(3, 5, 7, dtype=dtype, low=low, high=high)
        loose = {"fp32": (1e-6, 1e-6), "fp16": (1e-3, 1e-3)}
        yield case("DequantizeLinear", f"{dtype}, one scale", numbers, fixed(0.0234375, "float32"), middle, **loose)
        yield case("DequantizeLinear", f"{dtype}, an axis", numbers, w(5, **scales), zeros, **loose)
        blocks = w(3, 2, 7, **scales), w(3, 2, 7, dtype=dtype, low=low // 2, high=high // 2)
        yield case("DequantizeLinear", f"{dtype}, blocks", numbers, *blocks, block_size=3, **loose)
        if not is_narrow:
            yield case("QuantizeLinear", f"{dtype}, blocks", x(3, 6, 7), *blocks, block_size=3)
    yield case("QuantizeLinear", "no zero point", x(3, 37, low=0), fixed(0.0117, "float32"))
    yield case("QuantizeLinear", "the last axis", x(3, 37), w(37, **scales), w(37, dtype="int8", high=9), axis=-1)
    halves = given([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0])
    yield case("QuantizeLinear", "halves to even, saturation", halves, fixed(1.0, "float32"), fixed(3, "int8"))
    yield case("DequantizeLinear", "int32", x(3, 37, dtype="int32", low=-999, high=999), fixed(0.125, "float32"))
    yield case("DequantizeLinear", "nothing", x(0, 5, dtype="uint8"), fixed(0.125, "float32"))
