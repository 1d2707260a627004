"""Plots of a profile with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._pumice import UnsupportedError
from ..base.errors import InputError

if TYPE_CHECKING:
    from .profile import Profile

_MAX_KERNELS = 15
_LANE_COLOURS = ("tab:gray", "tab:blue", "tab:orange")  # colours of the host, execution and node lanes


def plot_profile(profile: Profile, kind: str, axes: Any) -> Any:
    """Draw a "timeline", a "roofline", the top "kernels" or the "memory", and return the axes. Raise the errors of Profile.plot."""
    plot_functions = {
        "timeline": _plot_timeline,
        "roofline": _plot_roofline,
        "kernels": _plot_kernels,
        "memory": _plot_memory,
    }
    if kind not in plot_functions:
        raise InputError(f"Profile.plot: kind: expected one of {', '.join(plot_functions)}, given {kind!r}")
    if kind == "memory" and not profile.memory:
        raise InputError("Profile.plot: 'memory': no model with a single memory was called in the block")
    if axes is None:
        try:
            from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise UnsupportedError("Profile.plot needs matplotlib: pip install 'pumice[plot]'") from None
        _, axes = pyplot.subplots(figsize=(10, 4))
    plot_functions[kind](profile, axes)
    return axes


def _plot_timeline(profile: Profile, axes: Any) -> None:
    def to_bars(begins_and_ends: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(begin * 1e6, (end - begin) * 1e6) for begin, end in begins_and_ends]

    lanes = {
        "host": [(span.begin, span.end) for span in profile.host],
        "executions": [(span.begin, span.end) for span in profile.executions],
        "nodes": [(span.ready, span.end) for span in profile.spans],
    }
    for i, spans in enumerate(lanes.values()):
        axes.broken_barh(to_bars(spans), (-i - 0.4, 0.8), facecolors=_LANE_COLOURS[i], alpha=0.8)
    axes.set_yticks([-i for i in range(len(lanes))], list(lanes))
    axes.set_xlabel("us")


def _plot_kernels(profile: Profile, axes: Any) -> None:
    rows = profile.rows("kernel")[:_MAX_KERNELS][::-1]
    axes.barh([row.name for row in rows], [row.seconds * 1e6 for row in rows])
    axes.set_xlabel("us on the device")


def _plot_memory(profile: Profile, axes: Any) -> None:
    max(profile.memory, key=lambda memory_map: memory_map.arena_bytes).plot(axes)


def _plot_roofline(profile: Profile, axes: Any) -> None:
    """Plot throughput over arithmetic intensity, with the roof if the device is calibrated."""
    rows = [row for row in profile.rows("node") if row.intensity > 0 and row.seconds > 0]
    for row in rows:
        axes.loglog(row.intensity, row.flop_per_second * 1e-9, "o", color=_LANE_COLOURS[0])
        axes.annotate(row.name, (row.intensity, row.flop_per_second * 1e-9), fontsize=7)
    if peaks := profile.peaks:
        min_intensity, max_intensity = (
            (min(row.intensity for row in rows), max(row.intensity for row in rows)) if rows else (0.1, 100.0)
        )
        x = np.geomspace(min_intensity / 4, max_intensity * 4, 100)
        for name, speed in peaks.flop_per_second.items():
            axes.loglog(x, np.minimum(x * peaks.bytes_per_second, speed) * 1e-9, label=name)
        axes.legend()
    axes.set_xlabel("FLOP / byte")
    axes.set_ylabel("GFLOP/s")
