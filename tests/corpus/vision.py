"""Image classifiers: residual, depthwise convolutions, and patches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, floats


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        return self.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width: int = 8, classes: int = 10, blocks: Sequence[int] = (2, 2, 2, 2)) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages = []
        before = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stages.append(Bottleneck(before, width << stage, 2 if stage and not block else 1))
                before = 4 * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.pool(self.stages(self.stem(image))).flatten(1))


def convolved(
    before: int, after: int, size: int, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = None
) -> nn.Module:
    """A convolution, a norm and an activation."""
    parts = [
        nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after, eps=1e-3),
    ]
    return nn.Sequential(*parts, *([act()] if act else []))


class Squeeze(nn.Module):
    """Squeeze-and-excitation: scales channels by a function of their means."""

    def __init__(self, channels: int, inner: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(self.act(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """An inverted residual block: expand, depthwise convolution, project."""

    def __init__(
        self,
        before: int,
        after: int,
        times: int,
        size: int,
        stride: int,
        act: type[nn.Module],
        gate: type[nn.Module] | None,
    ):
        super().__init__()
        inner = before * times
        parts = [convolved(before, inner, 1, act=act)] if times != 1 else []
        parts.append(convolved(inner, inner, size, stride, inner, act))
        if gate:
            parts.append(Squeeze(inner, max(4, inner // 4), nn.ReLU if act is nn.Hardswish else nn.SiLU, gate))
        self.body = nn.Sequential(*parts, convolved(inner, after, 1))
        self.added = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.added else self.body(x)


class Mobile(nn.Module):
    def __init__(self, act: type[nn.Module], gate: type[nn.Module] | None, sizes: tuple[int, int]) -> None:
        super().__init__()
        small, large = sizes
        self.body = nn.Sequential(
            convolved(3, 8, 3, 2, act=act),
            Inverted(8, 8, 1, small, 1, act, None),
            Inverted(8, 12, 4, small, 2, act, gate),
            Inverted(12, 12, 4, large, 1, act, gate),
            Inverted(12, 20, 6, large, 2, act, gate),
            convolved(20, 40, 1, act=act),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(40, 10))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.body(image), 1).flatten(1))


class ChannelsLast(nn.Module):
    """A LayerNorm over the channels of images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.spread(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 4, 4),
            ChannelsLast(12),
            ConvNextBlock(12),
            ChannelsLast(12),
            nn.Conv2d(12, 24, 2, 2),
            ConvNextBlock(24),
        )
        self.norm, self.head = nn.LayerNorm(24, eps=1e-6), nn.Linear(24, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.body(image).mean((-2, -1))))


class Dense(nn.Module):
    """Dense connections: every layer reads all earlier outputs; pooling uses ceil_mode and excludes padding from means."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * i), nn.ReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1, bias=False))
            for i in range(3)
        )
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.most = nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.mean = nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)
        self.head = nn.Linear(20, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.most(self.stem(image))
        for layer in self.layers:
            x = torch.cat((x, layer(x)), 1)
        return self.head(F.adaptive_max_pool2d(self.mean(x), 1).flatten(1))


class Shuffled(nn.Module):
    """ShuffleNet: convolves one half of the channels, then shuffles all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = convolved(3, 16, 3, 2, act=nn.ReLU)
        self.bodies = nn.ModuleList(
            nn.Sequential(
                convolved(8, 8, 1, act=nn.ReLU), convolved(8, 8, 3, groups=8), convolved(8, 8, 1, act=nn.ReLU)
            )
            for _ in range(3)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for body in self.bodies:
            kept, given = x.chunk(2, 1)
            x = torch.cat((kept, body(given)), 1).unflatten(1, (2, 8)).transpose(1, 2).flatten(1, 2)
        return self.head(x.mean((2, 3)))


class Inception(nn.Module):
    """Parallel branches of several shapes, with non-square kernels, and a local response norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 5, 2), nn.LocalResponseNorm(5), nn.PReLU(12))
        self.wide = nn.Sequential(nn.Conv2d(12, 6, (1, 7), padding=(0, 3)), nn.Conv2d(6, 6, (7, 1), padding=(3, 0)))
        self.dilated = nn.Conv2d(12, 6, 3, padding=2, dilation=2, groups=3)
        self.pooled = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(12, 4, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = torch.cat((F.relu6(self.wide(x)), F.leaky_relu(self.dilated(x), 0.1), F.elu(self.pooled(x))), 1)
        return F.log_softmax(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), 1)


class Standardised(nn.Conv2d):
    """A convolution with weight standardisation (mean 0 and variance 1 per filter), computed at run time by a norm."""

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-5).reshape_as(self.weight)
        return F.conv2d(x, weight * 0.2, self.bias, self.stride, self.padding)


class NormFree(nn.Module):
    """Residual blocks without norms; every branch is scaled by the expected variance of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Standardised(3, 16, 3, 2, 1)
        self.convs = nn.ModuleList(Standardised(16, 16, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for number, conv in enumerate(self.convs):
            x = x + 0.2 * conv(F.silu(x) * 1.78 / (1 + 0.04 * number) ** 0.5)
        return self.head(F.silu(x).mean((2, 3)))


PICTURES = [{"batch": 2}, {"batch": 1}]
IMAGE = {"image": floats("batch", 3, 64, 64)}
SMALL = {"image": floats("batch", 3, 33, 35)}

CASES = [
    Case("resnet", ResNet, IMAGE, ["scores"], [*PICTURES, {"batch": 0}], variants=("fp16", "qdq_int8")),
    Case(
        "mobilenet_v2",
        lambda: Mobile(nn.ReLU6, None, (3, 3)),
        {"image": floats("batch", 3, "height", "width")},
        ["scores"],
        [{"batch": 2, "height": 32, "width": 48}, {"batch": 1, "height": 45, "width": 37}],
        variants=("fp16", "qdq_int8"),
    ),
    Case(
        "mobilenet_v3",
        lambda: Mobile(nn.Hardswish, nn.Hardsigmoid, (3, 5)),
        SMALL,
        ["scores"],
        PICTURES,
        variants=("fp16",),
    ),
    Case(
        "efficientnet",
        lambda: Mobile(nn.SiLU, nn.Sigmoid, (3, 5)),
        SMALL,
        ["scores"],
        PICTURES,
        variants=("fp16", "qdq_int8"),
    ),
    Case("convnext", ConvNext, IMAGE, ["scores"], PICTURES, variants=("fp16",)),
    Case("densenet", Dense, SMALL, ["scores"], PICTURES),
    Case("shufflenet", Shuffled, SMALL, ["scores"], PICTURES),
    Case("resnet_opset7", ResNet, IMAGE, ["scores"], PICTURES, exporters=("script",), opset=7),
    Case("norm_free", NormFree, SMALL, ["scores"], PICTURES),
    Case("inception", Inception, SMALL, ["scores"], PICTURES),
]
