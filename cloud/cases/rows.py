"""Between the values of a case and its rows: writes what is missing, reads whole cases."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

import numpy as np
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from cloud.cases.stored_case import Receipt, StoredCase
from cloud.cases.tables import AnswerRow, BoxRow, CaseRow, LabelSetRow, PictureRow, ReasonRow
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed, StoreCorrupt
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import Label, LabelSet
from fovea.core.routing import Reason, Tier


def new_row(case: HardCase, size: ImageSize, image_path: str, received_at: datetime) -> CaseRow:
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


def keep(session: Session, case: HardCase, row: CaseRow) -> Receipt:
    """Writes `row`, or adds what `case` knows beyond the case that is known already."""
    known = find_known(session, row)
    if known is None:
        session.add(row)
        session.flush()
    into, received_at = known or row, row.received_at
    if session.get(PictureRow, case.id) is None:
        session.add(PictureRow(id=case.id, case_id=into.id))
    into.is_audit = into.is_audit or Reason.AUDIT in case.reasons
    _add_reasons(session, into.id, case.reasons)
    _add_answers(session, into.id, case.answers, received_at)
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
    return [_stored(row, answers[row.id], boxes, tuple(reasons[row.id])) for row in rows]


def _add_reasons(session: Session, case_id: str, reasons: Sequence[str]) -> None:
    there = set(session.scalars(select(ReasonRow.reason).where(ReasonRow.case_id == case_id)))
    missing = [reason for reason in dict.fromkeys(reasons) if reason not in there]
    session.add_all(
        ReasonRow(case_id=case_id, reason=reason, position=len(there) + place)
        for place, reason in enumerate(missing)
    )


def _add_answers(
    session: Session, case_id: str, answers: Sequence[TierAnswer], received_at: datetime
) -> None:
    there = set(session.scalars(select(AnswerRow.tier).where(AnswerRow.case_id == case_id)))
    for answer in answers:
        if answer.tier in there:
            continue
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
