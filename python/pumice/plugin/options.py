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


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names. Raise ArgumentTypeError if it has empty or duplicate names."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"expected different comma-separated names, given '{text}'")
    return names


def parse_precisions(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of precisions. Raise ArgumentTypeError for an unknown precision."""
    names = parse_names(text)
    for name in names:
        if name not in PRECISIONS:
            raise argparse.ArgumentTypeError(f"invalid choice: '{name}' (choose from {', '.join(PRECISIONS)})")
    return names


def parse_factors(text: str) -> dict[str, float]:
    """Parse the allowed factors over the baseline, "error=2,time=1.5". Raise ArgumentTypeError for an unknown name or a factor below 1."""
    factor_by_name = dict(DEFAULT_FACTORS)
    for assignment in parse_names(text):
        name, _, number = assignment.partition("=")
        if name not in factor_by_name:
            raise argparse.ArgumentTypeError(f"expected {', '.join(factor_by_name)}, given '{name}'")
        try:
            factor_by_name[name] = float(number)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name}: expected a number, given '{number}'") from None
        if not factor_by_name[name] >= 1:
            raise argparse.ArgumentTypeError(f"{name}: expected a factor of at least 1, given '{number}'")
    return factor_by_name


def add_options(parser: pytest.Parser) -> None:
    """Add all options to pytest's parser."""
    add_option = parser.getgroup("pumice").addoption
    add_option(
        "--pumice-device",
        metavar="D",
        help="devices of the tests, between commas: all (GPUs), uuid:..., pci:..., an index, a kind or part of a name",
    )
    add_option(
        "--pumice-precision",
        metavar="P",
        type=parse_precisions,
        default=("fp32",),
        help=f"precisions of the tests, between commas, of {', '.join(PRECISIONS)} (default: fp32)",
    )
    add_option(
        "--pumice-allow-software",
        action="store_true",
        help="software drivers are among 'all' devices, and stand in for a kind of GPU that the host lacks",
    )
    add_option(
        "--pumice-isolate",
        action="store_true",
        help="run the tests of each device and precision in a process of its own",
    )
    add_option("--pumice-report", metavar="FILE", help="write all validations of the run to this HTML page")
    add_option(
        "--pumice-models", metavar="DIR", action="append", help="collect the models with stored data below this folder"
    )
    add_option(
        "--pumice-allow-unchecked",
        metavar="NAMES",
        type=parse_names,
        default=(),
        help="operators of collected models that may be unproved, between commas; all: whatever is",
    )
    _add_check_options(add_option)
    parser.addini("pumice_models", "folders whose models with stored data are collected", type="paths", default=[])
    parser.addini("pumice_baseline", "the folder of golden baselines, from the configuration's own", default="")
    parser.addini("pumice_expectations", "the file of expectations, from the configuration's own folder", default="")


def _add_check_options(add_option: Callable[..., None]) -> None:
    """Add the options that control how results are checked."""
    add_option(
        "--pumice-accuracy",
        metavar="X",
        type=float,
        help="how far outputs of collected models may be from their expected values, relative to the largest number of a sample",
    )
    add_option(
        "--pumice-allow-ill-conditioned",
        metavar="NAMES",
        type=parse_names,
        default=(),
        help="outputs of collected models that may be further off than that, between commas; all: whatever is",
    )
    add_option("--pumice-baseline", metavar="DIR", help="compare validations with the golden baselines in this folder")
    add_option("--pumice-update", action="store_true", help="write the golden baselines instead of comparing with them")
    add_option(
        "--pumice-factors",
        metavar="F",
        type=parse_factors,
        default=dict(DEFAULT_FACTORS),
        help="how many times its baseline each number may be (default: "
        + ",".join(f"{name}={value:g}" for name, value in DEFAULT_FACTORS.items())
        + ")",
    )
    add_option(
        "--pumice-expectations",
        metavar="FILE",
        help="JSON or TOML: which tests pass, fail or are flaky on which driver",
    )
    add_option("--pumice-leaks", action="store_true", help="fail tests that leave device memory allocated")
    # Internal: set for the cell processes of --pumice-isolate.
    add_option("--pumice-cell-process", metavar="FILE", help=argparse.SUPPRESS)


def get_path_option(config: pytest.Config, name: str) -> Path | None:
    """Return the path in `--pumice-NAME`, relative to the start folder, or in `pumice_NAME`, relative to the configuration file."""
    option_value = config.getoption(f"--pumice-{name}")
    if option_value:
        return config.invocation_params.dir / str(option_value)
    configured = config.getini(f"pumice_{name}")
    return (config.inipath.parent if config.inipath else config.rootpath) / str(configured) if configured else None
