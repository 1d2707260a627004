"""A pytest plugin that deselects the tests listed as done in the file named by PUMICE_TESTS_DONE (`-p skip_done_tests`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

Case = tuple[str, str]  # dotted module (and class) and test name, as in pytest's reports


def case_of(node_id: str) -> Case:
    """Return the case of the test `tests/a/test_b.py::test_c[d]`."""
    path, bracket, parameters = node_id.partition("[")
    module, *names = path.split("::")
    *classes, name = names
    return ".".join([module.removesuffix(".py").replace("/", "."), *classes]), name + bracket + parameters


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    done = {tuple(case) for case in json.loads(Path(os.environ["PUMICE_TESTS_DONE"]).read_text())}
    items[:] = [item for item in items if case_of(item.nodeid) not in done]
