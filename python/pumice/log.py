"""What the engine has to say that is no error goes to Python's logging, under the name "pumice"."""

from __future__ import annotations

from ._pumice import forward_log as forward_log
