"""Commands and lists for tests of the dv interface."""

from __future__ import annotations

from typing import Any

import pumice.dv as dv

PAGE = 4096


def doubling(memory: dv.Memory, output: int = 2048, factor: float = 2.0, pixels: int = 64) -> dv.Conv:
    """Return a command that scales 16 channels of `pixels` pixels at the start of a memory."""
    run = dv.Run(pool_enable=dv.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=factor, m=16)
    return dv.Conv(input_buf=memory, output_buf=memory + output, w=pixels, h=1, c=16, run=[run])


def committed(context: dv.Context, *commands: Any) -> dv.CommandList:
    command_list = context.command_list()
    for command in commands:
        command_list.add(command)
    command_list.commit()
    return command_list
