"""Inject faults into single dispatches of five models; count how many effective ones validation finds, and at which node.

python tests/fault_table.py results.jsonl
python tests/fault_table.py results.jsonl --table

The first form resumes an earlier run; a full run takes half an hour. The second prints the tables of docs/evidence.md. The exit status is 1
if a limit is missed. Requires lavapipe, g++ and the Vulkan headers.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "support")]

import fault_layer  # noqa: E402
import layer_faults  # noqa: E402
from fault_records import Records, share  # noqa: E402
from fault_worker import Worker, Workers  # noqa: E402
from layer_models import LAYER_MODELS  # noqa: E402

AT_NODE = 0.95
ALWAYS = [[1, 0]]
SOME_RUNS = [[2, 0], [2, 1], [3, 0], [3, 1], [3, 2]]  # period and phase of the faulty submissions
# Effects of these fault kinds do not depend on what earlier runs left in memory.
STEADY = ("weights", "overwrite")
EVERY = 4  # every fourth such fault is also tried in only some runs, every eighth with 20 runs
REPEAT = 20
SECONDS = 180
TEXTS = {
    "drop": "dispatch dropped",
    "halve": "half of the workgroups",
    "skip group": "one workgroup left out",
    "push": "one push constant changed",
    "other set": "descriptor set of an earlier dispatch",
    "no barrier": "barrier left out, dispatches swapped",
    "weights": "word of weights changed for a run",
    "weights for good": "word of weights changed after upload",
    "overwrite": "word of a result overwritten",
}


def run(records: Records, workers: Workers, every: int) -> None:
    """Try every fault of every model, or every n-th, and some of them in a fraction of the runs."""
    for precision in layer_faults.PRECISIONS:
        for model in LAYER_MODELS:
            subject = {"model": model, "precision": precision}
            (answer,) = workers.each([subject], lambda worker, task: records.ask(worker, **task))
            kinds = answer.get("kinds", [])
            steady = [number for number, kind in enumerate(kinds) if kind in STEADY]
            tasks = [{**subject, "number": number} for number in range(0, len(kinds), every)]
            workers.each(tasks, lambda worker, task, steady=steady: try_fault(records, worker, task, steady))
            print(f"{model}, {precision}: {len(kinds)} faults", flush=True)


def try_fault(records: Records, worker: Worker, task: dict[str, Any], steady: list[int]) -> None:
    """Try a fault in every run; if its number is in `steady`, possibly also in a fraction of the runs."""
    answer = records.ask(worker, **task, repeat=0, shares=ALWAYS)
    place = steady.index(task["number"]) if task["number"] in steady and answer.get("effect") else 1
    if place % EVERY == 0:
        records.ask(worker, **task, repeat=0, shares=SOME_RUNS)
    if place % (2 * EVERY) == 0:
        records.ask(worker, **task, repeat=REPEAT, shares=[SOME_RUNS[1], SOME_RUNS[4]])


def judged(records: Records, repeat: int, always: bool) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each fault with an effect, and each of its validations."""
    for record in records.answers.values():
        task = record["task"]
        if task.get("repeat") == repeat and (task["shares"] == ALWAYS) is always and record.get("effect"):
            yield from ((record, one) for one in record["validations"])


def is_red(one: dict[str, Any]) -> bool:
    """Return whether a validation does not pass: wrong, or unproved because runs differ."""
    return one["state"] != "right"


def rows(records: Records, key: Callable[[dict[str, Any]], str]) -> Iterator[str]:
    """Yield a row per group of faults present in every run: how many have an effect, are found, and are found at the node."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record, one in judged(records, 0, True):
        groups[key(record)].append(one)
    groups["all"] = [one for group in list(groups.values()) for one in group]
    for name, found in groups.items():
        red = sum(map(is_red, found))
        at = sum(is_red(one) and one["at"] for one in found)
        yield f"| {name} | {len(found)} | {share(red, len(found))} | {share(at, len(found))} |"


def tables(records: Records) -> Iterator[str]:
    head = "| with an effect | found | at the node |\n|---|---|---|---|"
    yield from (f"| fault {head}", *rows(records, lambda one: TEXTS[one["kind"]]), "")
    yield from (f"| model {head}", *rows(records, lambda one: "{model}, {precision}".format(**one["task"])), "")
    yield "| in some runs | validations | had the fault | called right although they had it |"
    yield "|---|---|---|---|"
    for repeat in (0, REPEAT):
        for period in (2, 3):
            found = [one for _, one in judged(records, repeat, False) if one["period"] == period]
            seen = [one for one in found if one["seen"]]
            right = sum(one["state"] == "right" for one in seen)
            runs = f"1 of {period}, repeat={repeat}" if repeat else f"1 of {period}"
            yield f"| {runs} | {len(found)} | {len(seen)} | {right} |"


def misses(records: Records) -> Iterator[str]:
    """Yield a line for each validation that misses a fault or blames another node."""
    for always, repeat in ((True, 0), (False, 0), (False, REPEAT)):
        for record, one in judged(records, repeat, always):
            if (always and not (is_red(one) and one["at"])) or (not always and one["seen"] and one["state"] == "right"):
                text = f"{record['fault']}, changes {record['change']:.2g}, {one['state']}"
                yield f"{record['task']}: {text}, accuses {one['named']}, not {record['nodes']}"
    for record in records.answers.values():
        if "failed" in record:
            yield f"{record['task']}: {record['failed']}"


def missed(records: Records) -> bool:
    """Return whether a limit is missed."""
    always = [one for _, one in judged(records, 0, True)]
    some = [one for repeat in (0, REPEAT) for _, one in judged(records, repeat, False) if one["seen"]]
    at = sum(is_red(one) and one["at"] for one in always)
    return not all(map(is_red, always)) or at < AT_NODE * len(always) or any(one["state"] == "right" for one in some)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="file of JSON lines; a run goes on with it")
    parser.add_argument("--every", type=int, default=1, help="try one fault of so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table", action="store_true", help="only print what the file has")
    options = parser.parse_args()
    records = Records(options.results)
    if not options.table:
        with TemporaryDirectory() as folder:
            built = fault_layer.build(Path(folder))
            with Workers(lambda: Worker(layer_faults.__file__, built, SECONDS), options.jobs) as workers:
                run(records, workers, options.every)
    print("\n".join([*tables(records), "", *misses(records)]))
    return int(missed(records))


if __name__ == "__main__":
    sys.exit(main())
