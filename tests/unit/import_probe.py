"""Run as a bare process: imports modules one after another and prints, as JSON, what each import did beyond that."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

FORBIDDEN = ("matplotlib", "onnx", "onnxruntime", "torch", "torchvision", "ultralytics")
"""Loaded inside the functions that need them, never by an import of one of our modules."""

WATCHED_EVENTS = {
    "os.exec": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "os.putenv": "environment",
    "os.system": "process",
    "os.unsetenv": "environment",
    "socket.__new__": "socket",
    "socket.connect": "socket",
    "socket.getaddrinfo": "socket",
    "subprocess.Popen": "process",
}

_seen: set[tuple[str, str]] = set()


def listen(event: str, args: tuple[Any, ...]) -> None:
    """Audit hook: remembers what was started or opened, even if it is gone again when the import ends."""
    if event in WATCHED_EVENTS:
        _seen.add((WATCHED_EVENTS[event], f"{event} {args!r:.120}"))
    elif event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        _seen.add(("file", f"wrote {args[0]!r:.120}"))
    elif event in ("os.mkdir", "os.remove", "os.rename"):
        _seen.add(("file", f"{event} {args[0]!r:.120}"))


def note_thread(*_: Any) -> None:
    """Profile function of every thread that is started: remembers it, even if it is gone when the import ends."""
    _seen.add(("thread", f"ran {threading.current_thread().name}"))


def state(home: Path) -> dict[str, dict[str, str]]:
    """What an import must leave as it was: kind -> name -> value."""
    return {
        "thread": {task.name: "running" for task in Path("/proc/self/task").iterdir()},
        "descriptor": _descriptors(),
        "environment": dict(os.environ),
        "logging": _loggers(),
        "signal": {name.name: repr(signal.getsignal(name)) for name in signal.Signals},
        "interpreter": {
            "working folder": str(Path.cwd()),
            "sys.path": repr(sys.path),
            "hooks": repr([sys.excepthook, threading.excepthook, sys.displayhook]),
            "socket timeout": repr(socket.getdefaulttimeout()),
        },
        "warnings": {"filters": repr(warnings.filters)},
        "file": {str(path): "exists" for path in home.rglob("*")},
    }


def changes(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> set[tuple[str, str]]:
    """Each difference as (kind, what changed)."""
    found = set()
    for kind, values in after.items():
        old = before[kind]
        for name in values.keys() | old.keys():
            if values.get(name) != old.get(name):
                before_and_after = f"{old.get(name, 'absent'):.120} became {values.get(name, 'absent'):.120}"
                found.add((kind, f"{name}: {before_and_after}"))
    return found


def effects_of(module: str, home: Path) -> list[list[str]]:
    """Imports `module` and gives what this did, as sorted [kind, detail] pairs."""
    before, loaded = state(home), set(sys.modules)
    _seen.clear()
    found = set()
    try:
        importlib.import_module(module)
    except BaseException as error:  # a SystemExit at import is a finding too
        found.add(("import failed", f"{type(error).__name__}: {error}"))
    found |= _seen | changes(before, state(home))
    found |= {("vendor", f"loaded {name}") for name in FORBIDDEN if name in sys.modules.keys() - loaded}
    return sorted([kind, detail] for kind, detail in found)


def _descriptors() -> dict[str, str]:
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that listed the folder
            found[link.name] = str(link.readlink())
    return found


def _loggers() -> dict[str, str]:
    """Level and handlers of each logger that has any; a NullHandler handles nothing."""
    found = {"disabled below": str(logging.root.manager.disable), "class": repr(logging.getLoggerClass())}
    loggers: dict[str, Any] = {"root": logging.root, **logging.root.manager.loggerDict}
    for name, logger in loggers.items():
        if isinstance(logger, logging.Logger):
            handlers = [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]
            if handlers or logger.level or name == "root":
                found[name] = f"level {logger.level}, handlers {handlers}"
    return found


if __name__ == "__main__":
    wanted: list[str] = json.load(sys.stdin)
    sys.addaudithook(listen)
    threading.setprofile(note_thread)
    json.dump({name: effects_of(name, Path(os.environ["HOME"])) for name in wanted}, sys.stdout)
