"""Find the fastest variant of a kernel, and store the measurements."""

from __future__ import annotations

# variant_benchmark is imported on demand, because a process that finds all results in the store does not need it.
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import pumice._pumice as _pumice

from .._pumice import Context, sha256
from ..base.element_types import PRECISIONS
from ..base.errors import InputError, MultilineInputError
from ..base.printable_text import shorten_and_escape
from .tuning_store import (
    TuningRecord,
    canonicalize_config,
    describe_arguments,
    format_driver_version,
    get_device_model_name,
    get_size_class,
    read_variant_record,
)

if TYPE_CHECKING:
    from .kernel import Kernel
    from .variant_arguments import VariantArguments
    from .variant_benchmark import VariantBenchmark

Arguments = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
Configs = Mapping[str, Iterable[Any]] | Callable[[], Iterable[Mapping[str, Any]]]


class TuningCriteria:
    """How variants are checked and timed; see Kernel.tune."""

    def __init__(
        self, check: Callable[..., Any] | None, tolerance: float | None, allow_spills: bool, runs: int
    ) -> None:
        self.check = check
        self.tolerance = tolerance
        self.allow_spills = allow_spills
        self.runs = runs

    @property
    def description(self) -> str:
        """Return a text that identifies the criteria: records with the same text are interchangeable."""
        checked = "unchecked" if self.check is None else f"checked to {self.tolerance}"
        return f"{checked}, {'spills allowed' if self.allow_spills else 'no spills'}"


class Variant(NamedTuple):
    """One configuration with its median device time in seconds (None if rejected), and the reason for a rejection."""

    config: dict[str, Any]
    seconds: float | None
    rejected: str


class Tuning:
    """The result of `kernel.tune()`.

    name: the kernel's name. best: the fastest configuration; seconds: its median device time. variants: all requested variants, in order.
    measured: how many of them this call ran or built; the others had stored results.
    """

    def __init__(self, kernel: Kernel, variants: list[Variant], measured: int) -> None:
        self.name = kernel.name
        self.variants = tuple(variants)
        self.measured = measured
        accepted = [(variant.seconds, i) for i, variant in enumerate(variants) if variant.seconds is not None]
        if not accepted:
            rejections = "".join(f"\n  {_format_config(variant.config)}: {variant.rejected}" for variant in variants)
            raise MultilineInputError(f"kernel '{self.name}': no variant can be used ({len(variants)}):{rejections}")
        position = min(accepted)[1]
        self.best: dict[str, Any] = dict(variants[position].config)
        self.seconds: float = min(accepted)[0]
        self._base_kernel = kernel
        self._best_kernel: Kernel | None = None

    @property
    def kernel(self) -> Kernel:
        """Return the kernel of the best configuration, built on first access."""
        if self._best_kernel is None:
            self._best_kernel = build_variant(self._base_kernel, self.best)
        return self._best_kernel

    @property
    def rejected(self) -> tuple[Variant, ...]:
        """Return the rejected variants, each with its reason."""
        return tuple(variant for variant in self.variants if variant.seconds is None)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        variants = [variant._asdict() for variant in self.variants]
        return {
            "kernel": self.name,
            "best": self.best,
            "seconds": self.seconds,
            "measured": self.measured,
            "variants": variants,
        }

    def _make_rows(self) -> list[tuple[str, str]]:
        """Return (configuration, time or reason of the rejection), fastest first, rejected variants last."""
        ordered = sorted(self.variants, key=lambda variant: math.inf if variant.seconds is None else variant.seconds)
        return [
            (_format_config(variant.config), variant.rejected or f"{(variant.seconds or 0) * 1e6:,.2f} us")
            for variant in ordered
        ]

    def __repr__(self) -> str:
        rows = self._make_rows()
        width = max(len(config) for config, _ in rows)
        head = f"<Tuning of '{shorten_and_escape(self.name)}', {self.measured} of {len(self.variants)} variants measured now>"
        return head + "".join(f"\n{config:<{width}}  {result_text}" for config, result_text in rows)

    def _repr_html_(self) -> str:
        from ..base.html import render_table, render_titled_text

        return render_titled_text(f"Tuning of kernel {self.name}", "") + render_table(
            ("variant", "time"), self._make_rows(), highlighted=(0,)
        )


def _format_config(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.items()) or "as it is"


# ---- kernel configurations


