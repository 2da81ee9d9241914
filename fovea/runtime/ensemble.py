"""Several models that look at the same frames and answer as one: their calibrated boxes are fused."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fovea.core.answering import answer
from fovea.core.arrays import FloatArray, ImageArray, IntArray
from fovea.core.detections import LOWEST_SCORE, Candidates, Inference, ModelRef, ScoreKind
from fovea.core.errors import DetectorFailed, Malformed
from fovea.core.frame import ImageSize, checked_pixels
from fovea.core.fusion import BoxSet, FusionSettings, fuse
from fovea.core.geometry import clip_boxes, iou_matrix
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
from fovea.core.scores import ScoreCalibration


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One model of an ensemble, the calibration that makes its raw scores comparable with those of the others, and
    the trust that it gets (more than 0)."""

    detector: Detector
    calibration: ScoreCalibration
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class EnsembleSettings:
    """fusion: see `fovea.core.fusion`. same_box_iou: fused boxes of different classes that overlap by more are one
    box with several class scores. max_claims: pairs of box and class that each model may bring, the strongest.
    max_boxes: candidates kept of a frame. answer_min_score: weaker ones are not answered."""

    fusion: FusionSettings = field(default_factory=FusionSettings)
    same_box_iou: float = 0.85
    max_claims: int = 300
    max_boxes: int = 300
    answer_min_score: float = 0.25

    def __post_init__(self) -> None:
        if not (0 < self.same_box_iou < 1 and 0 <= self.answer_min_score <= 1):
            raise Malformed(f"ensemble: expected same_box_iou and answer_min_score within 0 to 1, got {self}")
        if self.max_claims < 1 or self.max_boxes < 1:
            raise Malformed(f"ensemble: expected room for 1 claim and box or more, got {self}")


class EnsembleDetector:
    """A Detector over others, which it closes. One caller at a time.

    Candidates are what the members saw, fused class by class by their calibrated scores: boxes of one class of
    several members become one, whose score is the trusted mean, a member that knows the class and saw nothing
    there counting as 0. Who does not know the class has no say. The scores of candidates are calibrated already.
    """

    def __init__(
        self, members: Sequence[Member], settings: EnsembleSettings = EnsembleSettings(), name: str = ""
    ) -> None:
        """`name` is that of the whole; made of the members' when it is empty. Raises Malformed when there is no
        member, or when they name one class differently."""
        if not members:
            raise Malformed("ensemble: expected at least one model, got none")
        self._members = tuple(members)
        self._settings = settings
        self._ref = _ref_of(self._members, settings, name)
        own_labels = [member.detector.labels for member in members]
        self._labels = LabelSet(tuple(dict.fromkeys(label for labels in own_labels for label in labels)))
        place = {label_id: channel for channel, label_id in enumerate(self._labels.ids)}
        self._channels = [np.array([place[i] for i in labels.ids], np.int32) for labels in own_labels]
        self._groups = _classes_by_who_knows(self._channels, len(self._labels))
        self._is_closed = False

    @property
    def ref(self) -> ModelRef:
        return self._ref

    @property
    def labels(self) -> LabelSet:
        return self._labels

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        """See `fovea.core.ports.Detector`."""
        if self._is_closed:
            raise DetectorFailed(f"{self._ref}: detect was called after close")
        checked = [checked_pixels(pixels) for pixels in frames]
        looks = [member.detector.detect(checked) for member in self._members]
        return [
            self.merge([inference.candidates for inference in of_one_frame])
            for of_one_frame in zip(*looks, strict=True)
        ]

    def merge(self, seen: Sequence[Candidates]) -> Inference:
        """One answer from what each member, in order, saw in one frame."""
        size = seen[0].image_size
        claims = [
            self._claims(candidates, member, channels)
            for candidates, member, channels in zip(seen, self._members, self._channels, strict=True)
        ]
        fused = [
            fuse([_of_channels(claims[index], channels) for index in knowing], self._settings.fusion)
            for knowing, channels in self._groups
        ]
        scores = np.concatenate([part.scores for part in fused])
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] >= LOWEST_SCORE]
        boxes = np.concatenate([part.boxes_xyxy for part in fused])[order]
        channels = np.concatenate([part.class_ids for part in fused])[order]
        candidates = self._as_candidates(clip_boxes(boxes, size), scores[order], channels, size)
        identity, least = ScoreCalibration.identity(), self._settings.answer_min_score
        return answer(candidates, identity, least, self._ref)

    def close(self) -> None:
        self._is_closed = True
        for member in self._members:
            member.detector.close()

    def _claims(self, candidates: Candidates, member: Member, channels: IntArray) -> BoxSet:
        """The strongest pairs of box and class of one member, calibrated; `class_ids` are channels of the whole."""
        calibrated = member.calibration.apply(candidates.class_scores, candidates.labels.ids)
        rows, own = np.nonzero(calibrated)
        scores = calibrated[rows, own]
        strongest = np.argsort(-scores, kind="stable")[: self._settings.max_claims]
        rows, own, scores = rows[strongest], own[strongest], scores[strongest]
        return BoxSet(candidates.boxes_xyxy[rows], scores, channels[own], member.trust)

    def _as_candidates(
        self, boxes_xyxy: FloatArray, scores: FloatArray, channels: IntArray, size: ImageSize
    ) -> Candidates:
        """Fused boxes, best first, where one thing that got several names becomes one box with several scores."""
        is_same = np.tril(iou_matrix(boxes_xyxy, boxes_xyxy) > self._settings.same_box_iou, k=-1)
        class_scores = np.zeros((len(boxes_xyxy), len(self._labels)), np.float32)
        class_scores[np.arange(len(boxes_xyxy)), channels] = scores
        for row in np.flatnonzero(is_same.any(axis=1)).tolist():
            channel = channels[row]
            for head in np.flatnonzero(is_same[row]).tolist():
                # A head that was taken in itself has no score left; one that knows the class is another thing.
                if class_scores[head].any() and not class_scores[head, channel]:
                    class_scores[head, channel], class_scores[row] = scores[row], 0
                    break
        kept = np.flatnonzero(class_scores.any(axis=1))[: self._settings.max_boxes]
        return Candidates(boxes_xyxy[kept], class_scores[kept], ScoreKind.PER_CLASS, self._labels, size)


def _of_channels(claims: BoxSet, channels: IntArray) -> BoxSet:
    kept = np.isin(claims.class_ids, channels)
    return BoxSet(claims.boxes_xyxy[kept], claims.scores[kept], claims.class_ids[kept], claims.weight)


def _classes_by_who_knows(channels: Sequence[IntArray], count: int) -> list[tuple[tuple[int, ...], IntArray]]:
    """Members that know the same classes, and which these are: each class stands in one group."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for channel in range(count):
        knowing = tuple(index for index, own in enumerate(channels) if channel in own)
        groups.setdefault(knowing, []).append(channel)
    return [(knowing, np.array(of_group, np.int32)) for knowing, of_group in groups.items()]


def _ref_of(members: Sequence[Member], settings: EnsembleSettings, name: str) -> ModelRef:
    """Named for its members; the digest is over all that its answers depend on."""
    refs = [member.detector.ref for member in members]
    parts = [repr(settings), *(f"{ref.sha256} {m.trust!r}" for ref, m in zip(refs, members, strict=True))]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return ModelRef(name or "+".join(ref.name for ref in refs), "1", digest)
