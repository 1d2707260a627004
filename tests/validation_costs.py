"""Measure the CPU time of `validate` by model and phase, and compare verdicts.

python tests/validation_costs.py corpus shared bert
python tests/validation_costs.py corpus --models bert.script unet.script --precision fp16 --repeat 3
python tests/validation_costs.py corpus shared --record before.json
python tests/validation_costs.py corpus shared --compare before.json

corpus: small exported models. shared: the pretrained models in ../shared/models. bert: a transformer of 100 MB. Each is loaded, and called
once, before the clock starts. The result is the CPU time of all threads of the process, the minimum over `--repeat` validations. Phases are
exclusive: "compile" builds programs, "run" calls them (on a software driver the first call compiles shaders to machine code), "evaluate" is
the reference, "judge" and "statistics" check each element, and "rest" is everything else.

--record writes times and the verdict of each tensor; --compare prints times next to such a file's, and exits with 1 if a verdict, a
finding or a count of elements differs.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "support")]

import pumice  # noqa: E402
from corpus import store  # noqa: E402
from corpus.case import arrays  # noqa: E402
from pumice.validation.checker import kernel_checker, model_validation  # noqa: E402
from pumice.validation.reference import monte_carlo, tensor_sources  # noqa: E402
from pumice.validation.reference import reference_model as reference  # noqa: E402
from pumice.validation.reference.reference_model import RuleRunner  # noqa: E402
from pumice.validation.report import deviation, tensor_statistics  # noqa: E402
from validation_figures import REFUSED, Bert  # noqa: E402

SHARED = Path(__file__).parents[2] / "shared" / "models"
PHASES = ("compile", "run", "parse", "evaluate", "judge", "statistics", "rest")
# The measured functions: phase, owner and name.
MEASURED: tuple[tuple[str, Any, str], ...] = (
    ("compile", tensor_sources.DeviceTensors, "compile"),
    ("run", tensor_sources.DeviceTensors, "compute_tensors"),
    ("run", tensor_sources.DeviceTensors, "compute_outputs"),
    ("run", tensor_sources.DeviceTensors, "check_indices"),
    ("run", tensor_sources.DeviceTensors, "stream"),
    ("run", tensor_sources.DeviceTensors, "get_addition_counts"),
    ("run", kernel_checker.KernelChecker, "begin_case"),
    ("run", kernel_checker.KernelChecker, "_load_window"),
    ("run", tensor_sources.NodeWindows, "run_window"),
    ("parse", reference.ReferenceModel, "__init__"),
    ("parse", tensor_sources.DeviceTensors, "__init__"),
    ("evaluate", RuleRunner, "run_node"),
    ("evaluate", monte_carlo.MonteCarloSamples, "run"),
    ("judge", deviation, "compare_tensor"),
    ("judge", model_validation, "compare_tensor"),
    ("judge", deviation, "check_zero_signs"),
    ("judge", kernel_checker, "compare_node_output"),
    ("judge", model_validation, "compare_node_output"),
    ("statistics", tensor_statistics, "compute_statistics"),
    ("statistics", model_validation, "compute_statistics"),
    ("statistics", kernel_checker, "compute_statistics"),
    ("statistics", deviation, "count_ratios"),
)


class Clock:
    """CPU seconds by phase; nested phases are excluded from the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = ["rest"]
        self._since = time.process_time()

    def _switch(self) -> None:
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*given: Any, **options: Any) -> Any:
            with self.phase(name):
                return call(*given, **options)

        return timed

    def stop(self) -> dict[str, float]:
        self._switch()
        return {name: self.seconds[name] for name in PHASES}


class Case(NamedTuple):
    """A model to validate and its cases."""

    name: str
    source: Any
    cases: list[Any]


def corpus(options: argparse.Namespace) -> Iterator[Case]:
    names = options.models or [name for name in store.names() if name not in REFUSED][:: options.every]
    for name in names:
        stored = store.load(name)
        yield Case(name, stored.model, [arrays(stored.inputs, sizes) for sizes in stored.sizes])


def shared(_: argparse.Namespace) -> Iterator[Case]:
    for path in sorted(SHARED.glob("*/*.onnx")):
        given = min(path.parent.glob("expected/*.input.npy"), key=lambda one: (one.stat().st_size, one.name))
        yield Case(path.stem, path, [(np.load(given),)])


def bert(options: argparse.Namespace) -> Iterator[Case]:
    made = Bert(options.layers, tokens=options.tokens, vocabulary=2000)
    yield Case(f"bert of {options.layers} layers", made.proto(), [{"ids": made.ids()}])


