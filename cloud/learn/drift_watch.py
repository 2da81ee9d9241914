"""Watches a site for drift across restarts: the asked rate that devices report, and the agreement on random audits.

What is usual is learned first, from so many frames and audits since the last round; from then on each look adds to
the evidence that it is so no more (see `cloud.learn.drift`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cloud.cases.stored_case import StoredCase
from cloud.learn.drift import AskedRate, AuditAgreement, Watch
from fovea.core.errors import Malformed
from fovea.core.release import ReportedState
from fovea.runtime.atomic_file import write_atomically

_USUAL_FRAMES = 20_000
_USUAL_AUDITS = 150
_FRAME_WEIGHT = 0.1
"""Neighbours in time resemble each other: ten frames count as one."""
_LOST_AGREEMENT = 0.1
"""So much less agreement than usual is drift; less is not worth a round."""
_LEAST_PROBABILITY = 0.01


@dataclass(slots=True)
class _Asked:
    """Asked rate of the model that most devices run. counters: what each device had said at the last look."""

    model: str = ""
    asked: int = 0
    frames: int = 0
    watch: Watch | None = None
    counters: dict[str, list[Any]] = field(default_factory=dict)

    def take(self, states: Sequence[ReportedState]) -> None:
        runs = Counter(state.running.sha256 for state in states if state.running is not None)
        model = runs.most_common(1)[0][0] if runs else self.model
        if model != self.model:
            self.model, self.asked, self.frames, self.watch = model, 0, 0, None
        asked = frames = 0
        for state in states:
            more = self._since(state)
            if state.running is not None and state.running.sha256 == model:
                asked, frames = asked + more[0], frames + more[1]
        if frames and self.watch is not None:
            self.watch.update(self._rate().report(asked, frames))
        elif frames:
            self.asked, self.frames = self.asked + asked, self.frames + frames
            if self.frames >= _USUAL_FRAMES:
                self.watch = Watch(self._rate())

    def _since(self, state: ReportedState) -> tuple[int, int]:
        """asked and frames since the last look; nothing for a device that has begun anew, or is seen first."""
        now = [state.boot_id, state.asked.asked, state.asked.frames]
        before = self.counters.get(state.device)
        self.counters[state.device] = now
        if before is None or before[0] != now[0] or now[1] < before[1] or now[2] < before[2]:
            return 0, 0
        asked, frames = now[1] - before[1], now[2] - before[2]
        return min(asked, frames), frames

    def _rate(self) -> AskedRate:
        usual = min(max(self.asked / self.frames, 0.01), 0.99)
        return AskedRate(usual, tolerance=max(0.02, usual / 4), weight=_FRAME_WEIGHT)

    @property
    def drifted(self) -> str | None:
        if self.watch is None or not self.watch.is_alarmed:
            return None
        return f"the asked rate is no more {self.asked / self.frames:.1%}, as usual"


@dataclass(slots=True)
class _Audits:
    """Agreement of the lowest tier's answer with the highest one's. newest: ids at the instant `since`."""

    since: str | None = None
    newest: list[str] = field(default_factory=list)
    number: int = 0
    sum_w: float = 0.0
    sum_wx: float = 0.0
    watch: Watch | None = None

    def take(self, cases: Iterable[StoredCase]) -> None:
        agreements, probabilities = [], []
        for case in cases:
            at = case.captured_at.isoformat()
            if case.id in self.newest:
                continue
            self.newest = [*self.newest, case.id] if at == self.since else [case.id]
            self.since = at
            if case.measured_gain is not None and case.send_probability >= _LEAST_PROBABILITY:
                agreements.append(1.0 - case.measured_gain)
                probabilities.append(case.send_probability)
        if agreements and self.watch is not None:
            self.watch.update(self._evidence().report(agreements, probabilities))
        elif agreements:
            weights = [1 / probability for probability in probabilities]
            self.number += len(agreements)
            self.sum_w += sum(weights)
            self.sum_wx += sum(w * x for w, x in zip(weights, agreements, strict=True))
            if self.number >= _USUAL_AUDITS:
                self.watch = Watch(self._evidence(), every=5)

    def _evidence(self) -> AuditAgreement:
        usual = self.sum_wx / self.sum_w
        return AuditAgreement(min(max(usual - _LOST_AGREEMENT, 0.05), 0.95), _LEAST_PROBABILITY)

    @property
    def drifted(self) -> str | None:
        if self.watch is None or not self.watch.is_alarmed:
            return None
        return f"audits agree less with the upper tiers than usual ({self.sum_wx / self.sum_w:.2f})"


class DriftWatch:
    """One site, in one file; not for several threads."""

    def __init__(self, file: Path, now: datetime) -> None:
        """Goes on where the file was; a file that cannot be read begins anew at `now`."""
        self._file = file
        self._begun_at, self._round = now, ""
        self._asked, self._audits = _Asked(), _Audits()
        try:
            self._restore(json.loads(file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, Malformed):
            self._asked, self._audits = _Asked(), _Audits()

    @property
    def begun_at(self) -> datetime:
        """Since when the site is watched."""
        return self._begun_at

    @property
    def audits_since(self) -> datetime | None:
        """When the newest audit that was taken was captured; None: all audits are new."""
        return None if self._audits.since is None else datetime.fromisoformat(self._audits.since)

    @property
    def drifted(self) -> tuple[str, ...]:
        """What has drifted, in words."""
        return tuple(said for said in (self._asked.drifted, self._audits.drifted) if said is not None)

    def look(self, last_round: str, states: Sequence[ReportedState], audits: Iterable[StoredCase]) -> None:
        """`states` are the last words of all devices, `audits` those of the site since `audits_since`, the oldest
        first. After another `last_round` what is usual is learned anew. Raises BrokenError."""
        if last_round != self._round:
            asked, audited = self._asked, self._audits
            self._round = last_round
            self._asked = _Asked(counters=asked.counters)
            self._audits = _Audits(since=audited.since, newest=audited.newest)
        self._asked.take(states)
        self._audits.take(audits)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps(self._state()).encode())

    def _state(self) -> dict[str, Any]:
        asked, audits = self._asked, self._audits
        return {
            "begun_at": self._begun_at.isoformat(),
            "round": self._round,
            "asked": {
                "model": asked.model,
                "asked": asked.asked,
                "frames": asked.frames,
                "counters": asked.counters,
                "watch": asked.watch and asked.watch.to_json(),
            },
            "audits": {
                "since": audits.since,
                "newest": audits.newest,
                "number": audits.number,
                "sum_w": audits.sum_w,
                "sum_wx": audits.sum_wx,
                "watch": audits.watch and audits.watch.to_json(),
            },
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        begun_at = datetime.fromisoformat(state["begun_at"])
        asked = _Asked(**{**state["asked"], "watch": None})
        if state["asked"]["watch"] is not None:
            asked.watch = Watch.from_json(asked._rate(), state["asked"]["watch"])
        audits = _Audits(**{**state["audits"], "watch": None})
        if state["audits"]["watch"] is not None:
            audits.watch = Watch.from_json(audits._evidence(), state["audits"]["watch"])
        self._begun_at, self._round = begun_at, str(state["round"])
        self._asked, self._audits = asked, audits
