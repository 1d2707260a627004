"""Builds, checks and lists the wheels and the sdist: python -m wheels --help."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wheels import audit, build, clean, foreign, interpreters, pack, sbom
from wheels.build import ROOT, Refused, Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ARCHITECTURES = ("x86_64", "aarch64")


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev wheels", description="Builds the wheels and the sdist into dist/.")
    parser.add_argument("--python", action="append", metavar="VERSION", help="one of " + ", ".join(interpreters.WANTED))
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="default: this machine's")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of what is built")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--no-sdist", action="store_true", help="build wheels alone")
    parser.add_argument("--no-check", action="store_true", help="do not install them into clean environments")
    return parser.parse_args(arguments)


def epoch() -> int:
    """Return the timestamp of every file in a wheel: SOURCE_DATE_EPOCH, else the last commit's time."""
    if text := os.environ.get("SOURCE_DATE_EPOCH"):
        if not text.isdecimal():
            raise Refused(f"SOURCE_DATE_EPOCH is to be a number of seconds; given {text!r}")
        return int(text)
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else pack.EARLIEST


def metadata() -> dict[str, bytes]:
    """Return name below .dist-info -> content, from the build backend, without the tag."""
    with tempfile.TemporaryDirectory() as folder:
        code = f"import scikit_build_core.build as b; b.prepare_metadata_for_build_wheel({folder!r})"
        build.run(sys.executable, "-c", code)
        (found,) = Path(folder).glob("*.dist-info")
        return {
            path.relative_to(found).as_posix(): path.read_bytes()
            for path in sorted(found.rglob("*"))
            if path.is_file() and path.name not in ("WHEEL", "RECORD")
        }


def project() -> tuple[str, str]:
    """Return the version, and the requirement of glslang."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (glslang,) = [text for text in settings["build-system"]["requires"] if text.startswith(build.GLSLANG)]
    return settings["project"]["version"], glslang


def part_versions(target: Target, glslang: str) -> sbom.Versions:
    include = build.headers(target)
    vulkan, volk = sbom.header_versions(include, include)
    gcc = build.run(target.tool("g++"), "-dumpfullversion").strip()
    return sbom.Versions(glslang.rpartition("=")[2], importlib.metadata.version("pybind11"), vulkan, volk, gcc)


def make_wheel(target: Target, python: interpreters.Interpreter, folder: Path, jobs: int) -> Path:
    """Build, write and audit one wheel."""
    version, requirement = project()
    start = time.monotonic()
    tree = build.compile_for(target, python, build.glslang_package(target, requirement), jobs)
    audit.check_names(tree, target.tool("readelf"))
    tag = f"{python.tag}-{audit.PLATFORM}_{target.machine}"
    information = metadata()
    information["WHEEL"] = pack.wheel_text(version, tag).encode()
    information[sbom.NAME] = sbom.document(version, tag, part_versions(target, requirement), tree).encode()
    wheel = folder / f"pumice-{version}-{tag}.whl"
    pack.write(wheel, pack.files_of(tree, ROOT / "python"), information, epoch())
    accepted = audit.check_platform(wheel)
    audit.check_contents(wheel, target.machine)
    size, seconds = wheel.stat().st_size / 1e6, time.monotonic() - start
    say(f"{wheel.name}: {size:.2f} MB, {seconds:.0f} s, auditwheel accepts it as {accepted}")
    return wheel


def target_of(machine: str) -> Target:
    """Return the target of an architecture. Raise Refused if wheels are not built for it."""
    if machine not in ARCHITECTURES:
        raise Refused(f"wheels are made for {', '.join(ARCHITECTURES)}; this is {machine}: name one by --arch")
    return Target(machine, ROOT / "build" / "wheels" / machine, platform.machine())


def remove_older(folder: Path) -> None:
    """Remove only pumice's files of earlier builds; the folder may contain other files."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("pumice-*.whl", "pumice-*.tar.gz"):
        for old in folder.glob(pattern):
            old.unlink()


def build_architecture(target: Target, chosen: argparse.Namespace) -> list[str]:
    """Build the wheels of one architecture; return a sentence for each that could not be built."""
    missing = []
    for version in chosen.python or interpreters.WANTED:
        try:
            python = interpreters.find(version)
        except interpreters.Missing as error:
            say(str(error))
            missing.append(f"{target.machine}: {error}")
            continue
        wheel = make_wheel(target, python, chosen.out, chosen.jobs)
        say(checked(wheel, target, python, chosen))
    return missing


def checked(wheel: Path, target: Target, python: interpreters.Interpreter, chosen: argparse.Namespace) -> str:
    """Run the wheel if possible; return a sentence with the result. Raise audit.Failed if it does not work."""
    if chosen.no_check:
        return f"{wheel.name} was not run: --no-check"
    if not target.crossing:
        return clean.check(wheel, python, target.folder / f"clean-{python.version}")
    try:
        return foreign.check(wheel, target, python.version)
    except foreign.Unable as error:
        return f"{wheel.name} was not run: {error}"


def make_sdist(folder: Path) -> None:
    code = f"import scikit_build_core.build as b; print(b.build_sdist({str(folder)!r}))"
    build.run(sys.executable, "-c", code, SOURCE_DATE_EPOCH=str(epoch()))


def main(arguments: list[str]) -> int:
    """Build what the arguments ask for; return the exit status."""
    chosen = options(arguments)
    chosen.out = chosen.out.resolve()  # commands run in other folders
    unknown = [version for version in chosen.python or [] if version not in interpreters.WANTED]
    if unknown:
        wanted = ", ".join(interpreters.WANTED)
        print(f"./dev wheels: wheels are made for CPython {wanted}; given {unknown[0]}", file=sys.stderr)
        return 2
    missing = []
    try:
        targets = [target_of(machine) for machine in chosen.arch or [platform.machine()]]
        for target in targets:
            build.check_tools(target)
        remove_older(chosen.out)
        for target in targets:
            missing += build_architecture(target, chosen)
        if not chosen.no_sdist:
            make_sdist(chosen.out)
    except (Refused, audit.Failed) as error:
        print(f"./dev wheels: {error}", file=sys.stderr)
        return 1
    for sentence in missing:
        say(f"not built: {sentence}")
    if not [*chosen.out.glob("*.whl")]:
        print("./dev wheels: no wheel was built (reasons above)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
