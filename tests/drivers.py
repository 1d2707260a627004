"""Run the tests on every software driver available to this machine, and report the results of each.

./dev test --drivers [--only NAME] [--rest] [--write] [ARGS]

ARGS go to pytest. `--only` runs the drivers whose names contain NAME. `--rest` runs the tests that have neither passed nor been skipped in
the kept reports: the remainder of an interrupted run, and failed tests. `--write` writes the table of all kept reports to the end of
docs/drivers.md; with `--only none` it runs nothing.

The drivers are the installed lavapipe at three vector widths (subgroups of 4, 8 and 16), the newer lavapipe of the distribution's
backports, SwiftShader from the Chromium package, and the colon-separated manifests in PUMICE_TEST_DRIVERS. Packages are downloaded to
build/drivers and unpacked there; nothing is installed. A missing driver is reported with the reason. Results are kept in
build/drivers/reports, one folder per driver, until the next run without `--rest`. They are written test by test, so that an interrupted
run can be resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from resumable_run import Case, case_of
from tested_commit import commit

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "drivers"
PAGE = ROOT / "docs" / "drivers.md"
HEADING = "## Test results on software drivers"
WIDTHS = (128, 256, 512)
NO_TESTS = 5  # pytest's exit status if no tests were selected


class AbsentError(Exception):
    """Raised for a driver that is unavailable on this machine, with the reason."""


@dataclass(frozen=True)
class Driver:
    """One driver configuration for the tests."""

    name: str
    manifest: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return re.sub("[^a-z0-9]+", "_", self.name.lower())

    @property
    def reports(self) -> Path:
        return FOLDER / "reports" / self.label

    @property
    def environment(self) -> dict[str, str]:
        chosen = {"VK_DRIVER_FILES": str(self.manifest), "VK_ICD_FILENAMES": str(self.manifest)}
        caches = {
            "MESA_SHADER_CACHE_DIR": str(FOLDER / f"mesa-{self.label}"),
            "PUMICE_CACHE_DIR": str(FOLDER / f"cache-{self.label}"),
        }
        return {**os.environ, **chosen, **caches, **self.variables}


# ---- available drivers


def drivers(absent: list[str]) -> Iterator[Driver]:
    """Yield the available drivers; add the names of the others with reasons to `absent`."""
    installed = os.environ.get("VK_DRIVER_FILES", "")
    if installed:
        for width in WIDTHS:
            variables = {"LP_NATIVE_VECTOR_WIDTH": str(width)}
            yield Driver(f"lavapipe, vectors of {width} bits", Path(installed), variables)
    for name, find in (("newer lavapipe", newer_lavapipe), ("SwiftShader", swiftshader)):
        try:
            yield Driver(name, find())
        except AbsentError as error:
            absent.append(f"{name}: {error}")
    for text in filter(None, os.environ.get("PUMICE_TEST_DRIVERS", "").split(":")):
        yield Driver(Path(text).stem, Path(text))


def newer_lavapipe() -> Path:
    """Return the manifest of the lavapipe in the distribution's backports."""
    lists = FOLDER / "apt"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources = FOLDER / "backports.list"
    sources.write_text("".join(f"deb {address} {release}-backports main\n" for address, release in releases()))
    options = [f"-oDir::Etc::sourcelist={sources}", "-oDir::Etc::sourceparts=-", f"-oDir::State::Lists={lists}"]
    command("apt-get", *options, "update", "-qq", why="the distribution has no backports that can be read")
    library = unpacked("mesa-vulkan-drivers", "libvulkan_lvp.so", options)
    return manifest("newer-lavapipe", library, "1.3.0")


def releases() -> list[tuple[str, str]]:
    """Return the addresses and names of apt's package releases."""
    listed = command("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Identifier: Packages", why="")
    pairs = {tuple(line.split()) for line in listed.splitlines() if len(line.split()) == 2}
    return sorted((address, release) for address, release in pairs if "-" not in release)


def swiftshader() -> Path:
    """Return the manifest of the SwiftShader shipped with Chromium."""
    return manifest("swiftshader", unpacked("chromium-common", "libvk_swiftshader.so", []), "1.3.0")