def expand_configs(kernel: Kernel, configs: Configs) -> list[dict[str, Any]]:
    """Return all configurations of a grid or callable without duplicates. Raise InputError for an invalid configuration or unknown name."""
    if isinstance(configs, Mapping):
        for name, values in configs.items():
            if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
                raise InputError(f"Kernel.tune: configs['{name}']: expected a list of values; given {values!r}")
        grid = [list(values) for values in configs.values()]
        all_configs: Iterable[Any] = (
            dict(zip(configs, combination, strict=True)) for combination in itertools.product(*grid)
        )
    elif callable(configs):
        all_configs = configs()
    else:
        raise InputError(
            f"Kernel.tune: configs: expected a dict of lists or a callable; given {type(configs).__name__}"
        )
    normalized = [_normalize_config(candidate) for candidate in all_configs]
    if not normalized:
        raise InputError("Kernel.tune: configs: expected at least one variant; given none")
    for name in dict.fromkeys(name for candidate in normalized for name in candidate):
        _check_name_in_source(kernel, name)
    return list({canonicalize_config(candidate): candidate for candidate in normalized}.values())


def _normalize_config(config: Any) -> dict[str, Any]:
    """Return a configuration with JSON-compatible values."""
    if not isinstance(config, Mapping):
        raise InputError(f"Kernel.tune: configs: expected dicts; given {type(config).__name__}")
    return {str(name): _normalize_value(name, value) for name, value in config.items()}


def _normalize_value(name: str, value: Any) -> Any:
    if name == "precision" and value not in PRECISIONS:
        raise InputError(f"Kernel.tune: precision: expected one of {', '.join(PRECISIONS)}; given {value!r}")
    if name == "local_size":
        try:
            return [operator.index(size) for size in (value if isinstance(value, Iterable) else (value,))]
        except TypeError:
            raise InputError(f"Kernel.tune: local_size: expected integers; given {value!r}") from None
    if isinstance(value, (np.number, np.bool_)):
        value = value.item()
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"Kernel.tune: configs['{name}']: expected text or numbers; given {value!r}")
    return value


def _get_spec_constant_names(kernel: Kernel) -> set[str]:
    return {constant["name"] for constant in kernel.shader.interface["spec_constants"]}


def _check_name_in_source(kernel: Kernel, name: str) -> None:
    """Raise InputError for a name that is not in the source: its variants would be the same program and differ only by noise."""
    if name == "precision" and isinstance(kernel._build_options["options"], _pumice.ShaderOptions):
        raise InputError("Kernel.tune: precision: the kernel's options= fix the types of its arrays")
    is_known = name in ("precision", "local_size") or name in _get_spec_constant_names(kernel)
    if not is_known and not re.search(rf"\b{re.escape(name)}\b", kernel.source) and "#include" not in kernel.source:
        expected = ", ".join([*sorted(_get_spec_constant_names(kernel)), "local_size", "precision"])
        raise InputError(
            f"Kernel.tune: '{name}': expected a specialization constant or another of {expected}, or a macro that the source uses"
        )


def build_variant(kernel: Kernel, config: Mapping[str, Any]) -> Kernel:
    """Return the kernel for a configuration. Raise the errors of Kernel if it cannot be built."""
    constants = _get_spec_constant_names(kernel)
    constants_and_macros = {name: value for name, value in config.items() if name not in ("precision", "local_size")}
    spec = {name: value for name, value in constants_and_macros.items() if name in constants}
    macros = {name: value for name, value in constants_and_macros.items() if name not in constants}
    return kernel._build_variant(config.get("local_size"), spec, macros)


def _hash_sources(kernel: Kernel) -> str:
    """Return a hash of the kernel's source, included files and build options, without a configuration's changes."""
    options = kernel._build_options
    path, includes = options["_path"] or kernel.name, dict(options["includes"] or {})
    folders = [str(folder) for folder in options["include_dirs"]]
    option_names = ("macros", "spec", "includes", "options", "debug", "local_size")
    key_fields = [kernel.source, kernel.shader.preamble, *(repr(options[name]) for name in option_names)]
    contents = [json.dumps(key_fields).encode(), *([options["spirv"]] if options["spirv"] else [])]
    if "#include" in kernel.source:
        included = _pumice.included_files(kernel.source, path, includes, folders)
        contents += [Path(file).read_bytes() if Path(file).is_file() else b"" for file in included]
    return sha256(json.dumps([sha256(content) for content in contents]).encode())


# ---- stored and new measurements


