"""Measured kernel variants by kind of step, in the store of kernel.tune()."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._pumice import Context, DeviceInfo, __version__, cache_directory
from ..base.errors import binding_error

if TYPE_CHECKING:
    from ..device.tuning_store import TuningRecord

# A variant must be faster than this fraction of the time of the engine's own choice; smaller gains are noise.
_MAX_TIME_RATIO = 0.98
_CRITERIA = "compared with the engine's own choice"
_cache: dict[str, tuple[int, dict[str, str]]] = {}  # folder -> (mtime, best variants)


class StepVariants(dict[str, str]):
    """Maps each kind of step to a variant. lists: whether the program's plan lists every variant of each step."""

    lists_variants = False

    @classmethod
    def with_listing(cls, variants: Mapping[str, str]) -> StepVariants:
        """Return these variants, for a program whose plan lists all available ones."""
        variants_with_listing = cls(variants)
        variants_with_listing.lists_variants = True
        return variants_with_listing


def make_empty_record(info: DeviceInfo, kind: str, variant: str, default_variant: str) -> TuningRecord:
    """Return an empty record for a variant. own: the engine's choice."""
    from .._pumice import sha256
    from ..device.tuning_store import TuningRecord, device_name, driver_name

    return TuningRecord(
        kernel="step of a model",
        device=device_name(info),
        driver=driver_name(info),
        text=sha256(f"steps of models, pumice {__version__}".encode()),
        demand=_CRITERIA,
        arguments=kind,
        shapes=kind,
        config={"variant": variant, "own": variant == default_variant},
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
    from ..device.tuning_store import read_sibling_records, store_folder

    sample_record = make_empty_record(context.info, "", "", "")
    folder = store_folder(sample_record)
    try:
        mtime = os.stat(folder).st_mtime_ns if folder else 0
    except OSError:
        return {}
    if folder is None:
        return {}
    cached = _cache.get(folder)
    if cached is None or cached[0] != mtime:
        cached = _cache[folder] = (mtime, best_variants(read_sibling_records(sample_record)))
    return dict(cached[1])


def best_variants(records: list[TuningRecord]) -> dict[str, str]:
    """Return the fastest variant for each kind of step, if it is faster than the engine's own choice."""
    kinds: dict[str, list[TuningRecord]] = {}
    for record in records:
        if record.seconds is not None and isinstance(record.config.get("variant"), str):
            kinds.setdefault(record.arguments, []).append(record)
    best = {}
    for kind, kind_records in kinds.items():
        fastest = min(kind_records, key=lambda record: record.seconds or 0)
        default_times = [record.seconds or 0 for record in kind_records if record.config.get("own")]
        if not fastest.config.get("own") and (fastest.seconds or 0) < _MAX_TIME_RATIO * min(
            default_times, default=float("inf")
        ):
            best[kind] = str(fastest.config["variant"])
    return best


def resolve_step_variants(context: Context, tuned: bool | Mapping[str, str]) -> StepVariants | None:
    """Return the variants with which to load a model; None: the engine's own choices.

    Raise BindingError for other types of `tuned`.
    """
    if isinstance(tuned, StepVariants):
        return tuned
    if isinstance(tuned, bool):
        fastest_variants = measured_variants(context) if tuned else {}
        return StepVariants(fastest_variants) if fastest_variants else None
    if not isinstance(tuned, Mapping) or not all(isinstance(string, str) for pair in tuned.items() for string in pair):
        expected = "True, False or a dict of kinds of steps and names of variants"
        raise binding_error("K5", "tuned", expected, type(tuned).__name__, kind="argument")
    return StepVariants(tuned)
