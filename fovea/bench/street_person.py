"""On the street the truth plays the person who labels: it takes the way that people's labels take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cloud.cases.stored_case import StoredCase
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Returned
from cloud.labels.review import Reviews, TakeReport, TakeSettings
from fovea.core.errors import NotFound
from fovea.sim.frame import StreetObject

NAME = "the street"

TruthOf = Callable[[StoredCase], Sequence[StreetObject] | None]
"""What is really in the frame of a case; None where nobody knows."""


def label_by_truth(reviews: Reviews, case_ids: Iterable[str], truth_of: TruthOf) -> TakeReport:
    """Labels cases as a person who sees everything would. Raises NotFound for a case of which nobody knows the
    truth: a golden set must not have gaps unnoticed."""
    returned = []
    for case_id in case_ids:
        case = reviews.case(case_id)
        objects = truth_of(case)
        if objects is None:
            raise NotFound(f"case {case.id[:12]} of {case.frame_id}: the street does not know this frame")
        drawn = DrawnBoxes.of(
            [(thing.box_xyxy, thing.label) for thing in objects],
            case.image_size,
            [thing.ignore for thing in objects],
        )
        returned.append(Returned(case.id, drawn, NAME))
    return reviews.take(returned, TakeSettings(NAME, "street"))
