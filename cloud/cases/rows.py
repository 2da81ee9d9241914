"""Between the values of a case and its rows: writes what is missing, reads whole cases."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache

import numpy as np
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from cloud.cases.agreement import measured_gain
from cloud.cases.near import NearRule, count_near, find_near, forget_near
from cloud.cases.picture_facts import PictureFacts, as_signed, from_signed
from cloud.cases.stored_case import Receipt, StoredCase
from cloud.cases.tables import (
    AnswerRow,
    BoxRow,
    CaseRow,
    DoomedPictureRow,
    LabelSetRow,
    PictureRow,
    ReasonRow,
    TagRow,
)
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed, StoreCorrupt
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import Label, LabelSet
from fovea.core.routing import Reason, Tier


def new_row(
    case: HardCase,
    size: ImageSize,
    image_path: str,
    received_at: datetime,
    facts: PictureFacts,
    condition: str,
) -> CaseRow:
    """The row of a case that nobody knows yet."""
    return CaseRow(
        id=case.id,
        image_path=image_path,
        image_bytes=len(case.jpeg),
        width=size.width,
        height=size.height,
        camera=case.frame_id.camera,
        boot_id=case.frame_id.boot_id,
        sequence=case.frame_id.sequence,
        captured_at=case.captured_at,
        received_at=received_at,
        send_probability=case.send_probability,
        is_audit=Reason.AUDIT in case.reasons,
        picture_hash=as_signed(facts.hash),
        luminance=facts.luminance,
        contrast=facts.contrast,
        condition=condition,
        measured_gain=measured_gain(case.answers),
        near_frames=0,
    )


def find_known(session: Session, row: CaseRow) -> CaseRow | None:
    """The case that holds this picture, or another one of the same frame: same id, instant and size. The size
    tells a crop from the frame, the instant an id that was minted twice."""
    picture = session.get(PictureRow, row.id)
    if picture is not None:
        return session.get(CaseRow, picture.case_id)
    same_frame = select(CaseRow).where(
        CaseRow.camera == row.camera,
        CaseRow.boot_id == row.boot_id,
        CaseRow.sequence == row.sequence,
        CaseRow.captured_at == row.captured_at,
        CaseRow.width == row.width,
        CaseRow.height == row.height,
    )
    return session.scalars(same_frame.limit(1)).first()


def find_place(session: Session, case: HardCase, row: CaseRow, rule: NearRule | None) -> CaseRow | None:
    """The case that this one belongs to: of the same frame, or by `rule` of one that shows the same."""
    known = find_known(session, row)
    if known is None and rule is not None:
        known = find_near(session, case, row, rule, stored_cases)
    return known


def keep(
    session: Session,
    case: HardCase,
    row: CaseRow,
    rule: NearRule | None,
    ensure_picture: Callable[[], None],
) -> Receipt:
    """Writes `row`, or adds what `case` knows beyond the case that is known already, or counts a frame that shows
    what a case shows. `ensure_picture` is called when a row is written, as its picture may have been deleted with
    another row of it a moment ago."""
    known = find_known(session, row)
    if known is None and rule is not None:
        near = find_near(session, case, row, rule, stored_cases)
        if near is not None:
            count_near(session, case, near)
            return Receipt(case.id, False, near.id, is_near=True)
    if known is None:
        forget_near(session, case)
        # First this: who is deleting the file of an earlier row holds that one, and is done with it afterwards.
        session.execute(delete(DoomedPictureRow).where(DoomedPictureRow.path == row.image_path))
        session.add(row)
        session.flush()
        ensure_picture()
    into = known or row
    if session.get(PictureRow, case.id) is None:
        session.add(PictureRow(id=case.id, case_id=into.id))
    into.is_audit = into.is_audit or Reason.AUDIT in case.reasons
    _add_reasons(session, into.id, case.reasons)
    is_more = _add_answers(session, into.id, case.answers, row.received_at)
    if known is not None and is_more:
        session.flush()
        known.measured_gain = measured_gain(stored_cases(session, [known])[0].answers)
    return Receipt(case.id, known is None, into.id)


def stored_cases(session: Session, rows: Sequence[CaseRow]) -> list[StoredCase]:
    """The whole cases of `rows`, in their order. Raises StoreCorrupt, naming the case that makes no sense."""
    ids = [row.id for row in rows]
    reasons: dict[str, list[str]] = defaultdict(list)
    for reason in session.scalars(
        select(ReasonRow).where(ReasonRow.case_id.in_(ids)).order_by(ReasonRow.position)
    ):
        reasons[reason.case_id].append(reason.reason)
    boxes: dict[tuple[str, int], list[BoxRow]] = defaultdict(list)
    for box in session.scalars(select(BoxRow).where(BoxRow.case_id.in_(ids)).order_by(BoxRow.position)):
        boxes[box.case_id, box.tier].append(box)
    answers: dict[str, list[tuple[AnswerRow, str]]] = defaultdict(list)
    for answer, names in session.execute(
        select(AnswerRow, LabelSetRow.names)
        .join(LabelSetRow, LabelSetRow.id == AnswerRow.label_set_id)
        .where(AnswerRow.case_id.in_(ids))
        .order_by(AnswerRow.tier)
    ):
        answers[answer.case_id].append((answer, names))
    tags: dict[str, list[str]] = defaultdict(list)
    for tag in session.scalars(select(TagRow).where(TagRow.case_id.in_(ids)).order_by(TagRow.tag)):
        tags[tag.case_id].append(tag.tag)
    return [_stored(row, answers[row.id], boxes, tuple(reasons[row.id]), tuple(tags[row.id])) for row in rows]


def _add_reasons(session: Session, case_id: str, reasons: Sequence[str]) -> None:
    there = set(session.scalars(select(ReasonRow.reason).where(ReasonRow.case_id == case_id)))
    missing = [reason for reason in dict.fromkeys(reasons) if reason not in there]
    session.add_all(
        ReasonRow(case_id=case_id, reason=reason, position=len(there) + place)
        for place, reason in enumerate(missing)
    )


def _add_answers(
    session: Session, case_id: str, answers: Sequence[TierAnswer], received_at: datetime
) -> bool:
    """True when there was one to add."""
    there = set(session.scalars(select(AnswerRow.tier).where(AnswerRow.case_id == case_id)))
    missing = [answer for answer in answers if answer.tier not in there]
    for answer in missing:
        seen = answer.detections
        session.add(
            AnswerRow(
                case_id=case_id,
                tier=int(answer.tier),
                model_name=seen.model.name,
                model_version=seen.model.version,
                model_sha256=seen.model.sha256,
                label_set_id=_label_set_id(session, answer.labels),
                width=seen.image_size.width,
                height=seen.image_size.height,
                received_at=received_at,
            )
        )
        if len(seen):
            session.execute(insert(BoxRow), _box_values(case_id, answer))
    return bool(missing)


def _box_values(case_id: str, answer: TierAnswer) -> list[dict[str, object]]:
    seen, names = answer.detections, {label.id: label.name for label in answer.labels}
    columns = zip(seen.boxes_xyxy.tolist(), seen.scores.tolist(), seen.class_ids.tolist(), strict=True)
    return [
        {
            "case_id": case_id,
            "tier": int(answer.tier),
            "position": position,
            "class_id": class_id,
            "class_name": names.get(class_id, str(class_id)),
            "score": score,
            **dict(zip(("x1", "y1", "x2", "y2"), box, strict=True)),
        }
        for position, (box, score, class_id) in enumerate(columns)
    ]


def _label_set_id(session: Session, labels: LabelSet) -> str:
    names = json.dumps([[label.id, label.name] for label in labels], ensure_ascii=False)
    digest = hashlib.sha256(names.encode()).hexdigest()
    if session.get(LabelSetRow, digest) is None:
        session.add(LabelSetRow(id=digest, names=names))
        session.flush()
    return digest


def _stored(
    row: CaseRow,
    answers: Sequence[tuple[AnswerRow, str]],
    boxes: dict[tuple[str, int], list[BoxRow]],
    reasons: tuple[str, ...],
    tags: tuple[str, ...],
) -> StoredCase:
    try:
        return StoredCase(
            id=row.id,
            image_path=row.image_path,
            image_bytes=row.image_bytes,
            image_size=ImageSize(row.width, row.height),
            frame_id=FrameId(row.camera, row.boot_id, row.sequence),
            captured_at=row.captured_at,
            received_at=row.received_at,
            answers=tuple(_answer(answer, names, boxes[row.id, answer.tier]) for answer, names in answers),
            reasons=reasons,
            send_probability=row.send_probability,
            is_audit=row.is_audit,
            condition=row.condition,
            picture_hash=None if row.picture_hash is None else from_signed(row.picture_hash),
            measured_gain=row.measured_gain,
            near_frames=row.near_frames,
            tags=tags,
        )
    except (Malformed, ValueError, TypeError) as error:
        raise StoreCorrupt(f"case {row.id[:12]}: its rows make no sense: {error}") from error


def _answer(row: AnswerRow, names: str, boxes: Sequence[BoxRow]) -> TierAnswer:
    detections = Detections(
        np.array([(box.x1, box.y1, box.x2, box.y2) for box in boxes], np.float32),
        np.array([box.score for box in boxes], np.float32),
        np.array([box.class_id for box in boxes], np.int32),
        ImageSize(row.width, row.height),
        ModelRef(row.model_name, row.model_version, row.model_sha256),
    )
    return TierAnswer(Tier(row.tier), detections, _label_set(names))


@lru_cache(maxsize=64)
def _label_set(names: str) -> LabelSet:
    return LabelSet(tuple(Label(class_id, name) for class_id, name in json.loads(names)))
