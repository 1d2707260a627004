"""Runs the tests on every software driver that this machine can have, and says what each passes.

    ./dev test --drivers [--write] [ARGS]     ARGS go to pytest; --write puts the table at the end of docs/drivers.md

The drivers are the installed lavapipe at three vector widths (subgroups of 4 and 8), the newer lavapipe of the distribution's
backports, SwiftShader from the package of Chromium, and those that PUMICE_TEST_DRIVERS names: manifests, with a colon between two.
Packages are downloaded into build/drivers and unpacked there; nothing is installed. What cannot be had is named with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "drivers"
PAGE = ROOT / "docs" / "drivers.md"
HEADING = "## What each software driver passes"
WIDTHS = (128, 256, 512)


class AbsentError(Exception):
    """A driver that this machine cannot have, with the reason."""


@dataclass(frozen=True)
class Driver:
    """One way to run the tests."""

    name: str
    manifest: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        label = self.name.replace(" ", "_")
        chosen = {"VK_DRIVER_FILES": str(self.manifest), "VK_ICD_FILENAMES": str(self.manifest)}
        caches = {
            "MESA_SHADER_CACHE_DIR": str(FOLDER / f"mesa-{label}"),
            "PUMICE_CACHE_DIR": str(FOLDER / f"cache-{label}"),
        }
        return {**os.environ, **chosen, **caches, **self.variables}


# ---- which drivers there are


def drivers(absent: list[str]) -> Iterator[Driver]:
    """The drivers that can be had; the others' names and reasons are added to `absent`."""
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
    """The manifest of the lavapipe in the distribution's backports."""
    lists = FOLDER / "apt"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources = FOLDER / "backports.list"
    sources.write_text("".join(f"deb {address} {release}-backports main\n" for address, release in releases()))
    options = [f"-oDir::Etc::sourcelist={sources}", "-oDir::Etc::sourceparts=-", f"-oDir::State::Lists={lists}"]
    command("apt-get", *options, "update", "-qq", why="the distribution has no backports that can be read")
    library = unpacked("mesa-vulkan-drivers", "libvulkan_lvp.so", options)
    return manifest("newer-lavapipe", library, "1.3.0")


def releases() -> list[tuple[str, str]]:
    """Addresses and names of the releases that apt has its packages from."""
    listed = command("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Identifier: Packages", why="")
    pairs = {tuple(line.split()) for line in listed.splitlines() if len(line.split()) == 2}
    return sorted((address, release) for address, release in pairs if "-" not in release)


def swiftshader() -> Path:
    """The manifest of the SwiftShader that Chromium comes with."""
    return manifest("swiftshader", unpacked("chromium-common", "libvk_swiftshader.so", []), "1.3.0")


def unpacked(package: str, file: str, options: list[str]) -> Path:
    """The file of a package, which is downloaded unless it was before."""
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
    """The output of a command. Raises AbsentError with `why` where it cannot run or fails."""
    try:
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise AbsentError(f"this system has no {words[0]}") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [""])[-1]
        raise AbsentError(f"{why} ({last})" if last else why) from error


# ---- what each passes


@dataclass(frozen=True)
class Outcome:
    device: str
    counts: Counter[str]  # passed, failed, skipped
    skips: Counter[str]  # number of tests skipped for each reason
    status: int  # exit status of pytest


def run(driver: Driver, arguments: list[str]) -> Outcome:
    for name in ("MESA_SHADER_CACHE_DIR", "PUMICE_CACHE_DIR"):
        Path(driver.environment[name]).mkdir(parents=True, exist_ok=True)
    shown = [sys.executable, "-c", "import pumice; d = pumice.devices()[0]; print(d.name, d.driver_info, sep=' | ')"]
    device = subprocess.run(shown, env=driver.environment, capture_output=True, text=True, check=True).stdout.strip()
    report = FOLDER / "report.xml"
    report.unlink(missing_ok=True)
    print(f"==> {driver.name}: {device}", flush=True)
    words = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", "-r", "fE", f"--junitxml={report}"]
    status = subprocess.run([*words, *arguments], cwd=ROOT, env=driver.environment, check=False).returncode
    counts, skips = counted(report)
    return Outcome(device, counts, skips, status)


def counted(report: Path) -> tuple[Counter[str], Counter[str]]:
    """How many cases of a report of pytest's passed, failed and were skipped, and why they were skipped."""
    counts: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    cases = ElementTree.parse(report).iter("testcase") if report.is_file() else []
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            counts["skipped"] += 1
            skips[skipped.get("message", "")] += 1
        else:
            went_wrong = any(case.find(kind) is not None for kind in ("failure", "error"))
            counts["failed" if went_wrong else "passed"] += 1
    return counts, skips


def section(outcomes: dict[str, Outcome], absent: list[str]) -> str:
    """The part of the page that this program writes."""
    rows = [
        f"| {name} | {one.device.replace(' | ', ', ')} | {one.counts['passed']} | {one.counts['failed']} | {one.counts['skipped']} |"
        for name, one in outcomes.items()
    ]
    lines = [
        HEADING,
        "",
        "Each row is a run of the default tier of the tests, whole, on one software driver. `./dev test --drivers --write` makes it.",
        "",
        "| Driver | Device | Passed | Failed | Skipped |",
        "|---|---|---|---|---|",
        *rows,
    ]
    for name, one in outcomes.items():
        lines += ["", f"### What is skipped on {name}", ""]
        lines += [f"- {count} times: {reason}" for reason, count in one.skips.most_common() if is_of_driver(reason)]
        others = sum(count for reason, count in one.skips.items() if not is_of_driver(reason))
        lines += [f"- {others} times for reasons that are not the driver's"]
    if absent:
        lines += ["", "Not there on the machine of that run:", "", *(f"- {one}" for one in absent)]
    return "\n".join(lines) + "\n"


def is_of_driver(reason: str) -> bool:
    """Whether a test was skipped for something that the driver lacks."""
    return "needs" in reason or "lacks" in reason


def page(written: str, text: str) -> str:
    """The page `written` with its section replaced by `text`, or with `text` at its end where it has none."""
    before, _, _ = written.partition(HEADING)
    return before.rstrip() + "\n\n" + text


def main(arguments: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    is_written = "--write" in arguments
    absent: list[str] = []
    outcomes = {one.name: run(one, [text for text in arguments if text != "--write"]) for one in drivers(absent)}
    for name, one in outcomes.items():
        print(f"{name}: {one.counts['passed']} passed, {one.counts['failed']} failed, {one.counts['skipped']} skipped")
    for line in absent:
        print(f"not run: {line}")
    if is_written:
        PAGE.write_text(page(PAGE.read_text(), section(outcomes, absent)))
    if not outcomes:
        print("no driver could be run")
        return 1
    return int(any(one.status for one in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
