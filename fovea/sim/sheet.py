"""Contact sheets: frames of every condition side by side, plain and with their boxes."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from fovea.sim.canvas import Image
from fovea.sim.conditions import CONDITIONS
from fovea.sim.frame import StreetFrame
from fovea.sim.suite import Suite

BOX_COLOURS: dict[int, tuple[int, int, int]] = {
    0: (90, 230, 90),
    1: (240, 220, 60),
    2: (40, 150, 255),
    5: (235, 90, 235),
    7: (255, 110, 60),
}
IGNORED = (150, 150, 150)


def draw_boxes(frame: StreetFrame) -> Image:
    """A copy of the frame's pixels with a thin box per object; ignored ones are grey."""
    out = frame.pixels.copy()
    for thing in frame.objects:
        x0, y0, x1, y1 = (round(v) for v in thing.box_xyxy)
        cv2.rectangle(out, (x0, y0), (x1, y1), IGNORED if thing.ignore else BOX_COLOURS[thing.class_id], 1)
    return out


def contact_sheet(
    suite: Suite,
    split: str,
    first_index: int,
    columns: int,
    width_px: int,
    on_row: Callable[[str], None] = lambda _: None,
) -> Image:
    """One row per condition u8[h,w,3]: `columns` clips, every second one with boxes."""
    rows = []
    for condition in CONDITIONS:
        cells = []
        for column in range(columns):
            clip = suite.clip(split, condition, first_index + column)
            frame = clip.frame(60 + 35 * column)
            picture = draw_boxes(frame) if column % 2 else frame.pixels.copy()
            label = condition if column % 2 == 0 else f"{condition}, boxes"
            cv2.putText(picture, label, (12, 34), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (20, 20, 20), 5, cv2.LINE_AA)
            cv2.putText(
                picture, label, (12, 34), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (250, 250, 250), 2, cv2.LINE_AA
            )
            height = round(width_px / columns * picture.shape[0] / picture.shape[1])
            cells.append(cv2.resize(picture, (width_px // columns, height), interpolation=cv2.INTER_AREA))
            clip.release()
        rows.append(np.hstack(cells))
        on_row(condition)
    return np.vstack(rows)
