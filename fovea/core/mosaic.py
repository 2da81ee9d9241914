"""Several parts of a frame in one picture at their own scale, and the exact way back for what is seen there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import Candidates, Detections, Inference
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize, size_of

BORDER_PX = 16
"""Between two tiles at least: wide enough that nothing is seen across it. JPEG blocks of 8 and 16 px keep to it."""
MOST_TILES = 32
_FILL = 114
"""The grey that detectors are trained to see around pictures."""
_TOUCHES_PX = 3.0
"""A box that ends nearer to the edge of its tile may go on beyond it."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a frame with the corner x, y, and where its own corner is in the mosaic; whole px."""

    x: int
    y: int
    width: int
    height: int
    at_x: int
    at_y: int

    def __post_init__(self) -> None:
        if not (self.width >= 1 and self.height >= 1 and min(self.x, self.y, self.at_x, self.at_y) >= 0):
            raise Malformed(f"tile: expected sides of 1 px or more and corners of 0 or more, got {self}")

    @property
    def frame_xyxy(self) -> tuple[int, int, int, int]:
        return self.x, self.y, self.x + self.width, self.y + self.height

    @property
    def mosaic_xyxy(self) -> tuple[int, int, int, int]:
        return self.at_x, self.at_y, self.at_x + self.width, self.at_y + self.height


@dataclass(frozen=True, slots=True)
class Mosaic:
    """Which parts of a frame of `frame_size` make up a picture of `size`. Tiles lie inside both and overlap in
    neither."""

    frame_size: ImageSize
    size: ImageSize
    tiles: tuple[Tile, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.tiles) <= MOST_TILES:
            raise Malformed(f"mosaic: expected 1 to {MOST_TILES} tiles, got {len(self.tiles)}")
        for name, size, boxes in (
            ("frame", self.frame_size, [tile.frame_xyxy for tile in self.tiles]),
            ("mosaic", self.size, [tile.mosaic_xyxy for tile in self.tiles]),
        ):
            for row, box in enumerate(boxes):
                if box[2] > size.width or box[3] > size.height:
                    raise Malformed(f"mosaic: expected tiles within the {name} of {size} px, got {box}")
                if any(_overlap(box, other) for other in boxes[:row]):
                    raise Malformed(f"mosaic: expected tiles that do not overlap in the {name}, got {box}")

    @property
    def regions_xyxy(self) -> FloatArray:
        """f32[T, 4] px of the frame: what can be seen in it."""
        return np.array([tile.frame_xyxy for tile in self.tiles], np.float32)

    def cut(self, pixels: ImageArray) -> ImageArray:
        """The mosaic u8[h, w, 3] of a frame u8[H, W, 3]. Raises Malformed for a frame of another size."""
        if size_of(pixels) != self.frame_size:
            raise Malformed(f"mosaic: expected a frame of {self.frame_size} px, got {size_of(pixels)}")
        picture = np.full((self.size.height, self.size.width, 3), _FILL, np.uint8)
        for tile in self.tiles:
            x1, y1, x2, y2 = tile.mosaic_xyxy
            picture[y1:y2, x1:x2] = pixels[tile.y : tile.y + tile.height, tile.x : tile.x + tile.width]
        return picture

    def to_frame(self, inference: Inference, cut_share: float = 0.0) -> Inference:
        """What a detector saw in the mosaic as seen in the frame: boxes are cut to the tile that holds most of them,
        and dropped where no tile holds half. The scores of boxes that the edge of a tile cuts, where the frame goes
        on, are multiplied by `cut_share`; with 0 they are dropped. Raises Malformed for another picture's."""
        seen, behind = inference.detections, inference.candidates
        if seen.image_size != self.size:
            raise Malformed(f"mosaic: expected what was seen in {self.size} px, got {seen.image_size}")
        boxes, kept, is_cut = self._placed(seen.boxes_xyxy)
        scores = np.where(is_cut, seen.scores * np.float32(cut_share), seen.scores)
        rows = np.flatnonzero(kept & (scores > 0))
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        detections = Detections(boxes[rows], scores[rows], seen.class_ids[rows], self.frame_size, seen.model)
        boxes, kept, is_cut = self._placed(behind.boxes_xyxy)
        rows = np.flatnonzero(kept & ~is_cut)
        candidates = Candidates(
            boxes[rows], behind.class_scores[rows], behind.kind, behind.labels, self.frame_size
        )
        return Inference(detections, candidates)

    def _placed(self, boxes_xyxy: FloatArray) -> tuple[FloatArray, np.ndarray, np.ndarray]:
        """Boxes of the mosaic in the frame, which of them lie in a tile, and which are cut by its edge."""
        tiles = np.array([tile.mosaic_xyxy for tile in self.tiles], np.float32)
        shifts = np.array([(t.x - t.at_x, t.y - t.at_y) * 2 for t in self.tiles], np.float32)
        low = np.maximum(boxes_xyxy[:, None, :2], tiles[None, :, :2])
        high = np.minimum(boxes_xyxy[:, None, 2:], tiles[None, :, 2:])
        sides = np.maximum(high - low, 0)
        inside = sides[..., 0] * sides[..., 1]
        tile = inside.argmax(axis=1)
        rows = np.arange(len(boxes_xyxy))
        area = (boxes_xyxy[:, 2] - boxes_xyxy[:, 0]) * (boxes_xyxy[:, 3] - boxes_xyxy[:, 1])
        kept = (inside[rows, tile] > 0) & (inside[rows, tile] >= area / 2)
        own = tiles[tile]
        placed = np.concatenate([np.maximum(boxes_xyxy[:, :2], own[:, :2]), high[rows, tile]], axis=1)
        near = np.abs(placed - own) < _TOUCHES_PX
        placed = placed + shifts[tile]
        regions = self.regions_xyxy
        width, height = self.frame_size.width, self.frame_size.height
        goes_on = np.column_stack(
            [regions[:, 0] > 0, regions[:, 1] > 0, regions[:, 2] < width, regions[:, 3] < height]
        )
        placed[:, 2:] = np.maximum(placed[:, 2:], placed[:, :2])  # of boxes in no tile, which are not kept
        return placed, kept, (near & goes_on[tile]).any(axis=1)


