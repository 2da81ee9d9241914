"""Frames that might be asked about, with all that rules and the judges of rules need to know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.ask_rules import WeakView
from calibration.cascade import CascadeFrame, CascadeTable, Floats
from calibration.class_weights import class_weights_of
from calibration.evaluate import match, report
from calibration.matching import BoxSize
from calibration.reward import context_reward, found_more
from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.bench.cascade_recording import RecordedFrame
from fovea.core.arrays import FloatArray
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.features import FeatureSettings, FrameFeatures, weighed_doubts
from fovea.core.routing import Tier

WINDOW_S = 60.0
"""Misroutes are looked for among frames of the same minute."""
_IOU_50 = 0


@dataclass(frozen=True, slots=True, eq=False)
class AskFrame:
    """One frame: `weak` is the answer if nobody is asked, `merged` if the next tier is, `strong` that tier alone. A
    gate sees `features`; published rules see `doubted`, the answer of the model that asks. `at_s` is when."""

    clip: str
    at_s: float
    truth: GroundTruth
    weak: Detections
    merged: Detections
    strong: Detections
    features: FrameFeatures
    doubted: Detections
    jpeg_bytes: int

    @property
    def view(self) -> WeakView:
        size, seen = self.doubted.image_size, self.doubted
        return WeakView(seen.boxes_xyxy, seen.scores, TOLD_FROM, float(size.width * size.height))


def first_asks(recorded: Sequence[RecordedFrame], lasts_s: float) -> list[AskFrame]:
    """Camera asks edge. The conditions are cameras of one agent, and show their clips one after another, each for
    `lasts_s`."""
    return _in_time(
        AskFrame(
            frame.clip,
            frame.clip_index * lasts_s + frame.at_s,
            frame.truth,
            frame.camera,
            frame.merged(Tier.AGENT, Tier.EDGE),
            frame.edge,
            frame.features,
            frame.camera,
            frame.jpeg_bytes,
        )
        for frame in recorded
    )


def second_asks(recorded: Sequence[RecordedFrame], lasts_s: float) -> list[AskFrame]:
    """Edge asks cloud, about every frame that it is asked about itself."""
    return _in_time(
        AskFrame(
            frame.clip,
            frame.clip_index * lasts_s + frame.at_s,
            frame.truth,
            frame.merged(Tier.AGENT, Tier.EDGE),
            frame.merged(Tier.AGENT, Tier.EDGE, Tier.CLOUD),
            frame.cloud,
            frame.edge_features,
            frame.edge,
            frame.jpeg_bytes,
        )
        for frame in recorded
    )


def class_weights(frames: Sequence[AskFrame]) -> dict[int, float]:
    """How much doubt about a box of each class counts: one over the square root of how common true boxes of the class
    are, 1 for the average box. AP is the mean over classes, so a rare thing found is worth more than a common one."""
    return class_weights_of(frame.truth for frame in frames)


def weighed(frames: Sequence[AskFrame], weights: Mapping[int, float]) -> list[AskFrame]:
    """The frames with the features that a gate with these class weights sees."""
    settings = FeatureSettings(class_weights=weights)
    changed = []
    for frame in frames:
        told = len(frame.doubted.above(TOLD_FROM))
        entropy, mass = weighed_doubts(frame.doubted, told, settings)
        changed.append(replace(frame, features=replace(frame.features, entropy_sum=entropy, weak_mass=mass)))
    return changed


def _in_time(frames: Iterable[AskFrame]) -> list[AskFrame]:
    return sorted(frames, key=lambda frame: (frame.at_s, frame.clip))


@dataclass(frozen=True, slots=True, eq=False)
class AskSet:
    """F frames in the order of time. `reward` f64[F] is what asking gains, `found_more` f64[F] the plainer measure of
    it (both of `calibration.reward`), `found` f64[F] how many objects more are told then (IoU 0.5, score from
    TOLD_FROM on), beside the `found_weak` that are told anyway."""

    frames: tuple[AskFrame, ...]
    table: CascadeTable
    reward: Floats
    found_more: Floats
    found: Floats
    found_weak: float
    strong_ap: float

    @classmethod
    def of(cls, frames: Sequence[AskFrame], class_ids: Iterable[int], contexts_per_share: int = 2) -> AskSet:
        """Matches the answers and finds the rewards. Raises Malformed without frames or classes."""
        classes = tuple(class_ids)
        table = CascadeTable.of([CascadeFrame(f.clip, f.truth, f.weak, f.merged) for f in frames], classes)
        alone = match([EvaluatedFrame(f.clip, f.truth, f.strong) for f in frames], classes, (BoxSize.ALL,))
        told = _told_objects(table)
        return cls(
            tuple(frames),
            table,
            context_reward(table, contexts_per_share),
            found_more(table),
            told[table.merged_rows] - told[table.weak_rows],
            float(told[table.weak_rows].sum()),
            report(alone).ap,
        )

    def __len__(self) -> int:
        return len(self.frames)

    def weighed(self, weights: Mapping[int, float]) -> AskSet:
        """The same with the features that a gate with these class weights sees."""
        return replace(self, frames=tuple(weighed(self.frames, weights)))

    @property
    def features(self) -> FloatArray:
        """f32[F, 12]."""
        return np.stack([frame.features.vector for frame in self.frames])

    @property
    def clips(self) -> tuple[str, ...]:
        return tuple(frame.clip for frame in self.frames)

    @property
    def jpeg_bytes(self) -> Floats:
        return np.array([frame.jpeg_bytes for frame in self.frames], np.float64)

    @property
    def minute(self) -> NDArray[np.int64]:
        """i64[F]: which WINDOW_S each frame is in."""
        return np.array([frame.at_s // WINDOW_S for frame in self.frames], np.int64)


def _told_objects(table: CascadeTable) -> Floats:
    """True objects found by what is told, for each row of the match table."""
    found = np.zeros(len(table.table.groups))
    for matches in table.table.matches.values():
        told = matches.correct[_IOU_50] & ~matches.ignored[_IOU_50] & (matches.scores >= TOLD_FROM)
        found += np.bincount(matches.group[told], minlength=len(found))
    return found