class _TuningSession:
    """One call to Kernel.tune."""

    def __init__(self, kernel: Kernel, context: Context, arguments: Arguments, criteria: TuningCriteria) -> None:
        self._kernel = kernel
        self._context = context
        self._arguments = arguments
        self._criteria = criteria
        info = context.info
        self._kernel_key = (
            get_device_model_name(info),
            format_driver_version(info),
            _hash_sources(kernel),
            criteria.description,
        )
        self._lazy_benchmark: VariantBenchmark | None = None

    @property
    def measured(self) -> int:
        """Return the number of variants that were run or built."""
        return self._lazy_benchmark.count if self._lazy_benchmark else 0

    def _make_arguments(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for a variant. Raise InputError if they are not a dict, or if `precision` changes no array."""
        call_arguments = self._arguments(dict(config)) if callable(self._arguments) else self._arguments
        if not isinstance(call_arguments, Mapping):
            raise InputError(
                f"Kernel.tune: arguments: expected a dict or a callable that returns one; given {call_arguments!r}"
            )
        all_arguments = self._kernel._add_omitted_arguments(dict(call_arguments))
        if (
            config.get("precision") is not None
            and not self._make_variant_arguments(config, all_arguments).precision_arrays
        ):
            raise InputError("Kernel.tune: precision: no float array is bound to a buffer of sfp")
        return all_arguments

    def _make_variant_arguments(self, config: dict[str, Any], all_arguments: dict[str, Any]) -> VariantArguments:
        from .variant_arguments import VariantArguments

        bindings = self._kernel.shader.interface["bindings"]
        return VariantArguments(self._kernel.source, bindings, self._context, all_arguments, config.get("precision"))

    def _read_stored(self, config: dict[str, Any], all_arguments: dict[str, Any]) -> TuningRecord | None:
        stored = read_variant_record(self._kernel_key, describe_arguments(all_arguments, get_size_class), config)
        return None if stored is None else stored._replace(config=config)

    @property
    def _benchmark(self) -> VariantBenchmark:
        if self._lazy_benchmark is None:
            from .variant_benchmark import VariantBenchmark

            kernel, is_same = self._kernel, not callable(self._arguments)
            self._lazy_benchmark = VariantBenchmark(
                (kernel.name, *self._kernel_key),
                self._context,
                self._criteria,
                is_same,
                lambda config: build_variant(kernel, config),
            )
        return self._lazy_benchmark

    def get_records(self, configs: list[dict[str, Any]], again: bool, progress: bool) -> list[TuningRecord]:
        """Return the variants' records, from the store or else from new measurements, which are stored."""
        records_so_far: list[TuningRecord] = []
        all_arguments: dict[str, Any] | None = None  # arguments for the first variant without a record
        for config in configs:
            all_arguments = self._make_arguments(config)
            stored = None if again else self._read_stored(config, all_arguments)
            if stored is None:
                break
            records_so_far.append(stored)
            all_arguments = None
        return (
            records_so_far
            if all_arguments is None
            else self._measure_remaining(records_so_far, configs, all_arguments, again, progress)
        )

    def _measure_remaining(
        self,
        records_so_far: list[TuningRecord],
        configs: list[dict[str, Any]],
        first_arguments: dict[str, Any],
        again: bool,
        progress: bool,
    ) -> list[TuningRecord]:
        from ..base.progress import Progress

        next_arguments: dict[str, Any] | None = first_arguments
        with Progress("variants", progress) as bar:
            for config in configs[len(records_so_far) :]:
                bar(len(records_so_far), len(configs))
                all_arguments = self._make_arguments(config) if next_arguments is None else next_arguments
                next_arguments = None
                stored = None if again else self._read_stored(config, all_arguments)
                records_so_far.append(
                    stored or self._benchmark.measure(config, self._make_variant_arguments(config, all_arguments))
                )
        return records_so_far

    def recheck_if_needed(self, record: TuningRecord) -> TuningRecord:
        """Check the variant again if it was checked only with other sizes of the same class. Return its current record."""
        all_arguments = self._make_arguments(record.config)
        if self._criteria.check is None or describe_arguments(all_arguments, str) in record.calls:
            return record
        return self._benchmark.recheck(record, self._make_variant_arguments(record.config, all_arguments))


def tune_kernel(
    kernel: Kernel,
    context: Context,
    configs: list[dict[str, Any]],
    arguments: Arguments,
    criteria: TuningCriteria,
    flags: tuple[bool, bool],
) -> Tuning:
    """Measure the configurations without stored results, and choose the fastest; see Kernel.tune. flags: (again, progress)."""
    if operator.index(criteria.runs) < 1:
        raise InputError(f"Kernel.tune: runs: expected a positive number, given {criteria.runs}")
    if criteria.tolerance is not None and not 0 <= criteria.tolerance < math.inf:
        raise InputError(f"Kernel.tune: tolerance: expected a non-negative number, given {criteria.tolerance}")
    search = _TuningSession(kernel, context, arguments, criteria)
    measured_records = search.get_records(configs, *flags)
    while (best := _find_fastest(measured_records)) is not None:
        rechecked = search.recheck_if_needed(measured_records[best])
        measured_records[best] = rechecked
        if rechecked.seconds is not None:
            break
    return Tuning(
        kernel,
        [Variant(variant.config, variant.seconds, variant.rejected) for variant in measured_records],
        search.measured,
    )


def _find_fastest(measured_records: list[TuningRecord]) -> int | None:
    accepted = [(record.seconds, i) for i, record in enumerate(measured_records) if record.seconds is not None]
    return min(accepted)[1] if accepted else None
