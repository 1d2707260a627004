"""CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES: which devices remain, and in which order."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import pumice
from process import NO_DRIVER, python
from pumice._pumice import choose_device, visible_places
from stand_in_gpus import AMD, Gpu, described, stand_in_driver, stand_in_nvml

# NVML numbers by PCI address; the Vulkan list below has another order.
FIRST = Gpu("5a1c" * 8, "0000:1b:00.0")
SECOND = Gpu("5a2d" * 8, "0000:3b:00.0")
THIRD = Gpu("77ee" * 8, "0000:5e:00.0")
SOFTWARE = Gpu("00ff" * 8, "", "llvmpipe", 0x10005, "software")
VULKAN = [SECOND, SOFTWARE, THIRD, FIRST]  # indices 0 to 3
CUDA = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(stand_in_nvml(tmp_path_factory.mktemp("nvml"), [FIRST, SECOND, THIRD]))


@pytest.fixture
def infos(context: pumice.Context) -> list[pumice.DeviceInfo]:
    return [described(context.info, gpu) for gpu in VULKAN]


# Values of the variable, and the remaining indices: NVIDIA's in the variable's order, the software device at its position.
LEFT = {
    "0": [1, 3],
    "1": [0, 1],
    "2": [1, 2],
    "0,1,2": [3, 1, 0, 2],
    "2,0": [1, 2, 3],
    " 0 , 2 ": [1, 3, 2],
    FIRST.label: [1, 3],
    FIRST.label.upper(): [1, 3],
    f"{THIRD.label},{SECOND.label}": [2, 1, 0],
    "GPU-77ee": [1, 2],
    f"1,{FIRST.label}": [0, 1, 3],
    "": [1],
    "-1": [1],
    "NoDevFiles": [1],
    "0,-1,1": [1, 3],
    "1,7,0": [0, 1],
    "0,banana,1": [1, 3],
    "3": [1],
}


@pytest.mark.parametrize("value", LEFT)
def test_an_index_or_uuid_leaves_the_device_that_nvml_means(
    infos: list[pumice.DeviceInfo], nvml: str, value: str
) -> None:
    places, text = visible_places(infos, {CUDA: value}, nvml, "/nowhere")
    assert places == LEFT[value]
    for place in {*range(4)}.difference(places):
        assert f"{CUDA}={value} hides '{infos[place].name}'" in text
        assert infos[place].uuid in text


def test_without_a_variable_everything_is_visible_in_the_drivers_order(infos: list[pumice.DeviceInfo]) -> None:
    assert visible_places(infos, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "/nowhere.so", "/nowhere") == ([0, 1, 2, 3], "")


def test_without_nvml_indices_count_by_pci_address_and_the_choice_says_so(infos: list[pumice.DeviceInfo]) -> None:
    for value in ("0", "2,0", "1"):
        assert visible_places(infos, {CUDA: value}, "/nowhere.so", "/nowhere")[0] == LEFT[value]
    place, why = choose_device(infos, {CUDA: "1"}, "/nowhere.so", "/nowhere", "", "")
    assert place == 0
    assert "whose 1 is GPU-" in why
    assert "by the order of PCI addresses" in why


def test_the_choice_says_by_which_rule_and_what_is_hidden(infos: list[pumice.DeviceInfo], nvml: str) -> None:
    place, why = choose_device(infos, {CUDA: "2,0"}, nvml, "/nowhere", "", "")
    assert place == 2
    assert f"the first discrete device of 3; {CUDA}=2,0, whose 2 is {THIRD.label} by NVML" in why
    assert f"hides '{SECOND.model}' (discrete, uuid:{SECOND.uuid})" in why
    place, why = choose_device(infos, {CUDA: ""}, nvml, "/nowhere", "", "")
    assert place == 1
    assert why.count(f"{CUDA}= hides") == 3


def test_a_list_that_ends_early_says_where(infos: list[pumice.DeviceInfo], nvml: str) -> None:
    text = visible_places(infos, {CUDA: "1,7,0"}, nvml, "/nowhere")[1]
    assert f"{CUDA}=1,7,0: the list ends before '7', which does not match any of 3 GPUs" in text
    assert "ends before" not in visible_places(infos, {CUDA: "-1"}, nvml, "/nowhere")[1]


REFUSED = {
    "MIG-4f1c2a3b-0000-0000-0000-000000000000": "names MIG-4f1c2a3b-0000-0000-0000-000000000000, a part of a GPU",
    f"MIG-{FIRST.label}/1/0": f"names MIG-{FIRST.label}/1/0, a part of a GPU",
    "0,MIG-1": "names MIG-1, a part of a GPU",
    "1,1": "names one GPU twice",
    f"0,{FIRST.label}": "names one GPU twice",
    "GPU-5a": "GPU-5a is a prefix of the names of 2 GPUs",
}


@pytest.mark.parametrize("value", REFUSED)
def test_what_cannot_be_followed_is_rejected_by_its_name(infos: list[pumice.DeviceInfo], nvml: str, value: str) -> None:
    sources = ({CUDA: value}, nvml, "/nowhere")
    places, text = visible_places(infos, *sources)
    assert places == [1]
    assert REFUSED[value] in text
    with pytest.raises(pumice.DeviceError) as caught:
        choose_device(infos, *sources, "", "")
    assert f"{CUDA}={value}" in str(caught.value)
    assert REFUSED[value] in str(caught.value)
    with pytest.raises(pumice.DeviceError) as caught:
        choose_device(infos, *sources, f"uuid:{FIRST.uuid}", "")
    assert REFUSED[value] in str(caught.value)
    assert choose_device(infos, *sources, "llvmpipe", "")[0] == 1


@pytest.mark.parametrize("wanted", [f"uuid:{FIRST.uuid}", "pci:0000:1b:00.0", "discrete"])
@pytest.mark.parametrize("source", ["device", "PUMICE_DEVICE"])
def test_a_contradiction_is_an_error_that_says_both(
    infos: list[pumice.DeviceInfo], nvml: str, wanted: str, source: str
) -> None:
    value = "" if wanted == "discrete" else "1"
    asked = (wanted, "") if source == "device" else ("", wanted)
    with pytest.raises(pumice.DeviceError, match="change one of the two") as caught:
        choose_device(infos, {CUDA: value}, nvml, "/nowhere", *asked)
    message = str(caught.value)
    assert f"{CUDA}={value} hides" in message
    assert (f"requested as '{wanted}'" if source == "device" else f"PUMICE_DEVICE={wanted}") in message


def test_an_index_counts_the_visible_devices(infos: list[pumice.DeviceInfo], nvml: str) -> None:
    assert choose_device(infos, {CUDA: "2,0"}, nvml, "/nowhere", "2", "")[0] == 3
    with pytest.raises(pumice.DeviceError, match=f"no Vulkan device matches '3'.*{CUDA}=2,0 hides"):
        choose_device(infos, {CUDA: "2,0"}, nvml, "/nowhere", "", "3")


def test_an_index_is_rejected_where_the_gpus_differ_unless_the_order_is_said(
    context: pumice.Context, tmp_path: Path
) -> None:
    small = Gpu("77ee" * 8, "0000:5e:00.0", "NVIDIA T4")
    infos = [described(context.info, gpu) for gpu in (small, FIRST)]
    library = str(stand_in_nvml(tmp_path, [FIRST, small]))
    with pytest.raises(pumice.DeviceError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        choose_device(infos, {CUDA: "1"}, library, "/nowhere", "", "")
    assert choose_device(infos, {CUDA: "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, library, "/nowhere", "", "")[0] == 0
    assert choose_device(infos, {CUDA: small.label}, library, "/nowhere", "", "")[0] == 0


def test_a_gpu_without_a_vulkan_device_and_one_that_may_not_be_opened_are_named(
    context: pumice.Context, tmp_path: Path
) -> None:
    infos = [described(context.info, gpu) for gpu in (FIRST, SOFTWARE)]
    library = str(stand_in_nvml(tmp_path, [FIRST, SECOND]))
    places, text = visible_places(infos, {CUDA: "1"}, library, "/nowhere")
    assert places == [1]
    assert f"{CUDA}=1 names {SECOND.label}, which is not a Vulkan device here" in text
    closed = tmp_path / "closed"
    closed.mkdir()
    library = str(stand_in_nvml(closed, [None, FIRST]))
    variables = {CUDA: "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_places(infos, variables, library, "/nowhere")[0] == [0, 1]
    text = visible_places(infos, {**variables, CUDA: "0"}, library, "/nowhere")[1]
    assert "names a GPU that this process may not open" in text


# ---- AMD: by the kernel's topology, in which CPUs are nodes too

RADEONS = [
    Gpu("0a" * 16, "0000:83:00.0", "AMD Instinct", AMD),
    Gpu("0b" * 16, "0000:03:00.0", "AMD Instinct", AMD),
]


@pytest.fixture
def topology(tmp_path: Path) -> str:
    """Create topology nodes of a CPU and two GPUs; the GPU with the higher address comes first."""
    for number, (simds, bus, unique) in enumerate([(0, 0, 0), (304, 0x83, 0xABC), (304, 0x03, 0xDEF)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"cpu_cores_count 8\nsimd_count {simds}\nlocation_id {bus << 8}\ndomain 0\nunique_id {unique}\n"
        (folder / "properties").write_text(text)
    return str(tmp_path)


ROCR, HIP = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
ROCM = [
    ({ROCR: "0"}, [0, 2]),
    ({ROCR: "1"}, [1, 2]),
    ({HIP: "1"}, [1, 2]),
    ({HIP: "1,0"}, [1, 0, 2]),
    ({ROCR: "1", HIP: "0"}, [1, 2]),
    ({ROCR: "1,0", HIP: "1"}, [0, 2]),
    ({ROCR: "1", HIP: "1"}, [2]),
    ({ROCR: "GPU-0000000000000def"}, [1, 2]),
    ({ROCR: ""}, [2]),
    ({CUDA: ""}, [0, 1, 2]),
]


@pytest.mark.parametrize(("variables", "left"), ROCM)
def test_rocm_counts_by_the_kernels_topology(
    context: pumice.Context, topology: str, variables: dict[str, str], left: list[int]
) -> None:
    infos = [described(context.info, gpu) for gpu in (*RADEONS, SOFTWARE)]
    assert visible_places(infos, variables, "/nowhere.so", topology)[0] == left


def test_a_gpu_that_the_process_may_not_read_is_left_out(context: pumice.Context, topology: str) -> None:
    """The kernel lets a process open the node's file but not read it, like a folder; later nodes are still counted."""
    last = Path(topology, "2").rename(Path(topology, "3"))
    Path(topology, "2", "properties").mkdir(parents=True)
    infos = [described(context.info, gpu) for gpu in (*RADEONS, SOFTWARE)]
    assert last.exists()
    assert visible_places(infos, {ROCR: "0"}, "/nowhere.so", topology)[0] == [0, 2]
    assert visible_places(infos, {ROCR: "1"}, "/nowhere.so", topology)[0] == [1, 2]