def unpacked(package: str, file: str, options: list[str]) -> Path:
    """Return a file of a package, downloading it if necessary."""
    folder = FOLDER / f"{package}-{file}"
    if not folder.is_dir():
        loading = FOLDER / "loading"
        loading.mkdir(parents=True, exist_ok=True)
        for old in loading.glob("*.deb"):
            old.unlink()
        command("apt-get", *options, "download", "-qq", package, why=f"no package {package}", folder=loading)
        for made in loading.glob("*.deb"):
            command("dpkg", "-x", str(made), str(folder), why=f"{made.name} does not unpack")
    found = next(folder.rglob(file), None)
    if found is None:
        raise AbsentError(f"no {file} in the package {package}")
    return found


def manifest(name: str, library: Path, version: str) -> Path:
    path = FOLDER / f"{name}.json"
    facts = {"file_format_version": "1.0.0", "ICD": {"library_path": str(library), "api_version": version}}
    path.write_text(json.dumps(facts))
    return path


def command(*words: str, why: str, folder: Path | None = None) -> str:
    """Return the output of a command. Raise AbsentError with `why` if it cannot run or fails."""
    try:
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise AbsentError(f"this system has no {words[0]}") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [""])[-1]
        raise AbsentError(f"{why} ({last})" if last else why) from error


# ---- runs and their reports


@dataclass(frozen=True)
class Outcome:
    """Combined results of one driver's kept reports; later runs override earlier ones."""

    device: str
    runs: tuple[str, ...]  # date and commit of each
    results: dict[Case, str]  # "passed", "failed", or the reason of a skip

    def count(self, kind: str) -> int:
        return sum(result == kind for result in self.results.values())

    def of(self, tests: set[Case]) -> Outcome:
        """Keep only these tests: results of renamed or deleted tests are dropped."""
        return replace(
            self, results={case: result for case, result in self.results.items() if case in tests or not case[0]}
        )

    @property
    def skips(self) -> Counter[str]:
        return Counter(result for result in self.results.values() if result not in ("passed", "failed"))


def run(driver: Driver, arguments: list[str], is_rest: bool) -> int:
    """Run the tests on a driver and keep the report. Return pytest's exit status."""
    for name in ("MESA_SHADER_CACHE_DIR", "PUMICE_CACHE_DIR"):
        Path(driver.environment[name]).mkdir(parents=True, exist_ok=True)
    shown = [sys.executable, "-c", "import pumice; d = pumice.devices()[0]; print(d.name, d.driver_info, sep=', ')"]
    device = subprocess.run(shown, env=driver.environment, capture_output=True, text=True, check=True).stdout.strip(
        " ,\n"
    )
    if not is_rest:
        shutil.rmtree(driver.reports, ignore_errors=True)
    driver.reports.mkdir(parents=True, exist_ok=True)
    done = outcome(driver.reports)
    (driver.reports / "done.json").write_text(
        json.dumps([case for case, result in done.results.items() if result != "failed"])
    )
    report = driver.reports / f"{len(list(driver.reports.glob('*.jsonl'))):03}.jsonl"
    report.with_suffix(".json").write_text(json.dumps({"device": device, "run": f"{date.today()} {commit()}"}))
    print(f"==> {driver.name}: {device}", flush=True)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "resumable_run",
        "-n",
        "2",
        "--dist",
        "worksteal",
        "-q",
        "-r",
        "fE",
    ]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    files = {"PUMICE_TESTS_DONE": str(driver.reports / "done.json"), "PUMICE_TEST_RESULTS": str(report)}
    environment = {**driver.environment, "PYTHONPATH": path, **files}
    status = subprocess.run([*words, *arguments], cwd=ROOT, env=environment, check=False).returncode
    return 0 if status == NO_TESTS and is_rest else status


def outcome(reports: Path) -> Outcome:
    """Combine the reports in a folder."""
    results: dict[Case, str] = {}
    facts = []
    for report in sorted(reports.glob("*.jsonl")):
        facts.append(json.loads(report.with_suffix(".json").read_text()))
        results.update(results_of(report))
    ran = {module for module, _ in results}
    # A file that failed to import is one skip without a module; its tests may have run later.
    kept = {case: result for case, result in results.items() if case[0] or case[1] not in ran}
    return Outcome(facts[-1]["device"] if facts else "", tuple(fact["run"] for fact in facts), kept)


