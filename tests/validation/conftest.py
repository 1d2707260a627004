"""Fixtures that corrupt the results of programs, for tests of what validation finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pumice
from plugin_project import PluginProject, plugin_environment

Change = Callable[[dict[str, Any]], None]


class Faulty:
    """A program with corrupted results: the results of a call or, with `observed`, the tensors its kernels store."""

    def __init__(self, program: pumice.Program, change: Change, observed: bool) -> None:
        self._program = program
        self._change = change
        self._observed = observed

    def __call__(self, inputs: dict[str, Any], **limits: Any) -> dict[str, Any]:
        results = {name: value.copy() for name, value in self._program(inputs, **limits).items()}
        if not self._observed:
            self._change(results)
        return results

    def observe(
        self, inputs: tuple[Any, ...], names: set[str] | None = None, steps: int | None = None
    ) -> dict[str, Any]:
        found = dict(self._program.observe(inputs, names, steps))
        stored = {one["name"]: one["array"] for one in found["tensors"] if one["array"] is not None}
        if self._observed and stored:
            self._change(stored)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


@pytest.fixture
def lavapipe(context: pumice.Context) -> None:
    """Skip tests of faulty kernels on drivers other than lavapipe, which runs these kernels."""
    if "llvmpipe" not in context.info.name:
        pytest.skip("the faults are in kernels that lavapipe runs")


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Corrupt kernel results of both programs (`kept`), or only the outputs of the optimised program."""
    import pumice.model.compiled_model
    import pumice.validation.checker.model_validation

    def install(change: Change, kept: bool = True) -> None:
        class FaultyGraph:
            def __init__(self, graph: pumice.Graph, observed: bool) -> None:
                self._graph = graph
                self._observed = observed

            def compile(self, context: pumice.Context, precision: str = "fp32", **options: Any) -> Any:
                return Faulty(self._graph.compile(context, precision, **options), change, self._observed)

        def patch(module: Any, observed: bool) -> None:
            load_graph = module.load_graph

            def faulty_load(*given: Any, **options: Any) -> Any:
                graph, recipe = load_graph(*given, **options)
                return FaultyGraph(graph, observed), recipe

            monkeypatch.setattr(module, "load_graph", faulty_load)

        if kept:
            patch(pumice.validation.checker.model_validation, False)
        patch(pumice.model.compiled_model, kept)

    return install


@pytest.fixture
def plugin_project(
    pytester: pytest.Pytester, plugin_arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> PluginProject:
    """Return a project for a nested pytest run."""
    plugin_environment(monkeypatch)
    return PluginProject(pytester, plugin_arguments)
