"""What came from devices and waits to be read: the last word of each, bounded, and nothing goes uncounted."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fovea.core.errors import Malformed
from fovea.core.release import ReportedState
from fovea.mqtt.names import model_reported

LARGEST_REPORT_BYTES: Final = 64_000
MOST_WAITING: Final = 50_000
"""Devices whose report waits; those of further ones are dropped until there is room."""

_FATES: Final = ("taken", "overtaken", "malformed", "too_large", "dropped", "cleared")


@dataclass(frozen=True, slots=True)
class Letter:
    """A payload as it came. `is_repeated`: the broker had kept it (it was retained)."""

    topic: str
    payload: bytes
    is_repeated: bool


class ReportInbox:
    """Filled by the thread of the broker's connection, which must never wait; emptied by another one."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._letters: dict[str, Letter] = {}
        self._counts: Counter[str] = Counter()
        self._is_closed = False

    def put(self, topic: str, payload: bytes, is_repeated: bool) -> None:
        """Keeps it for the reader; the last one of a topic counts."""
        with self._changed:
            if not payload:
                self._counts["cleared"] += 1
            elif len(payload) > LARGEST_REPORT_BYTES:
                self._counts["too_large"] += 1
            elif topic not in self._letters and len(self._letters) >= self._most_waiting:
                self._counts["dropped"] += 1
            else:
                self._counts["overtaken"] += topic in self._letters
                self._letters[topic] = Letter(topic, payload, is_repeated)
                self._changed.notify_all()

    def put_back(self, letters: list[Letter]) -> None:
        """They were taken but could not be kept; what came later stands."""
        with self._changed:
            for letter in letters:
                self._letters.setdefault(letter.topic, letter)

    def take(self, company_s: float) -> list[Letter]:
        """Waits until something came, and then `company_s` more for others to come along. Empty: it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._letters or self._is_closed)
            self._changed.wait_for(lambda: self._is_closed, company_s)
            letters, self._letters = list(self._letters.values()), {}
            return letters

    def close(self) -> None:
        """Nobody waits any more; what came is still handed out."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def count(self, fate: str, number: int = 1) -> None:
        """What became of so many; see `counts`."""
        with self._changed:
            self._counts[fate] += number

    @property
    def counts(self) -> Mapping[str, int]:
        """taken, overtaken (a later one came before it was read), malformed, too_large, dropped, cleared (somebody
        removed the retained report), waiting."""
        with self._changed:
            return {fate: self._counts[fate] for fate in _FATES} | {"waiting": len(self._letters)}


def read_report(letter: Letter) -> ReportedState:
    """What the device says of itself. Raises Malformed, also for a device that speaks on another one's topic."""
    try:
        said = json.loads(letter.payload)
    except (ValueError, RecursionError) as error:
        raise Malformed("reported state: expected JSON in UTF-8") from error
    state = ReportedState.from_json(said)
    if letter.topic != model_reported(state.device):
        raise Malformed(f"reported state: comes from another topic than that of {state.device!r:.120}")
    return state
