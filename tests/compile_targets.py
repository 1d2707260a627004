"""Compile the kernels of tests and models for GPUs that are not here, with their vendors' own Vulkan drivers.

./dev compile-check [--target NAME]... [--part NAME]... [--expected | --write] [MODEL...]

`--target` selects targets by a part of their names, `--part` parts of the workload: models, decoder, cases, corpus. MODELs replace the
workload. The workload is the models of ../shared/models if that folder is there, the example's decoder, every row of the case table at
three precisions, and the corpus. Exit status 1 if a kernel fails to compile, a kernel in use spills, or a target cannot be started.

`--expected` compiles the parts that every clone has, and compares with the files of tests/expectations. `--write` writes these files and
the tables of docs/compile_check.md and docs/support.md. If the driver's version is not the file's, `--expected` compares nothing, and
prints failures and spills without failing the run. It also leaves out targets that cannot be started, and names them.

The drivers are Mesa's, from the backports and the unstable release of Debian. Packages are downloaded to build/compile-check and unpacked
there; nothing is installed. Those of the unstable release run with that release's libc. mesa-drm-shim plays the kernel driver of AMD,
Qualcomm, Apple and NVIDIA devices, and tests/support/i915_shim.c that of Intel devices. Results are kept in
build/compile-check/results, one JSON file per target, beside logs of what a device does not support.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import expectation_files
from drivers import AbsentError, command, releases
from expectation_files import Expectations

if TYPE_CHECKING:
    import pumice
    from pumice.tools.compile_check.jobs import CompileJob

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "compile-check"
SHIM_SOURCE = ROOT / "tests" / "support" / "i915_shim.c"
SHARED_MODELS = ROOT.parent / "shared" / "models"
DECODER = ROOT / "python" / "pumice" / "data" / "story"
PARTS = ("models", "decoder", "cases", "corpus")
EXPECTED_PARTS = ("decoder", "cases", "corpus")  # those that need nothing beside the clone
PRECISIONS = ("fp32", "fp16", "bf16")
CASES_PER_JOB = 24  # a driver without its hardware can map only some hundred allocations in a process
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Target:
    """A device. driver: name of Mesa's library. shim: name of the package's shim; "" for our own. suite: of the packages."""

    name: str
    driver: str
    shim: str
    suite: str
    variables: dict[str, str] = field(default_factory=dict)


def _amd(name: str, suite: str) -> Target:
    return Target(f"radv-{name}", "radeon", "amdgpu", suite, {"AMDGPU_GPU_ID": name})


TARGETS = (
    _amd("polaris10", "backports"),
    _amd("vega20", "sid"),
    _amd("navi10", "backports"),
    _amd("navi21", "backports"),
    _amd("navi31", "backports"),
    _amd("gfx1150", "backports"),
    _amd("gfx1201", "sid"),
    Target("anv-tgl", "intel", "", "backports", {"I915_SHIM_DEVICE": "tgl"}),
    Target("anv-dg2", "intel", "", "backports", {"I915_SHIM_DEVICE": "dg2"}),
    Target("turnip-a660", "freedreno", "freedreno", "sid", {"FD_GPU_ID": "660"}),
    Target("turnip-a740", "freedreno", "freedreno", "sid", {"FD_GPU_ID": "740"}),
    Target("honeykrisp-m1", "asahi", "asahi", "sid"),
    Target("nvk-tu104", "nouveau", "nouveau", "sid", {"NOUVEAU_CHIPSET": "164"}),
)


# ---- packages


def fetch_suite(suite: str) -> Path:
    """Return the folder with the unpacked packages of a suite, downloading them if necessary. Raise AbsentError."""
    folder = FOLDER / suite
    if (folder / "complete").exists():
        return folder
    state = FOLDER / f"{suite}-apt"
    for name in ("lists/partial", "cache/archives/partial", "loading"):
        (state / name).mkdir(parents=True, exist_ok=True)
    pairs = releases()
    lines = {
        f"deb {address} {'sid' if suite == 'sid' else release + '-backports'} main\n"
        for address, release in pairs
        if address.rstrip("/").endswith("/debian")
    }
    if not lines:
        raise AbsentError("apt has no source of Debian's releases")
    (state / "sources.list").write_text("".join(sorted(lines)))
    options = [
        f"-oDir::Etc::sourcelist={state / 'sources.list'}",
        "-oDir::Etc::sourceparts=-",
        f"-oDir::State::Lists={state / 'lists'}",
        f"-oDir::Cache={state / 'cache'}",
    ]
    packages = ["mesa-drm-shim", "mesa-vulkan-drivers"]
    if suite == "sid":  # with everything they depend on, libc included, as if nothing were installed
        options += ["-oDir::State::status=/dev/null"]
    command("apt-get", *options, "update", "-qq", why=f"no packages of {suite} can be read")
    if suite == "sid":
        install = ["install", "--simulate", "--no-install-recommends", *packages]
        planned = command("apt-get", *options, *install, why=f"the packages of {suite} do not fit together")
        packages = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    elif suite == "backports":
        packages = [f"{package}/{release}-backports" for _, release in pairs[:1] for package in packages]
    for package in packages:
        command("apt-get", *options, "download", "-qq", package, why=f"no package {package}", folder=state / "loading")
    for archive in sorted((state / "loading").glob("*.deb")):
        command("dpkg", "-x", str(archive), str(folder), why=f"{archive.name} does not unpack")
    (folder / "complete").write_text("")
    return folder


def build_i915_shim() -> Path:
    """Return the shim for Intel's driver, compiled if its source is newer."""
    library = FOLDER / "i915_shim.so"
    if not library.exists() or library.stat().st_mtime < SHIM_SOURCE.stat().st_mtime:
        compiler = os.environ.get("CC", "cc")
        words = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SHIM_SOURCE), "-ldl"]
        command(*words, why=f"{SHIM_SOURCE.name} does not compile")
    return library


