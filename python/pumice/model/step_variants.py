"""Measured kernel variants by kind of step, in the store of kernel.tune()."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._pumice import Context, DeviceInfo, __version__, cache_directory
from ..base.errors import binding_error

if TYPE_CHECKING:
    from ..device.tuning_store import Record

# A variant must be faster than this fraction of the time of the engine's own choice; smaller gains are noise.
_GAIN = 0.98
_DEMAND = "compared with the engine's own choice"
_read: dict[str, tuple[int, dict[str, str]]] = {}  # folder -> (mtime, best variants)


class StepVariants(dict[str, str]):
    """Maps each kind of step to a variant. lists: whether the program's plan lists every variant of each step."""

    lists = False

    @classmethod
    def listing(cls, variants: Mapping[str, str]) -> StepVariants:
        """Return these variants, for a program whose plan lists all available ones."""
        made = cls(variants)
        made.lists = True
        return made


def blank(info: DeviceInfo, kind: str, variant: str, own: str) -> Record:
    """Return an empty record for a variant. own: the engine's choice."""
    from .._pumice import sha256
    from ..device.tuning_store import Record, device_name, driver_name

    return Record(
        kernel="step of a model",
        device=device_name(info),
        driver=driver_name(info),
        text=sha256(f"steps of models, pumice {__version__}".encode()),
        demand=_DEMAND,
        arguments=kind,
        shapes=kind,
        config={"variant": variant, "own": variant == own},
        seconds=None,
        rejected="",
        calls=[],
        measured=time.time(),
    )


def measured_variants(context: Context) -> dict[str, str]:
    """Return the fastest variant of each kind of step on this device and driver, except the engine's own choices.

    The folder is read again only if it has changed.
    """
    cache = cache_directory()
    if not cache or not os.path.isdir(os.path.join(cache, "tuning")):
        return {}  # nothing was ever measured on this machine, so the store's modules need not be imported
    from ..device.tuning_store import records_beside, store_folder

    sample = blank(context.info, "", "", "")
    folder = store_folder(sample)
    try:
        changed = os.stat(folder).st_mtime_ns if folder else 0
    except OSError:
        return {}
    if folder is None:
        return {}
    known = _read.get(folder)
    if known is None or known[0] != changed:
        known = _read[folder] = (changed, best_variants(records_beside(sample)))
    return dict(known[1])


def best_variants(records: list[Record]) -> dict[str, str]:
    """Return the fastest variant for each kind of step, if it is faster than the engine's own choice."""
    kinds: dict[str, list[Record]] = {}
    for one in records:
        if one.seconds is not None and isinstance(one.config.get("variant"), str):
            kinds.setdefault(one.arguments, []).append(one)
    best = {}
    for kind, members in kinds.items():
        quickest = min(members, key=lambda one: one.seconds or 0)
        own = [one.seconds or 0 for one in members if one.config.get("own")]
        if not quickest.config.get("own") and (quickest.seconds or 0) < _GAIN * min(own, default=float("inf")):
            best[kind] = str(quickest.config["variant"])
    return best


def chosen(context: Context, tuned: bool | Mapping[str, str]) -> StepVariants | None:
    """Return the variants with which to load a model; None: the engine's own choices.

    Raise BindingError for other types of `tuned`.
    """
    if isinstance(tuned, StepVariants):
        return tuned
    if isinstance(tuned, bool):
        found = measured_variants(context) if tuned else {}
        return StepVariants(found) if found else None
    if not isinstance(tuned, Mapping) or not all(isinstance(text, str) for pair in tuned.items() for text in pair):
        expected = "True, False or a dict of kinds of steps and names of variants"
        raise binding_error("K5", "tuned", expected, type(tuned).__name__, kind="argument")
    return StepVariants(tuned)
