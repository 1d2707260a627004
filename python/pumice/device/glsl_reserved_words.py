"""Reserved words of GLSL."""

from __future__ import annotations

import re

_KEYWORDS = """
active asm atomic_uint attribute bool break buffer case cast centroid class coherent common const continue default demote
discard do double else enum extern external false filter fixed flat float for goto half highp hvec2 hvec3 hvec4 fvec2 fvec3
fvec4 if in inline inout input int interface invariant isampler1D isampler2D isampler3D layout long lowp main mediump namespace
noinline noperspective nonuniformEXT out output packed partition patch precise precision public readonly resource restrict
return sample sampler sampler1D sampler2D sampler3D sampler2DRect sampler3DRect samplerBuffer samplerCube shared short sizeof
smooth static struct subroutine superp switch template texture1D texture2D texture3D this true typedef uint uniform union
unsigned usampler1D usampler2D usampler3D using varying void volatile while workgroupcoherent writeonly image1D image2D image3D
"""
KEYWORDS = frozenset(_KEYWORDS.split())
# Matches type names such as bvec2, f16vec4, mat3x2, int64_t and float16_t, and the extension's types, such as sfpvec4.
_TYPE_PATTERN = re.compile(
    r"([biud]|[iuf]\d+)?(vec|mat)[234](x[234])?|u?int\d+_t|b?float\d+_t|[sal](fp|int8|int16)(vec\d|mat\d)?"
)


def is_reserved(word: str) -> bool:
    """Return whether a word is a keyword or type of GLSL or of the extension."""
    return word in KEYWORDS or _TYPE_PATTERN.fullmatch(word) is not None
