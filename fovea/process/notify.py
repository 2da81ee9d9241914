"""What a process tells systemd; nothing happens where systemd does not listen."""

from __future__ import annotations

import sdnotify


def ready(status: str) -> None:
    """It does its work from now on; `status` is a line for people."""
    _tell(f"READY=1\nSTATUS={status}")


def alive() -> None:
    """It makes progress: feeds the watchdog."""
    _tell("WATCHDOG=1")


def stopping() -> None:
    """It has begun to end."""
    _tell("STOPPING=1")


def _tell(message: str) -> None:
    notifier = sdnotify.SystemdNotifier()
    notifier.notify(message)
    if notifier.socket is not None:
        notifier.socket.close()
