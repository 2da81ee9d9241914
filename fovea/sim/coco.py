"""Street frames as a COCO data set, for evaluators and training tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fovea.core.labels import COCO_NAMES
from fovea.sim.frame import StreetFrame


def to_coco(frames: Iterable[StreetFrame]) -> dict[str, Any]:
    """A COCO instances dictionary; image ids count from 1 in the order given.

    Boxes are [x, y, width, height] px. Objects to ignore get `iscrowd` 1, so that a match with them
    counts neither for nor against a detector. Category ids are the contiguous COCO-80 ids (person 0).
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, frame in enumerate(frames, start=1):
        height, width = frame.pixels.shape[:2]
        images.append(
            {
                "id": number,
                "file_name": f"{frame.clip_id}/{frame.index:04d}.jpg",
                "width": width,
                "height": height,
                "clip_id": frame.clip_id,
                "frame_index": frame.index,
                "time_s": frame.time_s,
            }
        )
        for thing in frame.objects:
            x0, y0, x1, y1 = thing.box_xyxy
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": thing.class_id,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": int(thing.ignore),
                    "track_id": thing.track_id,
                    "visible_fraction": thing.visible_fraction,
                }
            )
    categories = [{"id": i, "name": name} for i, name in enumerate(COCO_NAMES)]
    return {
        "info": {"description": "Fovea street"},
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }
