"""`pumice doctor` on simulated machines made of files, variables and command outputs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import pumice
from process import python
from pumice.tools.cli import main
from pumice.tools.doctor import checks
from pumice.tools.doctor.command import print_findings
from pumice.tools.doctor.machine import Finding, Machine, get_loading_error, probe_devices

ROOT = Path(__file__).resolve().parents[2]
SOFTWARE = {"name": "llvmpipe", "kind": "software", "driver": "llvmpipe Mesa"}
DISCRETE = {"name": "NVIDIA H200", "kind": "discrete", "driver": "NVIDIA 580"}


@dataclass
class MadeUp:
    """A simulated machine without problems, until a test breaks something."""

    root: Path
    unloadable: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    told: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=lambda: {"HOME": "/people/ann"})
    user: int = field(default_factory=os.geteuid)

    def put(self, path: str, text: str = "") -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def driver(self, name: str, library: str, folder: str = "/usr/share", **more: str) -> None:
        text = json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": library, **more}})
        self.put(f"{folder}/vulkan/icd.d/{name}", text)

    def gpu(self, vendor: str, kind: str = "0x030000") -> None:
        device_folder = f"/sys/bus/pci/devices/0000:0{len(vendor)}:00.0"
        self.put(f"{device_folder}/vendor", f"{vendor}\n")
        self.put(f"{device_folder}/class", f"{kind}\n")

    def machine(self) -> Machine:
        answer = {"devices": [SOFTWARE], "hidden": "", "choice": "llvmpipe: the only Vulkan device", "error": ""}
        return Machine(
            self.root,
            self.environment,
            self.unloadable.get,
            lambda path: "/" + str(path.relative_to(self.root)) not in self.closed,
            lambda: {**answer, **self.told},
            self.user,
        )

    def wrong(self) -> list[Finding]:
        return [finding for finding in checks.run_checks(self.machine()) if finding.verdict == "wrong"]

    def only(self) -> Finding:
        (found,) = self.wrong()
        return found


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    machine = MadeUp(tmp_path)
    machine.driver("lvp_icd.json", "libvulkan_lvp.so")
    machine.put("/people/ann/.cache/pumice/kept")
    machine.put("/people/ann/.cache/pumice/spirv/ab/kept.spv")
    for folder in ("pumice", "pumice/spirv", "pumice/spirv/ab"):
        (tmp_path / "people/ann/.cache" / folder).chmod(0o700)
    return machine


def test_a_machine_that_is_well_has_nothing_wrong(made_up: MadeUp, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_findings(made_up.machine(), False) == 0
    text = capsys.readouterr().out
    assert "\nNothing is wrong.\n" in text and "`pumice selftest`" in text.splitlines()[-1]
    for subject in ("loader", "drivers", "cache", "devices"):
        assert re.search(rf"^right +{subject} ", text, re.MULTILINE)


Breaking = Callable[[MadeUp], object]


def _nvidia_in_a_container(machine: MadeUp) -> None:
    machine.put("/dev/nvidiactl")
    machine.put("/.dockerenv")


def _amd_without_driver(machine: MadeUp) -> None:
    machine.gpu("0x1002")
    machine.put("/dev/dri/renderD128")
    machine.told = {"devices": [DISCRETE]}


def _amd_without_files(machine: MadeUp) -> None:
    machine.gpu("0x1002", "0x120000")
    machine.driver("radeon_icd.json", "libvulkan_radeon.so")
    machine.told = {"devices": [DISCRETE]}


def _closed_node(machine: MadeUp) -> None:
    machine.put("/dev/dri/renderD128")
    os.chmod(machine.root / "dev/dri/renderD128", 0o600)
    machine.closed.add("/dev/dri/renderD128")


def _full_path_is_a_file(machine: MadeUp) -> None:
    machine.put("/scratch/kept")
    machine.environment["PUMICE_CACHE_DIR"] = "/scratch/kept"


# What is broken, the subject of the only finding, words of its sentence, and its command line.
BROKEN: dict[str, tuple[Breaking, str, str, str]] = {
    "no loader": (
        lambda machine: machine.unloadable.update({"libvulkan.so.1": "cannot open shared object file"}),
        *("loader", "libvulkan.so.1 cannot be loaded: cannot open shared object file", "apt-get install libvulkan1"),
    ),
    "no driver": (
        lambda machine: (machine.root / "usr/share/vulkan/icd.d/lvp_icd.json").unlink(),
        *("drivers", "No Vulkan driver can be loaded", "apt-get install mesa-vulkan-drivers"),
    ),
    "a second driver's library is gone": (
        lambda machine: (machine.driver("b.json", "libb.so"), machine.unloadable.update({"libb.so": "no such file"})),
        *("drivers", "names the driver libb.so, which cannot be loaded: no such file", "b.json"),
    ),
    "a second manifest is no JSON": (
        lambda machine: machine.put("/etc/vulkan/icd.d/b.json", "{"),
        *("drivers", "b.json is not a driver manifest", "install the package of b.json again"),
    ),
    "a variable names a file that is gone": (
        lambda machine: machine.environment.update(VK_DRIVER_FILES="/usr/share/vulkan/icd.d/lvp_icd.json:/gone.json"),
        *("drivers", "VK_DRIVER_FILES names", "unset VK_DRIVER_FILES"),
    ),
    "a GPU without driver in a container": (
        _nvidia_in_a_container,
        *(
            "drivers",
            "There is a GPU of NVIDIA, but no",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics",
        ),
    ),
    "a GPU without driver": (
        _amd_without_driver,
        *("drivers", "There is a GPU of AMD, but no", "apt-get install mesa-vulkan-drivers"),
    ),
    "a GPU without files of devices": (
        _amd_without_files,
        *("permissions", "A GPU (AMD) is on the PCI bus, but neither", "sudo modprobe amdgpu"),
    ),
    "a file of a device that may not be opened": (
        _closed_node,
        *("permissions", "This user may not open /dev/dri/renderD128", "sudo chmod a+rw /dev/dri/renderD128"),
    ),
    "validation without its layer": (
        lambda machine: machine.environment.update(PUMICE_VALIDATION="1"),
        *("layers", "VK_LAYER_KHRONOS_validation is not installed", "apt-get install vulkan-validationlayers"),
    ),
    "a variable misspelt": (
        lambda machine: machine.environment.update(PUMICE_DEVCE="1"),
        *("environment", "pumice reads no variable of that name; PUMICE_DEVICE is one", "unset PUMICE_DEVCE"),
    ),
    "faults": (
        lambda machine: machine.environment.update(PUMICE_FAULT="stale"),
        *("environment", "PUMICE_FAULT deliberately puts faults into plans", "unset PUMICE_FAULT"),
    ),
    "no home": (
        lambda machine: machine.environment.pop("HOME"),
        *("cache", "nothing is kept between processes", "export PUMICE_CACHE_DIR="),
    ),
    "a cache that cannot be written": (
        lambda machine: machine.closed.add("/people/ann/.cache/pumice"),
        *("cache", "/people/ann/.cache/pumice cannot be written", "export PUMICE_CACHE_DIR="),
    ),
    "a cache below a file": (
        _full_path_is_a_file,
        *("cache", "The cache /scratch/kept/pumice cannot be created", "export PUMICE_CACHE_DIR="),
    ),
    "a cache in whose place is a file": (
        lambda machine: (machine.put("/scratch/pumice"), machine.environment.update(PUMICE_CACHE_DIR="/scratch")),
        *("cache", "The cache /scratch/pumice cannot be created", "export PUMICE_CACHE_DIR="),
    ),
    "a cache of another user": (
        lambda machine: setattr(machine, "user", machine.user + 1),
        *("cache", f"it belongs to uid {os.geteuid()}, and you are uid {os.geteuid() + 1}", "export PUMICE_CACHE_DIR="),
    ),
    "a cache that others may write": (
        lambda machine: (machine.root / "people/ann/.cache/pumice").chmod(0o777),
        *("cache", "other users may write to it", "chmod -R go-w /people/ann/.cache/pumice,"),
    ),
    "a folder of the cache that others may write": (
        lambda machine: (machine.root / "people/ann/.cache/pumice/spirv/ab").chmod(0o720),
        *("cache", "other users may write to it", "chmod -R go-w /people/ann/.cache/pumice/spirv/ab,"),
    ),
    "a cache that is a link": (
        lambda machine: (
            (machine.root / "people/ann/.cache/pumice").rename(machine.root / "elsewhere"),
            (machine.root / "people/ann/.cache/pumice").symlink_to(machine.root / "elsewhere"),
        ),
        *("cache", "it is a symbolic link", "export PUMICE_CACHE_DIR="),
    ),
    "no context": (
        lambda machine: machine.told.update(devices=[], error="there is no Vulkan 1.2 device with a compute queue"),
        *("devices", "there is no Vulkan 1.2 device", "fix the problems above first"),
    ),
    "a contradiction": (
        lambda machine: machine.told.update(hidden="CUDA_VISIBLE_DEVICES=0 hides 'B'", error="PUMICE_DEVICE names 'B'"),
        *("devices", "PUMICE_DEVICE names 'B'", "unset CUDA_VISIBLE_DEVICES or PUMICE_DEVICE"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_thing_that_is_wrong_is_found_alone_with_its_line(
    made_up: MadeUp, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, subject, words, line = BROKEN[name]
    change(made_up)
    found = made_up.only()
    assert found.subject == subject
    assert words in found.text
    assert line in found.mend
    assert print_findings(made_up.machine(), False) == 1
    text = capsys.readouterr().out
    assert f"-> {found.mend}" in text
    assert "\n1 thing is wrong.\n" in text


@pytest.mark.parametrize("name", BROKEN)
def test_no_line_removes_a_file_or_names_a_folder_that_everybody_may_write(made_up: MadeUp, name: str) -> None:
    BROKEN[name][0](made_up)
    for found in made_up.wrong():
        assert not re.search(r"\brm\b|\bremove\b|\bdelete\b|/tmp|777", found.mend), found.mend


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_root_makes_no_cache_in_the_home_of_another_user(made_up: MadeUp) -> None:
    (made_up.root / "people/bob").mkdir()
    os.chown(made_up.root / "people/bob", 65534, 65534)
    made_up.environment["HOME"] = "/people/bob"
    found = made_up.only()
    assert (found.subject, "sudo -H" in found.mend) == ("cache", True)
    assert "root does not create one in a folder of another user, uid 65534" in found.text
    made_up.environment["PUMICE_CACHE_DIR"] = "/people/bob"
    assert not made_up.wrong()


def test_only_software_beside_a_gpu_is_wrong_unless_the_gpu_is_hidden(made_up: MadeUp) -> None:
    made_up.gpu("0x1002")
    made_up.put("/dev/dri/renderD128")
    made_up.driver("radeon_icd.json", "libvulkan_radeon.so")
    assert "only software drivers respond" in made_up.only().text
    made_up.told = {"hidden": "HIP_VISIBLE_DEVICES= hides 'AMD Instinct'"}
    assert not made_up.wrong()


def test_display_adapters_of_boards_and_drivers_of_32_bits_are_not_wrong(made_up: MadeUp) -> None:
    made_up.gpu("0x1a03")
    made_up.driver("lvp_icd.i686.json", "/usr/lib/i386/libvulkan_lvp.so", library_arch="32")
    made_up.unloadable["/usr/lib/i386/libvulkan_lvp.so"] = "wrong ELF class"
    assert not made_up.wrong()
    assert any(
        finding.text == "lvp_icd.i686.json is for 32-bit programs." for finding in checks.run_checks(made_up.machine())
    )


def test_the_loaders_folders_are_searched(made_up: MadeUp) -> None:
    made_up.environment["XDG_DATA_DIRS"] = "/opt/share"
    assert "No Vulkan driver can be loaded" in made_up.only().text
    for folder in ("/opt/share", "/etc", "/people/ann/.local/share", "/people/ann/.config", "/etc/xdg"):
        made_up.driver("a.json", "liba.so", folder)
        assert not made_up.wrong()
        (made_up.root / folder.lstrip("/") / "vulkan/icd.d/a.json").unlink()


def test_as_json(made_up: MadeUp, capsys: pytest.CaptureFixture[str]) -> None:
    made_up.environment["PUMICE_DEVCE"] = "1"
    assert print_findings(made_up.machine(), True) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["wrong"] == 1
    assert {"verdict", "subject", "text", "mend"} == set(record["findings"][0])
    assert sum(finding["verdict"] == "wrong" for finding in record["findings"]) == 1


def test_variables_are_those_that_the_sources_read() -> None:
    texts = [(ROOT / "dev").read_text(), (ROOT / "tests" / "drivers.py").read_text()]
    for folder in ("cpp", "src", "python"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".cpp", ".h", ".py"} and "doctor" not in path.parts:
                texts.append(path.read_text())
    pattern = r"(?:getenv\(|environment\(|environ\[|environ\.get\(|number_from\(|\$\{)\"?(PUMICE_[A-Z_]+)"
    read = {name for text in texts for name in re.findall(pattern, text)}
    assert len(read) >= 8
    assert read <= {*checks.VARIABLES}
    for name in checks.VARIABLES:
        assert any(name in text for text in texts), f"nothing names {name}"


def test_this_machine_is_looked_at(capsys: pytest.CaptureFixture[str], context: pumice.Context) -> None:
    assert get_loading_error("libvulkan.so.1") is None
    assert "libgone" in str(get_loading_error("libgone.so.9"))
    status = main(["doctor", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert status == (1 if record["wrong"] else 0)
    assert any(
        context.info.name in finding["text"] for finding in record["findings"] if finding["subject"] == "devices"
    )


def test_a_driver_that_ends_the_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr("pumice.tools.doctor.machine._PROBE_SCRIPT", dying)
    probe_result = probe_devices()
    assert probe_result["error"] == "a process that lists the devices ended with SIGSEGV"


def test_without_any_driver_the_command_fails_and_says_so() -> None:
    nowhere = {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json", "PUMICE_VALIDATION": "0"}
    done = python("-m", "pumice", "doctor", **nowhere)
    assert done.returncode == 1
    assert "VK_DRIVER_FILES names /nowhere.json, which is not a file." in done.stdout
    assert "-> unset VK_DRIVER_FILES" in done.stdout
    assert "No Vulkan driver can be loaded." in done.stdout
    assert "No context can be created: there is a Vulkan loader but no Vulkan driver" in done.stdout


def test_the_machine_of_a_test_is_apart_from_this_one(made_up: MadeUp) -> None:
    assert replace(made_up.machine(), environment={}).get_variable("HOME") == ""
