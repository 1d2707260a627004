"""Fixtures of the test suite: one context per worker, and a failure on any message of the Khronos validation layer."""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pumice
from features import need_features, reason_of_failure
from pumice import dv
from quick_cases import QUICK
from tiers import mark_tiers
from validation_messages import unexpected

pytest_plugins = ("pytester",)  # runs pytest in subprocesses, for the tests of pumice's plugin

ROOT = Path(__file__).resolve().parent.parent
PIPELINES: set[str] = set()  # pipelines of all workers, without subprocesses
SHARED_MODELS = ROOT.parent / "shared" / "models"


TESTS = Path(__file__).parent


def are_named(config: pytest.Config) -> bool:
    """Return whether tests are selected by id or -k."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a test of the quick tier in its runs, to save the time of their collection."""
    if config.option.markexpr != "quick" or are_named(config) or collection_path.suffix != ".py":
        return None
    is_quick = collection_path.relative_to(TESTS).as_posix() in QUICK
    return True if collection_path.name.startswith("test_") and not is_quick else None


@pytest.hookimpl(tryfirst=True)  # before -m filters by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of the quick and the default tier. Tests that are selected by id or -k all run."""
    if config.option.markexpr not in ("quick", "not slow"):
        return
    if not are_named(config):
        mark_tiers(items)
    elif config.option.markexpr == "quick":
        for item in items:
            item.add_marker(pytest.mark.quick)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report a worker's compiled pipelines."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["pipelines"] = pumice.distinct_pipelines()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    PIPELINES.update(getattr(node, "workeroutput", {}).get("pipelines", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    PIPELINES.update(pumice.distinct_pipelines())
    terminalreporter.write_line(f"{len(PIPELINES)} distinct pipelines")


@contextmanager
def skipping_refusals() -> Iterator[None]:
    """Skip a test rejected for what the device lacks, with the reason; fail on any other rejection. The failure of an assertion about such
    an error is one too.

    The default software driver has every feature that the engine computes with, and more buffers than any kernel.
    """
    try:
        yield
    except Exception as error:
        if reason := reason_of_failure(error, pumice.default_context()):
            pytest.skip(reason)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    with skipping_refusals():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    try:
        with skipping_refusals():
            return (yield)
    except pytest.skip.Exception as skip:
        if fixturedef.cached_result:  # else the other tests with this fixture would raise the refusal itself
            fixturedef.cached_result = (None, fixturedef.cached_result[1], (skip, skip.__traceback__))
        raise


@pytest.fixture(scope="module", autouse=True)
def trimmed_memory() -> Iterator[None]:
    """Return memory freed by software drivers to the system: their compiler fragments glibc's heap."""
    yield
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


@pytest.fixture(autouse=True)
def validation() -> Iterator[None]:
    """Fail a test during which the validation layer reported anything."""
    pumice.take_validation_messages()
    yield
    messages = unexpected(pumice.take_validation_messages())
    assert not messages, "Vulkan validation:\n" + "\n".join(messages)


@pytest.fixture
def context(pumice_context: pumice.Context) -> pumice.Context:
    """The session's context."""
    return pumice_context


@pytest.fixture(scope="module", params=["shared", "separate"])
def dv_context(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[dv.Context]:
    """A dv context whose memory is host-mapped, or mirrored on the host."""
    with dv.Context(pumice_context, separate=request.param == "separate") as made:
        yield made


@pytest.fixture(scope="module", params=["unified", "separate"])
def staging_device(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A context that writes device memory directly, or stages all transfers as on a discrete GPU."""
    without = ["unifiedMemory"] if request.param == "separate" else []
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=without) as context:
        yield context


@pytest.fixture
def shared_models() -> Path:
    """The folder of pretrained models next to the checkout, if present."""
    if not SHARED_MODELS.is_dir():
        pytest.skip(f"no folder {SHARED_MODELS.relative_to(ROOT.parent)} beside the checkout")
    return SHARED_MODELS


@pytest.fixture(scope="session")
def plugin_arguments() -> list[str]:
    """Arguments that load the plugin in another pytest: a development build has no entry point."""
    points = importlib.metadata.entry_points(group="pytest11")
    return [] if any(point.name == "pumice" for point in points) else ["-p", "pumice.pytest_plugin"]


@pytest.fixture(scope="module")
def paired(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A context on the same device that emulates 64-bit integers with word pairs."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["shaderInt64"]) as context:
        yield context


@pytest.fixture(scope="module", params=["words", "counts"])
def skipping_device(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A context that skips dispatches with predicates, or with zero group counts if there is no conditional rendering."""
    if request.param == "words":
        need_features(pumice_context, "conditionalRendering")
        yield pumice_context
        return
    with pumice.Context(
        pumice_context.info.uuid and f"uuid:{pumice_context.info.uuid}", without=["conditionalRendering"]
    ) as context:
        yield context


@pytest.fixture(scope="module")
def gpu_kernels(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A context that does not select the CPU kernel variants."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as made:
        yield made


@pytest.fixture
def empty_store(context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty measurement store for the test, on the device under test."""
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")
    return tmp_path / "cache" / "pumice" / "tuning"
