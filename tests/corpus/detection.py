"""Object detection: by queries, by anchors with NMS, and by peaks of a heatmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, floats
from .transformers import Attention
from .vision import convolved


class DetrLayer(nn.Module):
    def __init__(self, width: int, crossed: bool) -> None:
        super().__init__()
        self.own, self.cross = Attention(width, 4), Attention(width, 4) if crossed else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x: Tensor, places: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.own(x + places, torch.zeros(1, dtype=x.dtype)))
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x + places, torch.zeros(1, dtype=x.dtype), memory))
        return self.norms[2](x + self.feed(x))


class Detr(nn.Module):
    """DETR: seven learned queries on an image -> classes and boxes; sine positions from cumulative sums of ones."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(convolved(3, 16, 3, 4, act=nn.ReLU), convolved(16, 24, 3, 2, act=nn.ReLU))
        self.into = nn.Conv2d(24, width, 1)
        self.encoder = nn.ModuleList(DetrLayer(width, False) for _ in range(1))
        self.decoder = nn.ModuleList(DetrLayer(width, True) for _ in range(2))
        self.queries = nn.Embedding(7, width)
        self.classes = nn.Linear(width, 6)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def positions(self, x: Tensor) -> Tensor:
        ones = torch.ones_like(x[:, 0])
        rates = (10000 ** (2 * torch.div(torch.arange(16, device=x.device), 2, rounding_mode="floor") / 16)).to(x.dtype)
        found = []
        for axis in (1, 2):
            place = ones.cumsum(axis)
            place = place / (place.select(axis, -1).unsqueeze(axis) + 1e-6) * 6.2831853
            angles = place[..., None] / rates
            found.append(torch.stack((angles[..., 0::2].sin(), angles[..., 1::2].cos()), dim=4).flatten(3))
        return torch.cat(found, dim=3).flatten(1, 2)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.into(self.body(image))
        places = self.positions(x)
        memory = x.flatten(2).permute(0, 2, 1)
        for layer in self.encoder:
            memory = layer(memory, places)
        queries = self.queries.weight[None].repeat(image.shape[0], 1, 1)
        y = torch.zeros_like(queries)
        for layer in self.decoder:
            y = layer(y, queries, memory + places)
        return self.classes(y), self.boxes(y).sigmoid()


class Anchored(nn.Module):
    """Scores and boxes of anchors at two scales: the heads of a one-stage detector, decoded to corners."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.classes = classes
        self.early, self.late = convolved(3, 12, 3, 4, act=nn.SiLU), convolved(12, 20, 3, 2, act=nn.SiLU)
        self.side = nn.Conv2d(20, 12, 1)
        self.heads = nn.ModuleList(nn.Conv2d(width, 3 * (5 + classes), 1) for width in (24, 20))
        self.register_buffer("anchors", torch.tensor([[[8.0, 8], [16, 8], [8, 20]], [[20, 20], [40, 24], [24, 44]]]))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        early = self.early(image)
        late = self.late(early)
        early = torch.cat((early, F.interpolate(self.side(late), scale_factor=2.0, mode="nearest")), 1)
        all_boxes, all_scores = [], []
        for number, (head, x) in enumerate(zip(self.heads, (early, late), strict=True)):
            y = head(x)
            batch, _, height, width = y.shape
            y = y.view(batch, 3, 5 + self.classes, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack((columns, rows), 2).view(1, 1, height, width, 2).to(y.dtype)
            middle = (y[..., 0:2] * 2 - 0.5 + grid) * (4 << number)
            size = (y[..., 2:4] * 2) ** 2 * self.anchors[number].view(1, 3, 1, 1, 2)
            all_boxes.append(torch.cat((middle - size / 2, middle + size / 2), -1).reshape(batch, -1, 4))
            all_scores.append((y[..., 4:5] * y[..., 5:]).reshape(batch, -1, self.classes))
        return torch.cat(all_boxes, 1), torch.cat(all_scores, 1)


class BestAnchors(nn.Module):
    """The top twelve boxes over all classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Anchored()

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = self.body(image)
        best, which = scores.flatten(1).topk(12, dim=1)
        place = torch.div(which, 4, rounding_mode="floor")
        return torch.gather(boxes, 1, place[..., None].expand(-1, -1, 4)), best, which % 4


class Suppression(torch.autograd.Function):
    """ONNX's NonMaxSuppression, which PyTorch has no operator for: rows of batch index, class and box."""

    @staticmethod
    def forward(ctx: Any, boxes: Tensor, scores: Tensor) -> Tensor:
        return torch.tensor([[0, 0, 0], [0, 1, 1]])  # any rows will do for tracing

    @staticmethod
    def symbolic(g: Any, boxes: Any, scores: Any) -> Any:
        most, overlap, least = (g.op("Constant", value_t=torch.tensor([number])) for number in (5, 0.45, 0.3))
        return g.op("NonMaxSuppression", boxes, scores, most, overlap, least)


class Suppressed(nn.Module):
    """NMS with at most five boxes per class, and their scores, best first; a data-dependent number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Anchored()

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = self.body(image)
        rows = Suppression.apply(boxes, scores.transpose(1, 2).contiguous())
        picture, kind, place = rows[:, 0], rows[:, 1], rows[:, 2]
        return rows, boxes[picture, place], scores[picture, place, kind]


class Centers(nn.Module):
    """Detection by local maxima of a heatmap."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolved(3, 12, 3, 4, act=nn.ReLU), nn.ConvTranspose2d(12, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.heat, self.size = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.body(image)
        heat = self.heat(x).sigmoid()
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat).to(heat.dtype)
        best, which = heat.flatten(2).topk(4)
        size = self.size(x).flatten(2).permute(0, 2, 1)
        return best, which, size.gather(1, which.flatten(1)[..., None].expand(-1, -1, 2))


class Picked(nn.Module):
    """Rows with a score above a threshold: a data-dependent number."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.values = nn.Linear(8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.scores(x).squeeze(-1).sigmoid()
        kept = torch.nonzero(scores > 0.5).squeeze(1)
        return self.values(x)[kept], kept


IMAGE = {"image": floats("batch", 3, 64, 64)}
PICTURES = [{"batch": 2}, {"batch": 1}]

CASES = [
    Case(
        "detr",
        Detr,
        {"image": floats("batch", 3, "height", "width")},
        ["classes", "boxes"],
        [{"batch": 2, "height": 64, "width": 48}, {"batch": 1, "height": 40, "width": 72}],
    ),
    Case("detr_fixed", Detr, {"image": floats(1, 3, 64, 64)}, ["classes", "boxes"], variants=("fp16", "dynamic_int8")),
    Case("anchors", Anchored, IMAGE, ["boxes", "scores"], PICTURES, variants=("fp16", "qdq_int8")),
    Case("best_anchors", BestAnchors, IMAGE, ["boxes", "scores", "classes"], PICTURES),
    Case("suppressed_anchors", Suppressed, IMAGE, ["rows", "boxes", "scores"], PICTURES, exporters=("script",)),
    Case("centers", Centers, IMAGE, ["scores", "places", "sizes"], PICTURES),
    Case("picked", Picked, {"x": floats("rows", 8)}, ["values", "rows_kept"], [{"rows": 9}, {"rows": 40}]),
]
