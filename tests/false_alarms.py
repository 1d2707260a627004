"""Validate correct models in three precisions, and list every tensor that validation reports as wrong or unproved.

python tests/false_alarms.py --results alarms.jsonl
    1,000 random models, ONNX's node tests, the corpus
python tests/false_alarms.py --results alarms.jsonl --random 0:20 --sources random
python tests/false_alarms.py --results alarms.jsonl --table
    the table of the results so far

Each model has a line when it begins and one with its result. A second run with the same file continues the first. A model is correct if its
fp32 results agree with an independent implementation: random models with ONNX Runtime or onnx's reference node by node, node tests with
their expected outputs, the corpus with ONNX Runtime. Models that do not agree are listed but not counted. The exit status is 1 if a verdict
is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "support")]

import numpy as np  # noqa: E402
from onnx.numpy_helper import to_array  # noqa: E402

import onnx_node_tests  # noqa: E402
import pumice  # noqa: E402
from corpus import run as corpus_run  # noqa: E402
from corpus import store  # noqa: E402
from corpus.case import arrays  # noqa: E402
from features import reason_of_refusal  # noqa: E402
from random_models import random_model, run_seed  # noqa: E402

SOURCES = ("random", "node", "corpus")
PRECISIONS = ("fp32", "fp16", "bf16")
NOT_RUN = ("sklearn_dictionaries",)
LOOSE = 10.0  # multiple of the corpus' own tolerance
REFUSALS = (pumice.UnsupportedError, pumice.base.errors.InputError, pumice.BindingError, TimeoutError)


class Subject(NamedTuple):
    """A model with its cases. `fault`: why it is not known to be right; empty if it is.

    lacking: why the device refuses the model, which is not known to be right or wrong there.
    """

    proto: Any
    cases: list[Any]
    fault: str
    lacking: str


# ---- models


def random_subject(name: str, context: pumice.Context) -> Subject:
    seed = int(name)
    result = run_seed(seed, context)
    maker, _ = random_model(seed)
    fault = next(iter([*result.failures, *result.disputed]), "" if maker.nodes else "no nodes")
    cases = [maker.given(call) for call in range(maker.calls)]
    return Subject(maker.model(), cases, fault, result.lacking)


def node_subject(name: str, context: pumice.Context) -> Subject:
    test = onnx_node_tests.all_tests()[name]
    outcome = onnx_node_tests.run(test)
    names = [value.name for value in test.model.graph.input]
    cases = []
    for inputs, _ in test.data_sets:
        given = [to_array(one) if hasattr(one, "raw_data") else one for one in inputs]
        cases.append(dict(zip(names, given, strict=False)))
    lacking = reason_of_refusal(outcome.reason, context) if outcome.kind == onnx_node_tests.REFUSED else ""
    fault = "" if outcome.kind == onnx_node_tests.PASSED else f"{outcome.kind} {outcome.reason}"
    return Subject(test.model, cases, fault, lacking)


def corpus_subject(name: str, context: pumice.Context) -> Subject:
    stored = store.load(name)
    fault, lacking = "", ""
    try:
        with pumice.load(stored.model, context) as model:
            error = corpus_run.worst_error(stored, model, corpus_run.reference(stored.model))
        if error > LOOSE * corpus_run.tolerance(stored):
            fault = f"error {error:.2g}"
    except Exception as problem:  # ONNX Runtime does not support every model
        fault = f"{type(problem).__name__}: {problem}"
        lacking = reason_of_refusal(str(problem), context) if isinstance(problem, pumice.UnsupportedError) else ""
    return Subject(stored.model, [arrays(stored.inputs, sizes) for sizes in stored.sizes], fault, lacking)


MAKERS = {"random": random_subject, "node": node_subject, "corpus": corpus_subject}


def all_names(source: str, seeds: range) -> list[str]:
    if source == "random":
        return [str(seed) for seed in seeds]
    if source == "node":
        return sorted(onnx_node_tests.all_tests())
    return [name for name in store.names() if name not in NOT_RUN]


# ---- one model


def row_text(row: Any) -> str:
    apart = row.fault or (
        f"{row.deviation.actual} instead of {row.deviation.expected} at {list(row.deviation.at)}, {row.deviation.severity:.3g} bounds"
        if row.deviation
        else ""
    )
    return f"{row.program} {row.op} {row.node}: {row.output} {row.dtype}{list(row.shape)}: {apart}"


def reason_of(row: Any) -> str:
    """Return why a row is unproved, without names and numbers."""
    text = row.note or ("follows from unproved nodes" if row.unproved else "no bound")
    return f"{row.op}: " + re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", text))[:160]


def validated(subject: Subject, precision: str, context: pumice.Context) -> dict[str, Any]:
    try:
        report = pumice.validate(subject.proto, subject.cases, precision=precision, context=context)
    except REFUSALS as error:
        return {"state": "refused", "reason": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:300]}
    except pumice.Error as error:
        return {"state": "error", "reason": f"{type(error).__name__}: {error}"[:300]}
    rows = [*report.rows, *report.kernels]
    unproved = [row for row in rows if row.verdict == "unproved"]
    found: dict[str, Any] = {
        "state": report.state,
        "rows": len(rows),
        "unproved": Counter(map(reason_of, unproved)),
        "wrong": [row_text(row) for row in rows if row.verdict == "wrong"],
    }
    return found


def has_numbers_beyond_fp16(cases: list[Any]) -> bool:
    floats = [
        value
        for case in cases
        for value in (case.values() if isinstance(case, dict) else case)
        if isinstance(value, np.ndarray) and value.dtype == np.float32
    ]
    return any((np.isfinite(value) & (np.abs(value) >= 65520)).any() for value in floats)


def results_of(source: str, name: str, precisions: list[str], context: pumice.Context) -> Iterator[dict[str, Any]]:
    subject: Subject | None = None
    for precision in precisions:
        begin = time.perf_counter()
        line: dict[str, Any] = {"source": source, "name": name, "precision": precision}
        try:
            subject = subject or MAKERS[source](name, context)
            if subject.lacking:
                line |= {"state": "refused", "reason": subject.lacking}
            elif subject.fault:
                line |= {"state": "not right", "reason": subject.fault[:300]}
            elif precision == "fp16" and has_numbers_beyond_fp16(subject.cases):
                line |= {
                    "state": "refused",
                    "reason": "an input is beyond float16: the program's result is another one",
                }
            else:
                line |= validated(subject, precision, context)
        except Exception as error:  # continue with the other models
            line |= {"state": "error", "reason": f"{type(error).__name__}: {error}"[:300]}
        yield {**line, "seconds": round(time.perf_counter() - begin, 2)}


# ---- all models


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the results so far. A model that began once without a result runs again; after two, it crashed the process."""
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    begun: Counter[tuple[str, ...]] = Counter()
    for text in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(text)
        key: tuple[str, ...] = line["source"], line["name"], line["precision"]
        begun[key] += line["state"] == "begun"
        lines[key] = line
    for key, line in list(lines.items()):
        if line["state"] == "begun" and begun[key] == 1:
            del lines[key]
        elif line["state"] == "begun":
            line |= {"state": "error", "reason": "ended the process"}
    return list(lines.values())


