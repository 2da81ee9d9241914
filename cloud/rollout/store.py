"""Where rollouts and the reports of devices are kept: a restart goes on where the last process stood."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Self

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from cloud.database import opened, reading, writing
from cloud.rollout.evidence import Report
from cloud.rollout.plan import RolloutPlan
from cloud.rollout.report_rows import Heard, keep_reports
from cloud.rollout.rollout import OPEN, Rollout, Status
from cloud.rollout.tables import MoveRow, ReportRow, RolloutRow
from fovea.core.errors import FoveaError, Incompatible, NotFound, StoreCorrupt
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.release import ModelPin, Probation, ReportedState, Stage

BY_EVIDENCE = "evidence"


class RolloutStore:
    """Used from any thread and by several processes. Every method raises Unavailable and StoreCorrupt as the case
    store does."""

    def __init__(self, engine: Engine, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Over tables of this version; see `open`."""
        self._engine = engine
        self._now = now

    @classmethod
    def open(cls, database: str) -> Self:
        """Raises as `cloud.database.opened` does."""
        return cls(opened(database))

    def close(self) -> None:
        """Twice is fine."""
        self._engine.dispose()

    def now(self) -> datetime:
        """What is written now is of this instant."""
        return self._now()

    def add(self, rollout: Rollout, by: str) -> Rollout:
        """Keeps a new one; the reports of its group are what its first stage begins from. Raises Incompatible while
        another is open in the group."""
        with writing(self._engine) as session:
            other = _open_row(session, rollout.group)
            if other is not None:
                raise Incompatible(
                    f"group {rollout.group}: rollout {other.id} is still {other.status}; "
                    "end it first (fovea rollout rollback), or wait"
                )
            row = RolloutRow(**_columns(rollout))
            session.add(row)
            session.flush()
            kept = replace(rollout, id=row.id)
            _note(session, kept, self._now(), by)
            _begin_stage(session, rollout.group)
        return kept

    def save(self, rollout: Rollout, before: Rollout, by: str) -> Rollout:
        """Keeps a step that was taken from `before`. Raises Incompatible when somebody else has moved, paused or
        resumed it meanwhile."""
        with writing(self._engine) as session:
            row = _row(session, rollout.id)
            if (row.serial, row.status) != (before.serial, before.status.value):
                raise Incompatible(
                    f"rollout {rollout.id}: somebody else moved it (now {row.status}, serial {row.serial}; "
                    f"expected {before.status.value}, serial {before.serial})"
                )
            is_new_stage = row.serial != rollout.serial
            for name, value in _columns(rollout).items():
                setattr(row, name, value)
            _note(session, rollout, self._now(), by)
            if is_new_stage:
                _begin_stage(session, rollout.group)
        return rollout

    def mark_published(self, rollout: Rollout) -> None:
        """Its desired state is known to be out."""
        with writing(self._engine) as session:
            session.execute(
                update(RolloutRow)
                .where(RolloutRow.id == rollout.id, RolloutRow.serial == rollout.serial)
                .values(is_published=True)
            )

    def renumber(self, rollout: Rollout, serial: int) -> Rollout:
        """The same stage under a higher serial; it does not begin anew. Raises Incompatible as `save` does."""
        with writing(self._engine) as session:
            row = _row(session, rollout.id)
            if row.serial != rollout.serial:
                raise Incompatible(f"rollout {rollout.id}: somebody else moved it (serial {row.serial})")
            row.serial, row.is_published = serial, False
        return replace(rollout, serial=serial, is_published=False)

    def get(self, rollout_id: int) -> Rollout:
        """Raises NotFound."""
        with reading(self._engine) as session:
            return _rollout(_row(session, rollout_id))

    def newest(self, group: str | None = None, most: int = 50) -> list[Rollout]:
        """Newest first."""
        question = select(RolloutRow).order_by(RolloutRow.id.desc()).limit(most)
        if group is not None:
            question = question.where(RolloutRow.group == group)
        with reading(self._engine) as session:
            return [_rollout(row) for row in session.scalars(question)]

    def find_open(self, group: str) -> Rollout | None:
        """The one that is under way or paused."""
        with reading(self._engine) as session:
            row = _open_row(session, group)
            return None if row is None else _rollout(row)

    def latest(self) -> list[Rollout]:
        """The newest of each group: what its devices are told."""
        newest: dict[str, Rollout] = {}
        for rollout in self.newest(most=10_000):
            newest.setdefault(rollout.group, rollout)
        return list(newest.values())

    def moves(self, rollout_id: int) -> list[dict[str, Any]]:
        """Every step, oldest first: at, stage, status, serial, by, reasons."""
        question = select(MoveRow).where(MoveRow.rollout_id == rollout_id).order_by(MoveRow.id)
        with reading(self._engine) as session:
            return [
                {"at": row.at, "stage": row.stage, "status": row.status, "serial": row.serial,
                 "by": row.by, "reasons": json.loads(row.reasons)}
                for row in session.scalars(question)
            ]  # fmt: skip

    def keep_report(self, state: ReportedState) -> None:
        """The newest of a device; when it came counts, as its own clock may be wrong."""
        self.keep_reports([Heard(state)])

    def keep_reports(self, heard: Sequence[Heard]) -> int:
        """The same for many at once, in one transaction; how many were news."""
        with writing(self._engine) as session:
            return keep_reports(session, heard, self._now())

    def states(self) -> list[ReportedState]:
        """The last word of every device, of whatever group."""
        with reading(self._engine) as session:
            return [_state(said) for said in session.scalars(select(ReportRow.state))]

    def groups(self) -> list[str]:
        """Those of which a device ever reported."""
        with reading(self._engine) as session:
            return list(session.scalars(select(ReportRow.group).distinct().order_by(ReportRow.group)))

    def reports(self, group: str) -> list[Report]:
        """The last report of every device of a group that ever reported."""
        with reading(self._engine) as session:
            rows = session.scalars(select(ReportRow).where(ReportRow.group == group)).all()
        return [
            Report(_state(row.state), row.received_at, None if row.before is None else _state(row.before))
            for row in rows
        ]


