"""The teacher at work: answers that are there already are taken, the others are made, all are judged and kept."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from cloud.cases.stored_case import StoredCase
from cloud.labels.judging import JudgeSettings, Verdict, judge
from cloud.labels.label import TeacherLabel
from cloud.labels.store import LabelStore
from fovea.core.detections import Detections
from fovea.core.errors import Malformed, StoreCorrupt, TooLarge
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
from fovea.runtime.images import decode_image

_log = logging.getLogger(__name__)


class Pictures(Protocol):
    """Who has the pictures of cases: the case store."""

    def load_image(self, case: StoredCase) -> bytes:
        """As it was sent. Raises StoreCorrupt."""
        ...


@dataclass(slots=True)
class TeachingReport:
    """What became of the cases: new looks, answers the cloud had given in time, labels of an earlier run; how they
    were judged; and which pictures are damaged."""

    looked: int = 0
    reused: int = 0
    cached: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)


class Teacher:
    """Any Detector, as a teacher: the cloud's large model with its views, or several as one."""

    def __init__(
        self,
        detector: Detector,
        pictures: Pictures,
        labels: LabelStore,
        *,
        views: str = "frame",
        settings: JudgeSettings = JudgeSettings(),
        batch: int = 1,
    ) -> None:
        """`views` says how the detector looks, for whoever asks later. `batch`: pictures looked at together."""
        if batch < 1:
            raise Malformed(f"teacher batch: expected 1 or more, got {batch}")
        self._detector = detector
        self._pictures = pictures
        self._labels = labels
        self._views = views
        self._settings = settings
        self._batch = batch
        self.report = TeachingReport()

    def label(self, cases: Iterable[StoredCase]) -> Iterator[TeacherLabel]:
        """Labels cases in their order, each kept before it is handed out, so that a run that is killed goes on where
        it was. Cases whose picture is damaged are left out and reported. Raises what the detector and the stores
        raise."""
        remaining = iter(cases)
        while some := list(islice(remaining, self._batch)):
            yield from self._label(some)

    def label_all(self, cases: Iterable[StoredCase]) -> TeachingReport:
        """The same to the end."""
        for _ in self.label(cases):
            continue
        return self.report

    def _label(self, cases: Sequence[StoredCase]) -> Iterator[TeacherLabel]:
        known = self._labels.find_teachers([case.id for case in cases], self._detector.ref.sha256)
        seen: dict[str, tuple[Detections, tuple[str, ...], bool]] = {}
        unseen: list[StoredCase] = []
        for case in cases:
            if (label := known.get(case.id)) is not None:
                self.report.cached += 1
                seen[case.id] = label.detections, label.names, label.is_reused
            elif (answer := self._given(case)) is not None:
                self.report.reused += 1
                seen[case.id] = answer, _names(answer, _labels_of(case, answer)), True
            else:
                unseen.append(case)
        for case, answer in self._look(unseen):
            self.report.looked += 1
            seen[case.id] = answer, _names(answer, self._detector.labels), False
        for case in cases:
            if case.id in seen:
                yield self._judged(case, known.get(case.id), *seen[case.id])

    def _given(self, case: StoredCase) -> Detections | None:
        """What the very same model has answered already."""
        for answer in case.answers:
            if answer.detections.model.sha256 == self._detector.ref.sha256:
                return in_px_of(answer.detections, case.image_size)
        return None

    def _look(self, cases: Sequence[StoredCase]) -> Iterator[tuple[StoredCase, Detections]]:
        readable, pixels = [], []
        for case in cases:
            try:
                pixels.append(decode_image(self._pictures.load_image(case)))
                readable.append(case)
            except (StoreCorrupt, Malformed, TooLarge) as error:
                _log.warning("case %s is not labelled: %s", case.id[:12], error)
                self.report.damaged.append(case.id)
        seen = self._detector.detect(pixels) if pixels else []
        for case, inference in zip(readable, seen, strict=True):
            yield case, inference.detections

    def _judged(
        self,
        case: StoredCase,
        known: TeacherLabel | None,
        seen: Detections,
        names: tuple[str, ...],
        is_reused: bool,
    ) -> TeacherLabel:
        """Judged anew each time, as witnesses may have come and thresholds changed since."""
        judgement = judge(seen, witnesses(case, seen), self._settings)
        labelled_at = known.labelled_at if known else self._labels.now()
        views = known.views if known else self._views
        label = TeacherLabel(case.id, seen, names, judgement, views, is_reused, labelled_at)
        self._labels.keep_teacher(label, self._settings)
        self.report.verdicts[label.verdict] += 1
        return label


def witnesses(case: StoredCase, seen: Detections) -> list[Detections]:
    """What others saw in the case, in px of its picture: not the teacher itself."""
    return [
        in_px_of(answer.detections, case.image_size)
        for answer in case.answers
        if answer.detections.model.sha256 != seen.model.sha256
    ]


def in_px_of(seen: Detections, size: ImageSize) -> Detections:
    """The same boxes in px of the picture that is kept: a tier may have looked at it in another size."""
    if seen.image_size == size:
        return seen
    x, y = size.width / seen.image_size.width, size.height / seen.image_size.height
    boxes = (seen.boxes_xyxy * np.array([x, y, x, y])).astype(np.float32)
    return Detections(boxes, seen.scores, seen.class_ids, size, seen.model)


def _labels_of(case: StoredCase, seen: Detections) -> LabelSet | None:
    return next(
        (answer.labels for answer in case.answers if answer.detections.model.sha256 == seen.model.sha256),
        None,
    )


def _names(seen: Detections, labels: LabelSet | None) -> tuple[str, ...]:
    known = {label.id: label.name for label in labels or ()}
    return tuple(known.get(class_id, f"class {class_id}") for class_id in seen.class_ids.tolist())
