"""Golden frames: what a model answered where it was made, checked again where it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.errors import Incompatible, Malformed
from fovea.core.geometry import iou_matrix
from fovea.core.labels import label_named
from fovea.core.ports import Detector
from fovea.runtime.images import decode_image, encode_png
from fovea.runtime.manifest import canonical_json, explain_validation

EXPECTED = "golden/expected.json"
_VERSION: Final = 1
_MOST_FRAMES = 100


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class GoldenFrame(_Strict):
    """What was answered for one frame: boxes in px of the frame, calibrated scores, label names."""

    file: Annotated[str, Field(pattern=r"^\d{2}\.png$")]
    boxes_xyxy: tuple[tuple[float, float, float, float], ...]
    scores: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    labels: tuple[str, ...]


class GoldenSet(_Strict):
    """`golden/expected.json`: the frames, and how far an answer may be off."""

    schema_version: Literal[1]
    min_iou: Annotated[float, Field(gt=0, le=1)]
    score_tolerance: Annotated[float, Field(ge=0, le=1)]
    answer_min_score: Annotated[float, Field(ge=0, le=1)]
    frames: Annotated[tuple[GoldenFrame, ...], Field(min_length=1, max_length=_MOST_FRAMES)]


@dataclass(frozen=True, slots=True)
class GoldenVerdict:
    """Whether a detector still sees what it should; `reason` says the first difference, or that there is none."""

    is_same: bool
    reason: str


def make_golden(
    detector: Detector,
    frames: Sequence[ImageArray],
    answer_min_score: float,
    score_tolerance: float = 0.05,
    min_iou: float = 0.9,
) -> dict[str, bytes]:
    """The golden parts of a bundle from what `detector` answers to `frames` now. Raises Malformed for no frames or
    more than 100."""
    if not 1 <= len(frames) <= _MOST_FRAMES:
        raise Malformed(f"golden frames: expected 1 to {_MOST_FRAMES}, got {len(frames)}")
    answers = [inference.detections for inference in detector.detect(frames)]
    expected = GoldenSet(
        schema_version=_VERSION,
        min_iou=min_iou,
        score_tolerance=score_tolerance,
        answer_min_score=answer_min_score,
        frames=tuple(_golden_frame(index, seen, detector) for index, seen in enumerate(answers)),
    )
    parts = {f"golden/{index:02d}.png": encode_png(pixels) for index, pixels in enumerate(frames)}
    return {EXPECTED: canonical_json(expected.model_dump(mode="json")), **parts}


def read_golden(parts: Mapping[str, bytes]) -> GoldenSet | None:
    """The golden set among the parts of a bundle, None when there is none. Raises Incompatible for another schema
    version, Malformed when it is damaged or its frames are not those that lie beside it."""
    present = {name.removeprefix("golden/") for name in parts if name.startswith("golden/")} - {
        "expected.json"
    }
    if EXPECTED not in parts:
        if present:
            raise Malformed(f"golden frames {sorted(present)} without {EXPECTED}")
        return None
    try:
        golden = GoldenSet.model_validate_json(parts[EXPECTED])
    except ValidationError as error:
        if any(entry["loc"] == ("schema_version",) for entry in error.errors()):
            raise Incompatible(f"{EXPECTED}: expected schema version {_VERSION}") from error
        raise Malformed(f"{EXPECTED}: {explain_validation(error)}") from error
    for frame in golden.frames:
        if not len(frame.boxes_xyxy) == len(frame.scores) == len(frame.labels):
            raise Malformed(f"{EXPECTED}: {frame.file} has lists of different lengths")
    if {frame.file for frame in golden.frames} != present or len(golden.frames) != len(present):
        raise Malformed(
            f"{EXPECTED}: lists {[frame.file for frame in golden.frames]}, there are {sorted(present)}"
        )
    return golden


def check_golden(parts: Mapping[str, bytes], detector: Detector) -> GoldenVerdict:
    """Runs the golden frames among `parts` and compares. No golden frames: nothing differs."""
    golden = read_golden(parts)
    if golden is None:
        return GoldenVerdict(True, "the model brings no golden frames")
    for frame in golden.frames:
        pixels = decode_image(parts[f"golden/{frame.file}"])
        difference = _difference(frame, detector.detect([pixels])[0].detections, golden)
        if difference is not None:
            return GoldenVerdict(False, f"golden frame {frame.file}: {difference}")
    return GoldenVerdict(True, f"{len(golden.frames)} golden frames were seen as expected")


def _golden_frame(index: int, seen: Detections, detector: Detector) -> GoldenFrame:
    return GoldenFrame(
        file=f"{index:02d}.png",
        boxes_xyxy=tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in seen.boxes_xyxy),
        scores=tuple(float(score) for score in seen.scores),
        labels=tuple(detector.labels.find_name(int(class_id)) or "?" for class_id in seen.class_ids),
    )


def _difference(frame: GoldenFrame, seen: Detections, golden: GoldenSet) -> str | None:
    """The first thing that is not as expected, or None.

    Boxes that nobody would be told of, or that the tolerance carries over that threshold, may come and go: in 8 bits
    processors round differently, and a faint box of a few pixels is where it shows.
    """
    certain = max(golden.answer_min_score, TOLD_FROM) + golden.score_tolerance
    expected_ids = np.array([label_named(name).id for name in frame.labels], np.int64)
    overlaps = _overlaps(frame, seen, expected_ids)
    is_free = np.ones(len(seen), bool)
    for row, (score, name) in enumerate(zip(frame.scores, frame.labels, strict=True)):
        fitting = np.where(
            is_free & (np.abs(seen.scores - score) <= golden.score_tolerance), overlaps[row], 0
        )
        best = int(fitting.argmax()) if len(seen) else -1
        if best >= 0 and fitting[best] >= golden.min_iou:
            is_free[best] = False
        elif score >= certain:
            return f"expected {name} with score {score:.3f} +- {golden.score_tolerance:g} at {_rounded(frame, row)}"
    extra = np.flatnonzero(is_free & (seen.scores >= certain))
    if extra.size:
        box = seen.boxes_xyxy[extra[0]].round().tolist()
        return f"unexpected box of class {seen.class_ids[extra[0]]} with score {seen.scores[extra[0]]:.3f} at {box}"
    return None


def _overlaps(frame: GoldenFrame, seen: Detections, expected_ids: np.ndarray) -> FloatArray:
    """IoU f32[expected, seen], 0 where the class differs."""
    boxes = np.array(frame.boxes_xyxy, np.float32).reshape(-1, 4)
    same_class = expected_ids[:, None] == seen.class_ids[None, :]
    overlaps: FloatArray = np.where(same_class, iou_matrix(boxes, seen.boxes_xyxy), 0).astype(np.float32)
    return overlaps


def _rounded(frame: GoldenFrame, row: int) -> list[int]:
    return [round(edge) for edge in frame.boxes_xyxy[row]]