def results_of(report: Path) -> Iterator[tuple[Case, str]]:
    """Yield each case of a report and its result. A line cut short by a killed run is left out."""
    for line in report.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            module, name, result = json.loads(line)
            yield (module, name), result


def collected() -> set[Case]:
    """Return all tests of the default tier."""
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "not slow"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return {case_of(line) for line in listed.splitlines() if "::" in line}


# ---- the page


def section(outcomes: dict[str, Outcome], tests: set[Case], absent: list[str], written: str = "") -> str:
    """Return the generated section of the page. Drivers without reports keep their row and list of the page `written`."""
    lines = [
        HEADING,
        "",
        f"Each row is a run of the default test tier on a software driver: {len(tests)} tests, fewer in earlier commits. "
        "`./dev test --drivers --write` updates the table.",
        "",
        "| Driver | Device | Passed | Failed | Skipped | Not run | Days and commits |",
        "|---|---|---|---|---|---|---|",
    ]
    outcomes = {name: one.of(tests) for name, one in outcomes.items()}
    for name, one in outcomes.items():
        counts = [one.count("passed"), one.count("failed"), one.skips.total(), len(tests - one.results.keys())]
        lines.append(
            f"| {name} | {one.device} | {' | '.join(map(str, counts))} | {', '.join(dict.fromkeys(one.runs))} |"
        )
    kept = {name: parts for name, parts in written_drivers(written).items() if name not in outcomes}
    lines += [row for row, _ in kept.values()]
    for name, (_, skips) in kept.items():
        lines += ["", f"### Tests skipped on {name}", "", *skips]
    for name, one in outcomes.items():
        lines += ["", f"### Tests skipped on {name}", ""]
        lines += [f"- {count} times: {reason}" for reason, count in one.skips.most_common() if is_of_driver(reason)]
        others = sum(count for reason, count in one.skips.items() if not is_of_driver(reason))
        lines += [f"- {others} times for reasons unrelated to the driver"]
    if absent:
        lines += ["", "Drivers missing on the machine of that run:", "", *(f"- {one}" for one in absent)]
    return "\n".join(lines) + "\n"


def written_drivers(page: str) -> dict[str, tuple[str, list[str]]]:
    """Return the table row and the list of skipped tests of each driver on a page."""
    found: dict[str, tuple[str, list[str]]] = {}
    for row in re.findall(r"^\| .* \|$", page.partition(HEADING)[2], re.MULTILINE):
        name = row.split(" | ")[0].removeprefix("| ")
        skips = re.search(rf"^### Tests skipped on {re.escape(name)}\n\n((?:- .*\n)*)", page, re.MULTILINE)
        if skips:  # not the header
            found[name] = row, skips[1].splitlines()
    return found


def is_of_driver(reason: str) -> bool:
    """Return whether a test was skipped because the driver lacks something."""
    return "needs" in reason or "lacks" in reason


def page(written: str, text: str) -> str:
    """Return the page `written` with its section replaced by `text`, or with `text` appended."""
    before, _, _ = written.partition(HEADING)
    return before.rstrip() + "\n\n" + text


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev test --drivers", allow_abbrev=False)
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--write", action="store_true")
    chosen, others = parser.parse_known_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    absent: list[str] = []
    known = list(drivers(absent))
    statuses = [run(one, others, chosen.rest) for one in known if chosen.only in one.name]
    outcomes = {one.name: outcome(one.reports) for one in known if any(one.reports.glob("*.jsonl"))}
    for name, one in outcomes.items():
        print(f"{name}: {one.count('passed')} passed, {one.count('failed')} failed, {one.skips.total()} skipped")
    for line in absent:
        print(f"not run: {line}")
    if chosen.write:
        written = PAGE.read_text()
        PAGE.write_text(page(written, section(outcomes, collected(), absent, written)))
    if not outcomes:
        print("no driver could be run")
        return 1
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