def _begin_stage(session: Session, group: str) -> None:
    session.execute(update(ReportRow).where(ReportRow.group == group).values(before=ReportRow.state))


def _note(session: Session, rollout: Rollout, at: datetime, by: str) -> None:
    session.add(
        MoveRow(
            rollout_id=rollout.id,
            at=at,
            stage=rollout.stage.value,
            status=rollout.status.value,
            serial=rollout.serial,
            by=by,
            reasons=json.dumps(rollout.reasons),
        )
    )


def _open_row(session: Session, group: str) -> RolloutRow | None:
    states = [status.value for status in OPEN]
    question = select(RolloutRow).where(RolloutRow.group == group, RolloutRow.status.in_(states))
    return session.scalars(question).first()


def _row(session: Session, rollout_id: int) -> RolloutRow:
    row = session.get(RolloutRow, rollout_id)
    if row is None:
        known = ", ".join(str(each) for each in session.scalars(select(RolloutRow.id).limit(20))) or "none"
        raise NotFound(f"rollout {rollout_id} does not exist; known are {known}")
    return row


def _columns(rollout: Rollout) -> dict[str, Any]:
    return {
        "group": rollout.group,
        "family": rollout.family,
        "champion": json.dumps(rollout.champion.to_json()),
        "candidate": json.dumps(rollout.candidate.to_json()),
        "stage": rollout.stage.value,
        "status": rollout.status.value,
        "since": rollout.since,
        "serial": rollout.serial,
        "is_published": rollout.is_published,
        "salt": rollout.salt,
        "plan": json.dumps(rollout.plan.to_json()),
        "probation": json.dumps(to_json_form(rollout.probation)),
        "policy": None if rollout.policy is None else json.dumps(dict(rollout.policy)),
        "reasons": json.dumps(rollout.reasons),
    }


def _rollout(row: RolloutRow) -> Rollout:
    try:
        return Rollout(
            group=row.group,
            family=row.family,
            champion=ModelPin.from_json(json.loads(row.champion)),
            candidate=ModelPin.from_json(json.loads(row.candidate)),
            stage=Stage(row.stage),
            status=Status(row.status),
            since=row.since,
            serial=row.serial,
            salt=row.salt,
            plan=RolloutPlan.from_json(json.loads(row.plan)),
            probation=from_json_form(Probation, json.loads(row.probation), "probation"),
            policy=None if row.policy is None else json.loads(row.policy),
            reasons=tuple(json.loads(row.reasons)),
            is_published=row.is_published,
            id=row.id,
        )
    except (ValueError, FoveaError) as error:
        raise StoreCorrupt(f"rollout {row.id}: {error}") from error


@lru_cache(maxsize=20_000)
def _state(said: str) -> ReportedState:
    """Read once: the same reports are looked at every few seconds, most of them unchanged."""
    try:
        return ReportedState.from_json(json.loads(said))
    except (ValueError, FoveaError) as error:
        raise StoreCorrupt(f"report of a device: {error}") from error