def make_command(target: Target) -> tuple[list[str], dict[str, str]]:
    """Return the words that start Python on a target, and its environment. Raise AbsentError if something is missing."""
    folder = fetch_suite(target.suite)
    libraries = folder / LIBRARIES
    driver = libraries / f"libvulkan_{target.driver}.so"
    shim = libraries / f"lib{target.shim}_noop_drm_shim.so" if target.shim else build_i915_shim()
    for file in (driver, shim):
        if not file.exists():
            raise AbsentError(f"the packages of {target.suite} have no {file.name}")
    manifest = FOLDER / f"{target.suite}-{target.driver}.json"
    facts = {"file_format_version": "1.0.0", "ICD": {"library_path": str(driver), "api_version": "1.3.0"}}
    manifest.write_text(json.dumps(facts))
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PUMICE_DEVICE", "PUMICE_VALIDATION")},
        "VK_DRIVER_FILES": str(manifest),
        "VK_ICD_FILENAMES": str(manifest),
        "PUMICE_CACHE_DIR": str(FOLDER / "cache"),
        "PYTHONPATH": path.rstrip(os.pathsep),
        **target.variables,
    }
    if target.suite != "sid":
        return [sys.executable], {**environment, "LD_PRELOAD": str(shim)}
    loader = libraries / "ld-linux-x86-64.so.2"
    python = os.path.realpath(sys.executable)
    searched = ":".join([str(libraries), f"/{LIBRARIES}", str(Path(python).parents[1] / "lib")])
    words = [str(loader), "--argv0", sys.executable, "--library-path", searched, "--preload", str(shim), python]
    return words, environment


# ---- the workload, in the process of a target


def list_jobs(parts: Sequence[str], models: Sequence[str]) -> Iterator[CompileJob]:
    """Yield the jobs of a run."""
    from pumice.tools.compile_check.command import make_model_jobs

    if models:
        yield from make_model_jobs(models, PRECISIONS)
        return
    if "models" in parts:
        yield from make_model_jobs(sorted(map(str, SHARED_MODELS.glob("*/*.onnx"))), PRECISIONS)
    if "decoder" in parts:
        yield from make_model_jobs([str(DECODER)], PRECISIONS)
    if "cases" in parts:
        yield from _list_case_jobs()
    if "corpus" in parts:
        yield from _list_corpus_jobs()


