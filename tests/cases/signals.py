"""Spectra of signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cases.rows import Case, case, fixed, w, x

SUMS: dict[str, Any] = {"fp32": (1e-5, 1e-4), "fp16": (3e-3, 6e-2)}


def transforms() -> Iterator[Case]:
    for length in (1, 2, 3, 8, 30, 64, 97, 400, 1024, 1030):
        yield case("DFT", f"real numbers, length {length}", x(2, length, 1), **SUMS)
    yield case("DFT", "complex numbers", x(3, 60, 2), **SUMS)
    yield case("DFT", "inverse", x(3, 60, 2), inverse=1, **SUMS)
    yield case("DFT", "one side, odd", x(3, 45, 1), onesided=1, **SUMS)
    yield case("DFT", "one side, even", x(3, 44, 1), onesided=1, **SUMS)
    yield case("DFT", "from one side", x(3, 23, 2), inverse=1, onesided=1, **SUMS)
    yield case("DFT", "from one side, odd", x(3, 23, 2), fixed(45), inverse=1, onesided=1, **SUMS)
    yield case("DFT", "the first axis", x(12, 5, 7, 2), None, fixed(0), **SUMS)
    yield case("DFT", "a middle axis, inverse", x(3, 35, 11, 2), None, fixed(1), inverse=1, **SUMS)
    yield case("DFT", "longer than the signal", x(3, 30, 1), fixed(37), **SUMS)
    yield case("DFT", "shorter than the signal, one side", x(3, 50, 1), fixed(32), onesided=1, **SUMS)
    yield case("DFT", "nothing", x(0, 8, 1))
    yield case("DFT", "many", x(64, 4096, 1), onesided=1, fp32=(1e-4, 1e-3), fp16=(1e-2, 0.5), large=True)


def short_transforms() -> Iterator[Case]:
    yield case("STFT", "a window", x(2, 128, 1), fixed(8), w(16), None, **SUMS)
    yield case("STFT", "a length", x(1, 67, 1), fixed(5), None, fixed(20), **SUMS)
    yield case("STFT", "a window and a length, both sides", x(3, 50, 1), fixed(7), w(10), fixed(10), onesided=0, **SUMS)
    yield case("STFT", "complex numbers", x(2, 40, 2), fixed(3), w(9), None, onesided=0, **SUMS)
    yield case("STFT", "speech", x(1, 16000, 1), fixed(160), w(400), None, fp32=(1e-4, 1e-3), large=True)


def mel_weights() -> Iterator[Case]:
    def bands(note: str, bins: int, length: int, rate: int, low: float, high: float) -> Case:
        return case(
            "MelWeightMatrix",
            note,
            fixed(bins),
            fixed(length),
            fixed(rate),
            fixed(low, "float32"),
            fixed(high, "float32"),
        )

    yield bands("a few", 8, 16, 8192, 0, 8192 / 2)
    yield bands("of speech", 80, 400, 16000, 20, 7600)
    yield bands("narrow ones", 40, 64, 16000, 0, 8000)
