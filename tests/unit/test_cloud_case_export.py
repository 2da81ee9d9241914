"""Cases as data sets: what a reader of COCO and YOLO finds is what the tier saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from pycocotools.coco import COCO

from cloud.cases.export import COCO_FILE, YOLO_FILE, ExportReport, ExportSettings, Format, export_cases
from cloud.cases.store import CaseStore, StoreAddress
from fovea.bench.yolo_folder import labelled_images
from fovea.core.errors import BrokenError, Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from tests.unit.hard_cases import LABELS, SIZE, hard_case, tier_answer

BOXES = [[4, 5, 20.25, 30.5], [30, 1, 60, 40]]
"""What `tier_answer` sees, of channels 0 and 2, with scores .9 and .45."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"))
    yield opened
    opened.close()


def exported(store: CaseStore, folder: Path, **settings: object) -> ExportReport:
    return export_cases(store.walk(), store.load_image, folder, ExportSettings(**settings))  # type: ignore[arg-type]


def test_coco_is_read_by_the_usual_reader(store: CaseStore, tmp_path: Path) -> None:
    case = hard_case(
        answers=(tier_answer(Tier.EDGE, BOXES), tier_answer(Tier.AGENT, [])), reasons=("audit", "x")
    )
    store.add(case)
    report = exported(store, tmp_path / "out")
    assert report == ExportReport(images=1, boxes=2, unanswered=0, damaged=())

    coco = COCO(str(tmp_path / "out" / COCO_FILE))
    [image] = coco.loadImgs(coco.getImgIds())
    assert (tmp_path / "out" / image["file_name"]).read_bytes() == case.jpeg
    assert (image["width"], image["height"]) == (SIZE.width, SIZE.height)
    assert (image["case_id"], image["camera"], image["answered_by"]) == (case.id, "gate", "edge")
    assert (image["reasons"], image["send_probability"]) == (["audit", "x"], 1.0)
    first, second = coco.loadAnns(coco.getAnnIds())
    assert first["bbox"] == [4, 5, 16.25, 25.5]
    assert second["bbox"] == [30, 1, 30, 39]
    assert [first["category_id"], second["category_id"]] == [LABELS.ids[0], LABELS.ids[2]]
    assert first["score"] == pytest.approx(0.9)
    names = {category["id"]: category["name"] for category in coco.loadCats(coco.getCatIds())}
    assert names == {label.id: label.name for label in LABELS}


def test_a_yolo_folder_is_read_back_as_it_was_seen(store: CaseStore, tmp_path: Path) -> None:
    store.add(hard_case(1, answers=(tier_answer(Tier.CLOUD, BOXES),)))
    store.add(hard_case(2, answers=(tier_answer(Tier.CLOUD, []),)))
    out = tmp_path / "out"
    assert exported(store, out, format=Format.YOLO).images == 2

    described = yaml.safe_load((out / YOLO_FILE).read_text())
    names = LabelSet.from_names(described["names"][place] for place in range(len(described["names"])))
    assert set(names.names) == set(LABELS.names)
    frames = list(labelled_images(out / "images", out / "labels", names))
    [boxes] = [frame.truth for frame in frames if len(frame.truth)]
    np.testing.assert_allclose(boxes.boxes_xyxy, BOXES, atol=1e-3)
    assert boxes.class_ids.tolist() == [LABELS.ids[0], LABELS.ids[2]]
    assert sum(not len(frame.truth) for frame in frames) == 1
    assert len(list((out / "labels").glob("*.txt"))) == 2


