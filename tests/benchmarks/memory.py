"""Memory plans compared with their lower bound, device weights with the file's, and the installed size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pumice

from .contender import Array
from .model_cases import ModelCase
from .rows import Row, Table
from .session import Session
from .timing import Absent

MB = 1e6


def run(session: Session) -> Iterator[Table]:
    arena = Table(f"Arena / largest sum of tensors alive at once, {session.context.info.name}", "ratio")
    weights = Table("Device memory after loading / weights in the file at that precision", "ratio")
    for case in session.cases():
        try:
            x, _ = case.data()
        except Absent as reason:
            arena.rows.append(Row(case.name, absent=str(reason)))
            continue
        for precision in ("fp32", "fp16"):
            planned, held = rows(case, precision, x, session.context.info.uuid)
            arena.rows.append(planned)
            weights.rows.append(held)
    yield arena
    yield weights
    yield Table(
        "Installed files", "MB", [installed("pumice", 35), *(installed(name) for name in ("onnxruntime", "ncnn"))]
    )


def rows(case: ModelCase, precision: str, x: Array, uuid: str) -> tuple[Row, Row]:
    """Return rows for a model in its own context, so that nothing else is counted."""
    with (
        pumice.Context(f"uuid:{uuid}") as context,
        pumice.load(case.path, context=context, precision=precision) as model,
    ):
        loaded = context.memory.buffer_bytes
        model(x)
        called = context.memory.buffer_bytes
        plan = model.program.arena([list(x.shape)])
    label = f"{case.name} {precision}"
    least = plan["lower_bound_bytes"]
    note = f"{plan['arena_bytes']:,} / {least:,} bytes, {plan['dispatches']} dispatches, {plan['barriers']} barriers"
    planned = Row(label, plan["arena_bytes"] / max(1, least), target=1.2, note=note)
    stored = weight_bytes(case.path) // (2 if precision == "fp16" else 1)
    note = f"{loaded:,} / {stored:,} bytes; weights {plan['persistent_bytes']:,}; after a call {called:,}"
    # A factor of 2 would be a second copy; small layers are padded to the kernels' blocks.
    return planned, Row(label, loaded / stored, target=2, note=note)


def weight_bytes(path: Path) -> int:
    """Return the bytes of an fp32 model's float initializers.

    Shapes and axes are integers and stay on the host.
    """
    import onnx

    return sum(
        onnx.numpy_helper.to_array(tensor).nbytes
        for tensor in onnx.load(path).graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    )


def installed(package: str, target: float | None = None) -> Row:
    """Measure the distribution's files, excluding compiled bytecode."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files]
    if package == "pumice" and Path(pumice.__file__).resolve() not in {path.resolve() for path in paths}:
        paths = list(Path(pumice.__file__).parent.rglob("*"))
        return Row(
            package, megabytes(paths), note="not installed: the folder of the package, without libraries elsewhere"
        )
    return Row(package, megabytes(paths), target=target) if paths else Row(package, absent="not installed")


def megabytes(paths: Iterable[Path]) -> float:
    return sum(path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc") / MB
