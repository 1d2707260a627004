"""Stub libraries to link against, so that binaries built on a newer glibc run on glibc 2.28.

glibc keeps old symbol versions next to new ones, and a linker picks the newest. The stubs have, for each symbol, the
newest version that glibc 2.28 has. A symbol that glibc 2.28 lacks fails to link, unless old_glibc.c defines it.
"""

from __future__ import annotations

import re
from pathlib import Path

from wheels.commands import run

OLDEST = (2, 28)
FALLBACKS = Path(__file__).with_name("old_glibc.c")
# glibc 2.34 moved the functions of these two libraries to libc.so.6; in glibc 2.28 they are separate.
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
SEPARATE = {"libpthread.so": "libpthread.so.0", "libdl.so": "libdl.so.2"}
LINE = re.compile(r"(FUNC|IFUNC|OBJECT)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+[0-9]+\s+(\w+)@@?GLIBC_([0-9.]+)$")


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def old_symbols(table: str) -> dict[str, tuple[str, str]]:
    """Return name -> kind and version of each symbol of a C library, as of glibc 2.28.

    Args:
        table: the output of `readelf --dyn-syms -W` for the library.
    """
    found: dict[str, tuple[str, str]] = {}
    for line in table.splitlines():
        match = LINE.search(line.strip())
        if not match:
            continue
        kind, name, text = match.groups()
        newer = name not in found or version(found[name][1]) < version(text)
        if version(text) <= OLDEST and newer:
            found[name] = ("object" if kind == "OBJECT" else "function", text)
    return found


def stand_in(symbols: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Return assembly and version script of a library with these symbols."""
    lines = [".text"]
    for index, (name, (kind, text)) in enumerate(sorted(symbols.items())):
        lines += [f".globl s{index}", f".type s{index}, %{kind}", f"s{index}: .quad 0", f".size s{index}, 8"]
        lines.append(f".symver s{index}, {name}@@GLIBC_{text}")
    versions = sorted({text for _, text in symbols.values()}, key=version)
    script = [f"GLIBC_{text} {{}};" for text in versions] or ["{};"]
    script[-1] = script[-1].replace("{}", "{ local: s[0-9]*; }")
    return "\n".join([*lines, ""]), "\n".join([*script, ""])


def write(folder: Path, machine: str, compiler: str, readelf: str) -> list[str]:
    """Write the stubs and the fallbacks for a machine into a folder; return the linker flags."""
    folder.mkdir(parents=True, exist_ok=True)
    loader = LOADERS[machine]
    for soname in ("libc.so.6", "libm.so.6", loader):
        real = run(compiler, f"-print-file-name={soname}").strip()
        assembly, script = stand_in(old_symbols(run(readelf, "--dyn-syms", "-W", real)))
        link(folder, compiler, soname, assembly, script)
    rest = run(compiler, "-print-file-name=libc_nonshared.a").strip()
    (folder / "libc.so").write_text(f"GROUP ( {folder / 'libc.so.6'} {rest} AS_NEEDED ( {folder / loader} ) )\n")
    (folder / "libm.so").write_text(f"INPUT ( {folder / 'libm.so.6'} )\n")
    for library, soname in SEPARATE.items():
        link(folder, compiler, soname, "", "")
        (folder / library).write_text(f"INPUT ( {folder / soname} )\n")
    fallbacks = folder / "old_glibc.o"
    run(compiler, "-O2", "-fPIC", "-fvisibility=hidden", "-c", FALLBACKS, "-o", fallbacks)
    needed = ["-Wl,--push-state,--no-as-needed", "-lpthread", "-ldl", "-Wl,--pop-state"]
    return [str(fallbacks), f"-L{folder}", *needed, "-Wl,--gc-sections"]


def link(folder: Path, compiler: str, soname: str, assembly: str, script: str) -> None:
    source, versions = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text(assembly)
    versions.write_text(script)
    flags = [f"-Wl,--version-script={versions}"] if script else []
    run(compiler, "-shared", "-nostdlib", f"-Wl,-soname,{soname}", *flags, source, "-o", folder / soname)
