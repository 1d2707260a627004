"""Stub libraries to link against, so that binaries built on a newer glibc run on glibc 2.28.

glibc keeps old symbol versions next to new ones, and a linker picks the newest. The stubs have, for each symbol, the
newest version that glibc 2.28 has. A symbol that glibc 2.28 lacks fails to link, unless old_glibc.c defines it.
"""

from __future__ import annotations

import re
from pathlib import Path

from wheels import run

FALLBACKS = Path(__file__).with_name("old_glibc.c")
# glibc 2.34 moved the functions of these two libraries to libc.so.6; in glibc 2.28 they are separate.
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
SEPARATE = {"libpthread.so": "libpthread.so.0", "libdl.so": "libdl.so.2"}
Symbols = dict[str, tuple[tuple[int, ...], str]]
LINE = re.compile(r"(FUNC|IFUNC|OBJECT)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+[0-9]+\s+(\w+)@@?GLIBC_([0-9.]+)$", re.MULTILINE)


def old_symbols(table: str) -> Symbols:
    """Return name -> version and kind as of glibc 2.28, from what `readelf --dyn-syms -W` prints for a C library."""
    found: Symbols = {}
    for kind, name, text in LINE.findall(table):
        version = tuple(int(part) for part in text.split("."))
        if found.get(name, ((), ""))[0] < version <= (2, 28):
            found[name] = version, "object" if kind == "OBJECT" else "function"
    return found


def link_stub(folder: Path, compiler: str, soname: str, symbols: Symbols) -> None:
    """Link a library that exports the symbols and does nothing."""
    lines = [".text"]
    for index, (name, (version, kind)) in enumerate(sorted(symbols.items())):
        lines += [f".globl s{index}", f".type s{index}, %{kind}", f"s{index}: .quad 0", f".size s{index}, 8"]
        lines.append(f".symver s{index}, {name}@@GLIBC_{'.'.join(map(str, version))}")
    versions = sorted({version for version, _ in symbols.values()})
    script = [f"GLIBC_{'.'.join(map(str, version))} {{}};" for version in versions] or ["{};"]
    script[-1] = script[-1].replace("{}", "{ local: s[0-9]*; }")
    source, names = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text("\n".join([*lines, ""]))
    names.write_text("\n".join([*script, ""]))
    flags = ("-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={names}")
    run(compiler, *flags, source, "-o", folder / soname)


def write(folder: Path, machine: str, compiler: str, readelf: str) -> list[str]:
    """Write the stubs and the fallbacks for a machine into a folder; return the linker flags."""
    folder.mkdir(parents=True, exist_ok=True)
    loader = LOADERS[machine]
    for soname in ("libc.so.6", "libm.so.6", loader):
        real = run(compiler, f"-print-file-name={soname}").strip()
        link_stub(folder, compiler, soname, old_symbols(run(readelf, "--dyn-syms", "-W", real)))
    rest = run(compiler, "-print-file-name=libc_nonshared.a").strip()
    (folder / "libc.so").write_text(f"GROUP ( {folder / 'libc.so.6'} {rest} AS_NEEDED ( {folder / loader} ) )\n")
    (folder / "libm.so").write_text(f"INPUT ( {folder / 'libm.so.6'} )\n")
    for library, soname in SEPARATE.items():
        link_stub(folder, compiler, soname, {})
        (folder / library).write_text(f"INPUT ( {folder / soname} )\n")
    fallbacks = folder / "old_glibc.o"
    run(compiler, "-O2", "-fPIC", "-fvisibility=hidden", "-c", FALLBACKS, "-o", fallbacks)
    needed = ["-Wl,--push-state,--no-as-needed", "-lpthread", "-ldl", "-Wl,--pop-state"]
    return [str(fallbacks), f"-L{folder}", *needed, "-Wl,--gc-sections"]
