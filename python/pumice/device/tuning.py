"""Find the fastest variant of a kernel, and store the measurements."""

from __future__ import annotations

# The modules that measure are imported on demand: a process that finds all variants in the store needs only this module.
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import pumice._pumice as _pumice

from .._pumice import Context, json_text, sha256
from ..base.element_types import PRECISIONS
from ..base.errors import InputError, NotedError
from ..base.printable_text import plain
from .tuning_store import Record, config_text, described, device_name, driver_name, read_variant, size_class

if TYPE_CHECKING:
    from .kernel import Kernel
    from .tuning_arguments import Call
    from .tuning_measurement import Measurement

Arguments = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
Configs = Mapping[str, Iterable[Any]] | Callable[[], Iterable[Mapping[str, Any]]]


class Demand:
    """Requirements on variants; see Kernel.tune."""

    def __init__(
        self, check: Callable[..., Any] | None, tolerance: float | None, allow_spills: bool, runs: int
    ) -> None:
        self.check = check
        self.tolerance = tolerance
        self.allow_spills = allow_spills
        self.runs = runs

    @property
    def text(self) -> str:
        """Describe the demand; two demands with interchangeable stored results have the same text."""
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
        right = [(one.seconds, i) for i, one in enumerate(variants) if one.seconds is not None]
        if not right:
            listed = "".join(f"\n  {_shown(one.config)}: {one.rejected}" for one in variants)
            raise NotedError(f"kernel '{self.name}': no variant can be taken ({len(variants)}):{listed}")
        position = min(right)[1]
        self.best: dict[str, Any] = dict(variants[position].config)
        self.seconds: float = min(right)[0]
        self._base = kernel
        self._made: Kernel | None = None

    @property
    def kernel(self) -> Kernel:
        """Return the kernel of the best configuration, built on first access."""
        if self._made is None:
            self._made = variant_of(self._base, self.best)
        return self._made

    @property
    def rejected(self) -> tuple[Variant, ...]:
        """Return the rejected variants, each with its reason."""
        return tuple(one for one in self.variants if one.seconds is None)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        variants = [one._asdict() for one in self.variants]
        return {
            "kernel": self.name,
            "best": self.best,
            "seconds": self.seconds,
            "measured": self.measured,
            "variants": variants,
        }

    def _rows(self) -> list[tuple[str, str]]:
        """Return (configuration, time or reason), fastest first, rejected ones last."""
        ordered = sorted(self.variants, key=lambda one: math.inf if one.seconds is None else one.seconds)
        return [(_shown(one.config), one.rejected or f"{(one.seconds or 0) * 1e6:,.2f} us") for one in ordered]

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(config) for config, _ in rows)
        head = f"<Tuning of '{plain(self.name)}', {self.measured} of {len(self.variants)} variants measured now>"
        return head + "".join(f"\n{config:<{width}}  {said}" for config, said in rows)

    def _repr_html_(self) -> str:
        from ..base.html import table, text_below

        return text_below(f"Tuning of kernel {self.name}", "") + table(("variant", "time"), self._rows(), marked=(0,))


def _shown(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.items()) or "as it is"


# ---- configurations


def listed(kernel: Kernel, configs: Configs) -> list[dict[str, Any]]:
    """Return every configuration of a grid or callable, without duplicates. Raise InputError for an invalid or unknown one."""
    if isinstance(configs, Mapping):
        for name, values in configs.items():
            if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
                raise InputError(f"Kernel.tune: configs['{name}']: expected a list of values; given {values!r}")
        grid = [list(values) for values in configs.values()]
        every: Iterable[Any] = (dict(zip(configs, point, strict=True)) for point in itertools.product(*grid))
    elif callable(configs):
        every = configs()
    else:
        raise InputError(
            f"Kernel.tune: configs: expected a dict of lists or a callable; given {type(configs).__name__}"
        )
    plain = [_plain(one) for one in every]
    if not plain:
        raise InputError("Kernel.tune: configs: expected a variant at least; given none")
    for name in dict.fromkeys(name for one in plain for name in one):
        _check_known(kernel, name)
    return list({config_text(one): one for one in plain}.values())


