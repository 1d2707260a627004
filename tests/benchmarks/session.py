"""The session passed to every benchmark: the device, the effort, the models and the peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pumice

from .contender import Peer
from .model_cases import MODEL_CASES, ModelCase
from .timing import Effort


@dataclass
class Session:
    context: pumice.Context
    effort: Effort
    only: frozenset[str]  # names of models; empty: all
    profile: bool = False  # only kernel times, for benchmarks that have them
    onnxruntime: Peer = field(default_factory=lambda: Peer("onnxruntime"))
    ncnn: Peer = field(default_factory=lambda: Peer("ncnn"))
    torch: Peer = field(default_factory=lambda: Peer("torch"))

    @property
    def software(self) -> bool:
        return self.context.info.kind == "software"

    @property
    def h200(self) -> bool:
        """Whether this is the device that some targets were set for."""
        return "H200" in self.context.info.name

    def cases(self) -> Iterator[ModelCase]:
        """Yield the requested cases; a case that is slow on this device must be named."""
        for case in MODEL_CASES:
            if case.name in self.only or (not self.only and not (case.long_on_software and self.software)):
                yield case

    def close(self) -> None:
        for peer in (self.onnxruntime, self.ncnn, self.torch):
            peer.close()
