"""Recurrent networks."""

from __future__ import annotations

from torch import Tensor, nn

from .case import Case, floats, integers


class Tagger(nn.Module):
    """Words -> labels, by an LSTM that reads in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 9)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(ids))[0])


class Cell(nn.Module):
    """One of PyTorch's recurrent layers with its states given and returned; time comes first."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, last = self.layer(x, state)
        return y, last


SEQUENCES = [{"batch": 2, "words": 6}, {"batch": 1, "words": 11}]

CASES = [
    Case("lstm_tagger", Tagger, {"ids": integers(50, "batch", "words")}, ["labels"], SEQUENCES, exporters=("script",)),
]
