"""Where rounds are kept: beside the cases, in the same database, so that a killed one goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from cloud.database import opened, reading, writing
from cloud.learn.promotion import Verdict
from cloud.learn.round_plan import RoundPlan, RoundRecord, RoundState, Step, StepRecord, StepResult
from cloud.learn.tables import RoundRow, RoundStepRow
from fovea.core.errors import Malformed, NotFound

_STEPS = list(Step)


class RoundStore:
    """Used from any thread and by several processes. Every method raises Unavailable and StoreCorrupt as the case
    store does."""

    def __init__(self, engine: Engine, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Over tables of this version; see `open`."""
        self._engine, self._now = engine, now

    @classmethod
    def open(cls, database: str) -> Self:
        """The rounds in the database of a case store. Raises as `cloud.database.opened` does."""
        return cls(opened(database))

    def close(self) -> None:
        """Twice is fine."""
        self._engine.dispose()

    def begin(self, plan: RoundPlan, champion: str | None = None) -> RoundRecord:
        """A new round; its id is the time, and the site where one second has two. `champion` is a digest."""
        began_at = self._now()
        with writing(self._engine) as session:
            round_id = _free_id(session, began_at)
            session.add(
                RoundRow(
                    id=round_id,
                    site=plan.site,
                    condition=plan.condition,
                    why=plan.why,
                    plan=json.dumps(plan.to_json()),
                    state=RoundState.RUNNING.value,
                    began_at=began_at,
                    champion_id=champion,
                )
            )
        return self.get(round_id)

    def begin_step(self, round_id: str, step: Step) -> None:
        """A step begins, or begins again after a kill."""
        with writing(self._engine) as session:
            session.merge(
                RoundStepRow(
                    round_id=round_id,
                    step=step.value,
                    position=_STEPS.index(step),
                    began_at=self._now(),
                    ended_at=None,
                    spent_ms=None,
                    said=None,
                    facts=None,
                )
            )

    def end_step(self, round_id: str, step: Step, result: StepResult, spent_s: float) -> None:
        """A step is done. Raises NotFound for one that has not begun, Malformed for facts that are no JSON."""
        try:
            facts = json.dumps(dict(result.facts), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Malformed(f"step {step}: expected facts that are JSON ({error})") from error
        with writing(self._engine) as session:
            row = session.get(RoundStepRow, (round_id, step.value))
            if row is None:
                raise NotFound(f"round {round_id}: step {step} has not begun")
            row.ended_at, row.spent_ms = self._now(), round(1000 * spent_s)
            row.said, row.facts = result.said, facts

    def end(
        self, round_id: str, verdict: Verdict | None, reasons: tuple[str, ...], candidate: str | None = None
    ) -> None:
        """The round is over: done with a verdict, or failed without one."""
        with writing(self._engine) as session:
            row = _row(session, round_id)
            row.state = (RoundState.FAILED if verdict is None else RoundState.DONE).value
            row.verdict = None if verdict is None else verdict.value
            row.reasons, row.candidate_id = json.dumps(list(reasons)), candidate
            row.ended_at = self._now()

    def get(self, round_id: str) -> RoundRecord:
        """One round. Raises NotFound."""
        with reading(self._engine) as session:
            return _record(session, _row(session, round_id))

    def find_running(self, site: str | None = None) -> RoundRecord | None:
        """The oldest round (of a site) that is not over: one at work, or one that was killed."""
        question = select(RoundRow).where(RoundRow.state == RoundState.RUNNING.value)
        if site is not None:
            question = question.where(RoundRow.site == site)
        with reading(self._engine) as session:
            row = session.scalars(question.order_by(RoundRow.began_at, RoundRow.id).limit(1)).first()
            return None if row is None else _record(session, row)

    def rounds(self, site: str | None = None, limit: int | None = None) -> list[RoundRecord]:
        """All rounds (of a site), the newest first."""
        question = select(RoundRow).order_by(RoundRow.began_at.desc(), RoundRow.id.desc()).limit(limit)
        if site is not None:
            question = question.where(RoundRow.site == site)
        with reading(self._engine) as session:
            return [_record(session, row) for row in session.scalars(question).all()]


def _free_id(session: Session, began_at: datetime) -> str:
    usual = began_at.astimezone(UTC).strftime("%Y%m%d-%H%M%S")
    number, round_id = 1, usual
    while session.get(RoundRow, round_id) is not None:
        number, round_id = number + 1, f"{usual}-{number + 1}"
    return round_id


def _row(session: Session, round_id: str) -> RoundRow:
    row = session.get(RoundRow, round_id)
    if row is None:
        raise NotFound(f"round {round_id!r:.80}: there is no such round (`fovea loop list`)")
    return row


def _record(session: Session, row: RoundRow) -> RoundRecord:
    steps = session.scalars(
        select(RoundStepRow).where(RoundStepRow.round_id == row.id).order_by(RoundStepRow.position)
    )
    return RoundRecord(
        id=row.id,
        plan=RoundPlan.from_json(json.loads(row.plan)),
        state=RoundState(row.state),
        began_at=row.began_at,
        ended_at=row.ended_at,
        champion=row.champion_id,
        candidate=row.candidate_id,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        reasons=tuple(json.loads(row.reasons)) if row.reasons else (),
        steps=tuple(_step(step) for step in steps),
    )


def _step(row: RoundStepRow) -> StepRecord:
    result = None if row.facts is None else StepResult(row.said or "", json.loads(row.facts))
    spent_s = None if row.spent_ms is None else row.spent_ms / 1000
    return StepRecord(Step(row.step), row.began_at, row.ended_at, spent_s, result)
