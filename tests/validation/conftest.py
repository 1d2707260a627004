"""Programs that spoil their results, for tests of what a validation finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pumice

Change = Callable[[dict[str, Any]], None]


class Faulty:
    """A program that spoils its results on the way out; all else is the real one's."""

    def __init__(self, program: pumice.Program, change: Change) -> None:
        self._program = program
        self._change = change

    def __call__(self, inputs: dict[str, Any], **limits: Any) -> dict[str, Any]:
        results = {name: value.copy() for name, value in self._program(inputs, **limits).items()}
        self._change(results)
        return results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Spoils the results of programs that keep every tensor (`kept`), or of the fused ones."""
    import pumice.model.model
    import pumice.validation.proof

    def install(change: Change, kept: bool = True) -> None:
        class FaultyGraph:
            def __init__(self, graph: pumice.Graph) -> None:
                self._graph = graph

            def compile(self, context: pumice.Context, precision: str = "fp32", **options: Any) -> Any:
                return Faulty(self._graph.compile(context, precision, **options), change)

        load_graph, graph_of = pumice.validation.proof.load_graph, pumice.model.model.graph_of

        def faulty_load(*given: Any) -> Any:
            graph, recipe = load_graph(*given)
            return FaultyGraph(graph), recipe

        if kept:
            monkeypatch.setattr(pumice.validation.proof, "load_graph", faulty_load)
        else:
            monkeypatch.setattr(pumice.model.model, "graph_of", lambda *given: FaultyGraph(graph_of(*given)))

    return install