def mosaic_of(regions: Sequence[tuple[int, int, int, int]], frame_size: ImageSize) -> Mosaic:
    """`regions` (x1, y1, x2, y2 px of the frame, not overlapping) on shelves, the highest first, at the width that a
    detector which fits the picture into its input sees at the largest scale."""
    if not regions:
        raise Malformed("mosaic: expected at least one region, got none")
    ordered = sorted(regions, key=lambda r: (r[1] - r[3], r[0] - r[2], r))
    widest = max(x2 - x1 for x1, _, x2, _ in ordered)
    row = sum(x2 - x1 + BORDER_PX for x1, _, x2, _ in ordered)
    widths = range(widest, max(min(row, frame_size.width), widest) + BORDER_PX, BORDER_PX)
    shelved = [_on_shelves(ordered, width) for width in widths]
    width, height, corners = min(
        shelved, key=lambda s: (max(s[0] / frame_size.width, s[1] / frame_size.height), s[0] * s[1])
    )
    tiles = [
        Tile(x1, y1, x2 - x1, y2 - y1, at_x, at_y)
        for (x1, y1, x2, y2), (at_x, at_y) in zip(ordered, corners, strict=True)
    ]
    return Mosaic(frame_size, ImageSize(width, height), tuple(tiles))


def _on_shelves(
    regions: Sequence[tuple[int, int, int, int]], width: int
) -> tuple[int, int, list[tuple[int, int]]]:
    """Width and height of the picture, and the corner of each region in it; `width` is the most it may take."""
    corners: list[tuple[int, int]] = []
    x = y = shelf = used = 0
    for x1, y1, x2, y2 in regions:
        if x and x + x2 - x1 > width:
            x, y, shelf = 0, y + _blocks(shelf) + BORDER_PX, 0
        corners.append((x, y))
        used = max(used, x + x2 - x1)
        shelf = max(shelf, y2 - y1)
        x += _blocks(x2 - x1) + BORDER_PX
    return used, y + shelf, corners


def _blocks(side_px: int) -> int:
    return -(-side_px // BORDER_PX) * BORDER_PX


def _overlap(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
