"""The areas of the self-test, and the loop that runs them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..._pumice import Context, DeviceLostError, Error
from .control_flow_area import run_control_flow_area
from .device_areas import run_driver_area, run_replay_area, run_transfer_area
from .operator_area import run_operator_area
from .operator_table import OPERATOR_AREAS
from .results import AreaResult

AreaFunction = Callable[[Context, AreaResult], None]

AREAS: Mapping[str, AreaFunction] = {
    "driver": run_driver_area,
    "transfers": run_transfer_area,
    **dict.fromkeys(OPERATOR_AREAS, run_operator_area),
    "control-flow": run_control_flow_area,
    "replay": run_replay_area,
}
_CLOSE_TIMEOUT_SECONDS = 5.0


class _DeviceHolder:
    """The context of the self-test, which is opened again after its device was lost."""

    def __init__(self, context: Context) -> None:
        self._device = f"uuid:{context.info.uuid}"
        self._context: Context | None = context

    def get_context(self) -> Context:
        """Return the context."""
        if self._context is None:
            self._context = Context(self._device)
        return self._context

    def discard_context(self) -> None:
        """Close the context."""
        context, self._context = self._context, None
        if context is not None:
            with contextlib.suppress(Error):
                context.close(_CLOSE_TIMEOUT_SECONDS)


def run_areas(context: Context, names: Sequence[str], areas: Mapping[str, AreaFunction]) -> Iterator[AreaResult]:
    """Yield the result of each area when it is complete, and close the context at the end. An exception fails only its own area."""
    holder = _DeviceHolder(context)
    try:
        for name in names:
            result = AreaResult(name)
            begin = time.monotonic()
            try:
                areas[name](holder.get_context(), result)
            except DeviceLostError as error:
                result.error = str(error)
                holder.discard_context()
            except (
                Exception
            ) as error:  # any exception, from a driver's error to a bug here, must leave the other areas running
                result.error = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            result.seconds = time.monotonic() - begin
            yield result
    finally:
        holder.discard_context()
