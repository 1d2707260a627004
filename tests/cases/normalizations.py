"""Normalisations and Softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.rows import EXACT, Case, case, given, w, x


def normalizations() -> Iterator[Case]:
    norm = {"fp32": (1e-4, 1e-4), "fp16": (4e-3, 4e-3)}
    yield case("Softmax", "rows", x(3, 37))
    yield case("Softmax", "the first axis", x(7, 5), axis=0)
    yield case("Softmax", "a middle axis", x(2, 11, 3, 5), axis=1)
    yield case("Softmax", "one element a row", x(5, 1))
    yield case("Softmax", "a long row", x(2, 1031))
    for op in ("Softmax", "LogSoftmax"):
        close = {"fp32": (1e-14, 1e-14)}
        yield case(op, "doubles", x(3, 37, dtype="float64"), **close)
        yield case(op, "doubles, a middle axis", x(2, 11, 3, 5, dtype="float64", low=-9, high=9), axis=1, **close)
        yield case(op, "doubles, minus infinity", given([[-np.inf, 0.0, 1.0], [300.0, 300.0, 0.0]], "float64"), **close)
    yield case("Softmax", "large numbers", given([[60000.0, 59968.0, -60000.0], [-60000.0, -60032.0, -59968.0]]))
    yield case("Softmax", "minus infinity beside numbers", given([[-np.inf, 0.0, 1.0], [-np.inf, -np.inf, 2.0]]))
    yield case("LogSoftmax", "rows", x(3, 37), fp16=(1e-3, 4e-3))
    yield case("LogSoftmax", "a middle axis", x(2, 11, 3), axis=1, fp16=(1e-3, 4e-3))
    yield case("InstanceNormalization", "batch 3", x(3, 5, 7, 11), w(5), w(5), **norm)
    yield case("InstanceNormalization", "channels in fours", x(1, 16, 13, 12), w(16), w(16), epsilon=1e-3, **norm)
    yield case("InstanceNormalization", "one axis", x(2, 3, 101), w(3), w(3), **norm)
    yield case(
        "InstanceNormalization",
        "a large mean",
        x(1, 3, 17, 19, low=998, high=1002),
        w(3),
        w(3),
        fp32=(1e-3, 1e-3),
        fp16=(1.0, 1.0),
    )
    yield case("InstanceNormalization", "a large plane", x(1, 2, 211, 199), w(2), w(2), **norm)
    yield case("BatchNormalization", "batch 3", x(3, 5, 7, 11), w(5), w(5), w(5), w(5, low=0.25, high=2), **norm)
    yield case("BatchNormalization", "rank 2", x(3, 8), w(8), w(8), w(8), w(8, low=0.25, high=2), **norm)
    yield case(
        "BatchNormalization",
        "channels in fours",
        x(1, 8, 5, 5),
        w(8),
        w(8),
        w(8),
        w(8, low=0.25, high=2),
        epsilon=1e-2,
        **norm,
    )
    yield case("LayerNormalization", "rows", x(3, 37), w(37), w(37), **norm)
    yield case("LayerNormalization", "two axes, no bias", x(3, 5, 7), w(5, 7), axis=1, **norm)
    yield case("LayerNormalization", "statistics", x(3, 5, 7), w(5, 7), w(5, 7), axis=1, outputs=3, **norm)
    yield case("LayerNormalization", "a scale that broadcasts", x(3, 5, 7), w(7), w(5, 1), axis=1, **norm)
    yield case("RMSNormalization", "rows", x(3, 37), w(37), **norm)
    yield case("RMSNormalization", "two axes", x(3, 5, 7), w(5, 7), axis=1, epsilon=1e-3, **norm)
    yield case("RMSNormalization", "a scale that broadcasts", x(3, 5, 7), w(7), axis=1, **norm)
    yield case("Hardmax", "rows", x(3, 37), **EXACT)
    yield case("Hardmax", "a middle axis, equals", x(2, 11, 5, low=0, high=0.03125), axis=1, **EXACT)
    yield case("Hardmax", "NaN", given([[1.0, np.nan, 2.0, np.nan], [np.inf, 1.0, np.inf, 0.0]]), **EXACT)
    yield case("GroupNormalization", "three groups", x(2, 6, 5, 7), w(6), w(6), num_groups=3, **norm)
    yield case("GroupNormalization", "planes of fours", x(2, 6, 4, 7), w(6), w(6), num_groups=3, **norm)
    yield case("GroupNormalization", "large groups", x(2, 4, 65, 300), w(4), w(4), num_groups=2, **norm)
    yield case("GroupNormalization", "many large groups", x(130, 4, 128, 66), w(4), w(4), num_groups=2, **norm)
    yield case("GroupNormalization", "many channels", x(3, 260, 2, 4), w(260), w(260), num_groups=2, **norm)
    yield case("GroupNormalization", "small rows", x(19, 12, 2, 2), w(12), w(12), num_groups=3, **norm)
    yield case("GroupNormalization", "images of channels", x(3, 6), w(6), w(6), num_groups=2, **norm)
    yield case("GroupNormalization", "one axis", x(2, 4, 101), w(4), w(4), num_groups=1, epsilon=1e-3, **norm)
    yield case("MeanVarianceNormalization", "images", x(3, 5, 7, 11), **norm)
    yield case("MeanVarianceNormalization", "other axes", x(3, 5, 7), axes=[-1], **norm)
    for p in (1, 2):
        numbers = x(3, 5, 7, low=0.25, high=2)
        yield case("LpNormalization", f"p {p}", numbers, axis=1, p=p, fp16=(2e-3, 2e-3))
    yield case("LpNormalization", "zeros", given([[0.0, 0.0], [3.0, 4.0]]), axis=1, p=2)
    for size in (3, 4):
        options = {"size": size, "alpha": 0.25, "beta": 0.5, "bias": 2.0, "fp16": (2e-3, 2e-3)}
        yield case("LRN", f"size {size}", x(2, 7, 5, 3), **options)
    yield case("LayerNormalization", "a long row", x(2, 1031), w(1031), w(1031), **norm)


def register_rows() -> Iterator[Case]:
    """Rows around the maximum lengths that a number of invocations keeps in registers."""
    norm = {"fp32": (1e-4, 1e-4), "fp16": (4e-3, 4e-3)}
    for rows, size in (
        (17, 4),
        (19, 512),
        (3, 516),
        (3, 2048),
        (2, 2052),
        (2, 8192),
        (2, 8196),
        (2, 16384),
        (2, 16388),
        (2, 32768),
        (2, 32772),
    ):
        note = f"{rows} rows of {size}"
        yield case("Softmax", note, x(rows, size))
        yield case("LogSoftmax", note, x(rows, size), fp16=(1e-3, 8e-3))
        yield case("LayerNormalization", note, x(rows, size), w(size), w(size), **norm)
    yield case("RMSNormalization", "19 rows of 40", x(19, 40), w(40), **norm)
    yield case("LayerNormalization", "statistics, fours", x(19, 5, 8), w(5, 8), w(5, 8), axis=1, outputs=3, **norm)
    special = np.zeros((5, 40), "float32")
    special[0, 7], special[1, 7], special[2, 7], special[3, :] = np.nan, np.inf, -np.inf, -np.inf
    for op in ("Softmax", "LogSoftmax"):
        yield case(op, "NaN and infinities in rows of fours", given(special))
    for op in ("InstanceNormalization", "BatchNormalization"):
        for images, height, width in ((3, 4, 7), (1, 128, 128), (1, 129, 128), (1, 130, 127)):
            parameters = (w(5), w(5)) if op == "InstanceNormalization" else (w(5), w(5), w(5), w(5, low=0.25, high=2))
            yield case(op, f"planes of {height} by {width}", x(images, 5, height, width), *parameters, **norm)
    loose = {"fp32": (1e-3, 1e-3), "fp16": (1.0, 1.0)}
    for height in (16, 256):
        numbers = x(1, 3, height, 128, low=998, high=1002)
        yield case("InstanceNormalization", f"a large mean of {height} by 128", numbers, w(3), w(3), **loose)


def columns() -> Iterator[Case]:
    """Softmax along axes other than the last."""
    special = np.zeros((37, 20), "float32")
    special[5, :6] = np.inf, -np.inf, np.nan, np.inf, np.nan, -np.inf
    special[:, 6], special[:, 7] = np.inf, -np.inf
    special[9, 3:6] = -np.inf, np.inf, -np.inf
    for op in ("Softmax", "LogSoftmax"):
        for shape, axis in (
            ((37, 15), 0),
            ((37, 16), 0),
            ((3, 9, 17), 1),
            ((3, 9, 4, 5), 1),
            ((3, 1, 4, 5), 1),
            ((700, 20), 0),
            ((700, 17), 0),
        ):
            yield case(op, f"axis {axis} of {shape}", x(*shape), axis=axis, fp16=(1e-3, 8e-3))
        yield case(op, "NaN and infinities in columns", given(special), axis=0)
    large = given(np.array([[60000.0], [59968.0], [-60000.0]]) * np.ones((1, 16)))
    yield case("Softmax", "columns of large numbers", large, axis=0)
