"""pytest: options, fixtures for the device under test, and a header that names it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import pumice

from .base.element_types import PRECISIONS

_SOFTWARE = "SOFTWARE DRIVER: not a GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pumice")
    group.addoption(
        "--pumice-device",
        metavar="D",
        help="device of the tests: uuid:..., pci:..., an index, a kind or part of a name",
    )
    group.addoption(
        "--pumice-precision",
        choices=PRECISIONS,
        default="fp32",
        help="the fixture pumice_precision (default: fp32)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The option is the device of contexts made without one, in the tests' own processes as well."""
    device = config.getoption("--pumice-device")
    if not device:
        return
    before = os.environ.get("PUMICE_DEVICE")
    os.environ["PUMICE_DEVICE"] = device

    def restore() -> None:
        if before is None:
            os.environ.pop("PUMICE_DEVICE", None)
        else:
            os.environ["PUMICE_DEVICE"] = before

    config.add_cleanup(restore)


def _wants_header(config: pytest.Config) -> bool:
    """Not in runs that have nothing to do with pumice: opening a device takes a moment."""
    if config.getoption("--pumice-device") or os.environ.get("PUMICE_DEVICE"):
        return True
    others = (plugin for plugin in config.pluginmanager.get_plugins() if getattr(plugin, "__name__", "") != __name__)
    return any(getattr(plugin, "pumice", None) is pumice for plugin in others)


def _device_line(precision: str) -> str:
    try:
        context = pumice.default_context()
    except pumice.Error as error:
        return f"pumice {pumice.__version__}: no device: {error}"
    kind = _SOFTWARE if context.info.kind == "software" else context.info.kind
    return f"pumice {pumice.__version__}: {context.info.name} ({kind}), {precision}; {context.choice}"


def pytest_report_header(config: pytest.Config) -> str | None:
    return _device_line(config.getoption("--pumice-precision")) if _wants_header(config) else None


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """For tests that use the fixtures without a conftest that imports pumice."""
    if _wants_header(config) or not any("pumice_context" in getattr(item, "fixturenames", ()) for item in items):
        return None
    return _device_line(config.getoption("--pumice-precision"))


@pytest.fixture(scope="session")
def pumice_context() -> Iterator[pumice.Context]:
    """The context of the device under test, one for the whole run: the default context."""
    context = pumice.default_context()
    yield context
    context.close()


@pytest.fixture(scope="session")
def pumice_device(pumice_context: pumice.Context) -> pumice.DeviceInfo:
    """The device under test."""
    return pumice_context.info


@pytest.fixture(scope="session")
def pumice_precision(request: pytest.FixtureRequest) -> str:
    """The precision under test: "fp32", "fp16" or "bf16"."""
    return str(request.config.getoption("--pumice-precision"))
