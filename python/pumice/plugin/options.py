"""The plugin's options, configuration values and markers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from ..base.element_types import PRECISIONS

DEFAULT_FACTORS = {"error": 2.0, "dispatches": 1.0, "time": 2.0}

MARKERS = (
    "pumice_only(device=None, driver=None, precision=None): run the test only in cells that match these patterns",
    "pumice_expect(state, driver='*', version='*', device='*', precision='*', reason=''): expect 'pass', 'fail' or 'flaky' there",
    "pumice_leaks: fail the test where it leaves device memory allocated",
)


def listed(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names. Raise ArgumentTypeError if it has empty or duplicate names."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"expected different names between commas, given '{text}'")
    return names


def precisions(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of precisions. Raise ArgumentTypeError for an unknown precision."""
    names = listed(text)
    for name in names:
        if name not in PRECISIONS:
            raise argparse.ArgumentTypeError(f"invalid choice: '{name}' (choose from {', '.join(PRECISIONS)})")
    return names


def factors(text: str) -> dict[str, float]:
    """Parse the allowed factors over the baseline, "error=2,time=1.5". Raise ArgumentTypeError for an unknown name or a factor below 1."""
    made = dict(DEFAULT_FACTORS)
    for part in listed(text):
        name, _, number = part.partition("=")
        if name not in made:
            raise argparse.ArgumentTypeError(f"expected {', '.join(made)}, given '{name}'")
        try:
            made[name] = float(number)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name}: expected a number, given '{number}'") from None
        if not made[name] >= 1:
            raise argparse.ArgumentTypeError(f"{name}: expected a factor of at least 1, given '{number}'")
    return made


def add_options(parser: pytest.Parser) -> None:
    """Add all options to pytest's parser."""
    group = parser.getgroup("pumice")
    add = group.addoption
    add(
        "--pumice-device",
        metavar="D",
        help="devices of the tests, between commas: all (GPUs), uuid:..., pci:..., an index, a kind or part of a name",
    )
    add(
        "--pumice-precision",
        metavar="P",
        type=precisions,
        default=("fp32",),
        help=f"precisions of the tests, between commas, of {', '.join(PRECISIONS)} (default: fp32)",
    )
    add(
        "--pumice-allow-software",
        action="store_true",
        help="software drivers are among 'all' devices, and stand in for a kind of GPU that the host lacks",
    )
    add(
        "--pumice-isolate",
        action="store_true",
        help="run the tests of each device and precision in a process of its own",
    )
    add("--pumice-report", metavar="FILE", help="write all validations of the run to this HTML page")
    add("--pumice-models", metavar="DIR", action="append", help="collect the models with stored data below this folder")
    add(
        "--pumice-allow-unchecked",
        metavar="NAMES",
        type=listed,
        default=(),
        help="operators of collected models that may be unproved, between commas; all: whatever is",
    )
    _add_judging(add)
    parser.addini("pumice_models", "folders whose models with stored data are collected", type="paths", default=[])
    parser.addini("pumice_baseline", "the folder of golden baselines, from the configuration's own", default="")
    parser.addini("pumice_expectations", "the file of expectations, from the configuration's own folder", default="")


def _add_judging(add: Callable[..., None]) -> None:
    """Add the options that control how results are checked."""
    add(
        "--pumice-accuracy",
        metavar="X",
        type=float,
        help="how far outputs of collected models may be from their expected values, relative to the largest number of a sample",
    )
    add(
        "--pumice-allow-ill-conditioned",
        metavar="NAMES",
        type=listed,
        default=(),
        help="outputs of collected models that may be further off than that, between commas; all: whatever is",
    )
    add("--pumice-baseline", metavar="DIR", help="compare validations with the golden baselines in this folder")
    add("--pumice-update", action="store_true", help="write the golden baselines instead of comparing with them")
    add(
        "--pumice-factors",
        metavar="F",
        type=factors,
        default=dict(DEFAULT_FACTORS),
        help="how many times its baseline each number may be (default: "
        + ",".join(f"{name}={value:g}" for name, value in DEFAULT_FACTORS.items())
        + ")",
    )
    add(
        "--pumice-expectations",
        metavar="FILE",
        help="JSON or TOML: which tests pass, fail or are flaky on which driver",
    )
    add("--pumice-leaks", action="store_true", help="fail tests that leave device memory allocated")
    add("--pumice-cell-process", metavar="FILE", help=argparse.SUPPRESS)  # set for the processes of --pumice-isolate


def path_option(config: pytest.Config, name: str) -> Path | None:
    """Return a path from `--pumice-NAME`, relative to the start folder, or from `pumice_NAME`, relative to the configuration."""
    given = config.getoption(f"--pumice-{name}")
    if given:
        return config.invocation_params.dir / str(given)
    inside = config.getini(f"pumice_{name}")
    return (config.inipath.parent if config.inipath else config.rootpath) / str(inside) if inside else None