@pytest.mark.parametrize(
    ("tier", "expected"),
    [(None, [3, 2, 1]), (Tier.CLOUD, [3]), (Tier.EDGE, [2]), (Tier.AGENT, [2, 1])],
)
def test_labels_are_those_of_the_tier_that_is_asked_for_and_cases_without_are_left_out(
    store: CaseStore, tmp_path: Path, tier: Tier | None, expected: list[int]
) -> None:
    store.add(hard_case(1, tiers=(Tier.AGENT,)))
    store.add(hard_case(2, tiers=(Tier.AGENT, Tier.EDGE)))
    store.add(hard_case(3, tiers=(Tier.CLOUD,)))
    store.add(hard_case(4, tiers=()))
    report = exported(store, tmp_path / "out", tier=tier)
    coco = json.loads((tmp_path / "out" / COCO_FILE).read_text())
    assert [image["sequence"] for image in coco["images"]] == expected
    assert (report.images, report.unanswered) == (len(expected), 4 - len(expected))
    highest = {1: "agent", 2: "edge", 3: "cloud"}
    for image in coco["images"]:
        assert image["answered_by"] == (tier.name.lower() if tier is not None else highest[image["sequence"]])


def test_weak_boxes_can_be_left_out(store: CaseStore, tmp_path: Path) -> None:
    store.add(hard_case(1))
    assert exported(store, tmp_path / "out", min_score=0.5).boxes == 1
    with pytest.raises(Malformed, match="min_score"):
        ExportSettings(min_score=1.5)


@pytest.mark.parametrize("form", Format)
def test_boxes_are_scaled_from_the_frame_that_was_looked_at_to_the_picture_that_is_kept(
    store: CaseStore, tmp_path: Path, form: Format
) -> None:
    twice = [[2 * edge for edge in box] for box in BOXES]
    store.add(hard_case(1, answers=(tier_answer(Tier.EDGE, twice, size=ImageSize(128, 96)),)))
    out = tmp_path / "out"
    exported(store, out, format=form)
    if form is Format.COCO:
        coco = json.loads((out / COCO_FILE).read_text())
        assert [note["bbox"] for note in coco["annotations"]] == [[4, 5, 16.25, 25.5], [30, 1, 30, 39]]
    else:
        [frame] = labelled_images(out / "images", out / "labels", LABELS)
        np.testing.assert_allclose(frame.truth.boxes_xyxy, BOXES, atol=1e-3)


def test_classes_of_models_with_other_labels_do_not_mix(store: CaseStore, tmp_path: Path) -> None:
    other = LabelSet.from_names(["dog", "car"])
    store.add(hard_case(1, answers=(tier_answer(Tier.AGENT, [[0, 0, 9, 9]], channels=[1], labels=other),)))
    store.add(hard_case(2, answers=(tier_answer(Tier.AGENT, [[0, 0, 9, 9]], channels=[1]),)))
    out = tmp_path / "out"
    exported(store, out, format=Format.YOLO)
    names = yaml.safe_load((out / YOLO_FILE).read_text())["names"]
    assert sorted(names.values()) == ["car", "dog", "person", "scooter"]
    rows = [path.read_text().split()[0] for path in (out / "labels").glob("*.txt")]
    assert {names[int(row)] for row in rows} == {"car"}


def test_a_damaged_picture_is_left_out_and_named_and_the_others_are_written(
    store: CaseStore, tmp_path: Path
) -> None:
    good, damaged, gone = hard_case(1), hard_case(2), hard_case(3)
    for case in (good, damaged, gone):
        store.add(case)
    images = tmp_path / "kept" / "images"
    (images / damaged.id[:2] / f"{damaged.id}.jpg").write_bytes(b"x")
    (images / gone.id[:2] / f"{gone.id}.jpg").unlink()
    report = exported(store, tmp_path / "out")
    assert report.images == 1
    assert sorted(told[5:17] for told in report.damaged) == sorted([damaged.id[:12], gone.id[:12]])
    assert len(list((tmp_path / "out" / "images").iterdir())) == 1


def test_a_folder_with_something_in_it_is_refused_and_left_as_it_is(store: CaseStore, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(Malformed, match="expected an empty folder"):
        exported(store, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_told_in_one_sentence(store: CaseStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokenError, match="cannot write to"):
        exported(store, tmp_path / "file" / "out")


def test_no_cases_make_an_empty_data_set(store: CaseStore, tmp_path: Path) -> None:
    assert exported(store, tmp_path / "out") == ExportReport(0, 0, 0, ())
    assert json.loads((tmp_path / "out" / COCO_FILE).read_text())["images"] == []
