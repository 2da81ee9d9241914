"""Near duplicates: frames that show what a case shows already are counted there instead of kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from cloud.cases.agreement import is_covered
from cloud.cases.picture_facts import distance_bits, from_signed
from cloud.cases.stored_case import StoredCase
from cloud.cases.tables import CaseRow, NearFrameRow
from fovea.core.errors import Malformed
from fovea.core.hard_case import HardCase
from fovea.core.routing import Reason

_MOST_COMPARED = 256
_MOST_READ = 8

StoredCases = Callable[[Session, Sequence[CaseRow]], list[StoredCase]]


@dataclass(frozen=True, slots=True)
class NearRule:
    """When two frames of a camera show the same: captured within `within_s` seconds, hashes that differ in `max_bits`
    of 64 at most, as bright to within `max_luminance` grey values and of the same condition, and answers of the same
    models that agree (`cloud.cases.agreement.is_covered`). Different scenes differ in 20 bits and more."""

    max_bits: int = 6
    within_s: float = 3600.0
    max_luminance: float = 12.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_bits <= 16 or not self.within_s > 0 or not self.max_luminance >= 0:
            raise Malformed(
                f"near rule: expected 0 to 16 bits, seconds above 0 and grey values of 0 or more, got {self}"
            )


def find_near(
    session: Session, case: HardCase, row: CaseRow, rule: NearRule, stored_cases: StoredCases
) -> CaseRow | None:
    """The case that shows what this new one shows; None for an audit: it belongs to a sample and is always kept."""
    if Reason.AUDIT in case.reasons or not case.answers or row.picture_hash is None:
        return None
    alike = _counted_at(session, row) + _alike(session, row, rule)
    rows = list({other.id: other for other in alike}.values())[:_MOST_READ]
    for other, stored in zip(rows, stored_cases(session, rows), strict=True):
        if is_covered(case.answers, stored.answers):
            return other
    return None


def count_near(session: Session, case: HardCase, into: CaseRow) -> None:
    """Counts the frame at `into`, once, however often it comes."""
    frames = _near_frames(session, case)
    if any(frame.case_id == into.id for frame in frames):
        is_counted = True
    else:
        forget_near(session, case)
        is_counted = False
    if session.get(NearFrameRow, case.id) is None:
        frame_id = case.frame_id
        session.add(
            NearFrameRow(
                id=case.id,
                case_id=into.id,
                camera=frame_id.camera,
                boot_id=frame_id.boot_id,
                sequence=frame_id.sequence,
                captured_at=case.captured_at,
            )
        )
        if not is_counted:
            into.near_frames = CaseRow.near_frames + 1


def forget_near(session: Session, case: HardCase) -> None:
    """The frame is no longer counted anywhere: it turned out to be more, and becomes a case."""
    frames = _near_frames(session, case)
    for case_id in {frame.case_id for frame in frames}:
        holder = session.get(CaseRow, case_id)
        if holder is not None:
            holder.near_frames = CaseRow.near_frames - 1
    if frames:
        session.execute(delete(NearFrameRow).where(NearFrameRow.id.in_([frame.id for frame in frames])))
    session.flush()


def _near_frames(session: Session, case: HardCase) -> Sequence[NearFrameRow]:
    """The pictures of this frame that were counted and not kept."""
    frame_id = case.frame_id
    return session.scalars(
        select(NearFrameRow).where(
            NearFrameRow.camera == frame_id.camera,
            NearFrameRow.boot_id == frame_id.boot_id,
            NearFrameRow.sequence == frame_id.sequence,
            NearFrameRow.captured_at == case.captured_at,
        )
    ).all()


def _counted_at(session: Session, row: CaseRow) -> list[CaseRow]:
    """Where this very frame is counted already: asked first, so that it stays there."""
    question = (
        select(CaseRow)
        .join(NearFrameRow, NearFrameRow.case_id == CaseRow.id)
        .where(
            NearFrameRow.camera == row.camera,
            NearFrameRow.boot_id == row.boot_id,
            NearFrameRow.sequence == row.sequence,
            NearFrameRow.captured_at == row.captured_at,
        )
    )
    return list(session.scalars(question).unique())


def _alike(session: Session, row: CaseRow, rule: NearRule) -> list[CaseRow]:
    """Cases whose pictures look the same, the nearest first."""
    window = timedelta(seconds=rule.within_s)
    question = (
        select(CaseRow.id, CaseRow.picture_hash, CaseRow.luminance)
        .where(
            CaseRow.camera == row.camera,
            CaseRow.captured_at.between(row.captured_at - window, row.captured_at + window),
            CaseRow.width == row.width,
            CaseRow.height == row.height,
            CaseRow.condition == row.condition,
            CaseRow.picture_hash.is_not(None),
        )
        .order_by(CaseRow.captured_at.desc(), CaseRow.id)
        .limit(_MOST_COMPARED)
    )
    own, luminance = row.picture_hash or 0, row.luminance or 0.0
    found: list[tuple[int, str]] = []
    for case_id, signed, other_luminance in session.execute(question):
        bits = distance_bits(from_signed(own), from_signed(signed or 0))
        is_as_bright = abs((other_luminance or 0.0) - luminance) <= rule.max_luminance
        if bits <= rule.max_bits and is_as_bright:
            found.append((bits, case_id))
    ids = [case_id for _, case_id in sorted(found)[:_MOST_READ]]
    rows = {other.id: other for other in session.scalars(select(CaseRow).where(CaseRow.id.in_(ids)))}
    return [rows[case_id] for case_id in ids]
