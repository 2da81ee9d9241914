"""The COCO average precision written out plainly, one box after the other: what the evaluator is checked against."""

from __future__ import annotations

import numpy as np

from calibration.truth import EvaluatedFrame, scored_boxes

Box = tuple[float, float, float, float]


def plain_ap(frames: list[EvaluatedFrame], class_ids: tuple[int, ...]) -> float:
    """Mean over classes with true boxes, and over IoU 0.50 to 0.95, of the 101-point average precision."""
    values = []
    for class_id in class_ids:
        for step in range(10):
            value = _class_ap(frames, class_id, 0.5 + 0.05 * step)
            if value is not None:
                values.append(value)
    return sum(values) / len(values)


def _class_ap(frames: list[EvaluatedFrame], class_id: int, threshold: float) -> float | None:
    outcomes: list[tuple[float, bool]] = []
    positives = 0
    for frame in frames:
        rows = [i for i in range(len(frame.truth)) if frame.truth.class_ids[i] == class_id]
        real = [tuple(frame.truth.boxes_xyxy[i].tolist()) for i in rows if not frame.truth.ignore[i]]
        ignored = [tuple(frame.truth.boxes_xyxy[i].tolist()) for i in rows if frame.truth.ignore[i]]
        positives += len(real)
        outcomes += _frame_outcomes(frame, class_id, real, ignored, threshold)
    if not positives:
        return None
    outcomes.sort(key=lambda outcome: -outcome[0])
    curve, hits = [], 0
    for rank, (_, is_hit) in enumerate(outcomes, start=1):
        hits += is_hit
        curve.append((hits / positives, hits / rank))
    levels = [max((p for r, p in curve if r >= level / 100 - 1e-12), default=0.0) for level in range(101)]
    return float(np.mean(levels))


def _frame_outcomes(
    frame: EvaluatedFrame, class_id: int, real: list[Box], ignored: list[Box], threshold: float
) -> list[tuple[float, bool]]:
    """(score, right?) of each box of the class that counts."""
    seen = scored_boxes(frame.seen)
    rows = [i for i in range(len(seen.scores)) if seen.class_ids[i] == class_id]
    rows.sort(key=lambda i: -seen.scores[i])
    taken: set[int] = set()
    outcomes = []
    for row in rows[:100]:
        box = tuple(seen.boxes_xyxy[row].tolist())
        free = [(_iou(box, other), i) for i, other in enumerate(real) if i not in taken]
        best = max(free, default=(0.0, -1))
        if best[0] >= threshold:
            taken.add(best[1])
            outcomes.append((float(seen.scores[row]), True))
        elif not any(_share_inside(box, other) >= threshold for other in ignored):
            outcomes.append((float(seen.scores[row]), False))
    return outcomes


def _overlap(a: Box, b: Box) -> float:
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)


def _area(a: Box) -> float:
    return (a[2] - a[0]) * (a[3] - a[1])


def _iou(a: Box, b: Box) -> float:
    return _overlap(a, b) / (_area(a) + _area(b) - _overlap(a, b))


def _share_inside(box: Box, ignored: Box) -> float:
    """How much of the box lies in the ignored region: COCO's overlap with a crowd."""
    return _overlap(box, ignored) / _area(box)
