"""Models that a process has open for its predictors, which share one context a device."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from .._pumice import Context, sha256
from ..base.errors import InputError, graph_error
from ..device.context import made_default_context
from ..importer.file.model_file import Folder, mapped
from .model import Model

# Names that exporters give to a model's file of weights, behind the model's whole name or its stem.
_WEIGHTS_BEHIND_NAME = (".data", "_data")
_WEIGHTS_BEHIND_STEM = (".data", ".bin", ".weights")


class FileState(NamedTuple):
    """What tells cheaply whether a file was written since."""

    path: str
    size: int  # bytes; -1: there is no such file
    changed: int  # nanoseconds


def state_of(source: str | bytes, folder: str | None) -> tuple[FileState, ...]:
    """The states of a model's file and of files of weights in its folder that have one of their usual names; nothing of bytes."""
    found = []
    if isinstance(source, str):
        found.append(_file_state(source))
        name = os.path.basename(source)
        beside = [name + end for end in _WEIGHTS_BEHIND_NAME]
        beside += [os.path.splitext(name)[0] + end for end in _WEIGHTS_BEHIND_STEM]
        states = (_file_state(os.path.join(folder or os.path.dirname(source), one)) for one in dict.fromkeys(beside))
        found += [one for one in states if one.size >= 0]
    return tuple(found)


def _file_state(path: str) -> FileState:
    try:
        told = os.stat(path)
    except OSError:
        return FileState(path, -1, 0)
    return FileState(path, told.st_size, told.st_mtime_ns)


class ModelKey(NamedTuple):
    """What a model is opened from: equal keys share one model."""

    source: str | bytes  # an absolute path, or the file's bytes
    digest: str  # SHA-256 of the file; "" where it is read as it is
    state: tuple[
        FileState, ...
    ]  # of the file and of files of weights beside it, when the first predictor opened the model
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
        if self._key.digest and isinstance(self._key.source, str):
            digest = digest_of(self._key.source)
            if digest != self._key.digest:
                told = f"expected the file that the predictor was pickled with (SHA-256 {self._key.digest}), given {digest}"
                raise graph_error("model", self._key.source, told)
        before, now = {*self._key.state}, {*state_of(self._key.source, self._key.folder)}
        if changed := sorted({one.path for one in before ^ now}):
            raise InputError(
                f"BatchPredictor: expected '{changed[0]}' as it was when the model was opened, so that no results of two models are "
                "mixed; given a file that was written or removed since; close() lets the next call open it anew"
            )


def digest_of(path: str) -> str:
    """The SHA-256 of a file. Raises OSError."""
    return sha256(mapped(path))


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
