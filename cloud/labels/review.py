"""People look at cases: what they are shown, and how what they say is taken, whichever way it comes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from cloud.cases.stored_case import StoredCase
from cloud.labels.coco_sheets import INDEX as COCO_INDEX
from cloud.labels.coco_sheets import CocoSheets
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Format, Returned, Sheet, SheetFormat, file_name, in_px_of
from cloud.labels.label import PersonLabel, TeacherLabel
from cloud.labels.label_studio_sheets import INDEX as LABEL_STUDIO_INDEX
from cloud.labels.label_studio_sheets import LabelStudioSheets
from cloud.labels.store import LabelStore
from fovea.core.errors import Malformed, NotFound
from fovea.core.labels import Label

PROTECTED_AS = "labelled"
"""Why a case that a person has labelled is never deleted by itself."""


_ENOUGH_CASES = 50
"""To know what the models of a site can see: there are few, and they have looked at many cases."""


class Cases(Protocol):
    """What is needed of the case store."""

    def find(self, digest: str) -> StoredCase | None: ...

    def load_image(self, case: StoredCase) -> bytes: ...

    def protect(self, case_ids: Sequence[str], why: str) -> object: ...


@dataclass(frozen=True, slots=True)
class TakeSettings:
    """by: who labelled, where the file does not say. accept_untouched: also what is still as the teacher filled it
    in counts as looked at. skip_empty: pictures without a box are left as they are, not taken as empty."""

    by: str
    came_by: str
    accept_untouched: bool = False
    skip_empty: bool = False


@dataclass(slots=True)
class TakeReport:
    """What became of the pictures that came back; every one is in one of these."""

    taken: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    """taken, too: nobody can tell what is in them"""
    unchanged: list[str] = field(default_factory=list)
    """a person has said the same before"""
    untouched: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """no such case, or not among those that were asked for"""


class Reviews:
    """Used from any thread."""

    def __init__(self, cases: Cases, labels: LabelStore) -> None:
        self._cases = cases
        self._labels = labels

    def case(self, case_id: str) -> StoredCase:
        """Raises NotFound."""
        case = self._cases.find(case_id)
        if case is None:
            raise NotFound(f"case {case_id[:12]}: there is no such case")
        return case

    def load_image(self, case_id: str) -> bytes:
        """The picture of a case. Raises NotFound, StoreCorrupt."""
        return self._cases.load_image(self.case(case_id))

    def sheet(self, case_id: str) -> Sheet:
        """What is known of a case, for a person to correct: a person's word before a teacher's. Raises NotFound."""
        case = self.case(case_id)
        person = self._labels.find_person(case.id)
        teacher = self._labels.find_teacher(case.id)
        if person is not None:
            return _sheet(case, person.drawn, [None] * len(person.drawn), said_by=person.said_by)
        if teacher is None:
            return _sheet(case, DrawnBoxes.of([], case.image_size), [])
        drawn = teacher.drawn()
        return _sheet(case, drawn, _scores(teacher), prefilled_by=str(teacher.teacher))

    def sheets(self, case_ids: Iterable[str]) -> Iterator[Sheet]:
        """Of many."""
        return (self.sheet(case_id) for case_id in case_ids)

    def classes(self, case_ids: Iterable[str]) -> tuple[Label, ...]:
        """All that the models which looked at these cases can see, and what was seen and drawn in them; by id."""
        wanted = list(case_ids)
        known: dict[int, Label] = {}
        for case_id in wanted[:_ENOUGH_CASES]:
            case = self._cases.find(case_id)
            for answer in case.answers if case else ():
                known.update({label.id: label for label in answer.labels})
        for person in self._labels.find_persons(wanted).values():
            known.update({label.id: label for label in person.drawn.labels})
        for teacher in self._labels.find_teachers(wanted).values():
            ids = teacher.detections.class_ids.tolist()
            known |= {
                id_: Label(id_, name)
                for id_, name in zip(ids, teacher.names, strict=True)
                if id_ not in known
            }
        return tuple(known[class_id] for class_id in sorted(known))

    def take(
        self, returned: Iterable[Returned], settings: TakeSettings, among: Collection[str] | None = None
    ) -> TakeReport:
        """Takes what people said: all of it or nothing. Told the same twice, it is kept once.

        `among`: only these cases. Raises Malformed for boxes that cannot be of their picture.
        """
        report, kept = TakeReport(), list[PersonLabel]()
        for each in returned:
            case = self._cases.find(each.case_id)
            if case is None or (among is not None and case.id not in among):
                report.unknown.append(each.case_id)
            elif each.is_untouched and not settings.accept_untouched:
                report.untouched.append(case.id)
            elif settings.skip_empty and each.is_usable and not len(each.drawn):
                report.empty.append(case.id)
            else:
                label = self._label(case, each, settings)
                if is_same(self._labels.find_person(case.id), label):
                    report.unchanged.append(case.id)
                else:
                    (report.taken if label.is_usable else report.unusable).append(case.id)
                    kept.append(label)
        # Protected first: what a person has labelled must not go between the two.
        self._cases.protect([label.case_id for label in kept], PROTECTED_AS)
        self._labels.say_all(kept)
        return report

    def _label(self, case: StoredCase, returned: Returned, settings: TakeSettings) -> PersonLabel:
        try:
            drawn = in_px_of(returned.drawn, case.image_size)
        except Malformed as error:
            raise Malformed(f"case {case.id[:12]}: {error}") from error
        by = returned.said_by or settings.by
        return PersonLabel(case.id, drawn, by, self._labels.now(), settings.came_by, returned.is_usable)


def read_sheets(path: Path) -> tuple[Format, list[Returned]]:
    """What came back in a file, or in a folder as it was exported; the file itself says which format it is. Raises
    NotFound and Malformed."""
    if path.is_dir():
        there = [path / name for name in (COCO_INDEX, LABEL_STUDIO_INDEX) if (path / name).is_file()]
        if len(there) != 1:
            raise NotFound(f"{path}: expected {COCO_INDEX} or {LABEL_STUDIO_INDEX} in it")
        path = there[0]
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no file {path}") from error
    except OSError as error:
        raise Malformed(f"cannot read {path}: {error.strerror}") from error
    form = Format.LABEL_STUDIO if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[" else Format.COCO
    try:
        return form, sheet_format(form).read(data)
    except Malformed as error:
        raise Malformed(f"{path}: {error}") from error


def sheet_format(form: Format, image_url: str = "images/") -> SheetFormat:
    """The reader and writer of a format; see `LabelStudioSheets` for `image_url`."""
    return CocoSheets() if form is Format.COCO else LabelStudioSheets(image_url)


def is_same(known: PersonLabel | None, label: PersonLabel) -> bool:
    """Whether a person has said this already, whoever it was and in whichever order the boxes come."""
    if known is None or known.is_usable != label.is_usable:
        return False
    return _canonical(known.drawn) == _canonical(label.drawn)


def _canonical(drawn: DrawnBoxes) -> list[str]:
    # To a tenth of a pixel: per cents of the picture and back are not the same to the last bit.
    rounded = np.round(drawn.boxes_xyxy.astype(np.float64), 1).tolist()
    rows = zip(rounded, drawn.class_ids.tolist(), drawn.ignore.tolist(), strict=True)
    return sorted(json.dumps(row) for row in rows)


def _scores(teacher: TeacherLabel) -> list[float | None]:
    sides = teacher.detections.boxes_xyxy[:, 2:] - teacher.detections.boxes_xyxy[:, :2]
    kept = (teacher.weights > 0) & (sides > 0).all(axis=1)
    return [float(score) for score in teacher.detections.scores[kept]]


def _sheet(
    case: StoredCase,
    drawn: DrawnBoxes,
    scores: Sequence[float | None],
    prefilled_by: str | None = None,
    said_by: str | None = None,
) -> Sheet:
    return Sheet(
        case.id,
        file_name(case.id, case.image_path),
        case.frame_id.camera,
        case.captured_at,
        drawn,
        tuple(scores),
        prefilled_by,
        said_by,
    )
