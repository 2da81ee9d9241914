"""Drawing what was found onto a picture for people to look at."""

from __future__ import annotations

import cv2
import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.detections import Detections
from fovea.core.labels import LabelSet

# BGR; far apart in hue and light enough to be read on asphalt and at night.
_COLOURS = ((80, 220, 255), (255, 160, 60), (90, 255, 120), (200, 110, 255), (255, 255, 90), (110, 140, 255))
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_PLAIN_SIDE_PX = 960
"""On larger pictures lines and letters grow with the longer side."""


def draw_detections(pixels: ImageArray, detections: Detections, labels: LabelSet) -> ImageArray:
    """A copy of u8[H, W, 3] BGR with a box, the label and the score in per cent for each detection."""
    names = {label.id: label.name for label in labels}
    captions = [
        f"{names.get(int(class_id), f'class {class_id}')} {100 * score:.0f}"
        for class_id, score in zip(detections.class_ids, detections.scores, strict=True)
    ]
    colours = [_COLOURS[int(class_id) % len(_COLOURS)] for class_id in detections.class_ids]
    return draw_boxes(pixels, detections.boxes_xyxy, captions, colours)


def draw_boxes(
    pixels: ImageArray,
    boxes_xyxy: np.ndarray,
    captions: list[str],
    colours: list[tuple[int, int, int]] | None = None,
) -> ImageArray:
    """A copy of u8[H, W, 3] BGR with boxes f32[N, 4] in px and a caption over each ('' for none)."""
    drawn = np.ascontiguousarray(pixels).copy()
    colours = colours or [_COLOURS[0]] * len(captions)
    scale = max(1.0, max(drawn.shape[:2]) / _PLAIN_SIDE_PX)
    for box, caption, colour in zip(boxes_xyxy, captions, colours, strict=True):
        x1, y1, x2, y2 = (round(float(edge)) for edge in box)
        cv2.rectangle(drawn, (x1, y1), (x2, y2), colour, round(scale), cv2.LINE_AA)
        if caption:
            _write(drawn, caption, x1, y1, colour, scale)
    return drawn


def title(pixels: ImageArray, text: str) -> ImageArray:
    """A copy with a dark strip at the top edge that carries `text`."""
    drawn = np.ascontiguousarray(pixels).copy()
    drawn[:24] = drawn[:24] // 4
    cv2.putText(drawn, text, (8, 17), _FONT, 0.5, (255, 255, 255), 1, cv2.LINE_AA)
    return drawn


def _write(
    drawn: ImageArray, caption: str, x: int, y: int, colour: tuple[int, int, int], scale: float
) -> None:
    size, thickness = 0.38 * scale, round(scale)
    (width, height), _ = cv2.getTextSize(caption, _FONT, size, thickness)
    bottom = y - 2 if y - height - 4 >= 0 else y + height + 4
    left = max(0, min(x, drawn.shape[1] - width - 2))
    cv2.rectangle(drawn, (left, bottom - height - 2), (left + width + 2, bottom + 2), (25, 25, 25), -1)
    cv2.putText(drawn, caption, (left + 1, bottom), _FONT, size, colour, thickness, cv2.LINE_AA)
