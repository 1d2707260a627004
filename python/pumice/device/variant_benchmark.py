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
from .tuning_store import TuningRecord, describe_arguments, filter_arrays, get_size_class, write_record
from .variant_arguments import VariantArguments

if TYPE_CHECKING:
    from .kernel import Kernel
    from .tuning import TuningCriteria


class VariantBenchmark:
    """Measures and checks variants for one call to Kernel.tune."""

    def __init__(
        self,
        record_key: tuple[str, str, str, str, str],
        context: Context,
        criteria: TuningCriteria,
        same_arguments: bool,
        build_kernel: Callable[[dict[str, Any]], Kernel],
    ) -> None:
        """record_key: kernel, device, driver, text and demand of the TuningRecords. same_arguments: whether all variants have the same
        arguments. build_kernel: function that builds the kernel of a configuration.
        """
        self._kernel_key = record_key
        self._context = context
        self._criteria = criteria
        self._same_arguments = same_arguments
        self._build_kernel = build_kernel
        self._expected: dict[str, Any] | None = None  # reference results, if all variants have the same arguments
        self.count = 0  # variants run or built

    def _make_record(self, config: dict[str, Any], call: VariantArguments) -> TuningRecord:
        """Return the record of a variant before its measurement."""
        all_arguments = call.arguments
        kernel, device, driver, text, demand = self._kernel_key
        return TuningRecord(
            kernel=kernel,
            device=device,
            driver=driver,
            text=text,
            demand=demand,
            arguments=describe_arguments(all_arguments, get_size_class),
            shapes=describe_arguments(filter_arrays(all_arguments), get_size_class),
            config=config,
            seconds=None,
            rejected="",
            calls=[describe_arguments(all_arguments, str)],
            measured=time.time(),
        )

    def measure(self, config: dict[str, Any], call: VariantArguments) -> TuningRecord:
        """Measure a variant, and store and return its record."""
        record_draft = self._make_record(config, call)
        self.count += 1
        try:
            variant = self._build_kernel(config)
        except (ShaderCompileError, UnsupportedError, BindingError) as error:
            return self._store_result(record_draft, rejected=f"is not built: {_get_first_line(error)}")
        from .kernel_times import NoTimestampsError, measure_kernel_times

        try:
            reason = self._get_rejection_reason(variant, call)
            if reason:
                return self._store_result(record_draft, rejected=reason)
            seconds = measure_kernel_times(
                variant, self._context, ({}, call.copy_arguments()), self._criteria.runs
            ).median
        except OutOfMemoryError as error:  # not stored, because there may be enough memory next time
            return record_draft._replace(rejected=f"ran out of memory: {_get_first_line(error)}")
        except NoTimestampsError:
            raise
        except UnsupportedError as error:
            return _make_failure_record(record_draft, error)
        if seconds <= 0:
            return record_draft._replace(rejected="finishes within one tick of the device clock: give it more work")
        return self._store_result(record_draft, seconds=seconds)

    def recheck(self, record: TuningRecord, call: VariantArguments) -> TuningRecord:
        """Check a variant with the sizes of this call, store the result, and return the record."""
        self.count += 1
        try:
            wrong = self._describe_mismatch(self._build_kernel(record.config), call)
        except UnsupportedError as error:
            return _make_failure_record(record, error)
        if wrong:
            return self._store_result(record, seconds=None, rejected=f"is wrong: {wrong}")
        return self._store_result(record, calls=[*record.calls, describe_arguments(call.arguments, str)])

    def _store_result(self, record: TuningRecord, **changes: Any) -> TuningRecord:
        updated = record._replace(**changes)
        write_record(updated)
        return updated

    def _get_rejection_reason(self, variant: Kernel, call: VariantArguments) -> str:
        """Return why a variant must be rejected; "" if it is valid."""
        if self._criteria.check is not None and (wrong := self._describe_mismatch(variant, call)):
            return f"is wrong: {wrong}"
        if self._criteria.allow_spills:
            return ""
        if self._criteria.check is None:
            from .kernel_times import upload_arguments

            in_dict, by_name = upload_arguments(variant, self._context, {}, call.copy_arguments())
            variant.bind(in_dict, **by_name)  # builds the variant for these arrays
        build = next((name for name in variant.variants if name != "fp32"), None)
        driver_statistics = variant.statistics(build)
        spills = driver_statistics.spills if driver_statistics.refusal is None else None
        return f"spills: {spills:,} as the driver counts" if spills else ""

    def _describe_mismatch(self, variant: Kernel, call: VariantArguments) -> str:
        assert self._criteria.check is not None
        expected = self._expected
        if expected is None:
            expected = call.compute_expected(self._criteria.check)
            self._expected = expected if self._same_arguments else None
        call_arguments = call.copy_arguments()
        try:
            variant({}, **call_arguments)
        except OutOfBoundsError as error:
            return _get_first_line(error)
        results = ((name, _to_host_array(call_arguments[name]), array) for name, array in expected.items())
        differences = (
            call.describe_difference(name, actual, array, self._criteria.tolerance) for name, actual, array in results
        )
        return next((difference for difference in differences if difference), "")


def _to_host_array(value: Any) -> Array:
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _make_failure_record(record: TuningRecord, error: UnsupportedError) -> TuningRecord:
    """Return the record for a variant that fails on the device, for example because the driver aborts its long loops.

    The record is not stored, because loops for other sizes may complete.
    """
    return record._replace(seconds=None, rejected=f"does not run: {_get_first_line(error)}")


def _get_first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__
