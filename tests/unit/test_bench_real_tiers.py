"""Public detectors as tiers: figures over frames that random models saw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from calibration.predict import LabelledFrame
from calibration.truth import EvaluatedFrame
from fovea.bench.real_tiers import (
    CAMERA,
    COMPARED,
    EDGE,
    TIER_MODELS,
    WAYS,
    AskFrom,
    SeenImages,
    ask_from_shares,
    fitted_scores,
    looks_of,
    tier_figures,
)
from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates, Inference, ModelRef, ScoreKind
from fovea.core.labels import LabelSet
from fovea.core.scores import ScoreCalibration
from tests.builders import model_ref
from tests.unit.evaluation_frames import LABELS, SIZE, random_frames

IDENTITY = dict.fromkeys(TIER_MODELS, ScoreCalibration.identity())


class NamedDetector:
    """A detector of which only the name and the labels are wanted."""

    def __init__(self, digit: str) -> None:
        self._ref = model_ref(digit=digit)

    @property
    def ref(self) -> ModelRef:
        return self._ref

    @property
    def labels(self) -> LabelSet:
        return LABELS

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        raise AssertionError("everything was seen already")

    def close(self) -> None:
        pass


DETECTORS = {name: NamedDetector("abcdef"[number]) for number, name in enumerate(TIER_MODELS)}


def seen_images(count: int, seed: int) -> SeenImages:
    """Each model sees the same truth in its own noisy way."""
    truth = random_frames(count, seed, frames_per_clip=1, ignore_share=0.0)
    pixels = np.zeros((SIZE.height, SIZE.width, 3), np.uint8)
    frames = [LabelledFrame(each.group, pixels, each.truth) for each in truth]
    by_model = {
        name: [_seen(frame, seed + 100 * number + 1000 * row) for row, frame in enumerate(truth)]
        for number, name in enumerate(TIER_MODELS, start=1)
    }
    return SeenImages(frames, by_model)


def _seen(frame: EvaluatedFrame, seed: int) -> Candidates:
    rng = np.random.default_rng(seed)
    boxes = frame.truth.boxes_xyxy + rng.normal(0, 2, frame.truth.boxes_xyxy.shape)
    boxes = np.concatenate(
        [np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1
    )
    scores = np.zeros((len(boxes), len(LABELS)))
    channels = [LABELS.ids.index(class_id) for class_id in frame.truth.class_ids]
    scores[np.arange(len(boxes)), channels] = rng.uniform(0.3, 0.9, len(boxes))
    return _candidates(boxes, scores)


def _candidates(boxes: np.ndarray, scores: np.ndarray) -> Candidates:
    return Candidates(boxes.astype(np.float32), scores.astype(np.float32), ScoreKind.PER_CLASS, LABELS, SIZE)


def test_every_way_has_its_figures_and_the_main_ones_are_those_of_the_way_that_was_chosen() -> None:
    figures, way = tier_figures(seen_images(16, 1), seen_images(20, 2), DETECTORS, resamples=20)
    assert way in ("identity", "fitted")
    for name in WAYS:
        assert figures[f"coco.ap.{name}"] == figures[f"coco.ap_{way}.{name}"]
        assert 0 <= figures[f"coco.ap.{name}"] <= figures[f"coco.ap50.{name}"] <= 1
        assert figures[f"coco.ap_answered.{name}"] <= figures[f"coco.ap.{name}"] + 0.05
    for merged, other in COMPARED:
        told = f"{merged}_over_{other}"
        low, gain, high = (figures[f"coco.{kind}.{told}"] for kind in ("gain_low", "gain", "gain_high"))
        assert low <= gain <= high
        assert gain == pytest.approx(figures[f"coco.ap.{merged}"] - figures[f"coco.ap.{other}"])
    assert {f"coco.d_ece.{name}" for name in TIER_MODELS} <= set(figures)
    heldout = {name: figures[f"coco.heldout_ap_{name}"] for name in ("identity", "fitted")}
    assert heldout[way] == max(heldout.values())


def test_hybrid_is_the_answer_of_whoever_was_asked() -> None:
    seen = seen_images(12, 3)
    ask_from = ask_from_shares(looks_of(seen, DETECTORS, IDENTITY, 0.25))
    looks = looks_of(seen, DETECTORS, IDENTITY, 0.001, ask_from)
    assert len(looks) == 12
    assert 3 <= sum(each.is_edge_asked for each in looks) <= 5
    assert sum(each.is_cloud_asked for each in looks) >= 1
    for each in looks:
        wanted = (
            each.merged_all
            if each.is_cloud_asked
            else each.merged_edge
            if each.is_edge_asked
            else each.camera
        )
        assert each.hybrid is wanted
        assert each.is_edge_asked or not each.is_cloud_asked


def test_a_camera_that_is_unsure_of_much_asks_and_one_that_sees_nothing_does_not() -> None:
    frame = random_frames(1, 1)[0]
    x = np.arange(12, dtype=np.float32) * 24
    many = np.stack([x, np.full(12, 20.0), x + 20, np.full(12, 60.0)], axis=1)
    scores = np.zeros((12, len(LABELS)))
    scores[:, 0] = 0.3
    weak = _candidates(many, scores)
    nothing = _candidates(many[:0], scores[:0])
    pixels = np.zeros((SIZE.height, SIZE.width, 3), np.uint8)
    frames = [LabelledFrame(name, pixels, frame.truth) for name in ("unsure", "empty")]
    by_model = {name: [nothing, nothing] for name in TIER_MODELS} | {CAMERA: [weak, nothing]}
    ask_from = AskFrom(edge=0.25)
    unsure, empty = looks_of(SeenImages(frames, by_model), DETECTORS, IDENTITY, 0.001, ask_from)
    assert unsure.is_edge_asked
    assert not empty.is_edge_asked
    assert len(unsure.camera) == 12
    assert len(unsure.edge) == len(empty.hybrid) == 0
    # Whoever knows the class and saw nothing there pulls it down.
    assert unsure.merged_edge.scores.max() < 0.3


def test_answers_hold_nothing_below_the_score_that_is_answered() -> None:
    looks = looks_of(seen_images(8, 4), DETECTORS, IDENTITY, 0.6)
    scores = np.concatenate([each.edge.scores for each in looks])
    assert len(scores)
    assert scores.min() >= 0.6


def test_a_model_that_is_never_right_keeps_its_scores_as_they_are() -> None:
    seen = seen_images(6, 5)
    nothing = [_candidates(np.empty((0, 4)), np.empty((0, len(LABELS)))) for _ in seen.frames]
    fitted = fitted_scores(SeenImages(seen.frames, {**seen.by_model, EDGE: nothing}))
    assert set(fitted) == set(TIER_MODELS)
    raw = np.array([[0.2, 0.5, 0.9]], np.float32)
    assert fitted[EDGE].apply(raw, LABELS.ids).tolist() == raw.tolist()
    assert fitted[CAMERA].apply(raw, LABELS.ids).tolist() != raw.tolist()
