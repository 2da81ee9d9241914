"""Street frames survive the way through a COCO file and its reader."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from fovea.core.labels import COCO_NAMES
from fovea.sim.coco import to_coco
from fovea.sim.frame import StreetFrame
from fovea.sim.suite import load_suite


@cache
def _frames() -> tuple[StreetFrame, ...]:
    clip = load_suite("street-v1").clip("val", "day", 0)
    return tuple(clip.frames(start=20, count=3, stride=90))


def _read(tmp_path: Path) -> Any:
    path = tmp_path / "street.json"
    path.write_text(json.dumps(to_coco(_frames())))
    return COCO(str(path))


def test_every_object_comes_back_with_its_box_class_track_and_fraction(tmp_path: Path) -> None:
    coco = _read(tmp_path)
    assert coco.getImgIds() == [1, 2, 3]
    assert sum(len(f.objects) for f in _frames()) > 10
    for number, frame in enumerate(_frames(), start=1):
        found = coco.loadAnns(coco.getAnnIds(imgIds=[number]))
        assert len(found) == len(frame.objects)
        for one, thing in zip(found, frame.objects, strict=True):
            x, y, w, h = one["bbox"]
            assert (x, y, x + w, y + h) == thing.box_xyxy
            assert one["category_id"] == thing.class_id
            assert one["track_id"] == thing.track_id
            assert one["visible_fraction"] == thing.visible_fraction
            assert one["iscrowd"] == int(thing.ignore)
            assert one["area"] == w * h


def test_categories_are_the_contiguous_eighty(tmp_path: Path) -> None:
    categories = _read(tmp_path).loadCats(list(range(80)))
    assert [c["name"] for c in categories] == list(COCO_NAMES)


def test_images_say_their_size_clip_and_time(tmp_path: Path) -> None:
    image = _read(tmp_path).loadImgs([2])[0]
    assert (image["width"], image["height"]) == (960, 540)
    assert (image["clip_id"], image["frame_index"], image["time_s"]) == ("street-v1/val/day/000", 110, 11.0)
    assert image["file_name"] == "street-v1/val/day/000/0110.jpg"


def test_answering_with_the_truth_scores_one_and_ignored_objects_cost_nothing(tmp_path: Path) -> None:
    coco = _read(tmp_path)
    kept = [a for a in coco.dataset["annotations"] if not a["iscrowd"]]
    assert len(kept) < len(coco.dataset["annotations"])
    answers = [{**{k: a[k] for k in ("image_id", "category_id", "bbox")}, "score": 0.9} for a in kept]
    judge = COCOeval(coco, coco.loadRes(answers), "bbox")
    judge.params.maxDets = [1, 10, 300]
    judge.evaluate()
    judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, 2]
    assert precision[precision > -1].min() > 0.999
