"""Decompositions of torch operators that its exporter cannot convert to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from .._pumice import UnsupportedError

Linear = tuple[Any, Any]  # weight and bias


def _compute_attention(x: Any, heads: int, in_projection: Linear, out_projection: Linear, attention_mask: Any) -> Any:
    """Return the self-attention of x. attention_mask: True where a query must not attend to a key; broadcastable to the scores."""
    batch, length, width = x.shape
    qkv_parts = torch.nn.functional.linear(x, *in_projection).chunk(3, -1)
    q, k, v = (projection.reshape(batch, length, heads, width // heads).transpose(1, 2) for projection in qkv_parts)
    if attention_mask is None:
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    else:
        scores = (q * (width // heads) ** -0.5) @ k.transpose(-2, -1)
        attended = scores.masked_fill(attention_mask, float("-inf")).softmax(-1) @ v
    return torch.nn.functional.linear(attended.transpose(1, 2).reshape(batch, length, width), *out_projection)


def _make_mask(mask: Any, mask_type: int | None) -> Any:
    """Return the mask in a shape that broadcasts to the scores, True where attention is masked. torch treats every mask as boolean."""
    if mask is None:
        return None
    bool_mask = mask if mask.dtype == torch.bool else mask != 0
    if mask_type == 0:  # [queries, keys]
        return bool_mask
    if mask_type == 1:  # [batch, keys]
        return bool_mask[:, None, None, :]
    if mask_type == 2:  # [batch, heads, queries, keys]
        return bool_mask
    raise UnsupportedError(
        f"aten._transformer_encoder_layer_fwd with a mask of type {mask_type}; "
        "torch.backends.mha.set_fastpath_enabled(False) avoids it"
    )


def _decompose_encoder_layer(
    x: Any, width: int, heads: int, *operands: Any, mask: Any = None, mask_type: int | None = None
) -> Any:
    """Decompose a layer of nn.TransformerEncoder, which torch runs as one operator during inference."""
    mask_arguments = (*operands[15:], *(mask, mask_type)[len(operands) - 15 :])
    attention_mask = _make_mask(*mask_arguments)
    in_projection, out_projection, (gelu, norm_first, epsilon), weights = (
        operands[:2],
        operands[2:4],
        operands[4:7],
        operands[7:15],
    )
    activation = torch.nn.functional.gelu if gelu else torch.relu

    def apply_layer_norm(value: Any, norm_index: int) -> Any:
        return torch.nn.functional.layer_norm(
            value, (width,), weights[2 * norm_index], weights[2 * norm_index + 1], epsilon
        )

    def feed_forward(value: Any) -> Any:
        return torch.nn.functional.linear(activation(torch.nn.functional.linear(value, *weights[4:6])), *weights[6:8])

    if norm_first:
        x = x + _compute_attention(apply_layer_norm(x, 0), heads, in_projection, out_projection, attention_mask)
        return x + feed_forward(apply_layer_norm(x, 1))
    x = apply_layer_norm(x + _compute_attention(x, heads, in_projection, out_projection, attention_mask), 0)
    return apply_layer_norm(x + feed_forward(x), 1)


def _decompose_split(x: Any, size: Any, axis: int = 0) -> Any:
    """Decompose a split with a symbolic size to slices, because the exporter's optimizer fails on sequences of tensors of unknown size."""
    if isinstance(size, int):
        return NotImplemented
    return _decompose_split_with_sizes(x, [size] * int((x.shape[axis] + size - 1) // size), axis)


def _decompose_split_with_sizes(x: Any, sizes: Sequence[Any], axis: int = 0) -> Any:
    if all(isinstance(size, int) for size in sizes):
        return NotImplemented
    ends = list(accumulate(sizes))
    begins = [0, *ends[:-1]]
    return [torch.ops.aten.slice.Tensor(x, axis, *bounds) for bounds in zip(begins, ends, strict=True)]


def _decompose_batch_norm(x: Any, weight: Any, bias: Any, *statistics: Any) -> Any:
    """Decompose bfloat16 batch normalization, because the exporter's optimizer would fold it into float32 convolution weights."""
    if x.dtype != torch.bfloat16:
        return NotImplemented
    mean, variance, _, epsilon = statistics  # the third is the momentum
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale = (variance.float() + epsilon).rsqrt() * (1 if weight is None else weight.float())
    shift = (0 if bias is None else bias.float()) - mean.float() * scale
    normalized = (x.float() * scale.reshape(shape) + shift.reshape(shape)).to(x.dtype)
    empty = x.new_empty((0,))
    return normalized, empty, empty


def _is_low_precision(x: Any, dtype: Any) -> bool:
    return dtype is None and x.dtype in (torch.bfloat16, torch.float16)


def _decompose_sum(x: Any, *, dtype: Any = None) -> Any:
    """Decompose an fp16 or bf16 sum, which the exporter leaves in float32."""
    return torch.ops.aten.sum.default(x.float()).to(x.dtype) if _is_low_precision(x, dtype) else NotImplemented


def _decompose_sum_axes(x: Any, axes: Any, keep: bool = False, *, dtype: Any = None) -> Any:
    return (
        torch.ops.aten.sum.dim_IntList(x.float(), axes, keep).to(x.dtype)
        if _is_low_precision(x, dtype)
        else NotImplemented
    )


DECOMPOSITIONS = {
    torch.ops.aten._native_batch_norm_legit_no_training.default: _decompose_batch_norm,
    torch.ops.aten.sum.default: _decompose_sum,
    torch.ops.aten.sum.dim_IntList: _decompose_sum_axes,
    torch.ops.aten._transformer_encoder_layer_fwd.default: _decompose_encoder_layer,
    torch.ops.aten.split.Tensor: _decompose_split,
    torch.ops.aten.split_with_sizes.default: _decompose_split_with_sizes,
}
