"""The demo, as `./dev demo` runs it."""

from __future__ import annotations

import re
import subprocess

import onnx

import pumice.demo
from process import NO_DRIVER, python


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "pumice.demo", PYTHONIOENCODING="utf-8", **environment)


def test_demo_shows_devices_digits_accuracy_nodes_and_a_kernel() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Using .+ \((discrete|integrated|virtual|software|other)\): .+", done.stdout)
    assert [int(digit) for digit in re.findall(r"it is a (\d)", done.stdout)] == [*range(10)]
    accuracy = re.search(r"Held-back digits: (\d+) of (\d+) right", done.stdout)
    assert accuracy
    assert int(accuracy[1]) == 357
    assert int(accuracy[2]) == 359
    nodes = [node.name for node in onnx.load(pumice.demo.DATA / "digits.onnx").graph.node]
    assert len(nodes) == 10
    assert all(name in done.stdout for name in nodes)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    assert done.stdout.count("1000 of 1000 equal to NumPy's") == 2


def test_demo_without_a_device_says_what_to_install() -> None:
    done = run(**NO_DRIVER)
    assert done.returncode == 1
    assert "mesa-vulkan-drivers" in done.stdout
