"""A call for every optional argument of the public API that shows the argument's effect, or that it is rejected.

test_signatures reads the signatures themselves, so it finds arguments without a probe.
"""

from __future__ import annotations

from signature_probes import (
    device,
    dv_interface,
    graphs,
    kernels,
    models,
    profiles,
    references,
    tensors,
    tuning,
    workers,
)
from signature_probes.probe import Probe

MODULES = (device, tensors, kernels, graphs, models, references, dv_interface, profiles, tuning, workers)
PROBES: dict[str, Probe] = {
    name: probe for module in MODULES for probe in vars(module).values() for name in getattr(probe, "covers", ())
}
