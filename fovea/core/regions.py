"""Where the doubt about a frame lies: in a few places that are worth a sharper look, or all over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fovea.core.arrays import FloatArray, frozen_boxes
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.mosaic import MOST_TILES, Mosaic, mosaic_of

Region = tuple[int, int, int, int]
"""x1, y1, x2, y2 in whole px of the frame."""

_NOTHING = frozen_boxes("places", np.empty((0, 4), np.float32))
_BITS_OF_A_PLACE = 1.0
"""What something that was lost, or moves without a box, weighs: as much as a box with a score of one half."""


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """When a few parts of a frame are asked about, and not all of it.

    noise_below, sure_from  boxes with a calibrated score between them are doubtful
    held_share    the regions hold so much of the doubt at least (bits of entropy); the most doubtful places first
    pad_share     of its longer side is kept around a doubtful box, on each side, and pad_px at least
    snap_px       the edges of regions are multiples of it, or edges of the frame
    most          regions; nearby ones are joined until there are no more
    largest_share of the frame's pixels that the mosaic may have, as many as it saves bytes in about: with more the
                  whole frame is asked about
    """

    noise_below: float = 0.05
    sure_from: float = 0.6
    held_share: float = 0.8
    pad_share: float = 0.25
    pad_px: float = 16.0
    snap_px: int = 32
    most: int = 8
    largest_share: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.noise_below < self.sure_from <= 1:
            raise Malformed(
                f"region settings: expected 0 <= noise_below < sure_from <= 1, got {self.noise_below}, "
                f"{self.sure_from}"
            )
        if not (0 < self.held_share <= 1 and 0 < self.largest_share <= 1):
            raise Malformed(f"region settings: expected shares above 0 up to 1, got {self}")
        if not (0 <= self.pad_share < math.inf and 0 <= self.pad_px < math.inf):
            raise Malformed(f"region settings: expected paddings of 0 or more, got {self}")
        if not (self.snap_px >= 1 and 1 <= self.most <= MOST_TILES):
            raise Malformed(
                f"region settings: expected a snap_px of 1 or more and 1 to {MOST_TILES} regions, got {self}"
            )


def plan_mosaic(
    answered: Detections, places_xyxy: FloatArray = _NOTHING, settings: RegionSettings = RegionSettings()
) -> Mosaic | None:
    """The parts of a frame that hold the doubt about it, as one picture; None where the whole frame is the better
    question: nothing is doubtful, or too much is.

    answered     all that the camera's model says, the boxes too weak to be told among them
    places_xyxy  f32[M, 4] px: where tracks were lost, and where something moves
    """
    size = answered.image_size
    boxes, bits = _doubts(answered, places_xyxy, settings)
    if not len(boxes):
        return None
    order = np.argsort(-bits, kind="stable")
    held = np.cumsum(bits[order])
    count = int(np.searchsorted(held, settings.held_share * held[-1] - 1e-9)) + 1
    regions = regions_around(boxes[order[:count]], size, settings)
    largest_px = settings.largest_share * size.width * size.height
    if sum(map(_area, regions)) > largest_px:
        return None
    mosaic = mosaic_of(regions, size)
    return mosaic if mosaic.size.width * mosaic.size.height <= largest_px else None


def regions_around(boxes_xyxy: FloatArray, size: ImageSize, settings: RegionSettings) -> list[Region]:
    """At most `settings.most` regions that hold all of f32[N, 4], padded; none overlaps another."""
    regions: list[Region] = []
    for box in boxes_xyxy.tolist():
        regions = _joined(regions, _snapped(box, size, settings))
    while len(regions) > settings.most:
        pairs = [(a, b) for row, a in enumerate(regions) for b in regions[:row]]
        first, second = min(pairs, key=lambda pair: _area(_union(*pair)) - _area(pair[0]) - _area(pair[1]))
        others = [region for region in regions if region not in (first, second)]
        regions = _joined(others, _union(first, second))
    return regions


def _doubts(
    answered: Detections, places_xyxy: FloatArray, settings: RegionSettings
) -> tuple[FloatArray, FloatArray]:
    """Doubtful boxes f32[N, 4], and how doubtful they are f32[N], in bits."""
    scores = answered.scores
    rows = np.flatnonzero((scores >= settings.noise_below) & (scores < settings.sure_from))
    p = scores[rows].clip(1e-6, 1 - 1e-6)
    bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    told = answered.boxes_xyxy[scores >= TOLD_FROM]
    places = places_xyxy[[not _is_explained(place, told) for place in places_xyxy]]
    boxes = np.concatenate([answered.boxes_xyxy[rows], places])
    return boxes, np.concatenate([bits, np.full(len(places), _BITS_OF_A_PLACE, np.float32)])


def _is_explained(place: FloatArray, told_xyxy: FloatArray) -> bool:
    """Half of it or more is covered by things that are told, which are doubtful themselves where they are; overlaps
    among those are not told apart."""
    sides = np.minimum(told_xyxy[:, 2:], place[2:]) - np.maximum(told_xyxy[:, :2], place[:2])
    covered = np.maximum(sides, 0).prod(axis=1).sum()
    return bool(covered >= (place[2:] - place[:2]).prod() / 2)


def _snapped(box: Sequence[float], size: ImageSize, settings: RegionSettings) -> Region:
    x1, y1, x2, y2 = box
    pad, snap = max(settings.pad_share * max(x2 - x1, y2 - y1), settings.pad_px), settings.snap_px

    def down(edge: float, side: int) -> int:
        last = (side - 1) // snap
        return snap * min(max(math.floor(edge / snap), 0), last)

    def up(edge: float, side: int) -> int:
        return min(snap * max(math.ceil(edge / snap), 1), side)

    low = down(x1 - pad, size.width), down(y1 - pad, size.height)
    high = up(x2 + pad, size.width), up(y2 + pad, size.height)
    return *low, max(high[0], min(low[0] + snap, size.width)), max(high[1], min(low[1] + snap, size.height))


def _joined(regions: list[Region], new: Region) -> list[Region]:
    """`regions`, none of which overlaps another, and `new`, with all that overlaps it made one."""
    while near := [region for region in regions if _overlap(region, new)]:
        regions = [region for region in regions if region not in near]
        for region in near:
            new = _union(new, region)
    return [*regions, new]


def _union(a: Region, b: Region) -> Region:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _overlap(a: Region, b: Region) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _area(region: Region) -> int:
    return (region[2] - region[0]) * (region[3] - region[1])
