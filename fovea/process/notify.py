"""What a process tells systemd; nothing happens where systemd does not listen."""

from __future__ import annotations

import socket
from contextlib import suppress

from fovea.process.config_parts import notify_socket


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
    """One datagram to the socket that systemd named (sd_notify(3)); an address that begins with @ is abstract. The
    protocol is these lines; the library for it is published as source alone, which a board without a compiler and
    with hashed wheels only cannot install."""
    address = notify_socket()
    if address is None:
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(message.encode(), name)
