"""What lies on the desk of a person who labels: a list of frames, one of them open, and how it is put away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cloud.golden.golden_set import FrameState, GoldenSet
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Returned
from cloud.labels.review import Reviews, TakeSettings
from cloud.labels.store import LabelStore
from cloud.labels.suggestions import suggestions
from fovea.core.errors import NotFound
from fovea.core.labels import Label

CAME_BY = "console"
_DONE_SHOWN = 200
"""Of a review's own past."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame of the list: its state, and why it is there."""

    case_id: str
    state: FrameState
    note: str


class Desk:
    """Used from any thread. `list_entries` is asked whenever the list is shown; only its frames can be opened."""

    def __init__(
        self,
        title: str,
        reviews: Reviews,
        labels: LabelStore,
        list_entries: Callable[[], list[Entry]],
        by: str,
    ) -> None:
        """`by` is who labels, where the page does not say another name."""
        self.title = title
        self.by = by
        self._reviews = reviews
        self._labels = labels
        self._list_entries = list_entries
        self._taken: dict[str, tuple[str, str]] = {}

    def classes(self) -> tuple[Label, ...]:
        """What can be seen in these frames."""
        return self._reviews.classes(entry.case_id for entry in self._list_entries())

    def entries(self) -> list[dict[str, Any]]:
        """The frames, as the page lists them."""
        rows = []
        for entry in self._list_entries():
            camera, captured_at = self._where_and_when(entry.case_id)
            rows.append(
                {
                    "id": entry.case_id,
                    "state": entry.state.value,
                    "note": _beside(camera, entry.note),
                    "camera": camera,
                    "captured_at": captured_at,
                }
            )
        return rows

    def sheet(self, case_id: str) -> dict[str, Any]:
        """One frame with its boxes, as the page opens it. Raises NotFound."""
        entry = self._entry(case_id)
        case, sheet = self._reviews.case(case_id), self._reviews.sheet(case_id)
        boxes = [
            row | {"score": score} for row, score in zip(sheet.drawn.to_json(), sheet.scores, strict=True)
        ]
        offered = () if sheet.said_by else suggestions(case, self._labels.find_teacher(case.id))
        return {
            "id": case.id,
            "state": entry.state.value,
            "note": _beside(sheet.camera, entry.note),
            "camera": sheet.camera,
            "captured_at": sheet.captured_at.isoformat(),
            "width": case.image_size.width,
            "height": case.image_size.height,
            "reasons": list(case.reasons),
            "prefilled_by": sheet.prefilled_by,
            "said_by": sheet.said_by,
            "boxes": boxes,
            "suggestions": [
                {
                    "box_xyxy": list(each.box_xyxy),
                    "label": each.label.name,
                    "score": each.score,
                    "by": each.by,
                }
                for each in offered
            ],
        }

    def picture(self, case_id: str) -> bytes:
        """Raises NotFound, StoreCorrupt."""
        self._entry(case_id)
        return self._reviews.load_image(case_id)

    def save(self, case_id: str, rows: object, by: str) -> Mapping[str, Any]:
        """Keeps the boxes as what a person says. Raises NotFound, Malformed."""
        self._entry(case_id)
        drawn = DrawnBoxes.from_json(rows, self._reviews.case(case_id).image_size)
        return self._take(Returned(case_id, drawn), by)

    def refuse(self, case_id: str, by: str) -> Mapping[str, Any]:
        """Notes that nobody can tell what is in it. Raises NotFound."""
        self._entry(case_id)
        nothing = DrawnBoxes.of([], self._reviews.case(case_id).image_size)
        return self._take(Returned(case_id, nothing, is_usable=False), by)

    def _take(self, returned: Returned, by: str) -> Mapping[str, Any]:
        report = self._reviews.take([returned], TakeSettings(by or self.by, CAME_BY))
        state = FrameState.DONE if returned.is_usable else FrameState.UNUSABLE
        return {"id": returned.case_id, "state": state.value, "is_new": not report.unchanged}

    def _where_and_when(self, case_id: str) -> tuple[str, str]:
        """Never changes, so it is asked once."""
        if case_id not in self._taken:
            case = self._reviews.case(case_id)
            self._taken[case_id] = case.frame_id.camera, case.captured_at.isoformat()
        return self._taken[case_id]

    def _entry(self, case_id: str) -> Entry:
        for entry in self._list_entries():
            if entry.case_id == case_id:
                return entry
        raise NotFound(f"frame {case_id[:12]!r}: it is not on this desk")


def _beside(camera: str, note: str) -> str:
    """The page shows the camera already."""
    return note.removeprefix(f"{camera} ")


def golden_desk(reviews: Reviews, labels: LabelStore, golden: GoldenSet, site: str, by: str) -> Desk:
    """The golden frames of a site. Raises NotFound."""
    golden.sites.checked(site)

    def entries() -> list[Entry]:
        return [Entry(frame.case_id, frame.state, frame.stratum) for frame in golden.frames(site)]

    return Desk(f"golden frames of {site}", reviews, labels, entries, by)


def review_desk(reviews: Reviews, labels: LabelStore, by: str) -> Desk:
    """What the teacher asks people about, and what they have said to it lately."""

    def entries() -> list[Entry]:
        waiting, done = labels.to_review(), labels.to_review(_DONE_SHOWN, done=True)
        teachers, said = labels.find_teachers([*waiting, *done]), labels.find_persons(done)
        notes = {case_id: " ".join(label.doubts).replace("_", " ") for case_id, label in teachers.items()}
        found = [Entry(case_id, FrameState.WANTED, notes.get(case_id, "")) for case_id in waiting]
        for case_id in done:
            is_usable = case_id not in said or said[case_id].is_usable
            state = FrameState.DONE if is_usable else FrameState.UNUSABLE
            found.append(Entry(case_id, state, notes.get(case_id, "")))
        return found

    return Desk("what the teacher doubts", reviews, labels, entries, by)
