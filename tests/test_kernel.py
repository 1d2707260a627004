"""Kernels from Python: push constants of every shape."""

from __future__ import annotations

import numpy as np
import pytest

import pumice

SHAPES = """
layout(local_size_x = 18) in;
struct Light { vec3 colour; float power; ivec2 cell; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(push_constant) uniform parameter {
  vec3 scale;
  uint count[3];
  mat2x3 basis;
  Light lights[2];
} p;
void main() {
  uint i = gl_GlobalInvocationID.x;
  float v[] = float[](
    p.scale.x, p.scale.y, p.scale.z,
    float(p.count[0]), float(p.count[1]), float(p.count[2]),
    p.basis[0].x, p.basis[0].y, p.basis[0].z, p.basis[1].x, p.basis[1].y, p.basis[1].z,
    p.lights[0].colour.y, p.lights[0].power, float(p.lights[0].cell.y),
    p.lights[1].colour.z, p.lights[1].power, float(p.lights[1].cell.x)
  );
  y[i] = v[i];
}
"""

LIGHTS = [
    {"colour": (0.1, 0.2, 0.3), "power": 4, "cell": [5, -6]},
    {"colour": np.array([0.7, 0.8, 0.9], "float32"), "power": np.float64(10.5), "cell": (11, 12)},
]
ARGUMENTS = {"scale": (1.5, 2, np.float32(3)), "count": np.array([4, 5, 6], "uint8"), "basis": [[1, 2, 3], [4, 5, 6]]}
EXPECTED = [1.5, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 0.2, 4, -6, 0.9, 10.5, 11]


def test_vectors_arrays_matrices_and_structures_arrive(context: pumice.Context) -> None:
    y = np.zeros(18, "float32")
    pumice.Kernel(SHAPES, context)(y=y, **ARGUMENTS, lights=LIGHTS, groups=1)
    np.testing.assert_allclose(y, EXPECTED, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "rule", "text"),
    [
        ({"scale": (1, 2)}, "K5", "expected 3 numbers .float32.*given 2 numbers"),
        ({"scale": 1}, "K5", "given a number"),
        ({"count": [1, 2, -3]}, "K6", "uint32.*-3"),
        ({"count": [1, 2, "x"]}, "K5", "str"),
        ({"lights": LIGHTS[:1]}, "K3", r"lights\[1\]\.colour"),
        ({"lights": [*LIGHTS, LIGHTS[0]]}, "K4", r"lights\[2\]"),
        ({"lights": [{**LIGHTS[0], "size": 1}, LIGHTS[1]]}, "K4", r"lights\[0\]\.size"),
        ({"lights": LIGHTS[0]}, "K4", "lights.colour"),
    ],
)
def test_push_constants_of_another_shape_are_refused(
    context: pumice.Context, change: dict[str, object], rule: str, text: str
) -> None:
    arguments = {**ARGUMENTS, "lights": LIGHTS, **change}
    with pytest.raises(pumice.BindingError, match=text) as caught:
        pumice.Kernel(SHAPES, context)(y=np.zeros(18, "float32"), groups=1, **arguments)
    assert caught.value.rule == rule
