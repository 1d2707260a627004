"""Resize in all its modes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.gather_scatter import BYTES, LONG, moved
from cases.rows import Case, Given, case, fixed, w, x

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def grids() -> Iterator[Case]:
    """Sampling positions beyond the borders too; fp16 positions are coarse."""
    options: dict[str, Any] = {"fp16": (2e-3, 4e-3)}
    for mode in ("linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for aligned in (0, 1):
                yield case(
                    "GridSample",
                    f"{mode}, {padding}, {'aligned' if aligned else 'not aligned'}",
                    x(2, 3, 5, 7),
                    x(2, 3, 5, 2, low=-2.5, high=2.5),
                    mode=mode,
                    padding_mode=padding,
                    align_corners=aligned,
                    **options,
                )
    places = fixed(np.reshape([-1.75, -0.75, -0.25, 0.25, 0.5, 0.75, 4.75], (1, 7, 1)), "float32")
    for padding in ("zeros", "border", "reflection"):
        yield case(
            "GridSample", f"nearest, one axis, {padding}", x(1, 3, 8), places, mode="nearest", padding_mode=padding
        )
    yield case("GridSample", "three axes", x(1, 2, 3, 4, 5), x(1, 2, 3, 2, 3, low=-1, high=1), **options)


def scales(*values: float) -> Given:
    return fixed(values, "float32")


def resizes() -> Iterator[Case]:
    image = x(1, 3, 5, 7)
    for mode in COORDINATES:
        options = {"coordinate_transformation_mode": mode}
        yield moved("Resize", f"nearest, {mode}", image, None, scales(1, 1, 1.7, 0.6), **options)
        yield case("Resize", f"linear, {mode}", image, None, scales(1, 1, 1.7, 0.6), mode="linear", **options)
        yield case("Resize", f"cubic, {mode}", image, None, None, fixed([1, 3, 3, 11]), mode="cubic", **options)
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        yield moved("Resize", f"nearest by {nearest}", x(1, 1, 5, 6), None, scales(1, 1, 2, 0.5), nearest_mode=nearest)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 1.5}
    region = fixed([0, 0, 0.25, -0.25, 1, 1, 0.75, 1.25], "float32")
    for mode in ("nearest", "linear", "cubic"):
        yield case("Resize", f"a crop, {mode}", image, region, None, fixed([1, 3, 4, 8]), mode=mode, **crop)
    yield moved("Resize", "nearest, bytes", x(3, 5, **BYTES), None, scales(2, 2))
    yield moved("Resize", "nearest, 64-bit integers", x(3, 5, **LONG), None, None, fixed([4, 3]))
    yield moved("Resize", "nearest, five axes", x(2, 1, 2, 3, 2), None, scales(1, 2, 2, 1, 1.5))
    yield moved("Resize", "as it was", x(2, 3, 5), None, scales(1, 1, 1), mode="linear")
    yield moved("Resize", "to nothing", x(2, 3), None, None, fixed([0, 3]), mode="nearest")
    yield case("Resize", "linear, one axis", x(67), None, None, fixed([101]), mode="linear")
    yield case("Resize", "linear, three axes", x(1, 1, 3, 5, 4), None, scales(1, 1, 2, 0.7, 1.3), mode="linear")
    yield case("Resize", "linear, empty scales beside sizes", image, w(0), w(0), fixed([1, 3, 10, 14]), mode="linear")
    yield case("Resize", "linear, antialias", x(1, 1, 11, 13), None, scales(1, 1, 0.4, 0.6), mode="linear", antialias=1)
    yield case("Resize", "cubic, antialias", x(1, 1, 11, 13), None, scales(1, 1, 0.4, 1.6), mode="cubic", antialias=1)
    yield case(
        "Resize",
        "cubic, without what is outside",
        image,
        None,
        scales(1, 1, 0.8, 1.5),
        mode="cubic",
        exclude_outside=1,
        cubic_coeff_a=-0.5,
    )
    yield case(
        "Resize",
        "linear, antialias, without what is outside",
        image,
        None,
        scales(1, 1, 0.5, 0.5),
        mode="linear",
        antialias=1,
        exclude_outside=1,
    )
    yield moved("Resize", "axes", x(2, 5, 7), None, scales(1.5, 2), axes=[1, 2])
    for policy in ("not_larger", "not_smaller"):
        yield moved(
            "Resize",
            f"sizes, {policy}",
            x(2, 4, 6),
            None,
            None,
            fixed([7, 8]),
            axes=[1, 2],
            keep_aspect_ratio_policy=policy,
        )
