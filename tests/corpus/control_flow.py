"""Branches and loops, as exported from torch.jit.script and torch.cond."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from .case import Case, Input, floats


class Branch(nn.Module):
    """One of two networks, selected by the sum of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            y = torch.relu(self.one(x))
        else:
            y = self.other(x) * 2
        return y + 1


class EarlyExit(nn.Module):
    """Up to six layers, until the prediction is confident."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = torch.zeros(1, dtype=torch.long)
        sure = torch.softmax(self.head(x), -1).max()
        while bool(sure < 0.9) and int(steps) < 6:
            x = torch.tanh(self.layer(x)) + x
            sure = torch.softmax(self.head(x), -1).max()
            steps = steps + 1
        return self.head(x), steps


class Greedy(nn.Module):
    """Greedy decoding of letters: a loop with a state and a list of results."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.cell, self.head = nn.Embedding(12, 10), nn.Linear(20, 20), nn.Linear(10, 12)

    def forward(self, state: Tensor, count: Tensor) -> Tensor:
        letter = torch.zeros(state.shape[0], dtype=torch.long)
        made: list[Tensor] = []
        for _ in range(int(count)):
            kept, new = self.cell(torch.cat((self.letters(letter), state), 1)).chunk(2, 1)
            kept = torch.sigmoid(kept)
            state = state * kept + torch.tanh(new) * (1 - kept)
            letter = self.head(state).argmax(-1)
            made.append(letter)
        return torch.stack(made, 1)


class Rows(nn.Module):
    """A loop over rows, with a branch inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(5)
        for i in range(x.shape[0]):
            row = self.layer(x[i])
            if bool(row.mean() > 0):
                total = total + row
            else:
                total = total * 0.5 - row
        return total


class Pieces(nn.Module):
    """A list of tensors: split, reduced and concatenated."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pieces = torch.split(x, 3, dim=0)
        made: list[Tensor] = []
        for piece in pieces:
            made.append(piece.sum(dim=0))
        return torch.stack(made), torch.cat(pieces, 0) * len(pieces)


class Cond(nn.Module):
    """torch.cond with networks in its branches."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        def yes(x: Tensor) -> Tensor:
            return torch.sin(self.one(x))

        def no(x: Tensor) -> Tensor:
            return self.other(x).cos() - 1

        return torch.cond(x.mean() > 0, yes, no, (x,))


class Newton(nn.Module):
    """Square roots by Newton iteration until convergence: a data-dependent number of iterations."""

    def forward(self, x: Tensor) -> Tensor:
        guess = torch.ones_like(x)
        while bool((guess * guess - x).abs().max() > 1e-3):
            guess = 0.5 * (guess + x / guess)
        return guess


def scripted(made: nn.Module) -> torch.jit.ScriptModule:
    from .export import seeded

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated, but its output is in use
        return torch.jit.script(seeded(made))


ROWS = [{"rows": 3}, {"rows": 8}]

CASES = [
    Case(
        "script_if",
        lambda: scripted(Branch()),
        {"x": floats("rows", 6)},
        ["y"],
        [*ROWS, {"rows": 2}],
        exporters=("script",),
    ),
    Case(
        "script_while", lambda: scripted(EarlyExit()), {"x": floats(1, 8)}, ["scores", "steps"], exporters=("script",)
    ),
    Case(
        "script_greedy",
        lambda: scripted(Greedy()),
        {"state": floats("rows", 10), "count": Input("int64", (), "integers 5 6")},
        ["letters"],
        ROWS,
        exporters=("script",),
    ),
    Case("script_rows", lambda: scripted(Rows()), {"x": floats("rows", 5)}, ["total"], ROWS, exporters=("script",)),
    Case(
        "script_pieces_opset12",
        lambda: scripted(Pieces()),
        {"x": floats("rows", 4)},
        ["sums", "rest"],
        [{"rows": 9}, {"rows": 12}],
        exporters=("script",),
        opset=12,
    ),
    Case(
        "script_pieces",
        lambda: scripted(Pieces()),
        {"x": floats("rows", 4)},
        ["sums", "rest"],
        [{"rows": 9}, {"rows": 12}],
        exporters=("script",),
    ),
    Case(
        "script_newton",
        lambda: scripted(Newton()),
        {"x": floats(7, values="uniform 1 9")},
        ["roots"],
        exporters=("script",),
    ),
    Case("cond", Cond, {"x": floats("rows", 6)}, ["y"], [*ROWS, {"rows": 2}], exporters=("dynamo",)),
]
