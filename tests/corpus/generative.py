"""Image generation: UNet, autoencoders, generators, diffusion, super-resolution."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, Input, floats
from .transformers import Attention


def twice(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """Two downsampling and two upsampling steps with skip connections; odd sizes are padded."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.into, self.down, self.bottom = twice(3, 8), twice(8, 16), twice(16, 32)
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(width, width // 2, 2, 2) if transposed else nn.Conv2d(width, width // 2, 1)
            for width in (32, 16)
        )
        self.transposed = transposed
        self.merges = nn.ModuleList((twice(32, 16), twice(16, 8)))
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        first = self.into(image)
        second = self.down(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        for up, merge, beside in zip(self.ups, self.merges, (second, first), strict=True):
            if not self.transposed:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = up(x)
            high, wide = beside.shape[2] - x.shape[2], beside.shape[3] - x.shape[3]
            x = merge(torch.cat((beside, F.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))), 1))
        return self.out(x)


class Vae(nn.Module):
    """An image and noise -> the reconstruction, with the latent mean and log-variance."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mean, self.variance, self.into = nn.Linear(16 * 49, 6), nn.Linear(16 * 49, 6), nn.Linear(6, 16 * 49)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 3, 2, 1, output_padding=1),
        )

    def forward(self, image: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.down(image)
        mean, variance = self.mean(x), self.variance(x)
        point = mean + noise * torch.exp(0.5 * variance)
        return torch.sigmoid(self.up(F.relu(self.into(point)).view(-1, 16, 7, 7))), mean, variance


class Generator(nn.Module):
    """Noise -> an image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ConvTranspose2d(10, 24, 4, 1, 0, bias=False), nn.BatchNorm2d(24), nn.ReLU(True),
            nn.ConvTranspose2d(24, 12, 4, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(True),
            nn.ConvTranspose2d(12, 12, 3, 2, 1, output_padding=1, groups=3), nn.InstanceNorm2d(12, affine=True), nn.LeakyReLU(0.2),
            nn.Conv2d(12, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise: Tensor) -> Tensor:
        return self.body(noise[..., None, None])


class Styled(nn.Module):
    """A convolution with weights scaled per image by its style: the batch becomes groups."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.style = nn.Linear(6, channels)
        self.weight = nn.Parameter(torch.zeros(channels, channels, 3, 3))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = self.weight[None] * (1 + self.style(style))[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        y = F.conv2d(
            x.reshape(1, batch * channels, height, width),
            weight.view(batch * channels, channels, 3, 3),
            padding=1,
            groups=batch,
        )
        return y.view(batch, channels, height, width)


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 9, 3, padding=1), nn.PixelShuffle(3)
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.body(image) + F.interpolate(image, scale_factor=3, mode="bicubic", align_corners=False)


class Unshuffled(nn.Module):
    """Space-to-depth, dense residual blocks, depth-to-space."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, 12, 3, padding=1))
        self.dense = nn.ModuleList(nn.Conv2d(12 + 6 * i, 6, 3, padding=1) for i in range(2))
        self.join, self.out = (
            nn.Conv2d(24, 12, 3, padding=1),
            nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.PixelShuffle(2)),
        )

    def forward(self, image: Tensor) -> Tensor:
        start = x = self.into(image)
        for conv in self.dense:
            x = torch.cat((x, F.leaky_relu(conv(x), 0.2)), 1)
        return self.out(start + 0.2 * self.join(x))


class Residual(nn.Module):
    def __init__(self, before: int, after: int, times: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, before), nn.GroupNorm(4, after)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(times, after)
        self.shortcut: nn.Module = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Diffusion(nn.Module):
    """A noisy image, the timestep and a text -> the predicted noise."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 32))
        self.into, self.out_norm, self.out = (
            nn.Conv2d(4, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.Conv2d(width, 4, 3, padding=1),
        )
        self.early, self.middle, self.late = (
            Residual(width, width, 32),
            Residual(width, width, 32),
            Residual(2 * width, width, 32),
        )
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.norm, self.cross, self.words = nn.LayerNorm(width), Attention(width, 4), nn.Linear(12, width)

    def forward(self, noisy: Tensor, step: Tensor, words: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(8, device=noisy.device) / 8)
        angles = step[:, None].to(noisy.dtype) * rates.to(noisy.dtype)
        time = self.time(torch.cat((angles.cos(), angles.sin()), -1))
        first = self.early(self.into(noisy), time)
        x = self.middle(self.down(first), time)
        batch, channels, height, width = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        rows = rows + self.cross(self.norm(rows), torch.zeros(1, dtype=x.dtype), self.words(words))
        x = rows.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.out(F.silu(self.out_norm(self.late(torch.cat((x, first), 1), time))))


PICTURES = [{"batch": 2}, {"batch": 1}]
ANY = {"image": floats("batch", 3, "height", "width")}
SIZES = [{"batch": 2, "height": 32, "width": 24}, {"batch": 1, "height": 29, "width": 38}]

CASES = [
    Case("unet", lambda: UNet(True), ANY, ["classes"], SIZES, variants=("fp16", "qdq_int8")),
    Case("unet_bilinear", lambda: UNet(False), {"image": floats("batch", 3, 30, 41)}, ["classes"], PICTURES),
    Case(
        "vae",
        Vae,
        {"image": floats("batch", 1, 28, 28, values="uniform 0 1"), "noise": floats("batch", 6)},
        ["again", "mean", "variance"],
        PICTURES,
        variants=("fp16",),
    ),
    Case("gan_generator", Generator, {"noise": floats("batch", 10)}, ["picture"], PICTURES, variants=("fp16",)),
    Case("styled_convolution", Styled, {"x": floats(2, 8, 9, 11), "style": floats(2, 6)}, ["y"]),
    Case(
        "super_resolution",
        SuperResolution,
        {"image": floats("batch", 1, "height", "width")},
        ["larger"],
        [{"batch": 1, "height": 20, "width": 17}, {"batch": 2, "height": 9, "width": 12}],
        variants=("qdq_int8",),
    ),
    Case("unshuffled", Unshuffled, {"image": floats("batch", 3, 24, 20)}, ["y"], PICTURES),
    Case(
        "diffusion",
        Diffusion,
        {
            "noisy": floats("batch", 4, 16, 16),
            "step": Input("int64", ("batch",), "integers 0 1000"),
            "words": floats("batch", "length", 12),
        },
        ["noise"],
        [{"batch": 2, "length": 5}, {"batch": 1, "length": 8}],
        variants=("fp16",),
    ),
]