def _plain(config: Any) -> dict[str, Any]:
    """Return a configuration with JSON-compatible values."""
    if not isinstance(config, Mapping):
        raise InputError(f"Kernel.tune: configs: expected dicts; given {type(config).__name__}")
    return {str(name): _plain_value(name, value) for name, value in config.items()}


def _plain_value(name: str, value: Any) -> Any:
    if name == "precision" and value not in PRECISIONS:
        raise InputError(f"Kernel.tune: precision: expected one of {', '.join(PRECISIONS)}; given {value!r}")
    if name == "local_size":
        try:
            return [operator.index(one) for one in (value if isinstance(value, Iterable) else (value,))]
        except TypeError:
            raise InputError(f"Kernel.tune: local_size: expected whole numbers; given {value!r}") from None
    if isinstance(value, (np.number, np.bool_)):
        value = value.item()
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"Kernel.tune: configs['{name}']: expected text or numbers; given {value!r}")
    return value


def _constants(kernel: Kernel) -> set[str]:
    return {one["name"] for one in kernel.shader.interface["spec_constants"]}


def _check_known(kernel: Kernel, name: str) -> None:
    """Raise InputError for a name that is not in the source: its variants would be the same program and differ only by noise."""
    if name == "precision" and isinstance(kernel._given["options"], _pumice.ShaderOptions):
        raise InputError("Kernel.tune: precision: the kernel's options= fix the types of its arrays")
    known = name in ("precision", "local_size") or name in _constants(kernel)
    if not known and not re.search(rf"\b{re.escape(name)}\b", kernel.source) and "#include" not in kernel.source:
        expected = ", ".join([*sorted(_constants(kernel)), "local_size", "precision"])
        raise InputError(
            f"Kernel.tune: '{name}': expected a specialization constant or another of {expected}, or a macro that the text names"
        )


def variant_of(kernel: Kernel, config: Mapping[str, Any]) -> Kernel:
    """Return the kernel for a configuration. Raise the errors of Kernel if it cannot be built."""
    constants = _constants(kernel)
    rest = {name: value for name, value in config.items() if name not in ("precision", "local_size")}
    spec = {name: value for name, value in rest.items() if name in constants}
    macros = {name: value for name, value in rest.items() if name not in constants}
    return kernel._variant(config.get("local_size"), spec, macros)


def _text_of(kernel: Kernel) -> str:
    """Return a hash of everything that a kernel is built from, except what a configuration changes."""
    given = kernel._given
    path, includes = given["_path"] or kernel.name, dict(given["includes"] or {})
    folders = [str(folder) for folder in given["include_dirs"]]
    built_of = ("macros", "spec", "includes", "options", "debug", "local_size")
    parts = [kernel.source, kernel.shader.preamble, *(repr(given[name]) for name in built_of)]
    read = [json_text(parts).encode(), *([given["spirv"]] if given["spirv"] else [])]
    if "#include" in kernel.source:
        found = _pumice.included_files(kernel.source, path, includes, folders)
        read += [Path(file).read_bytes() if Path(file).is_file() else b"" for file in found]
    return sha256(json_text([sha256(one) for one in read]).encode())


# ---- stored and new measurements


