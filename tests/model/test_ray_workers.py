"""Ray's actors: those that die in the middle lose nothing and double nothing, and each has the GPU that Ray assigned to it."""

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
    def told(self):
        import pumice
        with pumice.Context() as context:
            return os.environ["CUDA_VISIBLE_DEVICES"], context.info.uuid, len(pumice.devices()), context.choice

actors = [Probe.remote() for _ in range(2)]
for told in sorted(ray.get([actor.told.remote() for actor in actors])):
    print(*told[:3], told[3], sep="|")
ray.shutdown()
"""


@pytest.mark.slow
def test_each_actor_has_the_gpu_that_ray_assigned(tmp_path: Path) -> None:
    """The stand-in drivers are listed in the order that NVML does not have."""
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