SETS = {"corpus": corpus, "shared": shared, "bert": bert}


def measured(call: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Return seconds by phase, and the result of the call."""
    clock = Clock()
    with ExitStack() as patches:
        for phase, owner, name in MEASURED:
            patches.enter_context(mock.patch.object(owner, name, clock.timed(phase, getattr(owner, name))))
        clock.__init__()  # type: ignore[misc]  # excludes the patching
        result = call()
        seconds = clock.stop()
    return seconds, result


def verdicts(report: Any) -> dict[str, Any]:
    """Return the verdicts of a report, without values that vary by rounding between runs."""
    rows = {}
    for row in (*report.rows, *report.kernels):
        for part, one in (("local", row.local), ("accumulated", row.accumulated)):
            if one is not None:
                key = f"{row.program} {row.node} {row.output} {part}"
                severity = one.severity if math.isfinite(one.severity) else str(one.severity)
                rows[key] = [one.verdict, one.elements, one.undecided, one.unknown, one.kind, severity]
        rows[f"{row.program} {row.node} {row.output}"] = [row.verdict, row.note]
    findings = sorted(f"{one.kind}: {one.node}" for one in report.findings)
    return {"state": report.state, "rows": rows, "findings": findings}


def of_case(case: Case, precision: str, context: pumice.Context, turns: int) -> dict[str, Any]:
    """Return the record of one model at one precision."""
    with pumice.load(case.source, context, precision) as loaded:
        for one in case.cases:  # creates the kernels of the optimised program
            loaded(**one) if isinstance(one, dict) else loaded(*one)
        made = [measured(lambda: pumice.validate(loaded, case.cases)) for _ in range(turns)]
    first, best = made[0][0], min((seconds for seconds, _ in made), key=lambda one: sum(one.values()))
    return {"first": first, "seconds": best, **verdicts(made[0][1])}


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield the differences of two records; the severity of a right row may differ by a thousandth of its bound."""
    if before["state"] != after["state"]:
        yield f"state {before['state']}, now {after['state']}"
    if before["findings"] != after["findings"]:
        yield f"findings {sorted(set(before['findings']) ^ set(after['findings']))}"
    for key in sorted({*before["rows"], *after["rows"]}):
        old, new = before["rows"].get(key), after["rows"].get(key)
        if old is None or new is None or old[:5] != new[:5]:
            yield f"{key}: {old}, now {new}"
        elif len(old) > 5 and old[5] != new[5] and not _near(old[5], new[5]):
            yield f"{key}: error over bound {old[5]}, now {new[5]}"


def _near(old: Any, new: Any) -> bool:
    return not isinstance(old, str) and not isinstance(new, str) and abs(old - new) <= 1e-3 * max(1.0, old)


def line(name: str, seconds: dict[str, float], before: dict[str, float] | None = None) -> str:
    total = sum(seconds.values())
    phases = "  ".join(f"{name} {seconds[name]:.2f}" for name in PHASES)
    faster = f"  before {sum(before.values()):.2f}, {sum(before.values()) / total:.2f}x" if before else ""
    return f"{name:40} {total:8.2f} s{faster}  {phases}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--models", nargs="*", help="of the corpus; by default every 4th")
    parser.add_argument("--every", type=int, default=4, help="which models of the corpus")
    parser.add_argument("--precision", default="fp32,fp16")
    parser.add_argument("--layers", type=int, default=3, help="of bert")
    parser.add_argument("--tokens", type=int, default=128, help="of bert")
    parser.add_argument("--repeat", type=int, default=3, help="validations, of which the fastest counts")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    before = json.loads(options.compare.read_text()) if options.compare else {}
    made: dict[str, Any] = {}
    differ = 0
    with pumice.Context() as context:
        for one in (case for name in options.sets for case in SETS[name](options)):
            for precision in options.precision.split(","):
                name = f"{one.name} {precision}"
                made[name] = of_case(one, precision, context, options.repeat)
                old = before.get(name)
                for turn in ("first", "seconds"):
                    print(line(f"{name} {turn}", made[name][turn], old and old[turn]), flush=True)
                for text in differences(old, made[name]) if old else ():
                    print(f"    {text}", flush=True)
                    differ += 1
                if options.record:
                    options.record.write_text(json.dumps(made))
    for turn in ("first", "seconds"):
        total = {phase: sum(one[turn][phase] for one in made.values()) for phase in PHASES}
        known = [before[name][turn] for name in made if name in before]
        old_total = {phase: sum(one[phase] for one in known) for phase in PHASES}
        print(line(f"all {turn}", total, old_total if len(known) == len(made) else None))
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
