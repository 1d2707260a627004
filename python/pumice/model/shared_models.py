"""Models that the predictors of a process share, on one context per device."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from .._pumice import Context
from ..base.errors import InputError, graph_error
from ..device.context import get_existing_default_context
from ..importer.file.model_file import Folder
from ..importer.file.weight_files import FileState, compute_model_digests, get_model_file_states
from .model import Model

Digests: TypeAlias = "tuple[tuple[str, str], ...]"  # SHA-256 by file name; "" for the model file itself


class ModelKey(NamedTuple):
    """Everything that identifies an opened model: predictors with equal keys share a model."""

    source: str | bytes  # an absolute path, or the file's bytes
    digests: Digests  # expected digests of the model's files; empty: do not check
    state: tuple[FileState, ...]  # state of the model's files when the first predictor opened the model
    folder: str | None
    device: str | int
    precision: str  # repr() of the precision
    options: str  # repr() of the options


class SharedModel:
    """A model shared by predictors of one process. Device memory is freed when the last of them releases it."""

    def __init__(self, key: ModelKey, precision: Any, folder: Folder | None, options: dict[str, Any]) -> None:
        self._key, self._precision, self._folder, self._options = key, precision, folder, options
        self._lock = threading.Lock()
        self._model: Model | None = None
        self.process = os.getpid()  # a forked child must use neither the model nor the lock

    def get_model(self) -> Model:
        """Return the model, loading it if needed.

        Raise the errors of loading, GraphError if a file differs from the expected digest, InputError if a file has changed since the
        model was opened.
        """
        with self._lock:
            if self._model is None or self._model.context.closed:
                self._check_files()
                context = get_shared_context(self._key.device)
                self._model = Model(
                    self._key.source,
                    context,
                    self._precision,
                    folder=self._folder,
                    progress=False,
                    **self._options,
                )
            return self._model

    def invalidate(self) -> None:
        """Make the next get_model() load the model again. The current model is freed when its last user drops it."""
        with self._lock:
            self._model = None

    def _check_files(self) -> None:
        if self._key.digests:
            check_model_digests(self._key.source, self._key.folder, self._key.digests)
        recorded, current = {*self._key.state}, {*get_model_file_states(self._key.source, self._key.folder)}
        if changed := sorted({one.path for one in recorded ^ current}):
            raise InputError(
                f"BatchPredictor: expected '{changed[0]}' unchanged since the model was opened, so that results of two models are "
                "not mixed; given a file that was written or removed since; close() makes the next call open it again"
            )


def check_model_digests(source: str | bytes, folder: str | None, expected: Digests) -> None:
    """Raise GraphError naming the first file of a model whose digest differs from the expected one, OSError if one is unreadable."""
    actual_digests = dict(compute_model_digests(source, folder))
    for name, digest in expected:
        if actual_digests.get(name) == digest:
            continue
        path = name or (source if isinstance(source, str) else "model")
        subject = f"weight file '{name}'" if name else "file"
        message = f"expected the {subject} that the predictor was pickled with (SHA-256 {digest}), given {actual_digests.get(name, 'none')}"
        hint = "copy all files of the model to this machine, or pickle the predictor again"
        raise graph_error("model", path, f"{message}: {hint}")


class _ProcessState:
    """The contexts and models that predictors of this process have open. A forked child starts without any."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.contexts: WeakValueDictionary[str | int, Context] = WeakValueDictionary()
        self.models: WeakValueDictionary[ModelKey, SharedModel] = WeakValueDictionary()
        self.pinned: SharedModel | None = None  # the model of the most recently unpickled predictor

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


_process = _ProcessState()
os.register_at_fork(after_in_child=_process.clear)


def get_shared_context(device: str | int) -> Context:
    """Return the process's shared context on a device. "": the default context if it exists, else a context on the default device."""
    with _process.lock:
        if device == "" and (default := get_existing_default_context()) is not None:
            return default
        context = _process.contexts.get(device)
        if context is None or context.closed:
            context = _process.contexts[device] = Context(device)
        return context


def get_shared_model(key: ModelKey, precision: Any, folder: Folder | None, options: dict[str, Any]) -> SharedModel:
    """Return the process's shared model for a key. It is loaded on first use."""
    with _process.lock:
        opened = _process.models.get(key)
        if opened is None:
            opened = _process.models[key] = SharedModel(key, precision, folder, options)
        return opened


def pin_model(opened: SharedModel | None) -> None:
    """Keep a model open without a predictor, in place of the previously pinned one. None: pin no model."""
    with _process.lock:
        _process.pinned = opened
