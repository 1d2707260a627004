"""Device times, excluding the host."""

from __future__ import annotations

from collections.abc import Mapping

import pumice

from .timing import Sampler


def dispatch(
    commands: pumice.CommandList,
    program: pumice.Program,
    compiled: pumice.CompiledOperator,
    tensors: Mapping[str, pumice.Tensor],
) -> None:
    """Record a compiled program on tensors by name, with its own temporary memory."""
    table = pumice.BindingTable(compiled)
    table.bind(**tensors)
    needed = compiled.binding_properties
    table.bind_temporary(pumice.Buffer(compiled.context, needed.temporary_bytes) if needed.temporary_bytes else None)
    table.bind_persistent(program.persistent if needed.persistent_bytes else None)
    commands.dispatch(compiled, table)


def sampler(commands: pumice.CommandList, parts: int = 1) -> Sampler:
    """Commit the list; return a sampler of seconds from its first dispatch to its last, divided by `parts`."""
    commands.commit(timing=True)

    def sample(runs: int) -> list[float]:
        seconds = []
        for _ in range(runs):
            submission = commands.exec()
            submission.wait()
            seconds.append((submission.device_seconds or 0.0) / parts)
        return seconds

    return sample
