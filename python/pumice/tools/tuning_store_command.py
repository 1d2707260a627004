"""The command `pumice tuning`: list, export and import stored results of kernel.tune()."""

from __future__ import annotations

import argparse
import json

from ..base.printable_text import escape_unprintable, shorten_and_escape
from ..device.tuning_exchange import TuningGroup, export_tuning, group_records, import_tuning

_MAX_NAME_CHARS = 200


def add_tuning_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice tuning`."""
    parser.add_argument("--export", metavar="FILE", help="write everything to this file")
    parser.add_argument(
        "--import", metavar="FILE", dest="imported", help="take what such a file has, before anything else"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_tuning_command(arguments: argparse.Namespace) -> int:
    """Run `pumice tuning` and return the exit status."""
    imported = import_tuning(arguments.imported) if arguments.imported else None
    written = export_tuning(arguments.export) if arguments.export else None
    if arguments.json:
        tuning_groups = [tuned_group._asdict() for tuned_group in group_records()]
        print(json.dumps({"imported": imported, "exported": written, "kernels": tuning_groups}, indent=2))
        return 0
    if imported is not None:
        print(f"{imported} variants imported from {escape_unprintable(arguments.imported)}")
    if written is not None:
        print(f"{written} variants written to {escape_unprintable(arguments.export)}")
    print("\n".join(format_tuning_lines()))
    return 0


def format_tuning_lines() -> list[str]:
    """Return a line per tuned kernel, size class, device and driver, with control characters in names escaped."""
    tuning_groups = group_records()
    if not tuning_groups:
        return ["tuning:  none"]
    return [
        f"tuning:  {sum(tuned_group.variants for tuned_group in tuning_groups)} variants",
        *(
            f"    {shorten_and_escape(_format_group(tuned_group), _MAX_NAME_CHARS * 3)}"
            for tuned_group in tuning_groups
        ),
    ]


def _format_group(group: TuningGroup) -> str:
    best = ", ".join(f"{name}={value}" for name, value in group.best.items()) if group.best is not None else ""
    result_text = (
        "all were rejected" if group.seconds is None else f"{best or 'as it is'}: {group.seconds * 1e6:,.2f} us"
    )
    count = f"{group.variants} variants, {group.rejected} rejected"
    return (
        f"{group.kernel} ({group.shapes[:_MAX_NAME_CHARS]}) on {group.device}, {group.driver}: {result_text} ({count})"
    )
