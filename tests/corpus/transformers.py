"""Transformers over words: encoders, decoders with a cache, mixtures of experts, state-space models."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, floats, integers, lengths

WORDS = 97  # in the vocabulary


class Attention(nn.Module):
    """Written out in primitives, as the models of 2018 to 2022 have it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor, context: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q, k, v = self.split(self.query(x)), self.split(self.key(source)), self.split(self.value(source))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + mask
        mixed = torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).contiguous()
        return self.out(mixed.view(x.shape[0], x.shape[1], -1))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, mask))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """Words, kinds of segments and a mask of words -> hidden states and the pooled first one."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, longest: int = 40) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(WORDS, width, padding_idx=0), nn.Embedding(2, width)
        self.positions = nn.Embedding(longest, width)
        self.register_buffer("position_ids", torch.arange(longest)[None], persistent=False)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, kinds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        places = self.position_ids[:, : ids.shape[1]]
        x = self.norm(self.words(ids) + self.kinds(kinds) + self.positions(places))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Gpt2Block(nn.Module):
    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("causal", torch.tril(torch.ones(longest, longest, dtype=torch.bool)), persistent=False)

    def forward(self, x: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            part.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, dim=-1)
        )
        k, v = torch.cat((past_key, k), dim=2), torch.cat((past_value, v), dim=2)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        allowed = self.causal[k.shape[2] - q.shape[2] : k.shape[2], : k.shape[2]]
        scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.between(x)), approximate="tanh")), k, v


class Gpt2(nn.Module):
    """The next words after those of a cache, which may be empty -> scores of words and the cache with them."""

    def __init__(self, width: int = 32, heads: int = 4, longest: int = 48) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Embedding(longest, width)
        self.first, self.second = (Gpt2Block(width, heads, longest) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, k0: Tensor, v0: Tensor, k1: Tensor, v1: Tensor) -> tuple[Tensor, ...]:
        places = torch.arange(k0.shape[2], k0.shape[2] + ids.shape[1], device=ids.device)
        x = self.words(ids) + self.positions(places)
        x, k0, v0 = self.first(x, k0, v0)
        x, k1, v1 = self.second(x, k1, v1)
        return F.linear(self.norm(x), self.words.weight), k0, v0, k1, v1


TEXT = [{"batch": 2, "words": 7}, {"batch": 1, "words": 12}, {"batch": 3, "words": 1}]

CASES = [
    Case(
        "bert",
        Bert,
        {"ids": integers(WORDS, "batch", "words"), "kinds": integers(2, "batch", "words"), "mask": lengths("batch", "words")},
        ["hidden", "pooled"],
        [*TEXT, {"batch": 0, "words": 5}],
        variants=("fp16", "dynamic_int8", "qdq_int8"),
    ),
    Case(
        "gpt2",
        Gpt2,
        {
            "ids": integers(WORDS, "batch", "words"),
            **{name: floats("batch", 4, "past", 8) for name in ("k0", "v0", "k1", "v1")},
        },
        ["scores", "new_k0", "new_v0", "new_k1", "new_v1"],
        [{"batch": 2, "words": 3, "past": 5}, {"batch": 1, "words": 1, "past": 11}, {"batch": 2, "words": 6, "past": 0}],
        variants=("fp16",),
    ),
]
