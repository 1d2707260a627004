"""PyTorch modules for tests of compiled graphs, each with inputs of two calls, of different sizes if they are dynamic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def fresh() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]  # argument: 0 or 1 for the two calls


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(11, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.up(F.silu(self.middle(F.silu(self.down(x)))))
        return self.last(torch.cat([inner, x], 1))


class Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cells = getattr(nn, kind)(6, 10, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]


class Attention(nn.Module):
    """Causal attention over a sequence of any length."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.into, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            projection.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for projection in self.into(x).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.norm, self.mix, self.head = nn.LayerNorm(16), Attention(), nn.Linear(16, 50, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(x + self.mix(self.norm(x)))


class RmsGated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Several(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return {"sum": x + y, "top": torch.topk(x, 2)[1], "same": x, "none": None, "rows": x.shape[0]}


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns = nn.Linear(12, 12), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.rows(x.transpose(1, 2)).transpose(1, 2)
        return x + F.gelu(self.columns(x))


class Pooled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = F.interpolate(F.avg_pool2d(F.max_pool2d(x, 2), 2), scale_factor=2, mode="bilinear", align_corners=False)
        return F.pad(small, (1, 1, 0, 2))


class Distances(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gaps = (x[:, None] - x[None]).square().sum(-1)
        return torch.where(gaps > 1, gaps.sqrt(), gaps).softmax(-1)


def _pictures(size: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2 + size, 3, 16, 16),)


def _rows(size: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(3 + size, 12),)


def _sequence(width: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda size: (torch.randn(2, 5 + 3 * size, width),)


def _encoder(norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


CASES = {
    "perceptron": Case(lambda: nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4)), _rows),
    "activations": Case(
        lambda: nn.Sequential(nn.GELU(), nn.Tanh(), nn.ELU(), nn.Hardswish(), nn.Softplus(), nn.LeakyReLU(), nn.Mish()),
        _rows,
    ),
    "convolutions": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(200, 5)
        ),
        _pictures,
    ),
    "depthwise": Case(lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU6(), nn.Conv2d(6, 4, 1)), _pictures),
    "dilated": Case(lambda: nn.Sequential(nn.Conv2d(3, 6, 3, dilation=2, padding=2), nn.PReLU()), _pictures),
    "residual": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 6, 1), Residual(6), Residual(6), nn.AdaptiveAvgPool2d(1)), _pictures
    ),
    "unet": Case(UNet, _pictures),
    "group norm": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU(), nn.PixelShuffle(2)), _pictures
    ),
    "pools": Case(Pooled, _pictures),
    "convolution over time": Case(
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 2, 3)),
        lambda size: (torch.randn(2, 4, 10 + 4 * size),),
    ),
    "convolution over volumes": Case(lambda: nn.Conv3d(2, 3, 2), lambda size: (torch.randn(2 + size, 2, 4, 5, 6),)),
    "lstm": Case(lambda: Recurrent("LSTM"), lambda size: (torch.randn(2, 5, 6),)),
    "gru": Case(lambda: Recurrent("GRU"), lambda size: (torch.randn(2, 5, 6),)),
    "attention": Case(Attention, _sequence(16)),
    "encoder": Case(lambda: _encoder(True), _sequence(16)),
    "encoder, norms last": Case(lambda: _encoder(False), _sequence(16)),
    "language": Case(Language, lambda size: (torch.randint(0, 50, (2, 6 + 5 * size)),)),
    "gated": Case(RmsGated, _sequence(16)),
    "mixer": Case(Mixer, lambda size: (torch.randn(2 + size, 12, 8),)),
    "several results": Case(Several, lambda size: (torch.randn(3 + size, 4), torch.randn(3 + size, 4))),
    "distances": Case(Distances, lambda size: (torch.randn(4 + size, 3),)),
    "embeddings": Case(
        lambda: nn.Sequential(nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 3)),
        lambda size: (torch.randint(0, 20, (2, 4 + size)),),
    ),
}
