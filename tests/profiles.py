"""Run the tests with the limits and features of other devices, simulated on the software driver.

./dev test --profile NAME [--rest] [ARGS]

NAME is part of a name in tests/support/device_profiles.py, or `all`. ARGS go to pytest. Each profile sets PUMICE_LIMITS and PUMICE_WITHOUT,
so that every context and subprocess sees the lesser device. Values that the driver itself does not reach are printed and left out, and so
are all tests that were skipped because the device lacks something. Reports are kept, and resumed with `--rest`, as by tests/drivers.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import drivers
import pumice
from device_profiles import Profile, find_profiles, restrict


def as_driver(profile: Profile) -> drivers.Driver:
    """Return the installed driver with the variables that simulate a profile, and print what it cannot simulate.

    The profiles share pumice's cache, whose keys tell the devices apart, and with equal vectors Mesa's, whose keys leave out the width.
    """
    with pumice.Context() as context:
        restriction = restrict(profile, context.info)
    print(f"==> {profile.name} ({profile.driver}, Vulkan {profile.api}, subgroups of {profile.subgroup})")
    for source in profile.sources:
        print(f"    source: {source}")
    for name, value in restriction.variables.items():
        print(f"    {name}={value}")
    print(f"    not simulated, because the driver's are lower: {', '.join(restriction.unsimulated) or 'none'}")
    caches = {
        "MESA_SHADER_CACHE_DIR": str(drivers.FOLDER / f"mesa-profiles-{profile.vector_bits}"),
        "PUMICE_CACHE_DIR": str(drivers.FOLDER / "cache-profiles"),
    }
    width = {"LP_NATIVE_VECTOR_WIDTH": str(profile.vector_bits)}
    manifest = Path(os.environ.get("VK_DRIVER_FILES", ""))
    return drivers.Driver(f"profile {profile.name}", manifest, {**width, **caches, **restriction.variables})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev test", allow_abbrev=False)
    parser.add_argument("--profile", required=True, metavar="NAME")
    parser.add_argument("--rest", action="store_true")
    chosen, others = parser.parse_known_args(arguments)
    try:
        profiles = find_profiles(chosen.profile)
    except ValueError as error:
        parser.error(str(error))
    drivers.FOLDER.mkdir(parents=True, exist_ok=True)
    known = [as_driver(profile) for profile in profiles]
    statuses = [drivers.run(driver, others, chosen.rest) for driver in known]
    for driver in known:
        result = drivers.outcome(driver.reports)
        print(
            f"{driver.name}: {result.count('passed')} passed, {result.count('failed')} failed, {result.skips.total()} skipped"
        )
        for reason, count in result.skips.most_common():
            if drivers.is_of_driver(reason):
                print(f"    {count} times: {reason}")
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
