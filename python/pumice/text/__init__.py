"""Text generation from an exported model folder: `Generator(folder)("Once there was")`. Requires the package tokenizers, `pumice[text]`."""

from __future__ import annotations

import os as _os

from .decode_state import Timing as Timing
from .errors import ContextError as ContextError
from .errors import FolderError as FolderError
from .generator import Generator as Generator
from .generator import Session as Session

EXAMPLE = _os.path.join(_os.path.dirname(_os.path.dirname(__file__)), "data", "story")  # folder of a small story model
