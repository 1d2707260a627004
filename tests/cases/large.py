"""Shapes of real networks."""

from __future__ import annotations

from collections.abc import Iterator

from cases import integer_conv_gemm, recurrents
from cases.rows import EXACT, LOOSE, Case, case, fixed, w, x


def large() -> Iterator[Case]:
    """Shapes of real networks, for the --all tier."""
    bytes_of = integer_conv_gemm.bytes_of
    yield case(
        "MatMulInteger",
        "512, zero points",
        bytes_of(x, "uint8", 512, 512),
        bytes_of(w, "int8", 512, 512),
        fixed(7, "uint8"),
        large=True,
    )
    images, kernel = bytes_of(x, "uint8", 1, 64, 56, 56), bytes_of(w, "int8", 64, 64, 3, 3)
    yield case("ConvInteger", "64 to 64 at 56", images, kernel, fixed(7, "uint8"), pads=[1, 1, 1, 1], large=True)
    for op in recurrents.GATES:
        for units in (64, 256):
            note = f"{units} units, 100 steps"
            yield recurrents.layer(op, note, 100, 4, 64, units, largest=0.0625, large=True, fp16=(1e-2, 1e-2))
    for note, channels, size, filters, kernel, stride, pad in (
        ("SqueezeNet's first", 3, 224, 64, 3, 2, 0),
        ("SqueezeNet 64 to 16 at 55", 64, 55, 16, 1, 1, 0),
        ("SqueezeNet 16 to 64 at 55", 16, 55, 64, 3, 1, 1),
        ("SqueezeNet 32 to 128 at 27", 32, 27, 128, 3, 1, 1),
        ("SqueezeNet 64 to 256 at 13", 64, 13, 256, 3, 1, 1),
        ("SqueezeNet's last", 512, 13, 1000, 1, 1, 0),
        ("candy's first", 3, 200, 16, 9, 1, 4),
        ("candy's down", 32, 100, 64, 3, 2, 1),
        ("candy's residual", 64, 48, 64, 3, 1, 0),
        ("candy's last", 16, 180, 3, 9, 1, 4),
        ("MobileNet's pointwise", 128, 28, 256, 1, 1, 0),
    ):
        inputs = (x(1, channels, size, size), w(filters, channels, kernel, kernel), w(filters))
        yield case(
            "Conv",
            note,
            *inputs,
            strides=[stride, stride],
            pads=[pad] * 4,
            large=True,
            fp32=(1e-4, 2e-3),
            fp16=(2e-3, 0.2),
        )
    yield case(
        "Conv",
        "MobileNet's depthwise",
        x(1, 128, 56, 56),
        w(128, 1, 3, 3),
        w(128),
        group=128,
        pads=[1, 1, 1, 1],
        large=True,
        **LOOSE,
    )
    up = (x(1, 64, 45, 45), w(64, 32, 3, 3), w(32))
    yield case(
        "ConvTranspose",
        "candy's up",
        *up,
        strides=[2, 2],
        output_padding=[1, 1],
        large=True,
        fp32=(1e-4, 2e-3),
        fp16=(2e-3, 0.2),
    )
    yield case("MatMul", "512 cubed", x(512, 512), w(512, 512), large=True, fp32=(1e-4, 1e-3), fp16=(2e-3, 0.1))
    yield case(
        "Gemm",
        "4096 by 1000, one row",
        x(1, 4096),
        w(1000, 4096),
        w(1000),
        transB=1,
        large=True,
        fp32=(1e-4, 1e-3),
        fp16=(2e-3, 0.2),
    )
    yield case(
        "MaxPool", "SqueezeNet's first", x(1, 64, 111, 111), kernel_shape=[3, 3], strides=[2, 2], large=True, **EXACT
    )
    yield case("GlobalAveragePool", "SqueezeNet's", x(1, 1000, 13, 13), large=True)
    yield case(
        "InstanceNormalization",
        "candy's first",
        x(1, 16, 400, 400),
        w(16),
        w(16),
        large=True,
        fp32=(1e-4, 1e-4),
        fp16=(4e-3, 4e-3),
    )
    yield case("Softmax", "1000 classes, 64 rows", x(64, 1000), large=True)
    yield case("Add", "a million", x(1000, 1009), x(1000, 1009), large=True)
    yield case("Tanh", "a million", x(1000, 1009), large=True, fp16=(2e-3, 1e-3))
    yield case("Transpose", "a million", x(1000, 1009), large=True, **EXACT)
    yield case("ReduceSum", "a million", x(1000, 1009), large=True, fp32=(1e-4, 1e-1), fp16=(1.0, 1e3))