def run(options: argparse.Namespace, context: pumice.Context) -> None:
    seeds = range(*map(int, options.random.split(":")))
    work = [(source, name) for source in options.sources.split(",") for name in all_names(source, seeds)]
    random.Random(0).shuffle(work)  # a prefix of the work is then a random sample
    part, parts = map(int, options.part.split("/"))
    work = work[part - 1 :: parts]
    done = {(one["source"], one["name"], one["precision"]) for one in read_lines(options.results)}
    end = time.monotonic() + options.seconds
    with options.results.open("a") as file:
        for source, name in work:
            precisions = [one for one in options.precision.split(",") if (source, name, one) not in done]
            if time.monotonic() > end:
                break
            results = results_of(source, name, precisions, context)
            for precision in precisions:
                begun = {"source": source, "name": name, "precision": precision, "state": "begun"}
                print(json.dumps(begun), file=file, flush=True)
                print(json.dumps(next(results)), file=file, flush=True)


def table(lines: list[dict[str, Any]]) -> str:
    """Return Markdown: models by state, every wrong verdict, and reasons of unproved tensors and missing verdicts."""
    states: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    text = [
        "| models | precision | right | unproved | wrong | refused | error | not right | tensors |",
        "|---|---|" + "---|" * 7,
    ]
    for line in lines:
        states[line["source"], line["precision"]] += Counter({line["state"]: 1, "tensors": line.get("rows", 0)})
        for reason, count in line.get("unproved", {}).items():
            reasons["unproved"][reason] += count
        if "reason" in line:
            reasons[line["state"]][re.sub(r"\d+", "N", line["reason"])[:120]] += 1
    columns = ("right", "unproved", "wrong", "refused", "error", "not right", "tensors")
    for (source, precision), counts in sorted(states.items()):
        text.append(f"| {source} | {precision} | " + " | ".join(f"{counts[one]:,}" for one in columns) + " |")
    text += ["", "Wrong verdicts:", ""]
    for line in lines:
        text += [f"- {line['source']} {line['name']} at {line['precision']}: {one}" for one in line.get("wrong", ())]
    for state, found in reasons.items():
        text += ["", f"{state}:", "", *(f"- {count} {reason}" for reason, count in found.most_common())]
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="a JSON lines file, which is continued")
    parser.add_argument("--random", default="0:1000", help="seeds of the random models")
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--precision", default=",".join(PRECISIONS))
    parser.add_argument(
        "--part", default="1/1", help="2/4: the second of four processes, each with a results file of its own"
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no model later")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not options.table:
        with pumice.Context() as context:
            run(options, context)
    lines = read_lines(options.results)
    print(table(lines))
    return int(any(line["state"] == "wrong" or line.get("wrong") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
