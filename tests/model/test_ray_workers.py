"""Ray actors: a dying actor loses and duplicates nothing, and each actor uses its assigned GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import pumice.demo
from process import python
from stand_in_gpus import Gpu, stand_in_driver, stand_in_nvml

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"
SCRIPT = """
import os, sys
from pathlib import Path
import numpy as np
import pumice, ray

path, marks, count, every = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

class Mortal(pumice.BatchPredictor):
    # Its process dies at every so many batches, each time once.
    def __call__(self, batch):
        number = int(batch["n"][0]) // len(batch["n"])
        mark = marks / str(number)
        if number % every == every - 1 and not mark.exists():
            mark.touch()
            os._exit(1)
        return super().__call__(batch)

rng = np.random.default_rng(1)
images = rng.random((count * 4, 1, 8, 8), dtype="float32")
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
blocks = ray.data.from_items([{"image": image, "n": n} for n, image in enumerate(images)], override_num_blocks=count)
scored = blocks.map_batches(
    Mortal,
    fn_constructor_args=[path],
    fn_constructor_kwargs={"keep": ["n"], "batch_size": 4},
    batch_size=4,
    compute=ray.data.ActorPoolStrategy(size=2),
)
rows = sorted(scored.take_all(), key=lambda row: row["n"])
ray.shutdown()
assert [row["n"] for row in rows] == [*range(count * 4)], "rows are lost or doubled"
with pumice.load(path) as model:
    expected = model(images)
np.testing.assert_allclose([row["probabilities"] for row in rows], expected, rtol=1e-5, atol=1e-6)
print(len([*marks.iterdir()]), "deaths")
"""


@pytest.mark.slow
def test_actors_that_die_lose_no_batch_and_double_none(tmp_path: Path) -> None:
    pytest.importorskip("ray.data")
    marks = tmp_path / "marks"
    marks.mkdir()
    arguments = [str(DIGITS), str(marks), "100", "25"]
    done = python("-c", SCRIPT, *arguments, seconds=600, RAY_USAGE_STATS_ENABLED="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "4 deaths"


ASSIGNED = """
import os
import ray

ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote(num_gpus=1, num_cpus=1)
class Probe:
    def report(self):
        import pumice
        with pumice.Context() as context:
            return os.environ["CUDA_VISIBLE_DEVICES"], context.info.uuid, len(pumice.devices()), context.choice

actors = [Probe.remote() for _ in range(2)]
for report in sorted(ray.get([actor.report.remote() for actor in actors])):
    print(*report[:3], report[3], sep="|")
ray.shutdown()
"""


@pytest.mark.slow
def test_each_actor_has_the_gpu_that_ray_assigned(tmp_path: Path) -> None:
    """The stand-in drivers list their GPUs in another order than NVML."""
    pytest.importorskip("ray")
    gpus = [Gpu("5a1c" * 8, "0000:1b:00.0"), Gpu("5a2d" * 8, "0000:3b:00.0")]
    manifests = ":".join(str(stand_in_driver(tmp_path, gpu)) for gpu in reversed(gpus))
    library = stand_in_nvml(tmp_path, [*gpus])
    machine = {"VK_DRIVER_FILES": manifests, "VK_ICD_FILENAMES": manifests, "LD_LIBRARY_PATH": str(library.parent)}
    more = {"PUMICE_DEVICE": "", "PUMICE_VALIDATION": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    done = python("-c", ASSIGNED, seconds=300, **machine, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    for number, line in enumerate(done.stdout.splitlines()[-2:]):
        variable, uuid, count, choice = line.split("|")
        assert (variable, uuid, count) == (str(number), gpus[number].uuid, "1")
        assert f"CUDA_VISIBLE_DEVICES={number}, whose {number} is {gpus[number].label} by NVML" in choice


SLOW_WORKER = """
import os, sys, time
from pathlib import Path
import numpy as np
import pumice, ray

path, marks, count, others = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

class Slow(pumice.BatchPredictor):
    # The first process that has a batch works no further until the others have done so many.
    def __call__(self, batch):
        number = int(batch["n"][0]) // len(batch["n"])
        try:
            (marks / "slow").open("x").write(str(os.getpid()))
        except FileExistsError:
            pass
        while (marks / "slow").read_text() in ("", str(os.getpid())) and len([*marks.glob("done*")]) < others:
            time.sleep(0.02)
        result = super().__call__(batch)
        if (marks / "slow").read_text() != str(os.getpid()):
            (marks / f"done{number}").touch()
        return result

