"""Between labels and their rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cloud.labels.drawn import DrawnBoxes
from cloud.labels.judging import Doubt, Judgement, JudgeSettings, Verdict, settings_as_json
from cloud.labels.label import PersonLabel, TeacherLabel
from cloud.labels.tables import PersonLabelRow, TeacherLabelRow
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed, StoreCorrupt
from fovea.core.frame import ImageSize


def teacher_row(label: TeacherLabel, settings: JudgeSettings) -> TeacherLabelRow:
    """The row of a teacher's label that was judged by `settings`."""
    seen, judgement = label.detections, label.judgement
    columns = zip(
        seen.boxes_xyxy.tolist(),
        seen.scores.tolist(),
        seen.class_ids.tolist(),
        label.names,
        judgement.weights.tolist(),
        strict=True,
    )
    return TeacherLabelRow(
        case_id=label.case_id,
        teacher_sha256=seen.model.sha256,
        teacher_name=seen.model.name,
        teacher_version=seen.model.version,
        views=label.views,
        is_reused=label.is_reused,
        labelled_at=label.labelled_at,
        width=seen.image_size.width,
        height=seen.image_size.height,
        boxes=_text(
            [[*box, score, class_id, name, weight] for box, score, class_id, name, weight in columns]
        ),
        ignored=_text(judgement.ignore_xyxy.tolist()),
        agreement=judgement.agreement,
        witnesses=judgement.witnesses,
        verdict=judgement.verdict.value,
        doubts=" ".join(judgement.doubts),
        judged_by=_text(settings_as_json(settings)),
    )


def teacher_label(row: TeacherLabelRow) -> TeacherLabel:
    """The label of a row. Raises StoreCorrupt, naming the case."""
    try:
        boxes = json.loads(row.boxes)
        seen = Detections(
            np.array([box[:4] for box in boxes], np.float32),
            np.array([box[4] for box in boxes], np.float32),
            np.array([box[5] for box in boxes], np.int32),
            ImageSize(row.width, row.height),
            ModelRef(row.teacher_name, row.teacher_version, row.teacher_sha256),
        )
        judgement = Judgement(
            Verdict(row.verdict),
            tuple(Doubt(word) for word in row.doubts.split()),
            row.agreement,
            row.witnesses,
            np.array([box[7] for box in boxes], np.float32),
            np.array(json.loads(row.ignored), np.float32).reshape(-1, 4),
        )
        names = tuple(str(box[6]) for box in boxes)
        return TeacherLabel(row.case_id, seen, names, judgement, row.views, row.is_reused, row.labelled_at)
    except (Malformed, ValueError, TypeError, LookupError) as error:
        raise StoreCorrupt(f"teacher label of {row.case_id[:12]}: its row makes no sense: {error}") from error


def person_row(label: PersonLabel) -> PersonLabelRow:
    """The row of what a person said, not yet knowing what it replaces."""
    return PersonLabelRow(
        case_id=label.case_id,
        said_by=label.said_by,
        said_at=label.said_at,
        came_by=label.came_by,
        is_usable=label.is_usable,
        width=label.drawn.image_size.width,
        height=label.drawn.image_size.height,
        boxes=_text(label.drawn.to_json()),
    )


def person_label(row: PersonLabelRow) -> PersonLabel:
    """What a person said. Raises StoreCorrupt, naming the case."""
    try:
        drawn = DrawnBoxes.from_json(json.loads(row.boxes), ImageSize(row.width, row.height))
        return PersonLabel(row.case_id, drawn, row.said_by, row.said_at, row.came_by, row.is_usable)
    except (Malformed, ValueError) as error:
        raise StoreCorrupt(f"label of {row.case_id[:12]}: its row makes no sense: {error}") from error


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
