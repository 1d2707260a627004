"""The dv driver interface: contexts, memory, command lists, commands, weight packing, layouts, and networks of
commands.

    with dv.Context() as context, context.command_list() as commands:
        commands.add(dv.Conv(input_buf=memory, output_buf=memory + 4096, w=28, h=28, c=64, run=[dv.Run(...)]))
        commands.commit()
        commands.wait(commands.exec(), timeout=1)

Existing C programs link with the library at `library_path()`.
"""

from __future__ import annotations

from .._pumice import UnpackedWeights as UnpackedWeights
from .._pumice import from_whc8 as from_whc8
from .._pumice import pack_conv_weights as pack_conv_weights
from .._pumice import pack_dil_weights as pack_dil_weights
from .._pumice import pack_fc_weights as pack_fc_weights
from .._pumice import quantize_weights as quantize_weights
from .._pumice import to_whc8 as to_whc8
from .._pumice import unpack_conv_weights as unpack_conv_weights
from .._pumice import unpack_dil_weights as unpack_dil_weights
from .._pumice import unpack_fc_weights as unpack_fc_weights
from .._pumice import whc8_index as whc8_index
from .commands import ACT_ELU as ACT_ELU
from .commands import ACT_LEAKY_RELU as ACT_LEAKY_RELU
from .commands import ACT_PRELU as ACT_PRELU
from .commands import ACT_RELU6 as ACT_RELU6
from .commands import ACT_SIGMOID as ACT_SIGMOID
from .commands import ACT_TANH as ACT_TANH
from .commands import CNV_FP16_DIV_255 as CNV_FP16_DIV_255
from .commands import CNV_FP16_SUB as CNV_FP16_SUB
from .commands import CONVOLUTION as CONVOLUTION
from .commands import DECONVOLUTION as DECONVOLUTION
from .commands import DEPTHWISE as DEPTHWISE
from .commands import DEPTHWISE_DECONVOLUTION as DEPTHWISE_DECONVOLUTION
from .commands import DEV_CONV as DEV_CONV
from .commands import DEV_FC as DEV_FC
from .commands import DEV_IPU as DEV_IPU
from .commands import DEV_MAXIMIZER as DEV_MAXIMIZER
from .commands import LUT as LUT
from .commands import POOL_AVERAGE as POOL_AVERAGE
from .commands import POOL_MAX as POOL_MAX
from .commands import RGB888 as RGB888
from .commands import RGBA8888 as RGBA8888
from .commands import RGBFP16 as RGBFP16
from .commands import UPSAMPLE as UPSAMPLE
from .commands import WEIGHTS_TRANSPOSED as WEIGHTS_TRANSPOSED
from .commands import Conv as Conv
from .commands import ConvV1 as ConvV1
from .commands import FullyConnected as FullyConnected
from .commands import Ipu as Ipu
from .commands import Maximizer as Maximizer
from .commands import Run as Run
from .context_and_memory import CommandList as CommandList
from .context_and_memory import Context as Context
from .context_and_memory import Memory as Memory
from .context_and_memory import get_version_string as get_version_string
from .context_and_memory import total_size as total_size
from .library_paths import cmake_path as cmake_path
from .library_paths import include_path as include_path
from .library_paths import library_path as library_path
from .library_paths import pkgconfig_path as pkgconfig_path
from .network import LoadedNetwork as LoadedNetwork
from .network import Network as Network
from .network import NetworkOutput as NetworkOutput
from .network import from_graph as from_graph