def _list_case_jobs() -> Iterator[CompileJob]:
    from cases import CASES
    from pumice.tools.compile_check.jobs import CompileJob

    for precision in PRECISIONS:
        chosen = [case for case in CASES if not case.large and (precision == "fp32" or case.has_floats)]
        for begin in range(0, len(chosen), CASES_PER_JOB):
            batch = chosen[begin : begin + CASES_PER_JOB]
            yield CompileJob(
                f"cases {begin} to {begin + len(batch) - 1} ({precision})", _CaseCompiler(batch, precision)
            )


class _CaseCompiler:
    """Compiles rows of the case table. A row that the device does not support is no failure if the error names what it lacks."""

    def __init__(self, cases: Sequence[Any], precision: str) -> None:
        self._cases, self._precision = cases, precision

    def __call__(self, context: pumice.Context) -> None:
        import pumice
        from operator_references import compiled

        for case in self._cases:
            try:
                program, inputs = compiled(case, context, self._precision)
                program.run_async(tuple(inputs[value.name] for value in program.inputs))
                program.close()
            except pumice.UnsupportedError as error:
                print(f"unsupported: {case} ({self._precision}): {error}", file=sys.stderr)
            except pumice.Error as error:
                raise pumice.Error(f"{case}: {error}") from error


def _list_corpus_jobs() -> Iterator[CompileJob]:
    from corpus import store
    from pumice.tools.compile_check.jobs import CompileJob

    for name in store.names():
        yield CompileJob(f"corpus {name}", _CorpusCompiler(name))


class _CorpusCompiler:
    """Compiles a model of the corpus for each of its test sizes. A refusal that names what is not supported is no failure."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, context: pumice.Context) -> None:
        import pumice
        from corpus import store
        from corpus.case import arrays

        stored = store.load(self._name)
        try:
            model = pumice.load(stored.model, context, progress=False)
        except pumice.UnsupportedError as error:
            print(f"unsupported: {self._name}: {error}", file=sys.stderr)
            return
        for sizes in stored.sizes:
            given = arrays(stored.inputs, sizes)
            model.warm_up(*(given[value.name] for value in model.inputs))


def run_workload(arguments: argparse.Namespace) -> int:
    """Run the jobs, print one line for each that fails, and write the results."""
    from pumice.tools.compile_check.jobs import CompileOptions, make_json_record, run_jobs

    records = []
    first, step = arguments.share
    jobs = list(islice(list_jobs(arguments.part, arguments.models), first, None, step))
    for result in run_jobs(jobs, CompileOptions()):
        record = make_json_record(result)
        records.append(record)
        used = [kernel for kernel in record["kernels"] if kernel["used"]]
        if not result.passed or arguments.models:
            spilling = [f"{kernel['kernel']}: {kernel['spills']}" for kernel in used if kernel["spills"]]
            failed = [f"{failure.kernel} ({failure.variant}): {failure.reason}" for failure in result.failures]
            notes = "; ".join(filter(None, [result.error[:300], *failed, *spilling]))
            print(f"  {result.name}: {'ok' if result.passed else 'FAILED'}, {len(used)} kernels; {notes}", flush=True)
    Path(arguments.worker).write_text(json.dumps(records))
    return 0


# ---- targets, in the outer process


@dataclass(frozen=True)
class Summary:
    """The results of a target. text: one line. is_complete: whether everything was compiled. spills: of pipelines in use."""

    device: str
    text: str
    is_complete: bool
    spills: int


def summarize(records: Sequence[dict[str, Any]]) -> Summary:
    """Summarize the results of a target."""
    kernels = {kernel["key"]: kernel for record in records for kernel in record["kernels"]}
    used = {kernel["key"] for record in records for kernel in record["kernels"] if kernel["used"]}
    spilling = [key for key in used if kernels[key]["spills"]]
    failures = {failure["key"] for record in records for failure in record["failures"]}
    errors = sum(bool(record["error"]) for record in records)
    device = next(
        (f"{record['device']['name']}, {record['device']['driver']}" for record in records if record["device"]), ""
    )
    slowest = max((1e3 * kernel["compile_seconds"] for kernel in kernels.values()), default=0)
    registers = max((kernel["registers"] or 0 for kernel in kernels.values()), default=0)
    text = (
        f"{device}: {len(records)} jobs, {errors} with errors; {len(kernels)} pipelines, {len(failures)} failed; {len(used)} in use,"
        f" {len(spilling)} of them spill; most registers {registers}, slowest {slowest:.0f} ms"
    )
    return Summary(device, text, not (errors or failures) and bool(used), len(spilling))


def run_target(target: Target, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the workload on a target, in a process for each processor. Return the records of the jobs. Raise AbsentError."""
    words, environment = make_command(target)
    workers = os.cpu_count() or 1
    results = FOLDER / "results" / f"{target.name}.json"
    files = [results.with_name(f"{target.name}-{k}.json") for k in range(workers)]
    for file in (results, *files):
        file.unlink(missing_ok=True)
    processes = []
    for k, file in enumerate(files):
        inner = [str(Path(__file__).resolve()), "--worker", str(file), "--share", str(k), str(workers)]
        inner += [word for part in arguments.part for word in ("--part", part)]
        inner += [str(Path(model).resolve()) for model in arguments.models]
        with file.with_suffix(".log").open("w") as log:  # warnings, and what the device does not support
            processes.append(subprocess.Popen([*words, *inner], cwd=ROOT, env=environment, stderr=log))
    for process in processes:
        process.wait()
    if not all(file.exists() for file in files):
        return []
    records = [record for file in files for record in json.loads(file.read_text())]
    for file in files:
        file.unlink()
    results.write_text(json.dumps(records))
    return records


