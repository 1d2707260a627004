"""Profiles and peaks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import numpy as np

import pumice
from onnx_models import gemm
from signature_probes.probe import covers, differ, expect_error


@covers(
    "profile.level", "profile.every", "Profile.rows.by", "Profile.cells.by", "Profile.table.by", "Profile.table.max_rows",
    "Profile.compare.by", "Profile.plot.kind", "Profile.plot.axes", "Profile.save_html.title"
)  # fmt: skip
def profiles(context: pumice.Context) -> None:
    kernel = pumice.Kernel("layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[0] = 1; }", context, "one")
    commands = pumice.CommandList(context)
    x = pumice.zeros((4,), context=context)
    for name in ("a", "a", "b"):
        commands.dispatch(kernel.bind(x=x, threads=1) if name == "a" else kernel.bind(x=x, threads=4))
    commands.commit()

    def profiled(level: str) -> pumice.Profile:
        with pumice.profile(level) as measured:
            commands.exec().wait()
        return measured

    differ(*(len(profiled(level).spans) for level in ("node", "dispatch")))
    expect_error(lambda: pumice.profile("wobble"), "wobble")
    commands.exec().wait()

    def fine(every: int | None) -> int:
        with pumice.profile("node", every) as measured:
            for _ in range(4):
                commands.exec().wait()
        return sum(one.fine for one in measured.executions)

    differ(*(fine(every) for every in (None, 1, 2)))
    measured = profiled("dispatch")
    for read in (measured.rows, measured.cells, lambda by: measured.compare(measured, by)):
        expect_error(lambda read=read: read("wobble"), "wobble")
    differ(*(len(measured.rows(by)) for by in ("kernel", "dispatch")))
    differ(*(len(measured.cells(by)) for by in ("kernel", "dispatch")))
    differ(*(measured.table(by) for by in ("kernel", "dispatch")))
    differ(*(measured.table("dispatch", rows) for rows in (1, 2)))
    differ(*(len(measured.compare(measured, by).by) for by in ("kernel", "dispatch")))
    with TemporaryDirectory() as folder:
        for title in ("one", "another"):
            measured.save_html(Path(folder) / title, title)
        differ(*((Path(folder) / title).read_text() for title in ("one", "another")))
    expect_error(lambda: measured.plot("wobble"), "wobble")
    axes = Axes()
    assert measured.plot("kernels", axes) is axes
    assert axes.drawn == ["one"]


class Axes:
    """Stands in for the axes of a kernel plot."""

    drawn: list[str]

    def barh(self, names: list[str], widths: list[float]) -> None:
        """Record the names of the bars."""
        assert len(names) == len(widths)
        self.drawn = names

    def set_xlabel(self, text: str) -> None:
        """Ignore the label."""
        assert text


@covers("calibrate.context", "calibrate.again")
def peaks(context: pumice.Context) -> None:
    measured = pumice.calibrate(context, again=True)
    assert measured.uuid == context.info.uuid
    differ(measured.seconds_since_epoch, pumice.calibrate(context, again=True).seconds_since_epoch)
    closed = pumice.Context(f"uuid:{context.info.uuid}")
    closed.close()
    expect_error(lambda: pumice.calibrate(closed, again=True), "closed")
    assert np.isfinite(measured.bytes_per_second)


@covers("memory_map.**by_name", "MemoryMap.plot.axes")
def memory(context: pumice.Context) -> None:
    with pumice.load(gemm(), context) as model:
        name, given = model.inputs[0].name, np.ones((2, 4), "float32")
        assert pumice.memory_map(model, **{name: given}).as_dict() == pumice.memory_map(model, given).as_dict()
        expect_error(lambda: pumice.memory_map(model, wobble=given), "wobble")
        axes = Mock()
        assert pumice.memory_map(model, given).plot(axes) is axes
        assert axes.set_ylabel.called
