"""The table of the default tier only names existing tests."""

from __future__ import annotations

import re
from pathlib import Path

from default_tier import CASES_OF

TESTS = Path(__file__).resolve().parents[1]


def test_every_sweep_is_a_test() -> None:
    for name in CASES_OF:
        file, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (TESTS / file).read_text(), re.MULTILINE), f"no test is called {name}"
