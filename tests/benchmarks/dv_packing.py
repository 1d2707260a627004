"""The cost of packing source weights for the dv interface per byte, on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pumice import dv

from .rows import Table, timed
from .session import Session
from .timing import measure, sampler

WEIGHTS = 1 << 20
CHANNELS = 256
TARGET = 1.0  # nanoseconds per byte: 1 GB/s


def of_shape(shape: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
    return (np.arange(np.prod(shape)) % 255 + 1).astype(dtype).reshape(shape)


def packers(side: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """Return (bytes of weights, the call) by name."""
    shape = (WEIGHTS // (CHANNELS * side * side), CHANNELS, side, side)
    values, indices, table = of_shape(shape, "float16"), of_shape(shape, "uint8"), np.zeros(256, "float16")
    return {
        f"conv {side}x{side}": (values.nbytes, partial(dv.pack_conv_weights, values)),
        f"conv {side}x{side}, table": (indices.nbytes, partial(dv.pack_conv_weights, indices, table=table)),
        f"dil {side}x{side}": (values.nbytes, partial(dv.pack_dil_weights, values)),
        f"dil {side}x{side}, table": (indices.nbytes, partial(dv.pack_dil_weights, indices, table=table)),
    }


def run(session: Session) -> Iterator[Table]:
    calls = {name: call for side in range(1, 8) for name, call in packers(side).items()}
    for height, dtype in ((1, "float16"), (7, "float16"), (7, "uint8")):
        weights = of_shape((WEIGHTS // (64 * height * height), 64, height, height), dtype)
        table = np.zeros(256, "float16") if dtype == "uint8" else None
        name = f"fc 64x{height}x{height}{'' if table is None else ', table'}"
        calls[name] = (weights.nbytes, partial(dv.pack_fc_weights, weights, table=table))
    times = measure({name: sampler(call) for name, (_, call) in calls.items()}, session.effort)
    rows = [timed(name, times[name], 1e9 / nbytes, TARGET) for name, (nbytes, _) in calls.items()]
    yield Table("Packing weights for the dv interface", "ns for a byte", rows)
