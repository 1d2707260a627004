"""Runs the benchmarks that are named, or all of them."""

from __future__ import annotations

import importlib
import sys

import pumice

NAMES = ("launch", "models", "first_use", "memory")


def main() -> int:
    wanted = sys.argv[1:] or list(NAMES)
    if unknown := [name for name in wanted if name not in NAMES]:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    with pumice.Context() as context:
        info = context.info
        print(f"device: {info.name} ({info.kind}), {info.driver} {info.driver_info}, Vulkan {info.api_version}: {context.choice}")
        for name in wanted:
            importlib.import_module(f"{__package__}.{name}").main(context)
    return 0


if __name__ == "__main__":
    sys.exit(main())
