"""Candidates and Detections hold what they promise, or are not made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fovea.core.detections import Candidates, Detections, ModelRef, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet

SIZE = ImageSize(100, 50)
REF = ModelRef("street", "1.2", "ab" * 32)
LABELS = LabelSet.from_names(["person", "car"])
BOXES = [[0, 0, 10, 10], [5, 5, 5, 5]]


def detections(**changes: Any) -> Detections:
    fields: dict[str, Any] = {
        "boxes_xyxy": BOXES,
        "scores": [0.9, 0.1],
        "class_ids": [0, 2],
        "image_size": SIZE,
        "model": REF,
    }
    return Detections(**fields | changes)


def candidates(**changes: Any) -> Candidates:
    fields: dict[str, Any] = {
        "boxes_xyxy": BOXES,
        "class_scores": [[0.9, 0.2], [0.0, 0.1]],
        "kind": ScoreKind.PER_CLASS,
        "labels": LABELS,
        "image_size": SIZE,
    }
    return Candidates(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"boxes_xyxy": [[0, 0, 10]]}, r"detections boxes_xyxy: expected shape \(N, 4\), got \(1, 3\)"),
        ({"boxes_xyxy": "boxes"}, "detections boxes_xyxy: expected numbers, got str"),
        (
            {"boxes_xyxy": [[9, 0, 1, 1], [0, 0, 1, 1]]},
            "detections boxes_xyxy: expected x1 <= x2 and y1 <= y2",
        ),
        ({"boxes_xyxy": [[0, 0, np.nan, 1]] * 2}, "detections boxes_xyxy: expected finite values, got nan"),
        ({"scores": [0.5]}, r"detections scores: expected shape \(2\), got \(1,\)"),
        ({"scores": []}, r"detections scores: expected shape \(2\), got \(0,\)"),
        ({"scores": [0.5, 1.5]}, "detections scores: expected 0 to 1, got 0.5 to 1.5"),
        ({"scores": [0.5, np.nan]}, "detections scores: expected finite values, got nan"),
        ({"class_ids": [0]}, r"detections class_ids: expected shape \(2\), got \(1,\)"),
        ({"class_ids": [0, -1]}, "detections class_ids: expected 0 or more, got -1"),
        ({"class_ids": [0, 0.5]}, "detections class_ids: expected whole numbers that fit 32 bits, got 0.5"),
    ],
)
def test_wrong_detections_are_malformed_and_the_text_names_the_field(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        detections(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"boxes_xyxy": [[0, 0, 10]]}, r"candidates boxes_xyxy: expected shape \(N, 4\), got \(1, 3\)"),
        (
            {"boxes_xyxy": [[0, 9, 1, 1], [0, 0, 1, 1]]},
            "candidates boxes_xyxy: expected x1 <= x2 and y1 <= y2",
        ),
        ({"class_scores": [[0.5]] * 2}, r"candidates class_scores: expected shape \(2, 2\), got \(2, 1\)"),
        ({"class_scores": [[0.5, 0.5]]}, r"candidates class_scores: expected shape \(2, 2\), got \(1, 2\)"),
        ({"class_scores": []}, r"candidates class_scores: expected shape \(2, 2\), got \(0,\)"),
        ({"class_scores": [[0.5, -0.5]] * 2}, "candidates class_scores: expected 0 to 1, got -0.5 to 0.5"),
        ({"kind": ScoreKind.ONE_PER_BOX}, "candidates class_scores: expected one score per box, got several"),
    ],
)
def test_wrong_candidates_are_malformed_and_the_text_names_the_field(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        candidates(**changes)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (("", "1", "ab" * 32), "model ref: expected a name and a version, got '' '1'"),
        (("m", "", "ab" * 32), "model ref: expected a name and a version, got 'm' ''"),
        (("m", "1", "ab"), "model ref: expected a sha256 of 64 hex digits, got 'ab'"),
        (("m", "1", "AB" * 32), "model ref: expected a sha256"),
        (("m", "1", "ab" * 32 + "\n"), "model ref: expected a sha256"),
    ],
)
def test_a_model_ref_that_names_no_artefact_is_malformed(parts: tuple[str, str, str], told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        ModelRef(*parts)


def test_a_model_ref_reads_well() -> None:
    assert str(REF) == "street@1.2#abababababab"


def test_arrays_are_read_only_and_later_writes_of_the_caller_do_not_reach_in() -> None:
    boxes, scores = np.array(BOXES, np.float32), np.array([0.9, 0.1], np.float32)
    ids, matrix = np.array([0, 2], np.int32), np.array([[0.9, 0.2], [0.0, 0.1]], np.float32)
    answered = detections(boxes_xyxy=boxes, scores=scores, class_ids=ids)
    seen = candidates(boxes_xyxy=boxes, class_scores=matrix)
    for mine in (boxes, scores, ids, matrix):
        mine[:] = 1
    assert answered.boxes_xyxy.tolist() == seen.boxes_xyxy.tolist() == BOXES
    assert answered.scores.tolist() == pytest.approx([0.9, 0.1])
    assert answered.class_ids.tolist() == [0, 2]
    assert seen.class_scores[1].tolist() == pytest.approx([0.0, 0.1])
    for array in (
        answered.boxes_xyxy,
        answered.scores,
        answered.class_ids,
        seen.boxes_xyxy,
        seen.class_scores,
    ):
        assert not array.flags.writeable


def test_nothing_seen_and_nothing_answered_are_values_too() -> None:
    nothing = Detections.empty(SIZE, REF)
    assert (len(nothing), nothing.boxes_xyxy.shape, nothing.class_ids.dtype.name) == (0, (0, 4), "int32")
    blank = candidates(boxes_xyxy=[], class_scores=[])
    assert (len(blank), blank.class_scores.shape) == (0, (0, 2))
    assert blank.best_scores.shape == blank.best_channels.shape == (0,)


def test_the_best_class_of_each_box_is_told_by_channel() -> None:
    seen = candidates(class_scores=[[0.2, 0.9], [0.1, 0.0]])
    assert seen.best_scores.tolist() == pytest.approx([0.9, 0.1])
    assert (seen.best_channels.tolist(), seen.best_channels.dtype.name) == ([1, 0], "int32")