def test_without_the_topology_rocm_counts_by_pci_address(context: pumice.Context) -> None:
    infos = [described(context.info, gpu) for gpu in (*RADEONS, SOFTWARE)]
    assert visible_places(infos, {HIP: "0"}, "/nowhere.so", "/nowhere")[0] == [1, 2]


# ---- whole processes, with stand-in drivers of two NVIDIA GPUs

PROBE = """
import pumice
found = pumice.devices()
print([device.index for device in found], [device.uuid for device in found], [device.uuid for device in found.hidden])
print(repr(found))
try:
    with pumice.Context() as context:
        print(context.info.index, context.info.uuid, context.choice)
        print(pumice.full(3, 2.0, context=context).numpy().sum())
except pumice.DeviceError as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a machine with two GPUs, whose drivers the loader may list in any order."""
    folder = tmp_path_factory.mktemp("machine")
    manifests = ":".join(str(stand_in_driver(folder, gpu)) for gpu in (SECOND, FIRST))
    library = stand_in_nvml(folder, [FIRST, SECOND])
    paths = os.pathsep.join(filter(None, [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]))
    cleared = {"PUMICE_DEVICE": "", "PUMICE_VALIDATION": "0"}
    return {**cleared, "VK_DRIVER_FILES": manifests, "VK_ICD_FILENAMES": manifests, "LD_LIBRARY_PATH": paths}


