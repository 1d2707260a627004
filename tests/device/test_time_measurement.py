"""Times are in seconds and named so, and the driver's compilation at a first dispatch is reported separately from its run time."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import pumice
from onnx_models import model, node
from pumice.bench import ModelTiming, TimeToFirstResult, measure

ROOT = Path(__file__).resolve().parents[2]
SCALE = """layout(binding = 0) buffer Y {{ float y[]; }};
void main() {{ y[gl_GlobalInvocationID.x] += {step}; }}
"""


def listed(context: pumice.Context, step: float, profile: bool = False) -> tuple[pumice.CommandList, pumice.Tensor]:
    """Return a command list with one dispatch of a new kernel, which counts its runs."""
    kernel = pumice.Kernel(SCALE.format(step=step), context)
    y = pumice.zeros(4, context=context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(y=y, threads=4))
    commands.commit(timing=not profile, profile=profile)
    return commands, y


@pytest.fixture
def fresh(context: pumice.Context) -> pumice.Context:
    """Return a context in which no kernel has run yet."""
    return pumice.Context(f"uuid:{context.info.uuid}")


def test_a_first_execution_says_that_it_is_one(fresh: pumice.Context) -> None:
    with fresh:
        commands, y = listed(fresh, 1.0, profile=True)
        first = commands.exec()
        first.wait()
        assert first.cold
        assert repr(first).endswith(", cold>")
        (time,) = commands.dispatch_times
        assert time.cold
        assert repr(time).endswith(" s, cold>")
        second = commands.exec()
        second.wait()
        assert not second.cold
        assert "cold" not in repr(second)
        assert not first.cold or first.id != second.id
        (time,) = commands.dispatch_times
        assert not time.cold
        assert 0 <= time.seconds < 10
        assert second.device_seconds is not None
        assert second.device_seconds == pytest.approx(time.seconds, rel=0.5, abs=1e-3)
        assert y.tolist() == [2.0] * 4


def test_a_kernel_that_ran_in_another_list_is_warm(fresh: pumice.Context) -> None:
    with fresh:
        kernel = pumice.Kernel(SCALE.format(step=1.0), fresh)
        y = pumice.zeros(4, context=fresh)
        kernel(y=y, threads=4)
        commands = pumice.CommandList(fresh)
        commands.dispatch(kernel.bind(y=y, threads=4))
        commands.commit()
        assert not commands.exec().cold
        checked = pumice.Kernel(SCALE.format(step=3.0), fresh, debug=True)
        commands = pumice.CommandList(fresh)
        commands.dispatch(checked.bind(y=y, threads=4))
        commands.commit()
        submissions = []
        for _ in range(2):
            submissions.append(commands.exec())
            submissions[-1].wait()
            assert submissions[-1].cold == (len(submissions) == 1)


def test_a_list_is_warmed_up_before_it_is_measured(fresh: pumice.Context) -> None:
    with fresh:
        commands, y = listed(fresh, 1.0)
        assert len(commands.time(3)) == 3
        assert y.tolist() == [4.0] * 4  # one more, to warm up the new kernel
        assert len(commands.time(3)) == 3
        assert y.tolist() == [7.0] * 4
        commands.time(2, warm_up=3)
        assert y.tolist() == [12.0] * 4
        commands.warm_up()
        commands.warm_up(2)
        assert y.tolist() == [15.0] * 4
        again, y = listed(fresh, 2.0)
        assert len(again.time(1, warm_up=0)) == 1
        assert y.tolist() == [2.0] * 4
        untouched, y = listed(fresh, 4.0)
        assert untouched.time(0) == []
        assert y.tolist() == [0.0] * 4


def test_a_models_first_run_is_measured_separately(context: pumice.Context) -> None:
    x = np.array([[-1, 2, -3, 4]], "float32")
    with pumice.load(model([node("Relu", ["x"], ["y"])], outputs=["y"]), context) as loaded:
        assert 0 < loaded.warm_up(x) < 600
        assert loaded.warm_up(x=x) > 0
        run = loaded.run_async(x)
        run.wait()
        assert run.cold is False
        with pytest.raises(pumice.BindingError):
            loaded.warm_up()
    with pumice.load(model([node("Relu", ["x"], ["y"])], outputs=["y"]), context) as loaded:
        calls = 0

        def count(done: int, total: int) -> None:
            nonlocal calls
            calls = done

        timing = measure(loaded, (x,), 5, count, warm_up=1)
        assert (calls, timing.runs) == (5, 5)
        assert 0 < timing.min_seconds <= timing.median_seconds <= timing.p99_seconds < 60
        assert 0 <= timing.device_seconds < 60
        (row, *_) = loaded.program.profile((x,))
        assert (type(row), row.cold) == (pumice.DispatchTime, False)


def test_every_name_of_a_time_says_its_unit() -> None:
    for record in (ModelTiming, TimeToFirstResult):
        for name, kind in inspect.get_annotations(record).items():
            if "float" in str(kind):
                assert name.endswith("_seconds"), name
    stub = (ROOT / "python/pumice/_pumice.pyi").read_text()
    face = "".join(path.read_text() for path in (ROOT / "python/pumice").glob("*.py"))
    for text in (stub, face):
        assert not re.search(r"(?i)nanosec|millisec|_ms\b|(?<!st_mtime)(?<!user)_ns\b", text)
    assert re.findall(r"(?i)\S*microsec\S*", stub) == ["microseconds,"]  # the unit of the vendor's last_exec_time
