"""The environment of compilers and other programs that tests run, for processes that import nothing else of the tests."""

from __future__ import annotations

import os


def tool_environment() -> dict[str, str]:
    """Return the environment of programs that are not under test, such as compilers: without the sanitizers' libraries."""
    return {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
