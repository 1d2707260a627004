"""Measure a kernel's device time, without transfers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import CommandList, Context, Tensor, UnsupportedError
from ..base.element_types import Array
from ..base.errors import InputError
from .argument_resolution import needs_argument_resolution, resolve_arguments
from .block_arguments import get_binding_names
from .context import tensor

if TYPE_CHECKING:
    from .kernel import Kernel


class NoTimestampsError(UnsupportedError):
    """Raised if the queue does not support timestamps; no other kernel can be timed either."""


class KernelTimes(NamedTuple):
    """Device time of each run of a kernel in seconds, in order."""

    seconds: tuple[float, ...]

    @property
    def min(self) -> float:
        """The shortest time."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median time."""
        return float(np.median(self.seconds))

    def __repr__(self) -> str:
        return (
            f"<KernelTimes: {len(self.seconds)} runs, min {self.min * 1e6:,.2f} us, median {self.median * 1e6:,.2f} us>"
        )

    def _repr_html_(self) -> str:
        from ..base.html import render_properties

        summary = {
            "runs": len(self.seconds),
            "min": f"{self.min * 1e6:,.2f} us",
            "median": f"{self.median * 1e6:,.2f} us",
        }
        return render_properties("On the device", summary)


def measure_kernel_times(
    kernel: Kernel, context: Context, arguments: tuple[Mapping[str, Any], Mapping[str, Any]], runs: int
) -> KernelTimes:
    """Run a kernel `runs` times after one warm-up run, and return the device times; see Kernel.time.

    arguments: a pair of the arguments in a dict and the arguments by name.
    """
    count = operator.index(runs)
    if count < 1:
        raise InputError(f"Kernel.time: runs: expected a positive number, given {runs}")
    in_dict, by_name = upload_arguments(kernel, context, *arguments)
    commands = CommandList(context)
    commands.dispatch(kernel.bind(in_dict, **by_name))
    commands.commit(timing=True)
    commands.warm_up()
    seconds = []
    for _ in range(count):
        submission = commands.exec()
        submission.wait()
        if submission.device_seconds is None:
            raise NoTimestampsError(f"kernel '{kernel.name}': the queue of '{context.info.name}' has no timestamps")
        seconds.append(submission.device_seconds)
    return KernelTimes(tuple(seconds))


def upload_arguments(
    kernel: Kernel, context: Context, in_dict: Mapping[str, Any], by_name: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call's arguments for Kernel.bind: NumPy arrays for buffers are copied to tensors in the shader's layout."""
    if needs_argument_resolution(kernel._names_to_resolve, in_dict, by_name):
        resolved_dict, by_name, _ = resolve_arguments(kernel, in_dict, by_name)
        in_dict = resolved_dict or {}
    buffers = {name for binding in kernel.shader.interface["bindings"] for name in get_binding_names(binding)}

    def upload_arrays(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _upload_array(value, context) if name in buffers and isinstance(value, np.ndarray) else value
            for name, value in arguments.items()
        }

    return upload_arrays(in_dict), upload_arrays(by_name)


def _upload_array(array: Array, context: Context) -> Tensor:
    """Copy an array to the device. A structured array becomes uint8 [elements, itemsize]."""
    if array.dtype.names is None:
        return tensor(array, context=context)
    rows = np.ascontiguousarray(array).reshape(-1)
    return tensor(rows.view(np.uint8).reshape(len(rows), array.dtype.itemsize), context=context)
