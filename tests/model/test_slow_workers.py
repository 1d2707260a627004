"""joblib worker processes: a slow one leaves its remaining work to the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import pumice.demo
from process import python

DIGITS = Path(pumice.demo.DATA) / "digits.onnx"
COUNT, OTHERS = 24, 20
SCRIPT = """
import os, sys, time
from pathlib import Path
import numpy as np
import pumice
from joblib import Parallel, delayed

path, marks, count, others = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def scored(predictor, number, batch, marks, others):
    # The first process that has a batch works no further until the others have done so many.
    try:
        (marks / "slow").open("x").write(str(os.getpid()))
    except FileExistsError:
        pass
    while (marks / "slow").read_text() in ("", str(os.getpid())) and len([*marks.glob("done*")]) < others:
        time.sleep(0.01)
    result = predictor(batch)
    if (marks / "slow").read_text() != str(os.getpid()):
        (marks / f"done{number}").touch()
    return result

images = np.random.default_rng(1).random((count, 4, 1, 8, 8), dtype="float32")
predictor = pumice.BatchPredictor(path, batch_size=4)
jobs = (delayed(scored)(predictor, number, batch, marks, others) for number, batch in enumerate(images))
results = Parallel(n_jobs=2, batch_size=1)(jobs)
with pumice.load(path) as model:
    np.testing.assert_allclose(results, [model(batch) for batch in images], rtol=1e-5, atol=1e-6)
print(len([*marks.glob("done*")]))
"""


def test_a_slow_process_leaves_its_work_to_the_other(tmp_path: Path) -> None:
    """The slow one resumes after the other has done more than half; with a fixed split in advance this would hang."""
    pytest.importorskip("joblib")
    done = python("-c", SCRIPT, str(DIGITS), str(tmp_path), str(COUNT), str(OTHERS), seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert OTHERS <= int(done.stdout) < COUNT
