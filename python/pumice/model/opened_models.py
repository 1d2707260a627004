"""Models that a process has open for its predictors, which share one context a device."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from .._pumice import Context
from ..base.errors import InputError, graph_error
from ..device.context import made_default_context
from ..importer.file.model_file import Folder
from ..importer.file.weight_files import FileState, model_digests, model_states
from .model import Model

Digests: TypeAlias = "tuple[tuple[str, str], ...]"  # SHA-256 by the name of a file; "" for the model's own


class ModelKey(NamedTuple):
    """What a model is opened from: equal keys share one model."""

    source: str | bytes  # an absolute path, or the file's bytes
    digests: Digests  # of all its files; none where they are read as they are
    state: tuple[FileState, ...]  # of all its files, when the first predictor opened the model
    folder: str | None
    device: str | int
    precision: str  # as repr() writes it
    options: str  # likewise


class OpenedModel:
    """A model that predictors of one process share. The device's memory is freed when the last of them has let go of it."""

    def __init__(self, key: ModelKey, precision: Any, folder: Folder | None, options: dict[str, Any]) -> None:
        self._key, self._precision, self._folder, self._options = key, precision, folder, options
        self._lock = threading.Lock()
        self._model: Model | None = None
        self.process = os.getpid()  # a forked child can use neither the model nor the lock

    def model(self) -> Model:
        """The model, which is loaded now where it is not.

        Raises as loading does, GraphError for another file, InputError for a file that was written since the key was made.
        """
        with self._lock:
            if self._model is None or self._model.context.closed:
                self._check()
                context = shared_context(self._key.device)
                self._model = Model(
                    self._key.source,
                    context,
                    self._precision,
                    folder=self._folder,
                    progress=False,
                    **self._options,
                )
            return self._model

    def start_again(self) -> None:
        """The next use loads the model anew: what this one holds is freed once nobody runs it any more."""
        with self._lock:
            self._model = None

    def _check(self) -> None:
        if self._key.digests:
            check_digests(self._key.source, self._key.folder, self._key.digests)
        before, now = {*self._key.state}, {*model_states(self._key.source, self._key.folder)}
        if changed := sorted({one.path for one in before ^ now}):
            raise InputError(
                f"BatchPredictor: expected '{changed[0]}' as it was when the model was opened, so that no results of two models are "
                "mixed; given a file that was written or removed since; close() lets the next call open it anew"
            )


def check_digests(source: str | bytes, folder: str | None, expected: Digests) -> None:
    """Raises GraphError naming the first of a model's files that is not the one that a predictor was pickled with, OSError."""
    given = dict(model_digests(source, folder))
    for name, digest in expected:
        if given.get(name) == digest:
            continue
        path = name or (source if isinstance(source, str) else "model")
        what = f"weight file '{name}'" if name else "file"
        told = f"expected the {what} that the predictor was pickled with (SHA-256 {digest}), given {given.get(name, 'none')}"
        hint = "copy all files of the model to this machine, or pickle the predictor again"
        raise graph_error("model", path, f"{told}: {hint}")


class _Process:
    """What this process has open; a forked child begins with nothing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.contexts: WeakValueDictionary[str | int, Context] = WeakValueDictionary()
        self.models: WeakValueDictionary[ModelKey, OpenedModel] = WeakValueDictionary()
        self.kept: OpenedModel | None = None  # of the last predictor that came from another process

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def shared_context(device: str | int) -> Context:
    """The process's one context of a device by its name; "": the default context where there is one already, else a context
    of the device that it would have.
    """
    with _process.lock:
        if device == "" and (made := made_default_context()) is not None:
            return made
        context = _process.contexts.get(device)
        if context is None or context.closed:
            context = _process.contexts[device] = Context(device)
        return context


def opened_model(key: ModelKey, precision: Any, folder: Folder | None, options: dict[str, Any]) -> OpenedModel:
    """The process's model of a key, which is not loaded yet where nobody has used it."""
    with _process.lock:
        opened = _process.models.get(key)
        if opened is None:
            opened = _process.models[key] = OpenedModel(key, precision, folder, options)
        return opened


def keep(opened: OpenedModel | None) -> None:
    """Keeps a model open although no predictor holds it, in place of the one that was kept before; None: keeps none."""
    with _process.lock:
        _process.kept = opened
