"""Writes docs/corpus.md: the outcome of every model of the corpus. python -m corpus.page [--write] [NAME ...]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pumice
from tested_commit import commit_line

from .case import arrays
from .run import dispatches, reference, tolerance, worst_error
from .store import Stored, load, names

PAGE = Path(__file__).parents[2] / "docs" / "corpus.md"


@dataclass(frozen=True)
class Row:
    stored: Stored
    dispatches: int | None
    result: str
    passed: bool


def row(name: str) -> Row:
    stored = load(name)
    try:
        model = pumice.load(stored.model)
    except pumice.UnsupportedError as error:
        return Row(stored, None, f"refused: {'; '.join(getattr(error, 'items', None) or [str(error)])}", False)
    try:
        error = worst_error(stored, model, reference(stored.model))
    except (AssertionError, pumice.Error) as failure:
        return Row(stored, None, f"WRONG: {str(failure).splitlines()[0]}", False)
    given = arrays(stored.inputs, stored.sizes[0])
    count = dispatches(model, [given[one.name] for one in model.inputs])
    passed = error <= tolerance(stored)
    return Row(stored, count, f"{'' if passed else 'WRONG: '}{error:.1e}", passed)


def page(rows: list[Row]) -> str:
    passed, refused = sum(one.passed for one in rows), sum("refused" in one.result for one in rows)
    models = len({one.stored.name.split(".")[0] for one in rows})
    lines = [
        "# Exported models",
        "",
        f"{len(rows)} files of {models} models with random weights, exported by PyTorch's two exporters and skl2onnx. In fp32 on the "
        f"software driver {passed} agree with ONNX Runtime, and pumice rejects {refused}.",
        '"Dispatches" counts the dispatches of one call with the first sizes, if that call is a single command list. The error is the '
        "largest over all outputs and sizes, relative to the output's largest magnitude. In int8 models the worst 1% of an output's "
        "elements are left out.",
        commit_line("PYTHONPATH=tests:tests/support python -m corpus.page --write"),
        "",
        "| model | exporter | opset | nodes | dispatches | error against ONNX Runtime |",
        "|---|---|---|---|---|---|",
    ]
    for one in rows:
        stored = one.stored
        count = "" if one.dispatches is None else one.dispatches
        facts = [stored.name, stored.exporter, stored.opset, len(stored.model.graph.node), count, one.result]
        lines.append("| " + " | ".join(str(fact).replace("|", "\\|") for fact in facts) + " |")
    return "\n".join(lines) + "\n"


def rows(wanted: list[str]) -> Iterator[Row]:
    for name in names():
        if not wanted or any(part in name for part in wanted):
            made = row(name)
            print(f"{name}: {made.result}", flush=True)
            yield made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    made = list(rows([] if arguments.write else arguments.names))
    if arguments.write:
        PAGE.write_text(page(made))
    return any("WRONG" in one.result for one in made)


if __name__ == "__main__":
    sys.exit(main())
