"""Vision transformers: plain, with shifted windows, with reduced keys; and CLIP with image and text towers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, floats, integers
from .transformers import WORDS


class Block(nn.Module):
    """A pre-norm transformer block with PyTorch's fused attention."""

    def __init__(self, width: int, heads: int, gelu: str = "none") -> None:
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.before, self.between = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        batch, count, width = x.shape
        q, k, v = self.qkv(self.before(x)).reshape(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, count, width))
        y = self.up(self.between(x))
        y = y * torch.sigmoid(1.702 * y) if self.gelu == "quick" else F.gelu(y)
        return x + self.down(y)


class Vit(nn.Module):
    def __init__(
        self,
        width: int = 32,
        classes: int = 10,
        gelu: str = "none",
        image: int = 32,
        patch: int = 8,
        heads: int = 4,
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (image // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads, gelu) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class AnySizeVit(nn.Module):
    """A ViT with position embeddings resized bicubically to the image's size, and four prefix tokens."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.firsts = nn.Parameter(torch.zeros(1, 4, width))
        self.positions = nn.Parameter(torch.zeros(1, width, 5, 5))
        self.blocks = nn.ModuleList(Block(width, 3) for _ in range(2))

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)
        x = x + F.interpolate(self.positions, size=(x.shape[2], x.shape[3]), mode="bicubic", align_corners=False)
        x = torch.cat((self.firsts.expand(x.shape[0], -1, -1), x.flatten(2).transpose(1, 2)), dim=1)
        for block in self.blocks:
            x = block(x)
        return x


class WindowAttention(nn.Module):
    """Attention within windows of patches, with learned relative position biases, and a mask for wrapped-around windows."""

    def __init__(self, width: int, heads: int, window: int, shift: int, side: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.biases = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None] + window - 1
        self.register_buffer("apart", apart[0] * (2 * window - 1) + apart[1])
        regions = torch.zeros(1, side, side, 1)
        cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
        if shift:
            for number, (rows, columns) in enumerate((rows, columns) for rows in cuts for columns in cuts):
                regions[:, rows, columns] = number
        numbers = self.cut(regions).squeeze(-1)
        self.register_buffer("mask", torch.where(numbers[:, None] != numbers[:, :, None], -100.0, 0.0)[:, None])

    def cut(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        size = self.window
        x = x.view(batch, height // size, size, width // size, size, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, channels)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        rows = self.cut(x)
        count = rows.shape[1]
        q, k, v = self.qkv(rows).view(-1, count, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.biases[self.apart.view(-1)].view(count, count, -1).permute(2, 0, 1)[None]
        if self.shift:
            windows = self.mask.shape[0]
            scores = (scores.view(-1, windows, self.heads, count, count) + self.mask[None]).view(
                -1, self.heads, count, count
            )
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(-1, count, channels)
        size = self.window
        x = self.out(mixed).view(-1, height // size, width // size, size, size, channels)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class SwinBlock(nn.Module):
    def __init__(self, width: int, heads: int, shift: int, side: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, 4, shift, side)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))


class Swin(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches, self.patch_norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        self.early = nn.Sequential(SwinBlock(width, 2, 0, 16), SwinBlock(width, 2, 2, 16))
        self.merge_norm, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)
        self.late = nn.Sequential(SwinBlock(2 * width, 4, 0, 8), SwinBlock(2 * width, 4, 2, 8))
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.early(self.patch_norm(self.patches(image).permute(0, 2, 3, 1)))
        corners = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        x = self.late(self.merge(self.merge_norm(torch.cat(corners, -1))))
        return self.head(self.norm(x).mean((1, 2)))


class ShrunkAttention(nn.Module):
    """Attention with K and V of an image downsampled by a convolution."""

    def __init__(self, width: int, heads: int, times: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.pair, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.shrink, self.norm = nn.Conv2d(width, width, times, times), nn.LayerNorm(width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        batch, count, channels = x.shape
        q = self.query(x).reshape(batch, count, self.heads, -1).permute(0, 2, 1, 3)
        small = self.shrink(x.permute(0, 2, 1).reshape(batch, channels, height, width))
        small = self.norm(small.reshape(batch, channels, -1).permute(0, 2, 1))
        k, v = self.pair(small).reshape(batch, -1, 2, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-2, -1) * (channels // self.heads) ** -0.5, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, count, channels))


class SegStage(nn.Module):
    def __init__(self, before: int, width: int, patch: int, stride: int, times: int) -> None:
        super().__init__()
        self.patches, self.patch_norm = nn.Conv2d(before, width, patch, stride, patch // 2), nn.LayerNorm(width)
        self.attention, self.norm = ShrunkAttention(width, 2, times), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.spread = nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width)
        self.feed_norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        batch, _, height, width = x.shape
        x = self.patch_norm(x.flatten(2).transpose(1, 2))
        x = x + self.attention(self.norm(x), height, width)
        y = self.up(self.feed_norm(x)).transpose(1, 2).view(batch, -1, height, width)
        x = x + self.down(F.gelu(self.spread(y).flatten(2).transpose(1, 2)))
        return self.last(x).reshape(batch, height, width, -1).permute(0, 3, 1, 2).contiguous()


class SegFormer(nn.Module):
    """A class per 4 x 4 pixels, from stages of several resolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = SegStage(3, 8, 7, 4, 4), SegStage(8, 16, 3, 2, 2)
        self.heads = nn.ModuleList(nn.Linear(width, 12) for width in (8, 16))
        self.mix = nn.Sequential(nn.Conv2d(24, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 5, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        first = self.early(image)
        found = []
        for head, x in zip(self.heads, (first, self.late(first)), strict=True):
            y = head(x.flatten(2).transpose(1, 2)).permute(0, 2, 1).reshape(x.shape[0], -1, x.shape[2], x.shape[3])
            found.append(F.interpolate(y, size=first.shape[2:], mode="bilinear", align_corners=False))
        scores = self.mix(torch.cat(found[::-1], dim=1))
        return scores, scores.argmax(1)


class Clip(nn.Module):
    """Images and texts, each encoded by its tower, and their similarities; a text ends at its largest token id."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.picture = Vit(width, 16, "quick")
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Parameter(torch.zeros(20, width))
        self.blocks = nn.ModuleList(Block(width, 4, "quick") for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 16, bias=False)
        self.scale = nn.Parameter(torch.ones([]) * 2.0)

    def forward(self, image: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        x = self.words(ids) + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, causal=True)
        x = self.norm(x)
        text = self.head(x[torch.arange(x.shape[0], device=x.device), ids.argmax(-1)])
        picture = self.picture(image)
        picture, text = picture / picture.norm(dim=1, keepdim=True), text / text.norm(dim=1, keepdim=True)
        return self.scale.exp() * picture @ text.t(), picture, text


PICTURES = [{"batch": 2}, {"batch": 1}]
SMALL = {"image": floats("batch", 3, 32, 32)}

CASES = [
    Case("vit", Vit, SMALL, ["scores"], [*PICTURES, {"batch": 0}], variants=("fp16", "dynamic_int8", "qdq_int8")),
    Case(
        "vit_any_size",
        AnySizeVit,
        {"image": floats("batch", 3, "height", "width")},
        ["hidden"],
        [{"batch": 2, "height": 48, "width": 64}, {"batch": 1, "height": 24, "width": 40}],
    ),
    Case("swin", Swin, {"image": floats("batch", 3, 64, 64)}, ["scores"], PICTURES, variants=("fp16",)),
    Case(
        "segformer",
        SegFormer,
        {"image": floats("batch", 3, 64, 96)},
        ["scores", "classes"],
        PICTURES,
        variants=("fp16",),
    ),
    Case(
        "clip",
        Clip,
        {**SMALL, "ids": integers(WORDS, "texts", "words")},
        ["alike", "pictures", "texts"],
        [{"batch": 2, "texts": 3, "words": 9}, {"batch": 3, "texts": 2, "words": 14}],
        variants=("fp16",),
    ),
]
