"""The command `pumice tuning`: list stored results of kernel.tune()."""

from __future__ import annotations

import argparse
import json

from ..base.printable_text import plain, printable
from ..device.tuning_exchange import Group, export_tuning, groups, import_tuning

_LONGEST = 200


def add_tuning_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--export", metavar="FILE", help="write everything to this file")
    parser.add_argument(
        "--import", metavar="FILE", dest="taken", help="take what such a file has, before anything else"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def tuning(arguments: argparse.Namespace) -> int:
    """Run the command."""
    taken = import_tuning(arguments.taken) if arguments.taken else None
    written = export_tuning(arguments.export) if arguments.export else None
    if arguments.json:
        kept = [one._asdict() for one in groups()]
        print(json.dumps({"imported": taken, "exported": written, "kernels": kept}, indent=2))
        return 0
    if taken is not None:
        print(f"{taken} variants taken from {printable(arguments.taken)}")
    if written is not None:
        print(f"{written} variants written to {printable(arguments.export)}")
    print("\n".join(tuning_lines()))
    return 0


def tuning_lines() -> list[str]:
    """Return a line per tuned kernel and size class, for all devices and drivers, with control characters in names escaped."""
    kept = groups()
    if not kept:
        return ["tuning:  none"]
    return [
        f"tuning:  {sum(one.variants for one in kept)} variants",
        *(f"    {plain(_line(one), _LONGEST * 3)}" for one in kept),
    ]


def _line(group: Group) -> str:
    best = ", ".join(f"{name}={value}" for name, value in group.best.items()) if group.best is not None else ""
    said = "all were rejected" if group.seconds is None else f"{best or 'as it is'}: {group.seconds * 1e6:,.2f} us"
    count = f"{group.variants} variants, {group.rejected} rejected"
    return f"{group.kernel} ({group.shapes[:_LONGEST]}) on {group.device}, {group.driver}: {said} ({count})"