class _Search:
    """One call to Kernel.tune."""

    def __init__(self, kernel: Kernel, context: Context, arguments: Arguments, demand: Demand) -> None:
        self._kernel = kernel
        self._context = context
        self._arguments = arguments
        self._demand = demand
        info = context.info
        self._subject = (device_name(info), driver_name(info), _text_of(kernel), demand.text)
        self._made: Measurement | None = None

    @property
    def measured(self) -> int:
        """Return the number of variants that were run or built."""
        return self._made.count if self._made else 0

    def _given(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for a variant. Raise InputError if they are no dict, or if a precision applies to no array."""
        given = self._arguments(dict(config)) if callable(self._arguments) else self._arguments
        if not isinstance(given, Mapping):
            raise InputError(f"Kernel.tune: arguments: expected a dict or a callable that gives one; given {given!r}")
        every = self._kernel._completed(dict(given))
        if config.get("precision") is not None and not self._call(config, every).followers:
            raise InputError("Kernel.tune: precision: no array of floats is bound to a buffer of sfp")
        return every

    def _call(self, config: dict[str, Any], every: dict[str, Any]) -> Call:
        from .tuning_arguments import Call

        bindings = self._kernel.shader.interface["bindings"]
        return Call(self._kernel.source, bindings, self._context, every, config.get("precision"))

    def _known(self, config: dict[str, Any], every: dict[str, Any]) -> Record | None:
        known = read_variant(self._subject, described(every, size_class), config)
        return None if known is None else known._replace(config=config)

    @property
    def _measurement(self) -> Measurement:
        if self._made is None:
            from .tuning_measurement import Measurement

            kernel, is_same = self._kernel, not callable(self._arguments)
            self._made = Measurement(
                (kernel.name, *self._subject), self._context, self._demand, is_same, lambda one: variant_of(kernel, one)
            )
        return self._made

    def records(self, configs: list[dict[str, Any]], again: bool, progress: bool) -> list[Record]:
        """Return the variants' records from the store; measure and store the missing ones."""
        found: list[Record] = []
        every: dict[str, Any] | None = None  # arguments for the first variant without a record
        for config in configs:
            every = self._given(config)
            known = None if again else self._known(config, every)
            if known is None:
                break
            found.append(known)
            every = None
        return found if every is None else self._with_rest(found, configs, every, again, progress)

    def _with_rest(
        self, found: list[Record], configs: list[dict[str, Any]], first: dict[str, Any], again: bool, progress: bool
    ) -> list[Record]:
        from ..base.progress import Progress

        given: dict[str, Any] | None = first
        with Progress("variants", progress) as bar:
            for config in configs[len(found) :]:
                bar(len(found), len(configs))
                every = self._given(config) if given is None else given
                given = None
                known = None if again else self._known(config, every)
                found.append(known or self._measurement.of(config, self._call(config, every)))
        return found

    def proved(self, record: Record) -> Record:
        """Return the record, after checking the variant again if it was checked only with other sizes of the same class."""
        every = self._given(record.config)
        if self._demand.check is None or described(every, str) in record.calls:
            return record
        return self._measurement.checked(record, self._call(record.config, every))


def tuned(
    kernel: Kernel,
    context: Context,
    configs: list[dict[str, Any]],
    arguments: Arguments,
    demand: Demand,
    shown: tuple[bool, bool],
) -> Tuning:
    """Measure the configurations without stored results, and choose; see Kernel.tune. shown: (again, progress)."""
    if operator.index(demand.runs) < 1:
        raise InputError(f"Kernel.tune: runs: expected a number from 1 on, given {demand.runs}")
    if demand.tolerance is not None and not 0 <= demand.tolerance < math.inf:
        raise InputError(f"Kernel.tune: tolerance: expected a number from 0 on, given {demand.tolerance}")
    search = _Search(kernel, context, arguments, demand)
    found = search.records(configs, *shown)
    while (best := _best(found)) is not None:
        checked = search.proved(found[best])
        found[best] = checked
        if checked.seconds is not None:
            break
    return Tuning(kernel, [Variant(one.config, one.seconds, one.rejected) for one in found], search.measured)


def _best(found: list[Record]) -> int | None:
    right = [(one.seconds, i) for i, one in enumerate(found) if one.seconds is not None]
    return min(right)[1] if right else None
