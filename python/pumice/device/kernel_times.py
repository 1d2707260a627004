"""How long a kernel takes on the device, without what a call moves."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import CommandList, Context, Tensor, UnsupportedError
from ..base.element_types import Array
from ..base.errors import InputError
from .block_arguments import names_of
from .context import tensor
from .given_arguments import resolved, stand_for_others

if TYPE_CHECKING:
    from .kernel import Kernel


class NoTimeStampsError(UnsupportedError):
    """The queue has no time stamps, whatever the kernel is."""


class KernelTimes(NamedTuple):
    """Seconds on the device of each run of a kernel, in their order."""

    seconds: tuple[float, ...]

    @property
    def min(self) -> float:
        """The least of them."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The middle one."""
        return float(np.median(self.seconds))

    def __repr__(self) -> str:
        return (
            f"<KernelTimes: {len(self.seconds)} runs, min {self.min * 1e6:,.2f} us, median {self.median * 1e6:,.2f} us>"
        )

    def _repr_html_(self) -> str:
        from ..base.html import facts

        shown = {
            "runs": len(self.seconds),
            "min": f"{self.min * 1e6:,.2f} us",
            "median": f"{self.median * 1e6:,.2f} us",
        }
        return facts("On the device", shown)


def times_of(
    kernel: Kernel, context: Context, arguments: tuple[Mapping[str, Any], Mapping[str, Any]], runs: int
) -> KernelTimes:
    """Runs a kernel so many times on tensors, after one run that is not measured; see Kernel.time.

    arguments: those in a dict, and those by name.
    """
    count = operator.index(runs)
    if count < 1:
        raise InputError(f"Kernel.time: runs: expected a number from 1 on, given {runs}")
    in_dict, by_name = on_device(kernel, context, *arguments)
    commands = CommandList(context)
    commands.dispatch(kernel.bind(in_dict, **by_name))
    commands.commit(timing=True)
    commands.warm_up()
    seconds = []
    for _ in range(count):
        submission = commands.exec()
        submission.wait()
        if submission.device_seconds is None:
            raise NoTimeStampsError(f"kernel '{kernel.name}': the queue of '{context.info.name}' has no time stamps")
        seconds.append(submission.device_seconds)
    return KernelTimes(tuple(seconds))


def on_device(
    kernel: Kernel, context: Context, in_dict: Mapping[str, Any], by_name: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of a call as bind takes them: copies of the arrays of the host that buffers are bound to, in the shader's layout."""
    if stand_for_others(kernel._special_names, in_dict, by_name):
        resolved_dict, by_name, _ = resolved(kernel, in_dict, by_name)
        in_dict = resolved_dict or {}
    buffers = {name for one in kernel.shader.interface["bindings"] for name in names_of(one)}

    def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _tensor(given, context) if name in buffers and isinstance(given, np.ndarray) else given
            for name, given in arguments.items()
        }

    return copied(in_dict), copied(by_name)


def _tensor(array: Array, context: Context) -> Tensor:
    """An array on the device; structures as rows of their bytes."""
    if array.dtype.names is None:
        return tensor(array, context=context)
    rows = np.ascontiguousarray(array).reshape(-1)
    return tensor(rows.view(np.uint8).reshape(len(rows), array.dtype.itemsize), context=context)
