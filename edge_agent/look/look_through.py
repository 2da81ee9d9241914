"""One model looks through a source from end to end: what it found as COCO JSON, and pictures with boxes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from edge_agent.capture.source import Captured, FrameSource
from edge_agent.look.annotated_output import AnnotatedOutput
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.errors import Malformed, RejectedError, Unavailable
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.drawing import draw_detections


@dataclass(frozen=True, slots=True)
class LookSettings:
    """Which frames are looked at, one of `every`, at most `limit`, and from which score a box counts."""

    every: int = 1
    limit: int | None = None
    min_score: float = TOLD_FROM

    def __post_init__(self) -> None:
        if self.every < 1 or (self.limit is not None and self.limit < 1) or not 0 <= self.min_score <= 1:
            raise Malformed(
                "looking through: expected every >= 1, limit >= 1 and a min_score of 0 to 1, "
                f"got {self.every}, {self.limit} and {self.min_score}"
            )


@dataclass(frozen=True, slots=True)
class LookReport:
    """What came of it: frames looked at, boxes by label, pictures that could not be used with the reason, the time
    of it all and of the model alone, what was written, and why it ended early, if it did."""

    frames: int
    found: Mapping[str, int]
    unusable: tuple[str, ...]
    wall_s: float
    model_ms: float
    written: tuple[Path, ...]
    broke: str | None

    @property
    def fps(self) -> float:
        return self.frames / self.wall_s if self.wall_s > 0 else 0.0

    def __str__(self) -> str:
        found = ", ".join(f"{count} {label}" for label, count in self.found.items()) or "nothing"
        line = f"found {found} in {self.frames} {'frame' if self.frames == 1 else 'frames'}"
        line += f" at {self.fps:.1f} frames/s (model {self.model_ms:.1f} ms)"
        return line + (f"; {len(self.unusable)} could not be used" if self.unusable else "")


def look_through(
    source: FrameSource,
    detector: Detector,
    folder: Path,
    settings: LookSettings,
    about: Mapping[str, object],
    note: Callable[[int, int], None] = lambda frames, boxes: None,
) -> LookReport:
    """Looks at the frames of `source` until it ends, breaks or `limit` is reached, and writes to `folder`:

    detections.json  COCO: images, annotations with a score, categories; `about` stands under info
    pictures         with boxes, under the names that they came with
    annotated.mp4    of a video; its frames as frames/NNNNNN.jpg where no encoder is at hand
    busiest.jpg      of a video, the frame with most to see

    Calls `note(frames, boxes)` after each frame. Ctrl-C ends it early, and what was found until then is written.
    Raises Malformed when no frame could be used.
    """
    begun_s = perf_counter()
    notes = _Notes(detector.labels, settings.min_score)
    output = AnnotatedOutput(folder, (source.facts.fps or 10.0) / settings.every)
    broke = None
    index = -1
    try:
        while settings.limit is None or notes.frames < settings.limit:
            if not source.advance():
                break
            index += 1
            if index % settings.every:
                continue
            captured = notes.usable(source)
            if captured is None:
                continue
            detections = notes.looked_at(detector, captured, index)
            drawn = draw_detections(captured.pixels, detections, detector.labels)
            output.add(drawn, captured.name, index, float(detections.scores.sum()))
            note(notes.frames, notes.boxes)
    except Unavailable as error:
        broke = str(error)
    except KeyboardInterrupt:
        broke = "interrupted"
    finally:
        output.close()
    if not notes.frames:
        raise Malformed(broke or "; ".join(notes.unusable_names) or "no frames to look at")
    coco = folder / "detections.json"
    write_atomically(coco, json.dumps(notes.coco(about), indent=1, allow_nan=False).encode())
    return LookReport(
        notes.frames,
        dict(notes.found.most_common()),
        tuple(notes.unusable_names),
        perf_counter() - begun_s,
        float(np.median(notes.model_ms)),
        (coco, *output.written),
        broke,
    )


class _Notes:
    """What was found, collected as COCO."""

    def __init__(self, labels: LabelSet, min_score: float) -> None:
        self._labels, self._min_score = labels, min_score
        self._names = {label.id: label.name for label in labels}
        self._images: list[dict[str, object]] = []
        self._annotations: list[dict[str, object]] = []
        self.found: Counter[str] = Counter()
        self.unusable_names: list[str] = []
        self.model_ms: list[float] = []

    @property
    def frames(self) -> int:
        return len(self._images)

    @property
    def boxes(self) -> int:
        return len(self._annotations)

    def usable(self, source: FrameSource) -> Captured | None:
        try:
            return source.picture()
        except RejectedError as error:
            self.unusable_names.append(str(error))
            return None

    def looked_at(self, detector: Detector, captured: Captured, index: int) -> Detections:
        begun_s = perf_counter()
        detections = detector.detect([captured.pixels])[0].detections
        self.model_ms.append(1000 * (perf_counter() - begun_s))
        kept = np.flatnonzero(detections.scores >= self._min_score)
        detections = Detections(
            detections.boxes_xyxy[kept],
            detections.scores[kept],
            detections.class_ids[kept],
            detections.image_size,
            detections.model,
        )
        self._note(detections, captured.name or f"{index:06d}.jpg", index)
        return detections

    def coco(self, about: Mapping[str, object]) -> dict[str, object]:
        categories = [{"id": label.id, "name": label.name} for label in self._labels]
        return {
            "info": dict(about),
            "images": self._images,
            "annotations": self._annotations,
            "categories": categories,
        }

    def _note(self, detections: Detections, name: str, index: int) -> None:
        size = detections.image_size
        image_id = len(self._images) + 1
        self._images.append(
            {
                "id": image_id,
                "file_name": name,
                "width": size.width,
                "height": size.height,
                "frame_index": index,
            }
        )
        rows = zip(detections.boxes_xyxy, detections.scores, detections.class_ids, strict=True)
        for box, score, class_id in rows:
            x1, y1, x2, y2 = (round(float(edge), 2) for edge in box)
            self.found[self._names.get(int(class_id), f"class {class_id}")] += 1
            self._annotations.append(
                {
                    "id": len(self._annotations) + 1,
                    "image_id": image_id,
                    "category_id": int(class_id),
                    "bbox": [x1, y1, round(x2 - x1, 2), round(y2 - y1, 2)],
                    "area": round((x2 - x1) * (y2 - y1), 2),
                    "score": round(float(score), 5),
                    "iscrowd": 0,
                }
            )
