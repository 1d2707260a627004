"""Recurrent networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .case import Case, Input, floats, integers


class Tagger(nn.Module):
    """Tokens -> labels, by a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 9)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(ids))[0])


class Lstm(nn.Module):
    def __init__(self, **options: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 10, **options)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (hidden, cell) = self.layer(x, (hidden, cell))
        return y, hidden, cell


class Gru(nn.Module):
    def __init__(self, layer: type[nn.Module] = nn.GRU, **options: object) -> None:
        super().__init__()
        self.layer = layer(6, 10, **options)

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        y, hidden = self.layer(x, hidden)
        return y, hidden


class Packed(nn.Module):
    """Sequences of several lengths, as a packed sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 10, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, last = self.gru(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], last


class Reader(nn.Module):
    """Text line recognition: convolutions over an image, then an LSTM along it, then letters."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, 8, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, 1, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.lstm, self.head = nn.LSTM(16 * 4, 12, bidirectional=True), nn.Linear(24, 20)

    def forward(self, line: Tensor) -> Tensor:
        x = self.convs(line)
        x = x.flatten(1, 2).permute(2, 0, 1)
        return torch.log_softmax(self.head(self.lstm(x)[0]), -1)


class Attended(nn.Module):
    """A GRU cell that attends to the encoded input, unrolled for a fixed number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.score, self.out = nn.GRUCell(10, 10), nn.Linear(20, 1), nn.Linear(10, 7)

    def forward(self, read: Tensor) -> Tensor:
        state, made = read[:, 0], []
        for _ in range(4):
            pairs = torch.cat((read, state[:, None].expand_as(read)), -1)
            shares = torch.softmax(self.score(torch.tanh(pairs)), 1)
            state = self.cell((shares * read).sum(1), state)
            made.append(self.out(state))
        return torch.stack(made, 1)


SEQUENCES = [{"batch": 2, "words": 6}, {"batch": 1, "words": 11}]
X = floats("words", "batch", 6)


CASES = [
    Case(
        "lstm_tagger",
        Tagger,
        {"ids": integers(50, "batch", "words")},
        ["labels"],
        SEQUENCES,
        variants=("dynamic_int8",),
        exporters=("script", "dynamo"),
    ),
    Case(
        "lstm_tagger_opset9",
        Tagger,
        {"ids": integers(50, "batch", "words")},
        ["labels"],
        SEQUENCES,
        exporters=("script",),
        opset=9,
    ),
    Case(
        "lstm_states",
        lambda: Lstm(num_layers=2),
        {"x": X, "hidden": floats(2, "batch", 10), "cell": floats(2, "batch", 10)},
        ["y", "new_hidden", "new_cell"],
        SEQUENCES,
    ),
    Case(
        "gru",
        lambda: Gru(bidirectional=True),
        {"x": X, "hidden": floats(2, "batch", 10)},
        ["y", "new_hidden"],
        SEQUENCES,
    ),
    Case(
        "rnn_relu",
        lambda: Gru(nn.RNN, nonlinearity="relu"),
        {"x": X, "hidden": floats(1, "batch", 10)},
        ["y", "new_hidden"],
        SEQUENCES,
        exporters=("script",),
    ),
    Case(
        "rnn_tanh",
        lambda: Gru(nn.RNN, num_layers=2, bidirectional=True),
        {"x": X, "hidden": floats(4, "batch", 10)},
        ["y", "new_hidden"],
        SEQUENCES,
        exporters=("script",),
    ),
    Case(
        "gru_packed",
        Packed,
        {"x": floats(3, "words", 6), "lengths": Input("int64", (3,), "falling")},
        ["y", "last"],
        [{"words": 7}],
        exporters=("script",),
    ),
    Case("line_reader", Reader, {"line": floats("batch", 1, 16, 48)}, ["letters"], [{"batch": 2}, {"batch": 1}]),
    Case("attended_gru", Attended, {"read": floats("batch", "words", 10)}, ["y"], SEQUENCES),
]
