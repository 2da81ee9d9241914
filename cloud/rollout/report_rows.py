"""How reports of devices become rows: many in one transaction, and what a broker only repeats is not news."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from cloud.rollout.tables import ReportRow
from fovea.core.release import ReportedState

_AT_ONCE: Final = 400
"""Devices in one question: databases bound how many values one may carry."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a device said. `is_repeated`: a broker had kept it, so it may have been said long ago."""

    state: ReportedState
    is_repeated: bool = False


def keep_reports(session: Session, heard: Iterable[Heard], now: datetime) -> int:
    """The last of each device, and how many were news. A device that comes in another group than before has left
    that one."""
    last = {each.state.device: each for each in heard}
    news = 0
    devices = sorted(last)
    for start in range(0, len(devices), _AT_ONCE):
        news += _keep(session, [last[device] for device in devices[start : start + _AT_ONCE]], now)
    return news


def _keep(session: Session, heard: Sequence[Heard], now: datetime) -> int:
    names = [each.state.device for each in heard]
    rows = {row.device: row for row in _homeless_removed(session, heard, names)}
    news = 0
    for each in heard:
        said, row = json.dumps(each.state.to_json()), rows.get(each.state.device)
        if each.is_repeated and row is not None and row.state == said:
            continue
        news += 1
        if row is None:
            row = ReportRow(group=each.state.group, device=each.state.device, before=said)
            session.add(row)
        row.state, row.received_at = said, _said_at(each, now)
        row.before = row.before or said
    return news


def _homeless_removed(session: Session, heard: Sequence[Heard], names: Sequence[str]) -> Sequence[ReportRow]:
    """The rows of these devices in the groups that they are in now; those in other groups are removed."""
    homes = [(each.state.group, each.state.device) for each in heard]
    place = tuple_(ReportRow.group, ReportRow.device)
    groups = sorted({group for group, _ in homes})
    elsewhere = delete(ReportRow).where(ReportRow.device.in_(names), place.not_in(homes))
    session.execute(elsewhere, execution_options={"synchronize_session": False})
    found = select(ReportRow).where(ReportRow.group.in_(groups), ReportRow.device.in_(names))
    return session.scalars(found).all()


def _said_at(heard: Heard, now: datetime) -> datetime:
    """What a broker repeats was said at the time that the device gives, if it knows the time."""
    is_known = heard.is_repeated and heard.state.clock_synced
    return min(now, heard.state.at) if is_known else now