@pytest.mark.parametrize(("value", "gpu", "other"), [("0", FIRST, SECOND), ("1", SECOND, FIRST)])
def test_a_process_gets_the_gpu_that_it_was_assigned(machine: dict[str, str], value: str, gpu: Gpu, other: Gpu) -> None:
    done = python("-c", PROBE, **machine, CUDA_VISIBLE_DEVICES=value)
    assert done.returncode == 0, done.stderr
    lists, shown, chosen, total = done.stdout.splitlines()
    assert lists == f"[0] ['{gpu.uuid}'] ['{other.uuid}']"
    assert f"CUDA_VISIBLE_DEVICES={value} hides 'NVIDIA H200' (discrete, uuid:{other.uuid})" in shown
    assert chosen.startswith(f"0 {gpu.uuid} the only Vulkan device; CUDA_VISIBLE_DEVICES={value}, whose {value} is")
    assert total == "6.0"


def test_both_gpus_come_in_the_order_of_the_variable(machine: dict[str, str]) -> None:
    for order in ([FIRST, SECOND], [SECOND, FIRST]):
        done = python("-c", PROBE, **machine, CUDA_VISIBLE_DEVICES=",".join(gpu.label for gpu in order))
        assert done.stdout.splitlines()[0] == f"[0, 1] {[gpu.uuid for gpu in order]} []", done.stderr
        assert f"0 {order[0].uuid} the first discrete device of 2" in done.stdout


