"""Data sets into cases: what was exported comes back as it was, others are taken once, bad files are named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.cases.data_set import COCO_FILE, FACTS_FILE, YOLO_FILE, read_facts
from cloud.cases.export import ExportSettings, Format, export_cases
from cloud.cases.importing import IMPORTED, ImportReport, ImportSettings, import_cases
from cloud.cases.near import NearRule
from cloud.cases.store import CaseStore, KeepRules, StoreAddress
from cloud.cases.stored_case import CaseFilter
from fovea.core.errors import Malformed, NotFound
from fovea.core.frame import ImageSize
from fovea.core.hard_case import HardCase
from fovea.core.labels import COCO_NAMES, LabelSet
from fovea.core.routing import Tier
from fovea.runtime.images import ImageLimits, encode_jpeg
from tests.builders import scene
from tests.unit.hard_cases import CAPTURED_AT, SIZE, assert_same_answer, hard_case, picture, tier_answer

NOW = datetime(2025, 7, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"), KeepRules(near=NearRule()))
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "other"), KeepRules(near=NearRule()))
    yield opened
    opened.close()


def imported(store: CaseStore, folder: Path, form: Format = Format.COCO, **more: Any) -> ImportReport:
    return import_cases(store, folder, ImportSettings(form, **more), now=NOW)


def exported(store: CaseStore, folder: Path, form: Format) -> Path:
    export_cases(store.walk(), store.load_image, folder, ExportSettings(form))
    return folder


CASES = [
    hard_case(
        1, answers=(tier_answer(Tier.EDGE, [[0.1, 0.2, 33.3, 47.3], [1, 1, 2, 2]]),), reasons=("audit", "x")
    ),
    hard_case(2, answers=(tier_answer(Tier.CLOUD, []),), send_probability=0.25, camera="Tür/Süd #1"),
    hard_case(3, answers=(tier_answer(Tier.AGENT, labels=LabelSet.from_names(["dog", "car", "person"])),)),
]


@pytest.mark.parametrize("form", Format)
def test_what_was_exported_comes_back_as_it_was(
    store: CaseStore, other: CaseStore, tmp_path: Path, form: Format
) -> None:
    for case in CASES:
        store.add(case)
    store.tag([CASES[0].id], ["wet", "roadworks"])
    report = imported(other, exported(store, tmp_path / "out", form), form)
    assert report == ImportReport(images=3, new=3, boxes=4, skipped_boxes=0, refused=())
    for case in CASES:
        found, given_case = other.find(case.id), store.find(case.id)
        assert found is not None and given_case is not None
        assert other.load_image(found) == case.jpeg
        for name in (
            "frame_id",
            "captured_at",
            "reasons",
            "send_probability",
            "is_audit",
            "tags",
            "condition",
        ):
            assert getattr(found, name) == getattr(given_case, name), name
        assert_boxes_are_those_of(found.answers[0], case, form)


def assert_boxes_are_those_of(found: Any, case: HardCase, form: Format) -> None:
    """To the last bit from COCO; a YOLO folder keeps six digits, and no scores."""
    [given_answer] = case.answers
    assert (found.tier, found.detections.model) == (given_answer.tier, given_answer.detections.model)
    boxes, given_boxes = found.detections.boxes_xyxy, given_answer.detections.boxes_xyxy
    if form is Format.COCO:
        np.testing.assert_array_equal(boxes, given_boxes)
        np.testing.assert_array_equal(found.detections.scores, given_answer.detections.scores)
    np.testing.assert_allclose(boxes, given_boxes, atol=1e-4)
    np.testing.assert_array_equal(found.detections.class_ids, given_answer.detections.class_ids)
    assert set(given_answer.labels) <= set(found.labels)


@pytest.mark.parametrize("form", Format)
def test_an_import_twice_adds_nothing_and_one_into_its_own_store_changes_nothing(
    store: CaseStore, other: CaseStore, tmp_path: Path, form: Format
) -> None:
    for case in CASES:
        store.add(case)
    folder = exported(store, tmp_path / "out", form)
    assert [imported(other, folder, form).new for _ in range(2)] == [3, 0]
    assert imported(store, folder, form).new == 0
    assert (store.count(), other.count()) == (3, 3)
    for case in CASES:
        found = store.find(case.id)
        assert found is not None
        assert_same_answer(found.answers[0], case.answers[0])


@settings(max_examples=15, deadline=None)
@given(
    boxes=st.lists(
        st.tuples(st.floats(0, 30, width=32), st.floats(0, 20, width=32), st.floats(1, 30), st.floats(1, 20)),
        max_size=4,
    )
)
def test_any_boxes_go_through_coco_and_come_back(
    boxes: list[tuple[float, float, float, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("round")
    corners = [[x, y, x + width, y + height] for x, y, width, height in boxes]
    case = hard_case(answers=(tier_answer(Tier.CLOUD, corners, scores=[0.5] * len(corners)),))
    one, two = (CaseStore.open(StoreAddress.in_folder(folder / name)) for name in ("one", "two"))
    one.add(case)
    imported(two, exported(one, folder / "out", Format.COCO))
    found = two.get(case.id)
    np.testing.assert_allclose(
        found.answers[0].detections.boxes_xyxy, case.answers[0].detections.boxes_xyxy, rtol=1e-6, atol=1e-6
    )
    one.close()
    two.close()


# What others made.


def coco(folder: Path, **changes: Any) -> Path:
    """Two pictures, the ids of the 91-name list, a crowd and a flat box."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name in ("a.jpg", "b.jpg"):
        (folder / "images" / name).write_bytes(picture(1 if name == "a.jpg" else 2))
    whole = {
        "images": [
            {
                "id": 7,
                "file_name": "images/a.jpg",
                "width": 64,
                "height": 48,
                "date_captured": "2013-11-14 17:02:52",
            },
            {"id": 9, "file_name": "b.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "bbox": [4, 5, 16.25, 25.5], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 1, "bbox": [50, 40, 100, 100]},
            {"id": 3, "image_id": 7, "category_id": 1, "bbox": [0, 0, 60, 40], "iscrowd": 1},
            {"id": 4, "image_id": 9, "category_id": 1, "bbox": [3, 3, 0, 5]},
            {"id": 5, "image_id": 9, "category_id": 1, "bbox": [64, 0, 5, 5]},
        ],
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    } | changes
    (folder / COCO_FILE).write_text(json.dumps(whole))
    return folder


def test_a_foreign_coco_set_keeps_names_not_numbers_and_leaves_out_what_is_no_box(
    store: CaseStore, tmp_path: Path
) -> None:
    report = imported(store, coco(tmp_path / "set"), camera="yard", tags=("wet",))
    assert report == ImportReport(images=2, new=2, boxes=2, skipped_boxes=3, refused=())
    found = store.find(hard_case(1).id)
    assert found is not None
    assert (found.frame_id.camera, found.reasons, found.send_probability) == ("yard", (IMPORTED,), 1.0)
    assert found.captured_at == datetime(2013, 11, 14, 17, 2, 52, tzinfo=UTC)
    [answer] = found.answers
    assert answer.tier is Tier.CLOUD and answer.detections.model.name == IMPORTED
    assert sorted(answer.detections.class_ids.tolist()) == [
        COCO_NAMES.index("person"),
        COCO_NAMES.index("dog"),
    ]
    np.testing.assert_array_equal(answer.detections.boxes_xyxy[1], [50, 40, 64, 48])
    assert {case.id for case in store.walk(CaseFilter(tag="wet"))} == {hard_case(1).id, hard_case(2).id}
    assert store.count_by_tag() == {"wet": 2}
    later = [case for case in store.walk() if case.captured_at == NOW]
    assert len(later) == 1, "a picture without a date is of the time of the import"


def test_pictures_that_look_alike_are_all_taken(store: CaseStore, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    coco(folder, annotations=[])
    alike = scene(SIZE.height, SIZE.width, 4)
    for name, quality in (("a.jpg", 90), ("b.jpg", 80)):
        (folder / "images" / name).write_bytes(encode_jpeg(alike, quality))
    assert imported(store, folder).new == 2


def spoiled(**changes: Any) -> Callable[[Path], Path]:
    return lambda folder: coco(folder, **changes)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / COCO_FILE).write_text("<html>"), r"annotations\.json: expected JSON"),
        (lambda folder: (folder / COCO_FILE).write_text("[]"), "expected a JSON object"),
        (lambda folder: (folder / COCO_FILE).write_text("[" * 100_000), "expected JSON"),
        (spoiled(images={}), "images: expected a list"),
        (spoiled(images=[{"id": "x", "file_name": "a.jpg"}]), "image 0"),
        (spoiled(categories=[]), "expected categories"),
        (spoiled(categories=[{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]), "category 1"),
        (spoiled(annotations=[{"image_id": 7, "category_id": 3, "bbox": [0, 0, 1, 1]}]), "annotation 0"),
        (spoiled(annotations=[{"image_id": 7, "category_id": [1], "bbox": [0, 0, 1, 1]}]), "annotation 0"),
        (spoiled(annotations=[{"image_id": 7, "category_id": 1, "bbox": [0, 0, 1]}]), "annotation 0: bbox"),
        (spoiled(annotations=[{"image_id": 7, "category_id": 1, "bbox": [0, 0, float("nan"), 1]}]), "bbox"),
        (spoiled(annotations=[{"image_id": 7, "category_id": 1, "bbox": [0, 0, 10**400, 1]}]), "bbox"),
        (spoiled(annotations=[{"image_id": 7, "category_id": 1, "bbox": "0011"}]), "bbox"),
        (spoiled(annotations=[{"image_id": 8, "category_id": 1, "bbox": [0, 0, 1, 1]}]), "image 8"),
        (
            spoiled(annotations=[{"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 2}]),
            "score: expected 0 to 1",
        ),
    ],
)
def test_a_coco_description_that_makes_no_sense_is_refused_and_takes_nothing(
    store: CaseStore, tmp_path: Path, spoil: Callable[[Path], object], told: str
) -> None:
    spoil(coco(tmp_path / "set"))
    with pytest.raises(Malformed, match=told):
        imported(store, tmp_path / "set")
    assert store.count() == 0


def test_bad_pictures_are_refused_by_name_and_the_others_are_taken(store: CaseStore, tmp_path: Path) -> None:
    outside = tmp_path / "secret.jpg"
    outside.write_bytes(picture(3))
    images = [
        {"id": 1, "file_name": "images/a.jpg"},
        {"id": 2, "file_name": "gone.jpg"},
        {"id": 3, "file_name": "../secret.jpg"},
        {"id": 4, "file_name": str(outside)},
        {"id": 5, "file_name": "cut.jpg"},
        {"id": 6, "file_name": "b.jpg", "width": 640, "height": 480},
        {"id": 7, "file_name": "large.jpg"},
        {"id": 8, "file_name": "odd.jpg", "camera": 5, "boot_id": "x", "sequence": 0},
        {"id": 9, "file_name": "odd2.jpg", "send_probability": 7},
    ]
    folder = coco(tmp_path / "set", images=images, annotations=[])
    (folder / "images" / "cut.jpg").write_bytes(picture(5)[:-200])
    (folder / "images" / "large.jpg").write_bytes(encode_jpeg(scene(200, 200)))
    (folder / "images" / "odd.jpg").write_bytes(picture(8))
    (folder / "images" / "odd2.jpg").write_bytes(picture(9))
    report = imported(store, folder, limits=ImageLimits(max_pixels=10_000))
    assert (report.images, store.count()) == (1, 1)
    named = [line.split(":")[0] for line in report.refused]
    assert sorted(named) == sorted(
        ["gone.jpg", "../secret.jpg", str(outside), "cut.jpg", "b.jpg", "large.jpg", "odd.jpg", "odd2.jpg"]
    )
    told = "\n".join(report.refused)
    assert "expected 640x480 px, as the data set says, got 64x48" in told and "at most 10000 pixels" in told


def yolo(folder: Path, described: object = None, labels: str | None = "1 0.5 0.5 0.25 0.5\n") -> Path:
    """One picture in train/images, labelled in train/labels."""
    for part in ("images", "labels"):
        (folder / "train" / part).mkdir(parents=True, exist_ok=True)
    (folder / "train" / "images" / "a.jpg").write_bytes(picture(1))
    if labels is not None:
        (folder / "train" / "labels" / "a.txt").write_text(labels)
    usual = {"path": "/home/somebody/data", "train": "train/images", "names": {0: "person", 1: "motorbike"}}
    (folder / YOLO_FILE).write_text(yaml.safe_dump(usual if described is None else described))
    return folder


def only_answer(store: CaseStore) -> Any:
    [case] = store.walk()
    return case.answers[0]


@pytest.mark.parametrize(
    ("labels", "boxes"),
    [
        ("1 0.5 0.5 0.25 0.5\n", [[24, 12, 40, 36]]),
        ("\n1 0.5 0.5 0.25 0.5 0.75\n\n", [[24, 12, 40, 36]]),
        ("1 0.25 0.25 0.75 0.25 0.5 1.0\n", [[16, 12, 48, 48]]),
        ("1 0.0 0.5 0.5 0.5\n", [[0, 12, 16, 36]]),
        ("1 0.5 0.5 0 0.5\n", []),
        (None, []),
        ("", []),
    ],
    ids=["a box", "a score", "a polygon", "over the edge", "flat", "no file", "nothing"],
)
def test_a_foreign_yolo_folder_is_taken(
    store: CaseStore, tmp_path: Path, labels: str | None, boxes: list[list[float]]
) -> None:
    report = imported(store, yolo(tmp_path / "set", labels=labels), Format.YOLO, tier=Tier.EDGE)
    assert (report.images, report.boxes, report.refused) == (1, len(boxes), ())
    answer = only_answer(store)
    np.testing.assert_allclose(answer.detections.boxes_xyxy, np.reshape(boxes, (-1, 4)), atol=1e-5)
    assert answer.tier is Tier.EDGE and answer.labels.names == ("person", "motorcycle")
    assert answer.detections.image_size == ImageSize(64, 48)
    assert set(answer.detections.class_ids.tolist()) <= {COCO_NAMES.index("motorcycle")}


def test_pictures_of_a_yolo_list_are_taken_once_each(store: CaseStore, tmp_path: Path) -> None:
    folder = yolo(tmp_path / "set", {"train": ["list.txt", "train/images"], "names": ["a", "b"]})
    (folder / "list.txt").write_text("train/images/a.jpg\n\n")
    assert imported(store, folder, Format.YOLO).images == 1


@pytest.mark.parametrize(
    "labels",
    [
        "2 0.5 0.5 0.1 0.1",
        "0.5 0.5 0.5 0.1 0.1",
        "1 0.5 0.5 0.1",
        "1 0.5 nan 0.1 0.1",
        "<html>",
        "1 1 1 1 1 9",
    ],
)
def test_labels_that_make_no_sense_are_refused_by_name_and_line(
    store: CaseStore, tmp_path: Path, labels: str
) -> None:
    report = imported(store, yolo(tmp_path / "set", labels=f"0 0.5 0.5 0.1 0.1\n{labels}\n"), Format.YOLO)
    assert (report.images, store.count()) == (0, 0)
    assert report.refused[0].startswith("a.jpg: a.txt, line 2: expected")


@pytest.mark.parametrize(
    ("described", "told"),
    [
        ("<html>", "expected names"),
        ({"train": "train/images"}, "names"),
        ({"train": "train/images", "names": {1: "a"}}, "names"),
        ({"train": "train/images", "names": [1]}, "names"),
        ({"train": "../..", "names": ["a"]}, "below the folder"),
        ({"train": "/etc", "names": ["a"]}, "below the folder"),
        ({"train": "nowhere", "names": ["a"]}, "is not there"),
        ({"train": "out.txt", "names": ["a"]}, "below the folder"),
    ],
)
def test_a_yolo_description_that_makes_no_sense_is_refused(
    store: CaseStore, tmp_path: Path, described: object, told: str
) -> None:
    folder = yolo(tmp_path / "set", described)
    (folder / "out.txt").write_text("../secret.jpg\n")
    with pytest.raises((Malformed, NotFound), match=told):
        imported(store, folder, Format.YOLO)


def test_yaml_and_facts_that_cannot_be_read_are_named(store: CaseStore, tmp_path: Path) -> None:
    folder = yolo(tmp_path / "set")
    (folder / FACTS_FILE).write_text("[1]")
    with pytest.raises(Malformed, match=r"cases\.json"):
        imported(store, folder, Format.YOLO)
    (folder / YOLO_FILE).write_text("names: [a\nb: }")
    with pytest.raises(Malformed, match=r"data\.yaml: expected YAML"):
        imported(store, folder, Format.YOLO)


@pytest.mark.parametrize("form", Format)
def test_a_folder_without_a_data_set_is_not_found(store: CaseStore, tmp_path: Path, form: Format) -> None:
    with pytest.raises(NotFound, match="data set"):
        imported(store, tmp_path, form)


@pytest.mark.parametrize(
    "told",
    [
        {"reasons": [1]},
        {"reasons": 5},
        {"answered_by": "moon"},
        {"answered_by": 1},
        {"send_probability": "x"},
        {"model_name": "m", "model_version": "1", "model_sha256": "zz"},
        {"camera": "", "boot_id": "b", "sequence": 1},
        {"camera": "c", "boot_id": "b", "sequence": "1"},
        {"tags": [None]},
    ],
)
def test_facts_that_make_no_sense_are_refused(told: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read_facts(told)


def test_dates_of_other_tools_are_taken_where_they_are_dates() -> None:
    assert read_facts({"date_captured": "yesterday"}).captured_at is None
    assert read_facts({"date_captured": 20131114}).captured_at is None
    assert read_facts({"date_captured": CAPTURED_AT.isoformat()}).captured_at == CAPTURED_AT
