"""Read the kernel variants that Model.tune() has measured for each kind of step. They are stored like results of kernel.tune()."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._pumice import Context, DeviceInfo, __version__, cache_directory
from ..base.errors import binding_error

if TYPE_CHECKING:
    from ..device.tuning_store import TuningRecord

# A variant replaces the engine's own choice only below this fraction of its time; smaller gains are noise.
_MAX_TIME_RATIO = 0.98
_CRITERIA = "compared with the engine's own choice"
_cache: dict[str, tuple[int, dict[str, str]]] = {}  # folder -> (mtime, best variants)


class StepVariants(dict[str, str]):
    """Kind of step -> variant to use. lists_variants: whether the program's plan lists all available variants of each step."""

    lists_variants = False

    @classmethod
    def with_variant_listing(cls, variants: Mapping[str, str]) -> StepVariants:
        """Return these variants with `lists_variants` set."""
        variants_with_listing = cls(variants)
        variants_with_listing.lists_variants = True
        return variants_with_listing


def make_empty_record(info: DeviceInfo, kind: str, variant: str, default_variant: str) -> TuningRecord:
    """Return a record without results for a variant. default_variant: the engine's own choice."""
    from .._pumice import sha256
    from ..device.tuning_store import TuningRecord, format_driver_version, get_device_model_name

    return TuningRecord(
        kernel="step of a model",
        device=get_device_model_name(info),
        driver=format_driver_version(info),
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


def load_measured_variants(context: Context) -> dict[str, str]:
    """Return kind of step -> fastest measured variant on this device and driver, if it is faster than the engine's own choice.

    The folder with the records is read again only if it has changed.
    """
    cache = cache_directory()
    if not cache or not os.path.isdir(os.path.join(cache, "tuning")):
        return {}  # nothing was ever measured on this machine; skip importing the store's modules
    from ..device.tuning_store import get_record_folder, read_sibling_records

    sample_record = make_empty_record(context.info, "", "", "")
    folder = get_record_folder(sample_record)
    try:
        mtime = os.stat(folder).st_mtime_ns if folder else 0
    except OSError:
        return {}
    if folder is None:
        return {}
    cached = _cache.get(folder)
    if cached is None or cached[0] != mtime:
        cached = _cache[folder] = (mtime, choose_best_variants(read_sibling_records(sample_record)))
    return dict(cached[1])


def choose_best_variants(records: list[TuningRecord]) -> dict[str, str]:
    """Return kind of step -> fastest variant, without kinds for which the engine's own choice is as fast."""
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
    """Return the kernel variants that the argument `tuned` selects; None: the engine's own choices.

    Raise BindingError if `tuned` has another type.
    """
    if isinstance(tuned, StepVariants):
        return tuned
    if isinstance(tuned, bool):
        fastest_variants = load_measured_variants(context) if tuned else {}
        return StepVariants(fastest_variants) if fastest_variants else None
    if not isinstance(tuned, Mapping) or not all(isinstance(string, str) for pair in tuned.items() for string in pair):
        expected = "True, False or a dict of kinds of steps and names of variants"
        raise binding_error("K5", "tuned", expected, type(tuned).__name__, kind="argument")
    return StepVariants(tuned)
