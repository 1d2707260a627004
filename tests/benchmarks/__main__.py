"""Run the benchmarks and print their tables."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pumice

from . import (
    architectures,
    attention,
    attention_decode,
    attention_decode_tilings,
    attention_prefill,
    binding,
    control_flow,
    decode,
    devices,
    draft_verification,
    dv,
    dv_packing,
    first_use,
    gemm_small_m,
    gemm_split_fp16,
    gemm_variants,
    gemv_quant,
    images,
    kernels,
    launch,
    layers,
    limits,
    loading,
    machine,
    memory,
    models,
    nnapi,
    operators,
    plots,
    profiling,
    scale,
    shapes,
    sharing,
    small_nets,
    text,
    transfers,
    tuned,
    tuner_start,
)
from .model_cases import MODEL_CASES
from .rows import Row, Table, summary
from .session import Session
from .timing import Effort

BENCHMARKS: dict[str, ModuleType] = {
    "launch": launch,
    "limits": limits,
    "transfers": transfers,
    "binding": binding,
    "kernels": kernels,
    "control_flow": control_flow,
    "shapes": shapes,
    "operators": operators,
    "attention": attention,
    "attention_decode": attention_decode,
    "attention_decode_tilings": attention_decode_tilings,
    "attention_prefill": attention_prefill,
    "gemm_small_m": gemm_small_m,
    "gemv_quant": gemv_quant,
    "gemm_split_fp16": gemm_split_fp16,
    "decode": decode,
    "text": text,
    "draft_verification": draft_verification,
    "layers": layers,
    "models": models,
    "images": images,
    "small_nets": small_nets,
    "architectures": architectures,
    "nnapi": nnapi,
    "first_use": first_use,
    "tuner_start": tuner_start,
    "loading": loading,
    "memory": memory,
    "gemm_variants": gemm_variants,
    "profiling": profiling,
    "tuned": tuned,
    "scale": scale,
    "devices": devices,
    "dv": dv,
    "dv_packing": dv_packing,
    "sharing": sharing,
}
PER_MODEL = ("models", "images", "memory", "profiling", "tuned", "dv")


def arguments() -> argparse.Namespace:
    names = [*BENCHMARKS, *(case.name for case in MODEL_CASES)]
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    known = f"one of {', '.join(names)}; all of them where none is named"
    parser.add_argument("names", nargs="*", metavar="NAME", help=known)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="the same; can be repeated")
    parser.add_argument("--runs", type=int, metavar="N", help="calls in a round, processes of first_use")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything there too")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the tables there, as .svg, .png or .pdf")
    parser.add_argument("--profile", action="store_true", help="of text: the times of a step's kernels alone")
    options = parser.parse_args()
    options.only += options.names
    for name in options.only:
        if name not in names:
            parser.error(f"{name!r} is no benchmark; there are {', '.join(names)}")
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'pumice[plot]'")
    return options


def effort(options: argparse.Namespace) -> Effort:
    chosen = Effort(rounds=1, budget=0.3, processes=3) if options.quick else Effort(rounds=3, budget=2.0)
    return dataclasses.replace(chosen, runs=options.runs, processes=options.runs or chosen.processes)


def tables(wanted: Iterable[str], session: Session) -> Iterator[Table]:
    """Yield each benchmark's tables; one that the engine rejects yields a row with the reason."""
    for name in wanted:
        try:
            yield from BENCHMARKS[name].run(session)
        except pumice.Error as error:
            yield Table(name, "", [Row("pumice", absent=str(error), wrong=True)])


def described(header: dict[str, Any], done: list[Table]) -> dict[str, Any]:
    """Return everything measured, and where, for plots.draw() and later readers."""
    tables = [
        {
            "title": table.title,
            "unit": table.unit,
            "axis": table.axis,
            "rows": [{**dataclasses.asdict(row), "met": row.met} for row in table.rows],
        }
        for table in done
    ]
    return {
        **header,
        "command": " ".join(["./dev", "bench", *sys.argv[1:]]),
        "load at the end": machine.load(),
        "tables": tables,
    }


def write(path: Path, header: dict[str, Any], done: list[Table]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(described(header, done), indent=1) + "\n")


def main() -> int:
    options = arguments()
    os.environ.pop("PUMICE_VALIDATION", None)  # do not measure the validation layer
    named = [name for name in BENCHMARKS if name in options.only]
    cases = frozenset(options.only) - BENCHMARKS.keys()
    wanted = named or (PER_MODEL if cases else [*BENCHMARKS])
    done: list[Table] = []
    with pumice.Context() as context:
        header = machine.header(context)
        for name, value in header.items():
            print(f"{name:12}{value}", flush=True)
        session = Session(context, effort(options), cases, profile=options.profile)
        for table in tables(wanted, session):
            done.append(table)
            print(f"\n{table}", flush=True)
            if options.json:
                write(options.json, header, done)
        session.close()
    if options.plot:
        plots.draw(described(header, done), options.plot)
    print(f"\n{summary(done)}\nload at the end: {machine.load()}")
    return int(any(row.wrong for table in done for row in table.rows))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except pumice.DeviceError as error:
        sys.exit(f"./dev bench: {error}")
