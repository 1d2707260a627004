"""Decoders as of 2023 and later: RoPE, grouped-query attention, gated MLPs, mixture of experts, state spaces."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, Input, floats, integers, lengths
from .transformers import WORDS, RmsNorm


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Rotary(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, width, 2).float() / width), persistent=False)

    def forward(self, places: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = (
            self.rates[None, :, None].float().expand(places.shape[0], -1, 1) @ places[:, None, :].float()
        ).transpose(1, 2)
        both = torch.cat((angles, angles), dim=-1)[:, None]
        return both.cos().to(dtype), both.sin().to(dtype)


class GroupedAttention(nn.Module):
    """Four query heads and two KV heads; `fused` uses PyTorch's attention operator."""

    def __init__(self, width: int, fused: bool, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.fused = heads, groups, width // heads, fused
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))

    def repeated(self, x: Tensor) -> Tensor:
        batch, groups, words, size = x.shape
        times = self.heads // groups
        return x[:, :, None].expand(batch, groups, times, words, size).reshape(batch, groups * times, words, size)

    def forward(
        self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, words, _ = x.shape
        q = self.query(x).view(batch, words, self.heads, self.size).transpose(1, 2)
        k = self.key(x).view(batch, words, self.groups, self.size).transpose(1, 2)
        v = self.value(x).view(batch, words, self.groups, self.size).transpose(1, 2)
        cos, sin = turns
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        all_k, all_v = self.repeated(k), self.repeated(v)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, all_k, all_v, attn_mask=mask)
        else:
            scores = q @ all_k.transpose(2, 3) / math.sqrt(self.size) + mask
            mixed = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ all_v
        return self.out(mixed.transpose(1, 2).reshape(batch, words, -1)), k, v


class Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Routes each token to the top two of four experts; all experts are computed, in batched matmuls."""

    def __init__(self, width: int, inner: int, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, width, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, width))

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        best, which = torch.topk(torch.softmax(self.router(x), -1), 2, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        shares = torch.zeros(x.shape[0], self.up.shape[0], dtype=x.dtype, device=x.device).scatter(1, which, best)
        each = torch.bmm(F.silu(torch.matmul(x, self.up)), self.down)
        return torch.einsum("etw,te->tw", each, shares).view(shape)


class ExpertsInTurn(nn.Module):
    """Selects the tokens of each expert, runs it and adds the result: data-dependent shapes."""

    def __init__(self, width: int, inner: int, experts: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Gated(width, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        best, which = torch.topk(torch.softmax(self.router(x), -1), 2, dim=-1)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, columns = torch.where(which == number)
            total = total.index_add(0, rows, expert(x[rows]) * best[rows, columns][:, None])
        return total.view(shape)


class LlamaLayer(nn.Module):
    def __init__(self, width: int, fused: bool, feed: nn.Module) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = RmsNorm(width), RmsNorm(width)
        self.attention, self.feed = GroupedAttention(width, fused), feed

    def forward(
        self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        mixed, k, v = self.attention(self.attention_norm(x), turns, mask, past)
        x = x + mixed
        return x + self.feed(self.feed_norm(x)), k, v


class Llama(nn.Module):
    """input_ids, attention mask over past and new tokens, position_ids and the KV cache -> logits and the new KV cache."""

    def __init__(self, width: int = 32, fused: bool = False, feed: str = "gated") -> None:
        super().__init__()
        kinds = {"gated": Gated, "experts": Experts, "in_turn": ExpertsInTurn}
        self.words, self.rotary = nn.Embedding(WORDS, width), Rotary(width // 4)
        self.layers = nn.ModuleList(LlamaLayer(width, fused, kinds[feed](width, 48)) for _ in range(2))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(
        self, ids: Tensor, mask: Tensor, places: Tensor, k0: Tensor, v0: Tensor, k1: Tensor, v1: Tensor
    ) -> tuple[Tensor, ...]:
        x = self.words(ids)
        turns = self.rotary(places, x.dtype)
        length, whole = ids.shape[1], mask.shape[1]
        lowest = torch.finfo(x.dtype).min
        rows = torch.arange(length, device=ids.device) + whole - length
        later = torch.arange(whole, device=ids.device)[None] > rows[:, None]
        forbidden = later[None, None] | (mask[:, None, None, :] == 0)
        bias = torch.zeros(forbidden.shape, dtype=x.dtype, device=x.device).masked_fill(forbidden, lowest)
        made = []
        for layer, past in zip(self.layers, ((k0, v0), (k1, v1)), strict=True):
            x, k, v = layer(x, turns, bias, past)
            made += [k, v]
        return self.head(self.norm(x)), *made


class Mamba(nn.Module):
    """A selective state space model: a short convolution over time, then a recurrence that is unrolled step by step,
    or computed by cumulative sums of logarithms."""

    def __init__(self, width: int = 16, states: int = 4, steps: int = 6, unrolled: bool = True) -> None:
        super().__init__()
        inner = 2 * width
        self.steps, self.states, self.unrolled = steps, states, unrolled
        self.words, self.norm = nn.Embedding(WORDS, width), RmsNorm(width)
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.select = nn.Linear(inner, 2 + 2 * states, bias=False)
        self.rate = nn.Linear(2, inner)
        self.decay_log = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(inner, 1))
        self.decay_log.as_made = True  # type: ignore[attr-defined]
        self.skip = nn.Parameter(torch.ones(inner))

    def scan(self, kept: Tensor, added: Tensor, read: Tensor) -> Tensor:
        if not self.unrolled:
            grown = torch.cumsum(torch.log(kept), 1)
            state = torch.exp(grown) * torch.cumsum(added * torch.exp(-grown), 1)
            return (state * read[:, :, None]).sum(-1)
        state = torch.zeros_like(added[:, 0])
        seen = []
        for step in range(self.steps):
            state = kept[:, step] * state + added[:, step]
            seen.append((state * read[:, step, None]).sum(-1))
        return torch.stack(seen, 1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        inner, gate = self.into(self.norm(x)).chunk(2, -1)
        inner = F.silu(self.conv(inner.transpose(1, 2))[..., : ids.shape[1]].transpose(1, 2))
        rate, write, read = self.select(inner).split([2, self.states, self.states], -1)
        rate = F.softplus(self.rate(rate))
        kept = torch.exp(rate[..., None] * -torch.exp(self.decay_log))
        added = (rate * inner)[..., None] * write[:, :, None]
        y = self.scan(kept, added, read) + inner * self.skip
        return x + self.out(y * F.silu(gate))


class ScannedMamba(nn.Module):
    """Mamba's recurrence as PyTorch's scan, exported as Scan."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.decay, self.into = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        kept, added = torch.sigmoid(self.decay(x)).transpose(0, 1), self.into(x).transpose(0, 1)

        def step(state: Tensor, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            state = state * given[0] + given[1]
            return state, torch.tanh(state)

        from torch._higher_order_ops.scan import scan

        _, seen = scan(step, torch.zeros_like(added[0]), (kept, added), dim=0)
        return seen.transpose(0, 1)


class LinearAttention(nn.Module):
    """Causal linear attention: cumulative sums of outer products of K and V, with a padding mask."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        sums = torch.cumsum(torch.einsum("bti,btj->btij", k, v), 1)
        total = torch.einsum("bti,bti->bt", q, torch.cumsum(k, 1))
        return self.out(torch.einsum("bti,btij->btj", q, sums) / total[..., None])


class Alibi(nn.Module):
    """ALiBi attention with a slope per head; multi-query (one KV head)."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.words = nn.Embedding(WORDS, width)
        self.query, self.shared, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * self.size),
            nn.Linear(width, width),
        )
        self.register_buffer("rates", 2.0 ** -torch.arange(1.0, heads + 1), persistent=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.words(ids))
        q = self.query(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = self.shared(x)[:, None].chunk(2, -1)
        places = torch.arange(ids.shape[1], device=ids.device)
        distance = places[None] - places[:, None]
        bias = torch.where(distance > 0, float("-inf"), distance * self.rates[:, None, None])
        mixed = torch.softmax(q @ k.transpose(-1, -2) * self.size**-0.5 + bias, -1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


def decoder(fused: bool = False, feed: str = "gated") -> nn.Module:
    return Llama(fused=fused, feed=feed)


CACHED = {
    "ids": integers(WORDS, "batch", "words"),
    "mask": lengths("batch", "past + words"),
    "places": Input("int64", ("batch", "words"), "range"),
    **{name: floats("batch", 2, "past", 8) for name in ("k0", "v0", "k1", "v1")},
}
SCORES = ["scores", "new_k0", "new_v0", "new_k1", "new_v1"]
STEPS = [{"batch": 2, "words": 3, "past": 4}, {"batch": 1, "words": 1, "past": 9}, {"batch": 2, "words": 5, "past": 0}]
SEQUENCES = [{"batch": 2, "words": 6}, {"batch": 1, "words": 9}]

CASES = [
    Case("llama", decoder, CACHED, SCORES, STEPS, variants=("fp16", "dynamic_int8")),
    Case("llama_fused", lambda: decoder(fused=True), CACHED, SCORES, STEPS),
    Case("mixture_of_experts", lambda: decoder(feed="experts"), CACHED, SCORES, STEPS, variants=("fp16",)),
    Case("experts_in_turn", lambda: decoder(feed="in_turn"), CACHED, SCORES, STEPS, exporters=("script",)),
    Case("mamba", Mamba, {"ids": integers(WORDS, "batch", 6)}, ["hidden"], [{"batch": 2}, {"batch": 1}]),
    Case(
        "mamba_cumulative",
        lambda: Mamba(unrolled=False),
        {"ids": integers(WORDS, "batch", "words")},
        ["hidden"],
        SEQUENCES,
    ),
    Case("scan", ScannedMamba, {"x": floats("batch", "words", 8)}, ["y"], SEQUENCES, exporters=("dynamo",)),
    Case("linear_attention", LinearAttention, {"x": floats("batch", "words", 16)}, ["y"], SEQUENCES),
    Case("alibi", Alibi, {"ids": integers(WORDS, "batch", "words")}, ["y"], SEQUENCES),
]
