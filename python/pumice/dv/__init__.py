"""The dv driver interface: packed weights and layouts."""

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
from .commands import Conv as Conv
from .commands import ConvV1 as ConvV1
from .commands import FullyConnected as FullyConnected
from .commands import Ipu as Ipu
from .commands import Maximizer as Maximizer
from .commands import Run as Run
from .network import LoadedNetwork as LoadedNetwork
from .network import Network as Network
from .network import from_graph as from_graph
from .objects import CommandList as CommandList
from .objects import Context as Context
from .objects import Memory as Memory
from .objects import get_version_string as get_version_string
from .objects import total_size as total_size
