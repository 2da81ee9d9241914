"""Deletes cases: the row first, with a note about its picture, then the picture, so that no row is without one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, func, not_, select
from sqlalchemy.orm import Session

from cloud.cases.images import CaseImages
from cloud.cases.retention import Held, Retention
from cloud.cases.tables import CaseRow, DoomedPictureRow, ProtectionRow

_PICTURES_AT_ONCE = 20
"""Files deleted while others wait to write: in a bucket each takes some 50 ms."""


def held_bytes(session: Session) -> int:
    """Bytes of all pictures."""
    return int(session.scalar(select(func.sum(CaseRow.image_bytes))) or 0)


def oldest_deletable(
    session: Session, retention: Retention, now: datetime, after: Held | None, most: int
) -> list[Held]:
    """The cases that may go, by when the store took them; locked until the transaction ends."""
    question = (
        select(CaseRow.id, CaseRow.received_at, CaseRow.image_bytes)
        .where(*_may_go(retention, now))
        .order_by(CaseRow.received_at, CaseRow.id)
        .limit(most)
        .with_for_update()
    )
    if after is not None:
        at, case_id = after.received_at, after.id
        question = question.where(
            (CaseRow.received_at > at) | and_(CaseRow.received_at == at, CaseRow.id > case_id)
        )
    return [Held(*row) for row in session.execute(question)]


def delete_rows(session: Session, ids: Sequence[str]) -> None:
    """Deletes cases with all that hangs on them, and notes which pictures are to go."""
    paths = session.scalars(select(CaseRow.image_path).where(CaseRow.id.in_(ids))).all()
    session.execute(delete(CaseRow).where(CaseRow.id.in_(ids)))
    noted = set(session.scalars(select(DoomedPictureRow.path).where(DoomedPictureRow.path.in_(paths))))
    session.add_all(DoomedPictureRow(path=path) for path in set(paths) - noted)


def delete_pictures(session: Session, images: CaseImages) -> int:
    """Deletes some of the noted pictures that no row needs, and says how many notes that were; 0: there are none.

    Whoever adds a case takes its note away first, and so waits for this, or this finds no note. Raises Unavailable.
    """
    notes = session.scalars(
        select(DoomedPictureRow).limit(_PICTURES_AT_ONCE).with_for_update(skip_locked=True)
    ).all()
    for note in notes:
        if session.scalar(select(CaseRow.id).where(CaseRow.image_path == note.path).limit(1)) is None:
            images.delete(note.path)
        session.delete(note)
    return len(notes)


def _may_go(retention: Retention, now: datetime) -> list[ColumnElement[bool]]:
    is_young_audit = and_(CaseRow.is_audit, CaseRow.received_at >= retention.audits_stay_from(now))
    return [not_(exists().where(ProtectionRow.case_id == CaseRow.id)), not_(is_young_audit)]