rng = np.random.default_rng(1)
images = rng.random((count * 4, 1, 8, 8), dtype="float32")
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
blocks = ray.data.from_items([{"image": image, "n": n} for n, image in enumerate(images)], override_num_blocks=count)
scored = blocks.map_batches(
    Slow,
    fn_constructor_args=[path],
    fn_constructor_kwargs={"keep": ["n"], "batch_size": 4},
    batch_size=4,
    compute=ray.data.ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=2),
)
rows = sorted(scored.take_all(), key=lambda row: row["n"])
ray.shutdown()
assert [row["n"] for row in rows] == [*range(count * 4)], "rows are lost or doubled"
with pumice.load(path) as model:
    expected = model(images)
np.testing.assert_allclose([row["probabilities"] for row in rows], expected, rtol=1e-5, atol=1e-6)
print(len([*marks.glob("done*")]), "batches by the other")
"""


@pytest.mark.slow
def test_a_slow_actor_leaves_its_work_to_the_other(tmp_path: Path) -> None:
    """The slow actor resumes after the other has done 26 of 30 batches; with a fixed split in advance this would hang."""
    pytest.importorskip("ray.data")
    done = python("-c", SLOW_WORKER, str(DIGITS), str(tmp_path), "30", "26", seconds=300, RAY_USAGE_STATS_ENABLED="0")
    assert done.returncode == 0, done.stdout + done.stderr
    count, words = done.stdout.splitlines()[-1].split(" ", 1)
    assert words == "batches by the other"
    assert 26 <= int(count) < 30


LOST_NODE = """
import os, sys, threading, time
from pathlib import Path
import numpy as np
import pumice, ray
from ray.cluster_utils import Cluster

path, marks, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

class Placed(pumice.BatchPredictor):
    # Prints where each batch began, and waits on the second node's at the tenth until that node is gone.
    def __call__(self, batch):
        number = int(batch["n"][0]) // len(batch["n"])
        node = ray.get_runtime_context().get_node_id()
        (marks / f"{node}.{number}").touch()
        while node == (marks / "second").read_text() and len([*marks.glob(f"{node}.*")]) >= 3:
            time.sleep(0.05)
        return super().__call__(batch)

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
ray.init(address=cluster.address, log_to_driver=False)
second = cluster.add_node(num_cpus=1, resources={"second": 1})
cluster.wait_for_nodes()
(marks / "second").write_text(second.node_id)

def lose():
    while len([*marks.glob(f"{second.node_id}.*")]) < 3:
        time.sleep(0.05)
    cluster.remove_node(second, allow_graceful=False)
    (marks / "lost").touch()

threading.Thread(target=lose, daemon=True).start()
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
context.scheduling_strategy = "SPREAD"
rng = np.random.default_rng(1)
images = rng.random((count * 4, 1, 8, 8), dtype="float32")
blocks = ray.data.from_items([{"image": image, "n": n} for n, image in enumerate(images)], override_num_blocks=count)
scored = blocks.map_batches(
    Placed,
    fn_constructor_args=[path],
    fn_constructor_kwargs={"keep": ["n"], "batch_size": 4},
    batch_size=4,
    compute=ray.data.ActorPoolStrategy(size=2),
    scheduling_strategy="SPREAD",
)
rows = sorted(scored.take_all(), key=lambda row: row["n"])
assert (marks / "lost").exists(), "the second node had no work"
assert [row["n"] for row in rows] == [*range(count * 4)], "rows are lost or doubled"
with pumice.load(path) as model:
    expected = model(images)
np.testing.assert_allclose([row["probabilities"] for row in rows], expected, rtol=1e-5, atol=1e-6)
print("all batches of", len({mark.name.split(".")[0] for mark in marks.glob("*.*")}), "nodes")
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_node_that_is_lost_loses_no_batch_and_doubles_none(tmp_path: Path) -> None:
    """Kills a second raylet of this machine while its actor has work in flight."""
    pytest.importorskip("ray.cluster_utils")
    done = python("-c", LOST_NODE, str(DIGITS), str(tmp_path), "40", seconds=300, RAY_USAGE_STATS_ENABLED="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all batches of 2 nodes"
