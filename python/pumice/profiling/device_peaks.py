"""Peak rates of a device, measured once and cached: memory bandwidth and arithmetic throughput."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import (
    CommandList,
    Context,
    DeviceInfo,
    UnsupportedError,
    cache_directory,
    devices,
    read_cache_entry,
    sha256,
    write_cache_entry,
)
from ..device.context import default_context, empty
from ..device.kernel import Kernel

if TYPE_CHECKING:
    from .profile_records import Row

_CACHE_KIND = "peaks"
_NUM_RUNS = 9
_CHAIN_LENGTH = 256  # multiply-adds per accumulator
_NUM_ACCUMULATORS = 8

_COPY_KERNEL = """
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly  buffer X { vec4 x[]; };
layout(binding = 1) writeonly buffer Y { vec4 y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < x.length()) y[i] = x[i];
}
"""

# The values stay bounded, because a * 0.5 + 1 converges to 2. The sum is stored so that no driver eliminates the multiply-adds.
_FMA_KERNEL = """
#ifdef HALF
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Parameters { float factor; float term; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  TYPE f = TYPE(factor), t = TYPE(term);
  TYPE a[ACCUMULATORS];
  for (int k = 0; k < ACCUMULATORS; ++k) a[k] = TYPE(float(i % 7u) + float(k));
  for (int n = 0; n < CHAIN; ++n)
    for (int k = 0; k < ACCUMULATORS; ++k) a[k] = fma(a[k], f, t);
  TYPE sum = TYPE(0);
  for (int k = 0; k < ACCUMULATORS; ++k) sum += a[k];
  if (i < y.length()) y[i] = float(SUM);
}
"""


class Peaks(NamedTuple):
    """Peak rates of a device at the time of measurement.

    bytes_per_second: reads plus writes of a copy in device memory. flop_per_second: multiply-adds, two operations each,
    by number type: "fp32", and "fp16" (packed) if the device supports it. seconds_since_epoch: time of measurement.
    """

    device: str
    uuid: str
    driver: str
    bytes_per_second: float
    flop_per_second: dict[str, float]
    seconds_since_epoch: float

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        return self._asdict()

    def share_text(self, row: Row) -> str:
        """Return a row's throughput as a fraction of the peak that it is closest to: "71% memory", "38% fp32"; "" if unknown."""
        fractions = {"memory": row.bytes_per_second / self.bytes_per_second}
        fractions |= {
            name: row.flop_per_second / speed for name, speed in self.flop_per_second.items() if name == "fp32"
        }
        name, fraction = max(fractions.items(), key=lambda item: item[1])
        return f"{fraction:.0%} {name}" if fraction > 0 else ""


def calibrate(context: Context | None = None, again: bool = False) -> Peaks:
    """Return the peaks of a device from the cache, keyed by device and driver, or measure them, which takes some seconds.

    context: a context on the device; None: the default context. again: measure even if cached. Without a cache (PUMICE_NO_CACHE)
    every call measures. Raise UnsupportedError for a queue without timestamps.
    """
    context = context or default_context()
    if not again and (cached := _read_cache(context.info)) is not None:
        return cached
    info = context.info
    peaks = Peaks(
        info.name, info.uuid, _format_driver(info), _measure_bandwidth(context), _measure_flops(context), time.time()
    )
    if cache_directory():
        write_cache_entry(_CACHE_KIND, _make_entry_name(info), json.dumps(peaks.as_dict()).encode())
    return peaks


def read_cached_peaks(device: str) -> Peaks | None:
    """Return the cached peaks of the device with this name and its current driver; None if there are none."""
    cached_peaks = (peaks for info in devices() if info.name == device and (peaks := _read_cache(info)) is not None)
    return next(cached_peaks, None)


def _format_driver(info: DeviceInfo) -> str:
    return f"{info.driver} {info.driver_info} {info.driver_version}"


def _make_entry_name(info: DeviceInfo) -> str:
    return sha256(f"{info.uuid}\n{_format_driver(info)}\n{info.restrictions}".encode())


def _read_cache(info: DeviceInfo) -> Peaks | None:
    entry = read_cache_entry(_CACHE_KIND, _make_entry_name(info)) if cache_directory() else None
    try:
        return None if entry is None else Peaks(**json.loads(entry))
    except (TypeError, ValueError):  # written by another version
        return None


def _measure_min_device_seconds(context: Context, record: Callable[[CommandList], None]) -> float:
    """Return the minimum device time over several executions of a command list."""
    commands = CommandList(context)
    record(commands)
    commands.commit(timing=True)
    times = []
    for _ in range(_NUM_RUNS):
        submission = commands.exec()
        submission.wait()
        times.append(submission.device_seconds)
    if any(seconds is None for seconds in times):
        raise UnsupportedError(f"calibrate: the queue of '{context.info.name}' has no timestamps")
    return min(seconds for seconds in times if seconds)


def _choose_local_size(context: Context) -> int:
    """Return 256 invocations, or the largest power of two that the device supports."""
    limit = min(context.limit("maxComputeWorkGroupInvocations"), context.limit("maxComputeWorkGroupSize_0"), 256)
    return 1 << (limit.bit_length() - 1)


def _measure_bandwidth(context: Context) -> float:
    bytes_moved = min(
        (1 << 22) if context.info.kind == "software" else 1 << 28, context.limit("maxStorageBufferRange") // 2
    )
    count = bytes_moved // 16
    x, y = (empty((count, 4), "float32", context=context) for _ in range(2))
    local_size = _choose_local_size(context)
    kernel = Kernel(_COPY_KERNEL, context, "copy", macros={"LOCAL_SIZE": local_size})
    bound_kernel = kernel.bind(x=x, y=y, groups=-(-count // local_size))
    return 2 * count * 16 / _measure_min_device_seconds(context, lambda commands: commands.dispatch(bound_kernel))


def _measure_flops(context: Context) -> dict[str, float]:
    is_software = context.info.kind == "software"
    invocations, local_size = 1 << (12 if is_software else 20), _choose_local_size(context)
    y = empty((invocations,), "float32", context=context)
    types_by_precision = {"fp32": ("float", "sum", 1)}
    if context.feature("shaderFloat16"):
        types_by_precision["fp16"] = ("f16vec2", "sum.x + sum.y", 2)
    speeds = {}
    for name, (glsl_type, sum_expression, width) in types_by_precision.items():
        macros: dict[str, str | float] = {"LOCAL_SIZE": local_size}
        macros |= {"HALF": 1} if width == 2 else {}
        macros |= {
            "TYPE": glsl_type,
            "SUM": sum_expression,
            "CHAIN": _CHAIN_LENGTH,
            "ACCUMULATORS": _NUM_ACCUMULATORS,
        }
        kernel = Kernel(_FMA_KERNEL, context, f"multiply_add_{name}", macros=macros)
        bound_kernel = kernel.bind(y=y, factor=np.float32(0.5), term=np.float32(1), groups=invocations // local_size)
        operations = 2 * width * _CHAIN_LENGTH * _NUM_ACCUMULATORS * invocations
        speeds[name] = operations / _measure_min_device_seconds(
            context,
            lambda commands, kernel=bound_kernel: commands.dispatch(kernel),  # type: ignore[misc]
        )
    return speeds
