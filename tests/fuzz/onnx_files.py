"""Thousands of mutated ONNX files: each is rejected with one of our errors, or runs; valid ones must be correct.

python tests/fuzz/onnx_files.py [--count N] [--seed S] [--keep FOLDER]

Prints failures, and keeps them in the folder as .onnx files.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "fuzz"), str(TESTS), str(TESTS / "support")]

SANITIZED = "PUMICE_SANITIZED" in os.environ
SECONDS = 60.0 if SANITIZED else 10.0  # CPU seconds per file, including kernel compilation
_PATIENCE = 12.0  # this many times more wall seconds count as a hang, to allow for a busy machine
MOST_BYTES = 1 << (33 if SANITIZED else 30)  # bytes that a file may add to the worker's memory
_MOST_ELEMENTS = 1 << 16  # elements of a generated input
_LOOP_SECONDS = 1.0
_SAID = 5000  # files between two prints of the counts

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass
class Outcome:
    """The outcome of one file: "refused", "ran" or a failure, with the error; and the inputs and results of a model that ran."""

    kind: str
    detail: str = ""
    inputs: Arrays = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)


# ---- in the worker process


def _inputs(model: Any, chance: np.random.Generator) -> Arrays | None:
    """Return generated inputs for a model; None if they would be too large, or are no tensors."""
    arrays, sizes = {}, {}
    for value in model.inputs:
        if value.kind != "tensor" or value.shape is None:
            return None
        shape = [size if isinstance(size, int) else sizes.setdefault(size or len(sizes), 2) for size in value.shape]
        if np.prod([float(size) for size in shape]) > _MOST_ELEMENTS:
            return None
        if value.dtype.kind in "biu":
            arrays[value.name] = chance.integers(0, 3, shape).astype(value.dtype)
        else:
            arrays[value.name] = chance.standard_normal(shape).astype(value.dtype)
    return arrays


def outcome_of(data: bytes, context: Any) -> Outcome:
    import pumice
    from validation_messages import unexpected

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = Outcome("refused")
    try:
        with pumice.load(data, context) as model:
            inputs = _inputs(model, np.random.default_rng(1))
            if inputs is not None:
                outcome = Outcome("ran", inputs=inputs)
                results = model(**inputs, loop_timeout=_LOOP_SECONDS)
                outcome.results = list(results) if isinstance(results, tuple) else [results]
    except pumice.Error as error:
        outcome = Outcome("refused", f"{type(error).__name__}: {error}")
    except BaseException:
        outcome = Outcome("another exception", traceback.format_exc(limit=-6))
    if messages := unexpected(pumice.take_validation_messages()):
        outcome = Outcome("Vulkan validation", messages[0])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown << 10 > MOST_BYTES:
        outcome = Outcome("memory", f"{grown >> 10} MB more")
    return outcome


def work(pipe: Any) -> None:
    import pumice

    context = pumice.Context()
    while True:
        pipe.send(outcome_of(pipe.recv(), context))


# ---- in the judge process: what ONNX's tools make of a file


def judge(pipe: Any) -> None:
    while True:
        pipe.send(_expected(*pipe.recv()))


def _expected(data: bytes, inputs: Arrays) -> list[Any] | None:
    """Return the results if the checker, ONNX Runtime and the reference accept the model and agree; else None."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    with contextlib.suppress(BaseException), np.errstate(all="ignore"):
        model = onnx.ModelProto.FromString(data)
        onnx.checker.check_model(model, full_check=True)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        theirs = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, inputs)
        reference = ReferenceEvaluator(model).run(None, inputs)
        if not any(map(_difference, theirs, reference)):
            return list(theirs)
    return None


def _difference(ours: Any, theirs: Any) -> str:
    if not isinstance(theirs, np.ndarray) or not isinstance(ours, np.ndarray):
        return ""  # sequences and optional values have separate tests
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    try:
        np.testing.assert_allclose(ours, theirs, rtol=1e-2 if ours.dtype == np.float16 else 1e-3, atol=1e-3)
    except AssertionError as error:
        return str(error)
    return ""


# ---- in the main process


class Process:
    """A worker or the judge, restarted after a crash."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._process: Any = None
        self._pipe: Any = None

    def ask(self, question: Any, seconds: float) -> Any:
        """Return the answer to a question that may use `seconds` of CPU time. Raise TimeoutError, or EOFError with the exit status."""
        if self._process is None:
            spawn = multiprocessing.get_context("spawn")
            self._pipe, other = spawn.Pipe()
            self._process = spawn.Process(target=self._target, args=(other,), daemon=True)
            self._process.start()
            other.close()
            seconds += 60  # time for the worker to start
        try:
            self._pipe.send(question)
            self._wait(seconds)
            return self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(5)
            raise EOFError(self._process.exitcode) from None
        finally:
            if sys.exc_info()[0] is not None:
                self.end()

    def _wait(self, seconds: float) -> None:
        before, latest = self._processor_seconds(), time.monotonic() + _PATIENCE * seconds
        while not self._pipe.poll(seconds):
            if self._processor_seconds() - before >= seconds or time.monotonic() >= latest:
                raise TimeoutError

    def _processor_seconds(self) -> float:
        """Return the CPU time of the process and its threads; 0 if it has ended."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


class Fuzzer:
    def __init__(self) -> None:
        self.worker, self.judge = Process(work), Process(judge)

    def check(self, data: bytes) -> Outcome:
        """Run one file. The outcome's kind is "refused", "ran" or "right", or else names the failure."""
        try:
            outcome: Outcome = self.worker.ask(data, SECONDS)
        except TimeoutError:
            return Outcome("hang")
        except EOFError as error:
            return Outcome("crash", f"exit status {error}")
        if outcome.kind != "ran" or not outcome.results:
            return outcome
        try:
            expected = self.judge.ask((data, outcome.inputs), SECONDS)
        except (TimeoutError, EOFError):
            return outcome
        if expected is None:
            return outcome
        differences = list(filter(None, map(_difference, outcome.results, expected)))
        return Outcome("wrong", differences[0]) if differences else Outcome("right")

    def __enter__(self) -> Fuzzer:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.end()
        self.judge.end()


FINE = ("refused", "ran", "right")


def run(count: int, seed: int, seeds: Sequence[onnx.ModelProto]) -> Iterator[tuple[bytes, Outcome]]:
    from onnx_mutations import mutated

    with Fuzzer() as fuzzer:
        for i in range(count):
            data = mutated(random.Random(seed * 1_000_003 + i), seeds)
            yield data, fuzzer.check(data)


def main() -> int:
    from onnx_seeds import seeds

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="check these instead")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no file is made later")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.files:
        with Fuzzer() as fuzzer:
            for path in options.files:
                outcome = fuzzer.check(path.read_bytes())
                print(f"{path}: {outcome.kind} {outcome.detail}")
        return 0
    kinds: Counter[str] = Counter()
    models = seeds()
    end = time.monotonic() + options.seconds
    for i, (data, outcome) in enumerate(run(options.count, options.seed, models)):
        kinds[outcome.kind] += 1
        if outcome.kind not in FINE:
            print(f"--- {options.seed}.{i}: {outcome.kind}\n{outcome.detail}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{options.seed}.{i}.onnx").write_bytes(data)
        if (i + 1) % _SAID == 0:
            print(f"{i + 1} files: {dict(kinds)}", flush=True)
        if time.monotonic() > end:
            break
    print(dict(kinds))
    return int(any(kind not in FINE for kind in kinds))


if __name__ == "__main__":
    os.environ.setdefault("PUMICE_VALIDATION", "1")
    sys.exit(main())