def check_target(target: Target, arguments: argparse.Namespace) -> bool:
    """Run the workload on a target and print the outcome. Return whether it is as it must be."""
    print(f"==> {target.name}", flush=True)
    try:
        records = run_target(target, arguments)
    except AbsentError as error:
        print(f"  absent: {error}")
        return bool(arguments.expected)
    if not records:
        print("  FAILED: a process ended early")
        return False
    summary = summarize(records)
    file = expectation_files.FOLDER / f"{target.name}.txt"
    found = Expectations(summary.device, str(date.today()), expectation_files.collect(records))
    if arguments.write and summary.is_complete:
        expectation_files.write(file, found)
    differences: list[str] = []
    if arguments.expected:
        expected = expectation_files.read(file)
        if expected.device != found.device:
            print(f"  not compared: {file.name} is of {expected.device}; {summary.text}")
            return True
        differences = expectation_files.compare(expected.variants, found.variants)
    for line in differences:
        print(f"  {line}")
    has_passed = summary.is_complete and not (summary.spills or differences)
    print(f"  {'ok' if has_passed else 'FAILED'}: {summary.text}", flush=True)
    return has_passed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev compile-check", description="Compile all kernels for GPUs that are not here."
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="compile these instead of the workload")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="part of a target's name")
    parser.add_argument("--part", action="append", choices=PARTS, help="part of the workload (default: all)")
    parser.add_argument("--expected", action="store_true", help="compare with tests/expectations")
    parser.add_argument("--write", action="store_true", help="write tests/expectations and the tables of the pages")
    parser.add_argument("--list", action="store_true", help="list the targets")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--share", nargs=2, type=int, default=(0, 1), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.expected or arguments.write) and (arguments.part or arguments.models):
        parser.error("--expected and --write take the whole workload")
    arguments.part = arguments.part or (EXPECTED_PARTS if arguments.expected or arguments.write else PARTS)
    if arguments.worker:
        return run_workload(arguments)
    chosen = [
        target for target in TARGETS if not arguments.target or any(name in target.name for name in arguments.target)
    ]
    if not chosen:
        parser.error(f"no such target; there are {', '.join(target.name for target in TARGETS)}")
    if arguments.list:
        print("\n".join(target.name for target in chosen))
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "results").mkdir(exist_ok=True)
    has_passed = [check_target(target, arguments) for target in chosen]
    if arguments.write:
        documents = str(Path(__file__).with_name("documents.py"))
        subprocess.run([sys.executable, documents, "--write"], cwd=ROOT, check=True)
    return 0 if all(has_passed) else 1


if __name__ == "__main__":
    sys.exit(main())
