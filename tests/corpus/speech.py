"""Audio: speech encoders and decoders, recurrent recognisers, and vocoders."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from .case import Case, floats, integers
from .patches import Block
from .transformers import WORDS, Attention


class WhisperEncoder(nn.Module):
    def __init__(self, width: int = 32, frames: int = 40, bands: int = 12, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(bands, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        rates = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
        angles = torch.arange(frames // 2)[:, None] * rates
        self.register_buffer("positions", torch.cat((angles.sin(), angles.cos()), 1))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrum: Tensor) -> Tensor:
        x = F.gelu(self.second(F.gelu(self.first(spectrum)))).permute(0, 2, 1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class WhisperDecoder(nn.Module):
    """Previous tokens and the encoder output -> logits of the next tokens."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Parameter(torch.zeros(24, width))
        self.own, self.cross = (nn.ModuleList(Attention(width, 4) for _ in range(2)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(6))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(2)
        )
        self.register_buffer("later", torch.full((24, 24), float("-inf")).triu(1), persistent=False)

    def forward(self, ids: Tensor, heard: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.words(ids) + self.positions[:length]
        mask = self.later[:length, :length]
        nothing = torch.zeros(1, dtype=x.dtype)
        for i in range(2):
            x = x + self.own[i](self.norms[3 * i](x), mask)
            x = x + self.cross[i](self.norms[3 * i + 1](x), nothing, heard)
            x = x + self.feeds[i](self.norms[3 * i + 2](x))
        return (x @ self.words.weight.t()).float()


class Wav2Vec2(nn.Module):
    """Samples -> letters: strided convolutions, the first with a per-channel norm; positions from a wide grouped convolution."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(before, after, size, stride, bias=False)
            for before, after, size, stride in ((1, 16, 10, 5), (16, 16, 3, 2), (16, 16, 2, 2))
        )
        self.channel_norm = nn.GroupNorm(16, 16)
        self.norm, self.into = nn.LayerNorm(16), nn.Linear(16, width)
        self.places = parametrizations.weight_norm(nn.Conv1d(width, width, 8, padding=4, groups=4), dim=2)
        self.blocks = nn.ModuleList(Block(width, 3) for _ in range(2))
        self.head = nn.Linear(width, 11)

    def forward(self, samples: Tensor) -> Tensor:
        x = (samples - samples.mean(-1, keepdim=True)) / torch.sqrt(
            samples.var(-1, keepdim=True, unbiased=False) + 1e-7
        )
        x = x[:, None]
        for number, conv in enumerate(self.convs):
            x = conv(x)
            x = F.gelu(self.channel_norm(x) if number == 0 else x)
        x = self.into(self.norm(x.transpose(1, 2)))
        x = x + F.gelu(self.places(x.transpose(1, 2))[..., :-1]).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return F.log_softmax(self.head(x), dim=-1)


class Conformer(nn.Module):
    """Half feed-forward, attention, gated convolution over time, half feed-forward."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 48), nn.SiLU(), nn.Linear(48, width)) for _ in range(2)
        )
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.conv_norm, self.wide = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.spread, self.batch_norm = nn.Conv1d(width, width, 7, padding=3, groups=width), nn.BatchNorm1d(width)
        self.narrow, self.last = nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.feeds[0](x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.wide(self.conv_norm(x).transpose(1, 2)), dim=1)
        x = x + self.narrow(F.silu(self.batch_norm(self.spread(y)))).transpose(1, 2)
        return self.last(x + 0.5 * self.feeds[1](x))


class Vocoder(nn.Module):
    """A spectrogram -> a waveform, by transposed convolutions and residual ones with growing dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.into = parametrizations.weight_norm(nn.Conv1d(10, 24, 7, padding=3))
        self.longer = nn.ModuleList(nn.ConvTranspose1d(width, width // 2, 8, 4, 2) for width in (24, 12))
        self.gaps = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, 3, dilation=gap, padding=gap) for gap in (1, 3)) for width in (12, 6)
        )
        self.out = nn.Conv1d(6, 1, 7)

    def forward(self, spectrum: Tensor) -> Tensor:
        x = self.into(spectrum)
        for longer, gaps in zip(self.longer, self.gaps, strict=True):
            x = longer(F.leaky_relu(x, 0.1))
            for conv in gaps:
                x = x + conv(F.leaky_relu(x, 0.1))
        return torch.tanh(self.out(F.pad(F.leaky_relu(x), (3, 3), mode="reflect")))


class WaveNet(nn.Module):
    """Causal dilated convolutions with gates; their skip outputs are summed."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(32, width)
        self.gated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << i) for i in range(4))
        self.through, self.aside = (nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4)) for _ in range(2))
        self.out = nn.Conv1d(width, 32, 1)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.words(samples).transpose(1, 2)
        total = torch.zeros_like(x)
        for i, conv in enumerate(self.gated):
            filtered, gate = conv(F.pad(x, (1 << i, 0))).chunk(2, 1)
            y = torch.tanh(filtered) * torch.sigmoid(gate)
            x, total = x + self.through[i](y), total + self.aside[i](y)
        return self.out(F.relu(total))


class Spectrum(nn.Module):
    """Samples -> log power in bands, with the DFT as a convolution."""

    def __init__(self, size: int = 32, hop: int = 16) -> None:
        super().__init__()
        angles = 2 * math.pi * torch.arange(size // 2 + 1)[:, None] * torch.arange(size) / size
        window = torch.hann_window(size)
        self.register_buffer("waves", torch.cat((angles.cos(), -angles.sin()))[:, None] * window)
        self.bands = nn.Linear(size // 2 + 1, 8, bias=False)
        self.hop, self.size = hop, size

    def forward(self, samples: Tensor) -> Tensor:
        x = F.pad(samples[:, None], (self.size // 2, self.size // 2), mode="reflect")
        real, imaginary = F.conv1d(x, self.waves, stride=self.hop).chunk(2, 1)
        power = (real.square() + imaginary.square()).transpose(1, 2)
        return torch.log10(torch.clamp(F.linear(power, self.bands.weight.square()), min=1e-10))


SAMPLES = [{"batch": 2, "samples": 400}, {"batch": 1, "samples": 611}]
FRAMES = [{"batch": 2, "frames": 9}, {"batch": 1, "frames": 14}]

CASES = [
    Case(
        "whisper_encoder",
        WhisperEncoder,
        {"spectrum": floats("batch", 12, 40)},
        ["heard"],
        [{"batch": 2}, {"batch": 1}],
        variants=("fp16", "dynamic_int8"),
    ),
    Case(
        "whisper_decoder",
        WhisperDecoder,
        {"ids": integers(WORDS, "batch", "words"), "heard": floats("batch", "frames", 32)},
        ["scores"],
        [{"batch": 2, "words": 4, "frames": 20}, {"batch": 1, "words": 7, "frames": 11}],
        variants=("fp16",),
    ),
    Case("wav2vec2", Wav2Vec2, {"samples": floats("batch", "samples")}, ["letters"], SAMPLES, variants=("fp16",)),
    Case("conformer", Conformer, {"x": floats("batch", "frames", 24)}, ["y"], FRAMES),
    Case("vocoder", Vocoder, {"spectrum": floats("batch", 10, "frames")}, ["wave"], FRAMES, variants=("fp16",)),
    Case(
        "wavenet",
        WaveNet,
        {"samples": integers(32, "batch", "samples")},
        ["scores"],
        [{"batch": 2, "samples": 30}, {"batch": 1, "samples": 21}],
    ),
    Case("spectrum", Spectrum, {"samples": floats("batch", "samples")}, ["bands"], SAMPLES),
]
