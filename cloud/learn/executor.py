"""Where long work runs: in a child process of its own, or on a Ray cluster. One port, `Executor`, for both.

Work is a function named by text, with JSON in and JSON out; files are handed over by path. What is killed is started
again and goes on from its own checkpoints.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from fovea.core.errors import FoveaError, Malformed

_FUNCTION = re.compile(r"cloud(\.[a-z_0-9]+)+:[a-z_0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class Task:
    """`function` is `cloud.some.module:name`, which takes `arguments` (a JSON object) and gives a JSON object.

    `name` says which piece of work this is: the same name is the same work, done once.
    """

    name: str
    function: str
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Malformed(f"task name: expected 1 to 80 letters, digits, . _ -, got {self.name!r:.120}")
        if not _FUNCTION.fullmatch(self.function):
            raise Malformed(f"task function: expected cloud.MODULE:NAME, got {self.function!r:.120}")

    def to_json(self) -> str:
        """The task as text. Raises Malformed where an argument is no JSON."""
        try:
            return json.dumps(
                {"name": self.name, "function": self.function, "arguments": dict(self.arguments)}
            )
        except TypeError as error:
            raise Malformed(f"task {self.name}: expected arguments that are JSON ({error})") from error

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The task that `to_json` wrote."""
        return cls(**json.loads(text))


class JobState(StrEnum):
    """RUNNING also while it waits for a place; LOST: it ended without a word (killed, or its machine went away)."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class JobReport:
    """How a job stands: `result` once it is done, `reason` (one sentence) once it failed or was lost."""

    state: JobState
    result: Mapping[str, Any] | None = None
    reason: str = ""


class Executor(Protocol):
    """Runs tasks. Not for two callers at once."""

    def start(self, task: Task) -> None:
        """Begin the work, or go on with it: a task that runs or is done is left alone, one that failed or was lost is
        started again."""

    def report(self, name: str) -> JobReport:
        """How the task stands. Raises NotFound for a name that was never started."""

    def stop(self, name: str) -> None:
        """End the task if it runs; `start` would go on with it."""

    def close(self) -> None:
        """Let go of everything but the work itself where it can live on."""


def perform(task: Task) -> dict[str, Any]:
    """Run the task here and now: `{"result": ...}` or `{"reason": ...}`. For the processes of executors."""
    module, _, name = task.function.partition(":")
    try:
        function: Callable[[Mapping[str, Any]], Mapping[str, Any]] = getattr(
            importlib.import_module(module), name
        )
        return {"result": dict(function(task.arguments))}
    except FoveaError as error:
        return {"reason": str(error)}
