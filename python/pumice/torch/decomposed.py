"""Operators of torch that its exporter has no ONNX for, as others of torch's."""

from __future__ import annotations

from typing import Any

import torch

from .._pumice import UnsupportedError

Linear = tuple[Any, Any]  # a weight and a bias


def _attention(x: Any, heads: int, into: Linear, out: Linear) -> Any:
    batch, length, width = x.shape
    parts = torch.nn.functional.linear(x, *into).chunk(3, -1)
    q, k, v = (part.reshape(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return torch.nn.functional.linear(mixed.transpose(1, 2).reshape(batch, length, width), *out)


def _encoder_layer(x: Any, width: int, heads: int, *rest: Any, mask: Any = None, mask_type: int | None = None) -> Any:
    """A layer of nn.TransformerEncoder, which torch runs as one operator where nothing is trained.

    Raises UnsupportedError for a mask, whose kinds differ in meaning.
    """
    if mask is not None or len(rest) > 15:
        raise UnsupportedError(
            "aten._transformer_encoder_layer_fwd with a mask; torch.backends.mha.set_fastpath_enabled(False) avoids it"
        )
    into, out, (gelu, norm_first, epsilon), weights = rest[:2], rest[2:4], rest[4:7], rest[7:]
    activation = torch.nn.functional.gelu if gelu else torch.relu

    def normal(value: Any, which: int) -> Any:
        return torch.nn.functional.layer_norm(value, (width,), weights[2 * which], weights[2 * which + 1], epsilon)

    def forward(value: Any) -> Any:
        return torch.nn.functional.linear(activation(torch.nn.functional.linear(value, *weights[4:6])), *weights[6:8])

    if norm_first:
        x = x + _attention(normal(x, 0), heads, into, out)
        return x + forward(normal(x, 1))
    x = normal(x + _attention(x, heads, into, out), 0)
    return normal(x + forward(x), 1)


DECOMPOSED = {torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
