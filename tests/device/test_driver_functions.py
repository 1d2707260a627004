"""Math functions of drivers are right for every CPU instruction set and vector width of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

import driver_points
import pumice
from process import output_of

SCRIPT = str(Path(driver_points.__file__))


def test_functions_that_a_driver_computes_its_own_way_are_right_at_their_hard_points(context: pumice.Context) -> None:
    assert not list(driver_points.wrong_points(context))


@pytest.mark.parametrize(("instructions", "width"), [("avx", "256"), ("avx", "128"), ("", "128")])
def test_they_are_right_on_a_host_of_fewer_instructions_and_narrower_vectors(
    context: pumice.Context, instructions: str, width: str
) -> None:
    if "llvmpipe" not in context.info.name:
        pytest.skip("GALLIUM_OVERRIDE_CPU_CAPS and LP_NATIVE_VECTOR_WIDTH are read by Mesa's lavapipe alone")
    given = {"LP_NATIVE_VECTOR_WIDTH": width, **({"GALLIUM_OVERRIDE_CPU_CAPS": instructions} if instructions else {})}
    assert output_of(SCRIPT, MESA_SHADER_CACHE_DISABLE="true", PUMICE_VALIDATION="0", **given) == ""
