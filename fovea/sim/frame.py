"""What the street delivers: a frame of pixels and the truth about the objects in it."""

from __future__ import annotations

from dataclasses import dataclass

from fovea.core.labels import COCO_NAMES
from fovea.sim.canvas import Image

MIN_ASKED_HEIGHT_PX = 8.0
MIN_ASKED_FRACTION = 0.25
MIN_ASKED_CONTRAST = 6.0  # grey levels between the object and the empty street behind it
MIN_LISTED_FRACTION = 0.02


@dataclass(frozen=True, slots=True)
class StreetObject:
    """One labelled object.

    `box_xyxy` is tight around the drawn silhouette, whatever hides it, in px and clipped to the frame.
    `visible_fraction` is the share of its own silhouette that is neither hidden nor outside the frame.
    `ignore` marks what a detector is not asked for: less than a quarter seen, under 8 px high, or so
    faint that it differs from the empty street by less than 6 grey levels on average.
    """

    track_id: int
    class_id: int
    label: str
    box_xyxy: tuple[float, float, float, float]
    visible_fraction: float
    ignore: bool


@dataclass(frozen=True, slots=True, eq=False)
class StreetFrame:
    """One frame: `pixels` u8[h,w,3] BGR, and every object of which at least 2 % is seen."""

    clip_id: str
    index: int
    time_s: float
    pixels: Image
    objects: tuple[StreetObject, ...]


def judge(
    track_id: int,
    class_id: int,
    outline_xyxy: tuple[float, float, float, float],
    fraction: float,
    contrast: float,
    size_px: tuple[int, int],
) -> StreetObject | None:
    """The object to list, or None when next to nothing of it is seen."""
    x0, y0 = max(outline_xyxy[0], 0.0), max(outline_xyxy[1], 0.0)
    x1, y1 = min(outline_xyxy[2], float(size_px[0])), min(outline_xyxy[3], float(size_px[1]))
    if fraction < MIN_LISTED_FRACTION or x1 - x0 < 1.0 or y1 - y0 < 2.0:
        return None
    ignore = fraction < MIN_ASKED_FRACTION or y1 - y0 < MIN_ASKED_HEIGHT_PX or contrast < MIN_ASKED_CONTRAST
    box = (float(x0), float(y0), float(x1), float(y1))
    return StreetObject(track_id, class_id, COCO_NAMES[class_id], box, round(min(fraction, 1.0), 4), ignore)
