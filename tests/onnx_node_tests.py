"""Run the node tests of the `onnx` package: which pass, which are unsupported and why, and which are wrong.

python tests/onnx_node_tests.py            prints counts and all failures
python tests/onnx_node_tests.py --write    also writes docs/onnx_node_tests.md
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx.backend.test.runner import Runner
from onnx.numpy_helper import to_array

import pumice.onnx.backend
from pumice import BindingError, GraphError, UnsupportedError
from tested_commit import commit_line

PAGE = Path(__file__).parents[1] / "docs" / "onnx_node_tests.md"
# Expected values contain float32 rounding of a zero among numbers of up to 45; our transform returns zero.
LEFT_OVER = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
PASSED, RANDOM, REFUSED, WRONG = "passed", "random", "refused", "wrong"


@dataclass(frozen=True)
class Outcome:
    name: str
    kind: str
    reason: str = ""


@functools.cache
def all_tests() -> dict[str, Any]:
    """Return the node tests by name. Their generators compute with NaN and infinities, of which NumPy warns."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {test.name: test for test in load_model_tests(kind="node")}


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def compare(wanted: Any, given: Any, test: Any) -> None:
    """Compare results like the package's own runner, which does not compare sequences of scalars."""
    if not isinstance(wanted, list):
        atol = LEFT_OVER.get(test.name, test.atol)
        Runner.assert_similar_outputs([wanted], [given], rtol=test.rtol, atol=atol)
        return
    assert isinstance(given, list) and len(given) == len(wanted), f"expected {len(wanted)} values"
    for one, other in zip(wanted, given, strict=True):
        compare(one, other, test)


def are_alike(wanted: list[Any], given: list[Any]) -> bool:
    """Return whether dtypes and shapes match, the only check possible for random numbers."""
    return all(one.dtype == other.dtype and one.shape == other.shape for one, other in zip(wanted, given, strict=True))


def refusal(test: Any, error: UnsupportedError) -> Outcome:
    return Outcome(test.name, REFUSED, "; ".join(getattr(error, "items", None) or [first_line(error)]))


def run(test: Any) -> Outcome:
    kind = PASSED
    try:
        prepared = pumice.onnx.backend.prepare(test.model)
    except UnsupportedError as error:
        return refusal(test, error)
    for inputs, expected in test.data_sets:
        try:
            outputs = prepared.run(inputs)
        except UnsupportedError as error:
            return refusal(test, error)
        except (BindingError, GraphError) as error:
            return Outcome(test.name, WRONG, f"{type(error).__name__}: {first_line(error)}")
        wanted = [to_array(one) if isinstance(one, onnx.TensorProto) else one for one in expected]
        try:
            compare(wanted, list(outputs), test)
        except (AssertionError, TypeError, AttributeError) as error:
            if prepared.model.seed is None or not are_alike(wanted, list(outputs)):
                return Outcome(test.name, WRONG, " ".join(str(error).split())[:200])
            kind = RANDOM
    return Outcome(test.name, kind)


def outcomes(names: Iterable[str]) -> Iterator[Outcome]:
    for name in names:
        try:
            yield run(all_tests()[name])
        except Exception as error:  # report every test
            yield Outcome(name, WRONG, f"{type(error).__name__}: {first_line(error)}")


def page(all_of_them: list[Outcome]) -> str:
    counts = Counter(outcome.kind for outcome in all_of_them)
    lines = [
        "# ONNX node tests",
        "",
        f"onnx {onnx.__version__} has {len(all_of_them):,} node tests. In fp32 on the software driver {counts[PASSED]:,} pass, "
        f"{counts[REFUSED]} are not supported and {counts[WRONG]} are wrong. The other {counts[RANDOM]} use random numbers; "
        "only the shapes and types of their results are compared.",
        f"{' and '.join(LEFT_OVER)} expect rounding residues instead of zeros, so they are compared with a tolerance of 1e-6.",
        commit_line("python tests/onnx_node_tests.py --write"),
        "",
        "| test | unsupported, or wrong because |",
        "|---|---|",
    ]
    for outcome in sorted(all_of_them, key=lambda one: one.name):
        if outcome.kind in (REFUSED, WRONG):
            reason = outcome.reason.replace("|", "\\|")
            lines.append(f"| {outcome.name} | {'WRONG: ' if outcome.kind == WRONG else ''}{reason} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    names = arguments.names or list(all_tests())
    results = list(outcomes(names))
    for outcome in results:
        if outcome.kind == WRONG or arguments.names:
            print(f"{outcome.kind} {outcome.name}: {outcome.reason}")
    print(dict(Counter(outcome.kind for outcome in results)))
    if arguments.write:
        PAGE.write_text(page(results))
    return any(outcome.kind == WRONG for outcome in results)


if __name__ == "__main__":
    sys.exit(main())
