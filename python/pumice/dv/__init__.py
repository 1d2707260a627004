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