def test_a_process_whose_variables_contradict_each_other_is_rejected(machine: dict[str, str]) -> None:
    asked = {**machine, "PUMICE_DEVICE": f"uuid:{SECOND.uuid}"}
    done = python("-c", PROBE, **asked, CUDA_VISIBLE_DEVICES="0")
    assert "refused:" in done.stdout, done.stderr
    assert f"PUMICE_DEVICE=uuid:{SECOND.uuid}" in done.stdout
    assert "CUDA_VISIBLE_DEVICES=0 hides" in done.stdout
    done = python("-c", PROBE, **asked, CUDA_VISIBLE_DEVICES="1")
    assert f"0 {SECOND.uuid} PUMICE_DEVICE=uuid:{SECOND.uuid}; CUDA_VISIBLE_DEVICES=1, whose 1 is" in done.stdout


def test_where_everything_is_hidden_no_context_is_made(machine: dict[str, str]) -> None:
    done = python("-c", PROBE, **machine, CUDA_VISIBLE_DEVICES="")
    assert done.stdout.startswith("[] [] ["), done.stderr
    assert "refused: no Vulkan device is visible to this process: CUDA_VISIBLE_DEVICES= hides" in done.stdout


def test_importing_opens_no_library_of_a_vendor(machine: dict[str, str]) -> None:
    code = "import pumice; print(any('nvidia-ml' in line or 'libvulkan' in line for line in open('/proc/self/maps')))"
    assert python("-c", code, **machine, CUDA_VISIBLE_DEVICES="0").stdout == "False\n"


def test_a_list_of_devices_keeps_what_is_hidden_when_it_is_pickled(context: pumice.Context) -> None:
    kept = pumice.devices()
    kept.hidden, kept.note = (context.info,), "hidden for this test"
    copy = pickle.loads(pickle.dumps(kept))
    assert (copy, copy.hidden, copy.note) == (kept, kept.hidden, kept.note)
    assert "hidden for this test" in kept._repr_html_()


def test_without_a_driver_the_variable_changes_nothing() -> None:
    done = python("-c", "import pumice; print(pumice.devices())", **NO_DRIVER, CUDA_VISIBLE_DEVICES="0")
    assert done.stdout == "[]\n"
