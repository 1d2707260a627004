"""Mutate the engine's kernels, one SPIR-V instruction at a time; count how many effective mutants validation kills, and where.

python tests/mutants.py results.jsonl
python tests/mutants.py results.jsonl --table

The first form resumes an earlier run; it takes an hour for 2,000 mutants. --mutants: number per kernel. The second prints the table of
docs/evidence.md. The exit status is 1 if fewer are killed than required. Requires lavapipe, g++ and the Vulkan headers.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "support")]

import fault_layer  # noqa: E402
import mutant_trials  # noqa: E402
from fault_records import Records, share  # noqa: E402
from fault_worker import Worker, Workers  # noqa: E402
from layer_faults import PRECISIONS  # noqa: E402

KILLED = 0.99
SEED = 1
SECONDS = 180
# A mutant that changes no result by more than this fraction of its maximum only rounds differently: one ulp of float32 is 2^-23, of float16
# 2^-10.
ROUNDING = {"fp32": 2.0**-21, "fp16": 2.0**-9}


def run(records: Records, workers: Workers, per_kernel: int) -> None:
    """Try mutants of each kernel, in the first model that uses it."""
    subjects = [{"model": one, "precision": precision} for precision in PRECISIONS for one in mutant_trials.MODELS]
    answers = workers.each(subjects, lambda worker, task: records.ask(worker, **task))
    modules: dict[int, dict[str, Any]] = {}
    for subject, answer in zip(subjects, answers, strict=True):
        for module in answer.get("modules", []):
            modules.setdefault(module, {**subject, "module": module, "seed": SEED})
    print(f"{len(modules)} kernels of {len(subjects)} programs", flush=True)
    workers.each(modules.values(), lambda worker, task: try_mutants(records, worker, task, per_kernel))


def try_mutants(records: Records, worker: Worker, task: dict[str, Any], count: int) -> None:
    """Try this many mutants of a kernel, or all that exist."""
    for number in range(count):
        if records.ask(worker, **task, number=number).get("ended"):
            break


def is_mutant(record: dict[str, Any]) -> bool:
    return "number" in record["task"] and "ended" not in record


def table(records: Records) -> Iterator[str]:
    """Return by kind of mutant: how many there are, change a bit, are killed, and are killed at their node."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in filter(is_mutant, records.answers.values()):
        kinds[record.get("kind", "crashed or timed out")].append(record)
    yield "| kind | mutants | change a bit | killed | at the node | survivors that only round elsewhere |"
    yield "|---|---|---|---|---|---|"
    everything = [one for group in kinds.values() for one in group]
    for kind, found in [*sorted(kinds.items()), ("all", everything)]:
        changed = [one for one in found if one.get("effect")]
        killed = [one for one in changed if is_killed(one)]
        rounded = [one for one in changed if not is_killed(one) and only_rounds(one)]
        at = sum(one["at"] for one in killed)
        cells = (kind, len(found), len(changed), share(len(killed), len(changed)), share(at, len(killed)), len(rounded))
        yield "| " + " | ".join(map(str, cells)) + " |"


def is_killed(record: dict[str, Any]) -> bool:
    return record["state"] in ("wrong", "raised")


def only_rounds(record: dict[str, Any]) -> bool:
    return record.get("change", 1) <= ROUNDING[record["task"]["precision"]]


def survivors(records: Records) -> Iterator[str]:
    """Yield a line for each mutant that changes more than rounding and survives, or is found elsewhere."""
    for record in records.answers.values():
        if not record.get("effect") or (is_killed(record) and record["at"]):
            continue
        if is_killed(record) or not only_rounds(record):
            change = f"changes {record.get('change', 0):.2g}"
            named = record.get("named")
            text = f"{record['kind']}, {record['text']}, {record['state']}, {change}"
            yield f"{record['task']}: {text}, accuses {named}, not {record['nodes']}"


def worker_of(layer: Path) -> Worker:
    """Return a process that tries mutants. Each is compiled once, so the driver's optimiser is off."""
    return Worker(mutant_trials.__file__, layer, SECONDS, GALLIVM_PERF="nopt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="file of JSON lines; a run goes on with it")
    parser.add_argument("--mutants", type=int, default=24, help="of each kernel")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table", action="store_true", help="only print what the file has")
    options = parser.parse_args()
    records = Records(options.results)
    if not options.table:
        with TemporaryDirectory() as folder:
            built = fault_layer.build(Path(folder))
            with Workers(functools.partial(worker_of, built), options.jobs) as workers:
                run(records, workers, options.mutants)
    print("\n".join([*table(records), *survivors(records)]))
    changed = [
        one for one in records.answers.values() if one.get("effect") and not (not is_killed(one) and only_rounds(one))
    ]
    return int(sum(is_killed(one) and one["at"] for one in changed) < KILLED * len(changed))


if __name__ == "__main__":
    sys.exit(main())
