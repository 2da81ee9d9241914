"""A real browser for tests, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

WAIT_S = 60.0


class Page:
    """One open page."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._last += 1
        await self._socket.send(json.dumps({"id": self._last, "method": method, "params": given}))
        while True:
            said = json.loads(await asyncio.wait_for(self._socket.recv(), WAIT_S))
            if said.get("id") == self._last:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        said = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    async def until(self, expression: str, is_so: Callable[[Any], bool] = bool) -> Any:
        """Waits until an expression gives what is wanted."""
        ends_s = time.monotonic() + WAIT_S
        while time.monotonic() < ends_s:
            found = await self.value(expression)
            if is_so(found):
                return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"{expression} stayed {found!r}")

    async def press(self, key: str, shift: bool = False) -> None:
        """A key, by the name that pages know it by."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0)

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """The mouse from one place to another, in px of the window."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        steps = [("mouseMoved", start), ("mousePressed", start), ("mouseMoved", middle), ("mouseMoved", end)]
        for kind, (x, y) in [*steps, ("mouseReleased", end)]:
            button = "none" if kind == "mouseMoved" and (x, y) == start else "left"
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=1, clickCount=1
            )

    async def save_picture(self, path: Path) -> None:
        """What it looks like, as PNG."""
        said = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(said["data"]))


@asynccontextmanager
async def browsing(chromium: str, folder: Path, url: str) -> AsyncIterator[Page]:
    """A browser with a new profile in `folder` that has opened `url`; gone when the block ends."""
    process = subprocess.Popen(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "--window-size=1400,900",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with connect(await _address(folder, process), max_size=None) as browser:
            root = Page(browser)
            target = await root.call("Target.createTarget", url=url)
            port = (folder / "DevToolsActivePort").read_text().split()[0]
            page_url = f"ws://127.0.0.1:{port}/devtools/page/{target['targetId']}"
            async with connect(page_url, max_size=None) as socket:
                yield Page(socket)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)


async def _address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Where it listens, once it has written that down."""
    file, ends_s = folder / "DevToolsActivePort", time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        assert process.poll() is None, "the browser ended"
        lines = file.read_text().split() if file.is_file() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        await asyncio.sleep(0.05)
    raise AssertionError("the browser does not listen")
