"""F.grid_sample and F.interpolate in all their modes, and other resampling."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Case, floats


class Sampled(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            F.grid_sample(x, grid, self.mode, padding, aligned)
            for padding in ("zeros", "border", "reflection")
            for aligned in (False, True)
        )


class SampledVolume(nn.Module):
    def forward(self, x: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
        return F.grid_sample(x, grid, align_corners=False), F.grid_sample(
            x, grid, "nearest", "border", align_corners=True
        )


class Turned(nn.Module):
    """A spatial transformer: a small network predicts the affine transform of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(1, 4, 7), nn.MaxPool2d(2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 6))

    def forward(self, image: Tensor) -> Tensor:
        turn = self.where(image).view(-1, 2, 3) * 0.3 + torch.eye(2, 3)
        grid = F.affine_grid(turn, [image.shape[0], 1, 26, 26], align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)


class Sized(nn.Module):
    """Resizes images to given sizes, and by factors."""

    def __init__(self, mode: str, aligned: bool | None = None, soft: bool = False) -> None:
        super().__init__()
        self.options = {"mode": mode, "align_corners": aligned, **({"antialias": True} if soft else {})}

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rank = x.ndim - 2
        larger, smaller = [2 * size + 1 for size in x.shape[2:]], [max(1, size // 2) for size in x.shape[2:]]
        return (
            F.interpolate(x, size=larger, **self.options),
            F.interpolate(x, size=smaller, **self.options),
            F.interpolate(x, scale_factor=tuple([1.5, 2.0, 0.6][:rank]), recompute_scale_factor=True, **self.options),
            F.interpolate(x, scale_factor=2.0, **self.options),
        )


class Exact(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.interpolate(x, size=(11, 4), mode="nearest-exact"), F.interpolate(
            x, scale_factor=(0.7, 3.0), mode="nearest-exact"
        )


class Padded(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            F.pad(x, (1, 2, 3, 0)),
            F.pad(x, (2, 1, 1, 2), mode="reflect"),
            F.pad(x, (3, 0, 0, 4), mode="replicate"),
            F.pad(x, (1, 2, 2, 1), mode="circular"),
            F.pad(x, (-1, 0, 2, -2), value=1.5),
        )


class Moved(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        patches = F.unfold(x, (3, 2), padding=1, stride=2)
        return (
            torch.roll(x, (1, -2), (2, 3)),
            x.flip(3),
            torch.rot90(x, 1, (2, 3)),
            patches,
            x.unfold(2, 3, 2),
            x.tril(1) + x.triu(-1),
            x.repeat_interleave(2, 1),
            x[..., 1::2, ::3],
            x.movedim(1, -1).contiguous(),
        )


PIXELS = {"x": floats(2, 3, 7, 9)}
GRID = {"grid": floats(2, 5, 6, 2, values="uniform -1.4 1.4")}
MODES = (
    ("nearest", None),
    ("linear", False),
    ("linear", True),
    ("bilinear", False),
    ("bilinear", True),
    ("bicubic", False),
    ("bicubic", True),
    ("trilinear", False),
    ("area", None),
)


def sized(mode: str, aligned: bool | None) -> Case:
    rank = {"linear": 1, "trilinear": 3}.get(mode, 2)
    name = f"interpolate_{mode}{'_aligned' if aligned else ''}"
    outputs = ["larger", "smaller", "by_factors", "twice"]
    exporters = ("dynamo",) if mode == "area" else ("dynamo", "script")
    return Case(
        name, lambda: Sized(mode, aligned), {"x": floats(2, 3, *(5, 8, 6)[:rank])}, outputs, exporters=exporters
    )


CASES = [
    *(
        Case(f"grid_sample_{mode}", lambda mode=mode: Sampled(mode), {**PIXELS, **GRID}, [f"y{i}" for i in range(6)])
        for mode in ("bilinear", "nearest", "bicubic")
    ),
    Case(
        "grid_sample_volume",
        SampledVolume,
        {"x": floats(2, 3, 4, 5, 6), "grid": floats(2, 3, 4, 5, 3, values="uniform -1.3 1.3")},
        ["linear", "nearest"],
        exporters=("dynamo",),
    ),
    Case(
        "spatial_transformer", Turned, {"image": floats("batch", 1, 26, 26)}, ["turned"], [{"batch": 2}, {"batch": 1}]
    ),
    *(sized(mode, aligned) for mode, aligned in MODES),
    Case(
        "interpolate_antialias",
        lambda: Sized("bilinear", False, True),
        PIXELS,
        ["larger", "smaller", "by_factors", "twice"],
        exporters=("dynamo",),
    ),
    Case(
        "interpolate_opset10",
        lambda: Sized("bilinear", False),
        {"x": floats(2, 3, 5, 8)},
        ["larger", "smaller", "by_factors", "twice"],
        exporters=("script",),
        opset=10,
    ),
    Case("interpolate_nearest_exact", Exact, PIXELS, ["sized", "scaled"], exporters=("dynamo",)),
    Case("padding", Padded, PIXELS, [f"y{i}" for i in range(5)]),
    Case("moved_pixels", Moved, PIXELS, [f"y{i}" for i in range(9)], exporters=("dynamo",)),
]
