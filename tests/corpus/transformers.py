"""Text encoders and decoders with learned positions, with attention written out in primitives."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, Input, floats, integers, lengths

WORDS = 97  # vocab_size


class Attention(nn.Module):
    """Attention written out in primitives, as in models of 2018 to 2022."""

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
    """input_ids, token_type_ids and attention_mask -> hidden states and the pooled first one."""

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
    """Next tokens after a KV cache, which may be empty -> logits and the new KV cache."""

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


class RelativeBias(nn.Module):
    """A learned bias per head and relative distance, in logarithmic buckets."""

    def __init__(self, heads: int, buckets: int, farthest: int, both_ways: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.farthest, self.both_ways = buckets, farthest, both_ways

    def bucket(self, distance: Tensor) -> Tensor:
        buckets = self.buckets
        start = torch.zeros_like(distance)
        if self.both_ways:
            buckets //= 2
            start = (distance > 0).to(torch.long) * buckets
            distance = torch.abs(distance)
        else:
            distance = -torch.min(distance, torch.zeros_like(distance))
        near = buckets // 2
        far = near + (torch.log(distance.float() / near) / math.log(self.farthest / near) * (buckets - near)).to(
            torch.long
        )
        far = torch.min(far, torch.full_like(far, buckets - 1))
        return start + torch.where(distance < near, distance, far)

    def forward(self, rows: int, columns: int, device: torch.device) -> Tensor:
        places = torch.arange(columns, device=device)[None] - torch.arange(rows, device=device)[:, None]
        return self.table(self.bucket(places)).permute(2, 0, 1)[None]


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(self.weight.dtype)


class T5Layer(nn.Module):
    def __init__(self, width: int, heads: int, crossed: bool) -> None:
        super().__init__()
        self.own, self.own_norm = Attention(width, heads), RmsNorm(width)
        self.cross = Attention(width, heads) if crossed else None
        self.cross_norm = RmsNorm(width)
        self.feed_norm = RmsNorm(width)
        self.gate, self.up, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((width, 2 * width), (width, 2 * width), (2 * width, width))
        )

    def forward(self, x: Tensor, bias: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x = x + self.own(self.own_norm(x), bias)
        if self.cross is not None and mask is not None:
            x = x + self.cross(self.cross_norm(x), mask, context)
        y = self.feed_norm(x)
        return x + self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y))


class T5(nn.Module):
    """Source tokens and their mask, target tokens -> logits of the next tokens."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.encoder_bias, self.decoder_bias = RelativeBias(heads, 8, 20, True), RelativeBias(heads, 8, 20, False)
        self.encoder = nn.ModuleList(T5Layer(width, heads, False) for _ in range(2))
        self.decoder = nn.ModuleList(T5Layer(width, heads, True) for _ in range(2))
        self.encoder_norm, self.decoder_norm = RmsNorm(width), RmsNorm(width)

    def forward(self, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        x = self.words(ids)
        lowest = torch.finfo(x.dtype).min
        outside = (1.0 - mask[:, None, None, :].to(x.dtype)) * lowest
        bias = self.encoder_bias(ids.shape[1], ids.shape[1], ids.device) + outside
        for layer in self.encoder:
            x = layer(x, bias)
        x = self.encoder_norm(x)
        y = self.words(target)
        length = target.shape[1]
        later = torch.triu(torch.full((length, length), lowest, dtype=x.dtype, device=x.device), diagonal=1)
        bias = self.decoder_bias(length, length, ids.device) + later[None, None]
        for layer in self.decoder:
            y = layer(y, bias, x, outside)
        return F.linear(self.decoder_norm(y) * y.shape[-1] ** -0.5, self.words.weight)


class TorchEncoder(nn.Module):
    """PyTorch's encoder layers with sinusoidal positions and a padding mask."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        places = torch.arange(50)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("positions", torch.stack((places.sin(), places.cos()), -1).flatten(1))
        layer = nn.TransformerEncoderLayer(width, 4, 48, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        x = self.words(ids) * 24**0.5 + self.positions[: ids.shape[1]]
        return self.layers(x, src_key_padding_mask=padding)


class TorchTransformer(nn.Module):
    """PyTorch's encoder and decoder, the decoder with a causal mask."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.layers = nn.Transformer(width, 3, 1, 1, 48, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = torch.triu(torch.full((target.shape[1], target.shape[1]), float("-inf"), device=target.device), 1)
        return self.layers(source, target, tgt_mask=mask, tgt_is_causal=True)


class ElectraSpans(nn.Module):
    """Extractive QA: start and end scores, masked with -infinity, and the argmax of each."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Bert(width=24, heads=3, layers=1)
        self.spans = nn.Linear(24, 2)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        hidden, _ = self.body(ids, torch.zeros_like(ids), mask)
        begin, end = self.spans(hidden).masked_fill(mask[..., None] == 0, float("-inf")).unbind(-1)
        return torch.log_softmax(begin, -1), torch.log_softmax(end, -1), begin.argmax(-1), end.argmax(-1)


class Sentences(nn.Module):
    """Mean-pooled hidden states of unmasked tokens, L2-normalised, and their pairwise similarities."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Bert(width=24, heads=3, layers=1)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden, _ = self.body(ids, torch.zeros_like(ids), mask)
        weight = mask[..., None].expand(hidden.shape).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        found = F.normalize(mean, p=2.0, dim=1)
        return found, torch.mm(found, found.t())


TEXT = [{"batch": 2, "words": 7}, {"batch": 1, "words": 12}, {"batch": 3, "words": 1}]
IDS = {"ids": integers(WORDS, "batch", "words")}
MASKED = {**IDS, "mask": lengths("batch", "words")}

CASES = [
    Case(
        "bert",
        Bert,
        {**IDS, "kinds": integers(2, "batch", "words"), "mask": lengths("batch", "words")},
        ["hidden", "pooled"],
        [*TEXT, {"batch": 0, "words": 5}],
        variants=("fp16", "dynamic_int8", "qdq_int8"),
    ),
    Case(
        "bert_sentences_opset10",
        Sentences,
        MASKED,
        ["sentences", "alike"],
        TEXT,
        exporters=("script",),
        opset=10,
    ),
    Case("bert_spans", ElectraSpans, MASKED, ["begin", "end", "first", "last"], TEXT),
    Case("bert_sentences", Sentences, MASKED, ["sentences", "alike"], TEXT),
    Case(
        "gpt2",
        Gpt2,
        {**IDS, **{name: floats("batch", 4, "past", 8) for name in ("k0", "v0", "k1", "v1")}},
        ["scores", "new_k0", "new_v0", "new_k1", "new_v1"],
        [
            {"batch": 2, "words": 3, "past": 5},
            {"batch": 1, "words": 1, "past": 11},
            {"batch": 2, "words": 6, "past": 0},
        ],
        variants=("fp16", "dynamic_int8"),
    ),
    Case(
        "t5",
        T5,
        {**MASKED, "target": integers(WORDS, "batch", "written")},
        ["scores"],
        [
            {"batch": 2, "words": 7, "written": 4},
            {"batch": 1, "words": 33, "written": 1},
            {"batch": 2, "words": 3, "written": 30},
        ],
        variants=("fp16",),
    ),
    Case(
        "torch_encoder",
        TorchEncoder,
        {**IDS, "padding": Input("bool", ("batch", "words"), "ends")},
        ["hidden"],
        TEXT,
    ),
    Case(
        "torch_transformer",
        TorchTransformer,
        {"source": floats("batch", "words", 24), "target": floats("batch", "written", 24)},
        ["hidden"],
        [{"batch": 2, "words": 7, "written": 4}, {"batch": 1, "words": 9, "written": 6}],
    ),
]
