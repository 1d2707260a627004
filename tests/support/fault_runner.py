"""A program that validates small models with faulty shaders: the engine reads shaders once per process, so each task gets a process.

Tasks come as JSON on the standard input: a list of objects with `folder` (of shaders in place of the engine's own; empty: none), `sample`
and `precision`; `fault`, `limits`, `without` (features) and `mode` may be left out. Each is run in a fork of this process, which has
imported everything and started no device. The results go to the standard output, one line of JSON each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pumice
from fault_models import SAMPLES


def validated(task: dict[str, Any]) -> dict[str, Any]:
    """The state of a validation, its first wrong row, its wrong nodes and outputs, and members of wrong kernels; the shaders that ran."""
    sample = SAMPLES[task["sample"]]()
    source, mode = sample.proto.SerializeToString(), task.get("mode", "both")
    settings = {name: task[name] for name in ("limits", "without") if task.get(name)}
    context = pumice.Context(**settings) if settings else None
    cases = [sample.inputs, *sample.more]
    report = pumice.validate(source, cases, context=context, precision=task["precision"], mode=mode)
    with pumice.load(source, context, task["precision"]) as model:
        steps = model.program.plan([list(array.shape) for array in sample.inputs])
    wrong = [row for row in report.rows if row.verdict == "wrong"]
    return {
        "state": report.state,
        "first": wrong[0].output if wrong and wrong[0].op == "output" else wrong[0].node if wrong else None,
        "nodes": [row.node for row in wrong if row.op != "output"],
        "outputs": [row.output for row in wrong if row.op == "output"],
        "kernels": [list(row.members) for row in report.kernels if row.verdict == "wrong"],
        "shaders": sorted({step["kernel"] for step in steps}),
        "summary": report.summary,
        "bisected": [finding.text for finding in report.findings if finding.kind == "bisected"],
    }


def in_fork(task: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """Run a task in a forked process with the task's shaders; return its output line."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            if task["folder"]:
                os.environ["PUMICE_SHADERS"] = task["folder"]
            if task.get("fault"):
                os.environ["PUMICE_FAULT"] = task["fault"]
            line = json.dumps(run(task))
        except Exception:
            line = json.dumps({"state": "failed", "failed": traceback.format_exc(), "summary": traceback.format_exc()})
        os.write(writing, line.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        line = stream.read()
    _, status = os.waitpid(process, 0)
    return line or json.dumps({"state": "failed", "summary": f"the process ended with status {status}"})


def answers(program: str, tasks: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """Run a program like this one on the tasks; return its results. environment: additional variables."""
    done = subprocess.run(
        [sys.executable, program],
        input=json.dumps(tasks),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(tasks), done.stderr
    return lines


if __name__ == "__main__":
    for each in json.load(sys.stdin):
        print(in_fork(each, validated), flush=True)
