"""Boxes that a person drew, or is shown to correct; and their form as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray, IntArray, frozen_boxes
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import clip_boxes
from fovea.core.labels import Label, label_named

MOST_BOXES = 2000
_FARTHEST_PX = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class DrawnBoxes:
    """N boxes of one picture.

    boxes_xyxy f32[N, 4] px of the picture, within it, no side of 0
    labels     what each is
    ignore     bool[N]: need not be found and may be found (a crowd, too far, half hidden): counts on neither side
    """

    boxes_xyxy: FloatArray
    labels: tuple[Label, ...]
    ignore: NDArray[np.bool_]
    image_size: ImageSize

    def __post_init__(self) -> None:
        boxes = frozen_boxes("drawn boxes", self.boxes_xyxy)
        boxes = frozen_boxes("drawn boxes", clip_boxes(boxes, self.image_size))
        if len(boxes) > MOST_BOXES:
            raise Malformed(f"drawn boxes: expected at most {MOST_BOXES} of a picture, got {len(boxes)}")
        if len(self.labels) != len(boxes):
            raise Malformed(f"drawn labels: expected {len(boxes)}, got {len(self.labels)}")
        ignore = np.array(self.ignore, bool).reshape(-1)
        if len(ignore) != len(boxes):
            raise Malformed(f"drawn ignore: expected {len(boxes)} flags, got {len(ignore)}")
        thin = (boxes[:, 2:] <= boxes[:, :2]).any(axis=1)
        if thin.any():
            raise Malformed(
                f"drawn boxes: expected a width and a height inside the picture of {self.image_size}, "
                f"got {boxes[int(thin.argmax())].tolist()}"
            )
        ignore.flags.writeable = False
        object.__setattr__(self, "boxes_xyxy", boxes)
        object.__setattr__(self, "ignore", ignore)

    def __len__(self) -> int:
        return len(self.boxes_xyxy)

    @property
    def class_ids(self) -> IntArray:
        """i32[N]"""
        return np.array([label.id for label in self.labels], np.int32)

    @classmethod
    def of(
        cls, boxes: Sequence[tuple[Sequence[float], str]], size: ImageSize, ignore: Sequence[bool] = ()
    ) -> Self:
        """Of boxes xyxy with the names of their classes. Raises Malformed."""
        flags = np.array(ignore or [False] * len(boxes), bool)
        return cls(
            np.array([box for box, _ in boxes], np.float32).reshape(-1, 4),
            tuple(label_named(name) for _, name in boxes),
            flags,
            size,
        )

    def to_json(self) -> list[dict[str, Any]]:
        """One object for each box: box_xyxy, label, ignore."""
        rows = zip(self.boxes_xyxy.tolist(), self.labels, self.ignore.tolist(), strict=True)
        return [{"box_xyxy": box, "label": label.name, "ignore": ignore} for box, label, ignore in rows]

    @classmethod
    def from_json(cls, rows: object, size: ImageSize) -> Self:
        """The other way round. Raises Malformed, naming the box and what is wrong with it."""
        if not isinstance(rows, list):
            raise Malformed(f"boxes: expected a list, got {type(rows).__name__}")
        boxes, flags = list[tuple[Sequence[float], str]](), list[bool]()
        for place, row in enumerate(rows):
            box, name, ignore = _parts(row, f"box {place + 1}")
            boxes.append((box, name))
            flags.append(ignore)
        return cls.of(boxes, size, flags)


def _parts(row: object, what: str) -> tuple[list[float], str, bool]:
    if not isinstance(row, Mapping) or not set(row) <= {"box_xyxy", "label", "ignore"}:
        raise Malformed(f"{what}: expected box_xyxy, label and ignore, got {row!r:.120}")
    box, name, ignore = row.get("box_xyxy"), row.get("label"), row.get("ignore", False)
    if not isinstance(box, list) or len(box) != 4 or not all(_is_number(edge) for edge in box):
        raise Malformed(f"{what}: box_xyxy: expected four numbers, got {box!r:.80}")
    if not isinstance(name, str):
        raise Malformed(f"{what}: label: expected a name, got {name!r:.80}")
    if not isinstance(ignore, bool):
        raise Malformed(f"{what}: ignore: expected true or false, got {ignore!r:.80}")
    return box, name, ignore


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _FARTHEST_PX
