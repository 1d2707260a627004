"""Facts about an operator are in its row: few sources compare operator names, and only to recognise subgraphs."""

from __future__ import annotations

import re
from pathlib import Path

CPP = Path(__file__).resolve().parents[2] / "cpp"

# Sources that recognise subgraphs or size computations of a model, or the operator that the engine adds when a count of
# elements determines a shape.
RECOGNISE = {
    *(
        f"graph/passes/{name}.cpp"
        for name in ("fuse_block_quant_matmuls", "fuse_rotary_caches", "fuse_crops", "fuse_bidirectional_rnn")
    ),
    *(f"graph/passes/recognise_{name}.cpp" for name in ("attention", "block_quant", "qlinear", "patterns")),
    "graph/passes/fold_batch_norm.cpp",
    "graph/passes/subgraph_pattern.cpp",
    "graph/passes/use_def_chains.cpp",
    *(
        "graph/description/graph.cpp",
        "graph/description/shape_sources.cpp",
        "graph/control_flow/graph_levels.cpp",
    ),  # kCountNonZero
}
BY_NAME = re.compile(r"row->name\s*(?:==|!=)|row->name\.(?:find|starts_with|ends_with)|=\s*node(?:\.|->)row->name;")


def test_only_what_recognises_subgraphs_goes_by_the_names_of_rows() -> None:
    """Kernels distinguish the operators of a lowering by `OperatorRow::form`; passes and profiles ask for other facts."""
    sources = [*(CPP / "operators").rglob("*"), *(CPP / "graph").rglob("*"), *(CPP / "dv").rglob("*")]
    texts = {path.relative_to(CPP).as_posix(): path.read_text() for path in sources if path.suffix in (".cpp", ".h")}
    assert {path for path, text in texts.items() if BY_NAME.search(text)} == RECOGNISE
