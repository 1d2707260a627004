"""Networks over pictures."""

from __future__ import annotations

from torch import Tensor, nn

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
    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        stages = []
        before = width
        for stage in range(4):
            for block in range(2):
                stages.append(Bottleneck(before, width << stage, 2 if stage and not block else 1))
                before = 4 * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(before, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.pool(self.stages(self.stem(image))).flatten(1))


PICTURES = [{"batch": 2}, {"batch": 1}]


CASES = [
    Case(
        "resnet",
        ResNet,
        {"image": floats("batch", 3, 64, 64)},
        ["scores"],
        [*PICTURES, {"batch": 0}],
        variants=("fp16", "qdq_int8"),
    ),
]
