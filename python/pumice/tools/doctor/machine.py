"""Access to the system state that `pumice doctor` checks; tests replace it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_PROBE_TIMEOUT_SECONDS = 60
_PROBE_SCRIPT = """
import json, pumice
found, state = pumice.devices(), {"devices": [], "choice": "", "error": ""}
for one in found:
    state["devices"].append({"name": one.name, "kind": one.kind, "driver": f"{one.driver} {one.driver_info}".strip()})
state["hidden"] = found.note
try:
    with pumice.Context() as context:
        state["choice"] = f"{context.info.name}: {context.choice}"
except pumice.Error as error:
    state["error"] = str(error)
print("\\n" + json.dumps(state))
"""


class Finding(NamedTuple):
    """The result of one check."""

    verdict: str  # "right", "note" (informational) or "wrong"
    subject: str  # "loader", "drivers", "permissions", "layers", "environment", "cache" or "devices"
    text: str  # one or more sentences
    mend: str = ""  # shell command or advice that fixes the problem; "" if nothing is wrong


def report_ok(subject: str, text: str) -> Finding:
    """Return a finding that reports no problem."""
    return Finding("right", subject, text)


def report_note(subject: str, text: str) -> Finding:
    """Return an informational finding."""
    return Finding("note", subject, text)


def report_problem(subject: str, text: str, mend: str) -> Finding:
    """Return a finding that needs a fix."""
    return Finding("wrong", subject, text, mend)


def get_loading_error(library: str) -> str | None:
    """Return the system's reason why a shared library cannot be loaded; None if it can."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return None


def probe_devices() -> dict[str, Any]:
    """Return the devices that a separate process finds: "devices", "hidden", "choice" and "error". A crash ends only that process."""
    try:
        process = subprocess.run(
            [sys.executable, "-c", _PROBE_SCRIPT],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {
            "devices": [],
            "hidden": "",
            "choice": "",
            "error": f"no driver answered within {_PROBE_TIMEOUT_SECONDS} seconds",
        }
    if process.returncode == 0:
        answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
        return answer
    last = (process.stderr.strip().splitlines() or [""])[-1]
    exit_description = f"exit status {process.returncode}"
    if process.returncode < 0:
        exit_description = signal.Signals(-process.returncode).name
    return {
        "devices": [],
        "hidden": "",
        "choice": "",
        "error": f"a process that lists the devices ended with {exit_description} {last}".strip(),
    }


def is_accessible(path: Path) -> bool:
    """Return whether this user may read and write a file."""
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True)
class Machine:
    """The machine to check. The default values describe the current machine."""

    root: Path = Path("/")  # folder to which absolute paths are relative
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    get_loading_error: Callable[[str], str | None] = get_loading_error
    is_accessible: Callable[[Path], bool] = is_accessible
    probe: Callable[[], dict[str, Any]] = probe_devices
    user: int = field(default_factory=os.geteuid)  # user id that must own the cache files

    def resolve_path(self, absolute: str | Path) -> Path:
        """Return an absolute path under the machine's root."""
        return self.root / str(absolute).lstrip("/")

    def get_variable(self, name: str) -> str:
        """Return an environment variable; "" if unset."""
        return self.environment.get(name, "")

    def is_variable_set(self, name: str) -> bool:
        """Return whether an environment variable is set to something other than 0."""
        return self.get_variable(name) not in ("", "0")

    def read_first_line(self, absolute: str | Path) -> str:
        """Return the first line of a small file; "" if it is unreadable."""
        try:
            return self.resolve_path(absolute).read_text(errors="replace").partition("\n")[0].strip()
        except OSError:
            return ""

    def find_gpu_vendors(self) -> list[str]:
        """Return the vendors of display and compute devices on the PCI bus: "NVIDIA", "AMD", "Intel", or a PCI id."""
        vendors = []
        for device in sorted(self.resolve_path("/sys/bus/pci/devices").glob("*")):
            device_folder = f"/sys/bus/pci/devices/{device.name}"
            if self.read_first_line(f"{device_folder}/class")[:4] in ("0x03", "0x12"):
                vendors.append(_VENDORS.get(number := self.read_first_line(f"{device_folder}/vendor"), number))
        return [*dict.fromkeys(vendor for vendor in vendors if vendor not in _VENDORS_WITHOUT_VULKAN)]

    def find_manifests(self, kind: str) -> list[Path]:
        """Return the manifests in the Vulkan loader's folders; kind: "icd.d", "explicit_layer.d", "implicit_layer.d"."""
        home = self.get_variable("HOME")
        data = self.get_variable("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
        folders = [
            self.get_variable("XDG_CONFIG_HOME") or f"{home}/.config",
            *(self.get_variable("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"),
            "/usr/local/etc",
            "/etc",
            self.get_variable("XDG_DATA_HOME") or f"{home}/.local/share",
            *data.split(":"),
        ]
        manifest_paths = [
            manifest_path
            for folder in folders
            for manifest_path in sorted(self.resolve_path(folder).glob(f"vulkan/{kind}/*.json"))
        ]
        return [*dict.fromkeys(manifest_paths)]


_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_VENDORS_WITHOUT_VULKAN = ("0x1234", "0x1a03", "0x102b", "0x1013", "0x1414", "0x15ad", "0x1b36", "0x1d0f", "0x1ae0")
# Virtual display adapters and board management controllers, which have no Vulkan driver.
