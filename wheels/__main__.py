"""Builds, checks and lists the wheels and the sdist: python -m wheels --help."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner

from wheels import build, checks, foreign, interpreters, sbom
from wheels.build import Target
from wheels.commands import ROOT, Failed, run

ARCHITECTURES = ("x86_64", "aarch64")
PLATFORM = "manylinux_2_28"
IGNORED = shutil.ignore_patterns("__pycache__", ".*_cache")


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev wheels", description="Builds the wheels and the sdist into dist/.")
    parser.add_argument("--python", action="append", choices=interpreters.WANTED, help="default: all that are here")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="default: this machine's")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of what is built")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--no-sdist", action="store_true", help="build wheels alone")
    parser.add_argument("--no-check", action="store_true", help="do not install them into clean environments")
    return parser.parse_args(arguments)


def pack(tree: Path, python_tag: str, machine: str, versions: dict[str, str], out: Path) -> Path:
    """Make a wheel of the built files in a tree, to which Python's files and the metadata are added.

    `wheel` writes the zip file and its RECORD. auditwheel rejects symbols that the platform lacks, and sets the tag.
    """
    shutil.copytree(ROOT / "python", tree, ignore=IGNORED, dirs_exist_ok=True)
    project = ProjectBuilder(ROOT, runner=quiet_subprocess_runner)
    information = Path(project.metadata_path(tree))
    version = information.name.removesuffix(".dist-info").partition("-")[2]
    (information / sbom.NAME).parent.mkdir()
    (information / sbom.NAME).write_text(sbom.document(version, versions))
    lines = ("Wheel-Version: 1.0", f"Generator: pumice {version}", "Root-Is-Purelib: false")
    (information / "WHEEL").write_text("\n".join([*lines, f"Tag: {python_tag}-linux_{machine}", ""]))
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() or ".so" in path.name else 0o644)
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "wheel", "pack", tree, "--dest-dir", folder)
        (plain,) = Path(folder).iterdir()
        level = ("--zip-compression-level", 9)
        repair = (sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--patcher", "none", *level)
        run(*repair, "--plat", f"{PLATFORM}_{machine}", "--wheel-dir", out, plain)
    return out / f"pumice-{version}-{python_tag}-{PLATFORM}_{machine}.whl"


def make_wheel(target: Target, python: interpreters.Interpreter, folder: Path, jobs: int) -> Path:
    """Build, write and check one wheel."""
    start = time.monotonic()
    requires = ProjectBuilder(ROOT).build_system_requires
    (glslang,) = [text for text in requires if text.startswith(build.GLSLANG)]
    tree = build.compile_for(target, python, build.glslang_package(target, glslang), jobs)
    checks.check_symbols(tree, target.tool("readelf"))
    vulkan, volk = sbom.header_versions(build.headers(target))
    versions = {
        "glslang": glslang.rpartition("=")[2],
        "pybind11": importlib.metadata.version("pybind11"),
        "vulkan": vulkan,
        "volk": volk,
        "gcc": run(target.tool("g++"), "-dumpfullversion").strip(),
    }
    wheel = pack(tree, python.tag, target.machine, versions, folder)
    checks.check_contents(wheel, target.machine)
    say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {time.monotonic() - start:.0f} s")
    return wheel


def checked(wheel: Path, target: Target, python: interpreters.Interpreter) -> str:
    """Run the wheel if possible; return a sentence with the result. Raise Failed if it does not work."""
    if not target.crossing:
        return checks.check_clean(wheel, python, target.folder / f"clean-{python.version}")
    try:
        return foreign.check(wheel, target, python.version)
    except foreign.Unable as error:
        return f"{wheel.name} was not run: {error}"


def build_all(chosen: argparse.Namespace) -> None:
    """Build what the options ask for. Raise Failed if something does not build, or if there is no wheel."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    for pattern in ("pumice-*.whl", "pumice-*.tar.gz"):  # the folder may contain other files
        for old in chosen.out.glob(pattern):
            old.unlink()
    targets = [
        Target(machine, ROOT / "build" / "wheels" / machine, platform.machine())
        for machine in chosen.arch or [platform.machine()]
    ]
    for target in targets:
        build.check_tools(target)
    for target in targets:
        for version in chosen.python or interpreters.WANTED:
            try:
                python = interpreters.find(version)
            except interpreters.Missing as error:
                say(f"not built: {target.machine}: {error}")
                continue
            wheel = make_wheel(target, python, chosen.out, chosen.jobs)
            say(f"{wheel.name} was not run: --no-check" if chosen.no_check else checked(wheel, target, python))
    if not chosen.no_sdist:
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", chosen.out, ROOT)
    if not [*chosen.out.glob("*.whl")]:
        raise Failed("no wheel was built (reasons above)")


def main(arguments: list[str]) -> int:
    """Build what the arguments ask for; return the exit status."""
    chosen = options(arguments)
    chosen.out = chosen.out.resolve()  # commands run in other folders
    try:
        if "SOURCE_DATE_EPOCH" not in os.environ:  # the date of all files of a wheel
            os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct").strip()
        build_all(chosen)
    except Failed as error:
        print(f"./dev wheels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
