"""How much is kept, of what."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from cloud.cases.stored_case import CameraCount, ConditionCount
from cloud.cases.tables import CaseRow, TagRow


def cameras(session: Session) -> tuple[CameraCount, ...]:
    """What is kept of each camera, by name."""
    question = (
        select(
            CaseRow.camera,
            func.count(),
            func.count().filter(CaseRow.is_audit),
            func.sum(CaseRow.image_bytes),
            func.max(CaseRow.captured_at),
        )
        .group_by(CaseRow.camera)
        .order_by(CaseRow.camera)
    )
    return tuple(
        CameraCount(camera, cases, audits, int(size_bytes), newest_at)
        for camera, cases, audits, size_bytes, newest_at in session.execute(question)
    )


def conditions(session: Session) -> tuple[ConditionCount, ...]:
    """What is kept of each camera under each condition, by both; what nobody measured comes first."""
    question = select(
        CaseRow.camera,
        CaseRow.condition,
        func.count(),
        func.count().filter(CaseRow.is_audit),
        func.sum(CaseRow.near_frames),
        func.sum(CaseRow.image_bytes),
    ).group_by(CaseRow.camera, CaseRow.condition)
    counts = [
        ConditionCount(camera, condition, cases, audits, int(near), int(size_bytes))
        for camera, condition, cases, audits, near, size_bytes in session.execute(question)
    ]
    return tuple(sorted(counts, key=lambda count: (count.camera, count.condition or "")))


def tags(session: Session) -> dict[str, int]:
    """How many cases carry each tag."""
    question = select(TagRow.tag, func.count()).group_by(TagRow.tag).order_by(TagRow.tag)
    return {row[0]: row[1] for row in session.execute(question)}
