"""Measure and check variants of a kernel, and store the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._pumice import (
    BindingError,
    Context,
    OutOfBoundsError,
    OutOfMemoryError,
    ShaderCompileError,
    Tensor,
    UnsupportedError,
)
from ..base.element_types import Array
from .tuning_arguments import Call
from .tuning_store import Record, arrays_of, described, size_class, write

if TYPE_CHECKING:
    from .kernel import Kernel
    from .tuning import Demand


class Measurement:
    """Measures and checks variants for one call to Kernel.tune."""

    def __init__(
        self,
        subject: tuple[str, str, str, str, str],
        context: Context,
        demand: Demand,
        is_same: bool,
        variant_of: Callable[[dict[str, Any]], Kernel],
    ) -> None:
        """subject: the fields of a record that identify the kernel, device, driver, source hash and demand. is_same: whether all variants
        have the same arguments. variant_of: builds the kernel of a configuration.
        """
        self._subject = subject
        self._context = context
        self._demand = demand
        self._is_same = is_same
        self._variant_of = variant_of
        self._expected: dict[str, Any] | None = None  # reference results, if all variants have the same arguments
        self.count = 0  # variants run or built

    def _blank(self, config: dict[str, Any], call: Call) -> Record:
        """Return the record of a variant before its measurement."""
        every = call.arguments
        kernel, device, driver, text, demand = self._subject
        return Record(
            kernel=kernel,
            device=device,
            driver=driver,
            text=text,
            demand=demand,
            arguments=described(every, size_class),
            shapes=described(arrays_of(every), size_class),
            config=config,
            seconds=None,
            rejected="",
            calls=[described(every, str)],
            measured=time.time(),
        )

    def of(self, config: dict[str, Any], call: Call) -> Record:
        """Measure a variant, and store and return its record."""
        blank = self._blank(config, call)
        self.count += 1
        try:
            variant = self._variant_of(config)
        except (ShaderCompileError, UnsupportedError, BindingError) as error:
            return self._kept(blank, rejected=f"is not built: {_first_line(error)}")
        from .kernel_times import NoTimeStampsError, times_of

        try:
            reason = self._fault(variant, call)
            if reason:
                return self._kept(blank, rejected=reason)
            seconds = times_of(variant, self._context, ({}, call.copies()), self._demand.runs).median
        except OutOfMemoryError as error:  # do not store the rejection: there may be enough memory another time
            return blank._replace(rejected=f"has no memory: {_first_line(error)}")
        except NoTimeStampsError:
            raise
        except UnsupportedError as error:
            return _not_run(blank, error)
        if seconds <= 0:
            return blank._replace(rejected="is over before the clock of the device ticks: give it more to do")
        return self._kept(blank, seconds=seconds)

    def checked(self, record: Record, call: Call) -> Record:
        """Check a variant with the sizes of this call, and return its record."""
        self.count += 1
        try:
            wrong = self._wrong(self._variant_of(record.config), call)
        except UnsupportedError as error:
            return _not_run(record, error)
        if wrong:
            return self._kept(record, seconds=None, rejected=f"is wrong: {wrong}")
        return self._kept(record, calls=[*record.calls, described(call.arguments, str)])

    def _kept(self, record: Record, **found: Any) -> Record:
        made = record._replace(**found)
        write(made)
        return made

    def _fault(self, variant: Kernel, call: Call) -> str:
        """Return why a variant must be rejected; "" if it is valid."""
        if self._demand.check is not None and (wrong := self._wrong(variant, call)):
            return f"is wrong: {wrong}"
        if self._demand.allow_spills:
            return ""
        if self._demand.check is None:
            from .kernel_times import on_device

            in_dict, by_name = on_device(variant, self._context, {}, call.copies())
            variant.bind(in_dict, **by_name)  # builds the variant for these arrays
        build = next((name for name in variant.variants if name != "fp32"), None)
        told = variant.statistics(build)
        spills = told.spills if told.refusal is None else None
        return f"spills: {spills:,} as the driver counts" if spills else ""

    def _wrong(self, variant: Kernel, call: Call) -> str:
        assert self._demand.check is not None
        expected = self._expected
        if expected is None:
            expected = call.expected(self._demand.check)
            self._expected = expected if self._is_same else None
        given = call.copies()
        try:
            variant({}, **given)
        except OutOfBoundsError as error:
            return _first_line(error)
        results = ((name, _host(given[name]), array) for name, array in expected.items())
        said = (call.difference(name, got, array, self._demand.tolerance) for name, got, array in results)
        return next((one for one in said if one), "")


def _host(given: Any) -> Array:
    return given.numpy() if isinstance(given, Tensor) else np.asarray(given)


def _not_run(record: Record, error: UnsupportedError) -> Record:
    """Return the record for a variant that fails on the device, for example because the driver aborts its long loops.

    It is not stored, because loops for other sizes may complete.
    """
    return record._replace(seconds=None, rejected=f"does not run: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__
