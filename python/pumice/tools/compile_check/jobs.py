"""Run compile jobs in child processes, and restart them without the pipelines that the driver's compiler fails on."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NamedTuple

from ..._pumice import Context, Error, log_pipelines
from ...base.printable_text import shorten_and_escape

DEFAULT_TIMEOUT = 60.0  # seconds that the driver may take for one pipeline
_MAX_RESTARTS = 24  # of a job; each leaves out one more pipeline
_POLL_SECONDS = 0.05


class CompileOptions(NamedTuple):
    """Options of all jobs of a check. device, quirks: as for Context. timeout: seconds for one pipeline."""

    device: str = ""
    quirks: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT


class CompileJob(NamedTuple):
    """Work whose pipelines are compiled. run: receives a compile-only context, and loads and records the work there."""

    name: str
    run: Callable[[Context], None]


class PipelineFailure(NamedTuple):
    """A pipeline that the driver did not compile. variant: storage mode, local size and constants."""

    kernel: str
    variant: str
    key: str
    reason: str


class JobResult(NamedTuple):
    """The result of a job.

    kernels: a record of each pipeline, as in `Context.pipelines`. failures: pipelines that crashed the driver's compiler, took too
    long or were rejected. error: why the job itself failed; "" if it did not.
    """

    name: str
    device: dict[str, str]
    kernels: list[dict[str, Any]]
    failures: list[PipelineFailure]
    error: str

    @property
    def spilling(self) -> list[dict[str, Any]]:
        """The kernels in use that spill registers."""
        return [kernel for kernel in self.kernels if kernel["used"] and kernel["summary"]["spills"]]

    @property
    def passed(self) -> bool:
        """Whether everything was compiled, without spills in the kernels in use."""
        return not (self.failures or self.error or self.spilling)


def run_jobs(jobs: Sequence[CompileJob], options: CompileOptions) -> Iterator[JobResult]:
    """Run each job in a process of its own, and yield the results in order.

    A driver without its hardware can map only some hundred allocations in a process, and a crash ends only the job's process.
    """
    for job in jobs:
        yield _run_job(job, options)


def _run_job(job: CompileJob, options: CompileOptions) -> JobResult:
    failures: list[PipelineFailure] = []
    with tempfile.TemporaryDirectory(prefix="pumice-compile-") as folder:
        for attempt in range(_MAX_RESTARTS + 1):
            log, answer = Path(folder) / f"log{attempt}", Path(folder) / f"answer{attempt}"
            skipped = {failure.key for failure in failures}
            process = multiprocessing.get_context("fork").Process(
                target=_run_in_child, args=(job, options, str(log), str(answer), skipped)
            )
            process.start()
            is_late = _wait_for_child(process, log, options.timeout)
            open_entry = _read_open_entry(log, failures)
            if answer.exists():
                device, kernels, error = pickle.loads(answer.read_bytes())
                return JobResult(job.name, device, kernels, failures, error)
            reason = (
                f"the driver's compiler took more than {options.timeout:g} s"
                if is_late
                else f"the driver's compiler crashed: {_describe_exit(process.exitcode)}"
            )
            if open_entry is None:
                text = f"the process ended outside the driver's compiler: {_describe_exit(process.exitcode)}"
                return JobResult(job.name, {}, [], failures, text)
            failures.append(open_entry._replace(reason=reason))
    return JobResult(job.name, {}, [], failures, f"gave up after {len(failures)} pipelines that ended the process")


def _run_in_child(job: CompileJob, options: CompileOptions, log: str, answer: str, skipped: set[str]) -> None:
    os.environ["MESA_SHADER_CACHE_DISABLE"] = "true"  # compile times are those of the compiler
    os.environ["PUMICE_COMPILE_ONLY"] = "1"  # for contexts that the job opens itself
    log_pipelines(log, skipped)
    device: dict[str, str] = {}
    kernels: list[dict[str, Any]] = []
    error = ""
    try:
        context = Context(options.device, quirks=list(options.quirks), compile_only=True)
        info = context.info
        device = {"name": info.name, "kind": info.kind, "driver": f"{info.driver} {info.driver_info}".strip()}
        try:
            job.run(context)
        finally:
            kernels = [dict(record) for record in context.pipelines]
    except (Error, OSError) as raised:
        error = str(raised) or type(raised).__name__
    except Exception as raised:
        error = f"{type(raised).__name__}: {shorten_and_escape(str(raised))}"
    partial = f"{answer}.partial"
    Path(partial).write_bytes(pickle.dumps((device, kernels, error)))
    os.replace(partial, answer)
    os._exit(0)  # without the driver's exit handlers, which may wait for its hardware


def _wait_for_child(process: ForkProcess, log: Path, timeout: float) -> bool:
    """Wait until the process ends. Return whether it was killed because the driver took too long for one pipeline."""
    size, since = -1, time.monotonic()
    while True:
        process.join(_POLL_SECONDS)
        if not process.is_alive():
            return False
        new_size = log.stat().st_size if log.exists() else 0
        if new_size != size:
            size, since = new_size, time.monotonic()
        elif time.monotonic() - since > timeout and _read_open_entry(log, []) is not None:
            process.kill()
            process.join()
            return True


def _read_open_entry(log: Path, failures: list[PipelineFailure]) -> PipelineFailure | None:
    """Return the pipeline that the driver was compiling when the log ended, without a reason. Append the rejected ones to `failures`."""
    begun: dict[str, PipelineFailure] = {}
    known = {failure.key for failure in failures}
    for line in log.read_text("utf-8", "replace").splitlines() if log.exists() else ():
        kind, key, *fields = line.split("\t")
        if kind == "begin":
            kernel, *variant = fields
            begun[key] = PipelineFailure(kernel, " ".join(filter(None, variant)), key, "")
            continue
        entry = begun.pop(key)
        if kind == "fail" and key not in known:
            known.add(key)
            failures.append(entry._replace(reason=shorten_and_escape(fields[0])))
    return next(iter(begun.values()), None)


def _describe_exit(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def make_json_record(result: JobResult) -> Mapping[str, Any]:
    """Return a JSON-compatible record of a result."""
    return {
        "name": result.name,
        "passed": result.passed,
        "device": result.device,
        "error": result.error,
        "failures": [failure._asdict() for failure in result.failures],
        "kernels": [
            {
                **{name: kernel[name] for name in ("kernel", "storage", "constants", "key", "used", "compile_seconds")},
                "local_size": list(kernel["local_size"]),
                **kernel["summary"],
                "statistics": [
                    {one["name"]: one["value"] for one in executable["statistics"]}
                    for executable in kernel["executables"]
                ],
            }
            for kernel in result.kernels
            if not kernel["failure"]
        ],
    }
