"""Headless Chromium, driven over a pipe with the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)

# The protocol uses descriptors 3 and 4. A separate process sets them up, because forking a threaded process may hang.
_WIRED = """
import fcntl, os, sys
given, made = (fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3])
os.dup2(given, 3)
os.dup2(made, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed() -> str | None:
    """Return the path of the browser, if installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page in its own browser. `events`: everything it reported, such as errors, requests and console output."""

    def __init__(self, folder: Path, width: int, height: int = 900, dark: bool = False) -> None:
        path = installed()
        assert path, "no Chromium is installed"
        self.events: list[dict[str, Any]] = []
        self._last = 0
        self._session = ""
        self._rest = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        wired = [sys.executable, "-S", "-c", _WIRED, str(theirs_in), str(theirs_out)]
        self._browser = subprocess.Popen(
            [*wired, path, *_OPTIONS, f"--user-data-dir={folder}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for the response."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            got = os.read(self._in, 1 << 20)
            assert got, "the browser has ended"
            self._rest += got
        line, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, path: Path) -> None:
        """Load a file and wait until its scripts have run."""
        self("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path, **clip: float) -> None:
        """Save a screenshot as PNG; `clip`: x, y, width and height in the page."""
        options = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png", **options)["data"]))

    @property
    def requests(self) -> list[str]:
        """Return the URLs requested by the page."""
        told = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in told]

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """Return the page's exceptions, errors and warnings."""
        found = [e for e in self.events if e.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")]
        logged = [e for e in self.events if e.get("method") == "Log.entryAdded"]
        return found + [e for e in logged if e["params"]["entry"]["level"] in ("error", "warning")]

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self._out, self._in):
            os.close(descriptor)
        self._browser.terminate()
        self._browser.wait(20)
