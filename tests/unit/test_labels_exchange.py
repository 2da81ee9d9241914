"""Sheets go out as COCO and Label Studio and come back the same; files of every wrong kind are told by entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.labels.coco_sheets import CocoSheets
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Returned, Sheet, SheetFormat, case_id_in, export_sheets, in_px_of
from cloud.labels.label_studio_sheets import LabelStudioSheets
from cloud.labels.review import TakeSettings, read_sheets
from cloud.labels.teacher import Teacher
from fovea.core.errors import Malformed, NotFound
from fovea.core.frame import ImageSize
from fovea.core.labels import label_named
from fovea.core.routing import Tier
from tests.fakes import FakeDetector
from tests.unit.hard_cases import CAPTURED_AT, LABELS, SIZE, hard_case, tier_answer
from tests.unit.labelled_cases import Stores, stores_in

CASE = "ab" * 32
BOX, OTHER = (4.0, 5.0, 20.25, 30.5), (30.0, 1.0, 60.0, 40.0)
FORMATS = [CocoSheets(), LabelStudioSheets()]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path / "kept") as opened:
        yield opened


def sheet(drawn: DrawnBoxes, *, said_by: str | None = "ada", prefilled_by: str | None = None) -> Sheet:
    scores = tuple(None if prefilled_by is None else 0.5 for _ in range(len(drawn)))
    return Sheet(CASE, f"{CASE}.jpg", "gate/[1]", CAPTURED_AT, drawn, scores, prefilled_by, said_by)


def there_and_back(form: SheetFormat, folder: Path, *sheets: Sheet) -> list[Returned]:
    classes = [label_named(name) for name in ("person", "car")]
    export_sheets(sheets, lambda _case_id: b"a picture", folder, form, classes)
    index = next(path for path in folder.iterdir() if path.suffix == ".json")
    return form.read(index.read_bytes())


def annotated(task: dict[str, Any], *boxes: tuple[list[float], list[str]], **more: Any) -> dict[str, Any]:
    """As Label Studio exports a task of 64 x 48 px, boxes in per cent."""
    results = [
        {
            "type": "rectanglelabels",
            "original_width": 64,
            "original_height": 48,
            "value": dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"rectanglelabels": names},
        }
        for box, names in boxes
    ]
    return task | {"annotations": [{"result": results, "completed_by": 7, "was_cancelled": False} | more]}


TASK: dict[str, Any] = {"id": 1, "data": {"image": f"/data/upload/3/0a1b2c3d-{CASE}.jpg"}}


def read_tasks(*tasks: object) -> list[Returned]:
    return LabelStudioSheets().read(json.dumps(tasks).encode())


def coco(**changes: Any) -> dict[str, Any]:
    return {
        "images": [{"id": 5, "file_name": f"images/{CASE}.jpg", "width": 64, "height": 48}],
        "annotations": [{"id": 9, "image_id": 5, "category_id": 3, "bbox": [4, 5, 16.25, 25.5]}],
        "categories": [{"id": 3, "name": "car"}],
    } | changes


def read_coco(whole: object) -> list[Returned]:
    return CocoSheets().read(json.dumps(whole).encode())


boxes_in_frame = st.lists(
    st.tuples(
        st.tuples(st.floats(0, 30, width=32), st.floats(0, 20, width=32)),
        st.tuples(st.floats(0.5, 34, width=32), st.floats(0.5, 28, width=32)),
        st.sampled_from(["person", "car", "sc\u00f6\u00f6ter", "hot dog"]),
        st.booleans(),
    ),
    max_size=5,
)


@pytest.mark.parametrize("form", FORMATS, ids=["coco", "label-studio"])
@settings(max_examples=40, deadline=None)
@given(rows=boxes_in_frame)
def test_what_a_person_said_goes_there_and_back(
    form: SheetFormat, tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    drawn = DrawnBoxes.of(
        [((x, y, x + w, y + h), name) for (x, y), (w, h), name, _ in rows],
        SIZE,
        [ignore for *_, ignore in rows],
    )
    (found,) = there_and_back(form, tmp_path_factory.mktemp("out") / "set", sheet(drawn))
    assert (found.case_id, found.said_by, found.is_untouched, found.is_usable) == (CASE, "ada", False, True)
    back = in_px_of(found.drawn, SIZE)
    np.testing.assert_allclose(back.boxes_xyxy, drawn.boxes_xyxy, atol=1e-4)
    assert back.labels == drawn.labels
    assert back.ignore.tolist() == drawn.ignore.tolist()


def test_what_a_teacher_filled_in_is_not_taken_for_a_persons_word(tmp_path: Path) -> None:
    prefilled = sheet(DrawnBoxes.of([(BOX, "car")], SIZE), said_by=None, prefilled_by="t@1#abc")
    (found,) = there_and_back(CocoSheets(), tmp_path / "coco", prefilled)
    assert found.is_untouched
    assert there_and_back(LabelStudioSheets(), tmp_path / "studio", prefilled) == []
    (task,) = json.loads((tmp_path / "studio" / "tasks.json").read_text())
    assert task["predictions"][0]["model_version"] == "t@1#abc"
    assert task["predictions"][0]["result"][0]["score"] == 0.5


def test_pictures_lie_beside_the_index_byte_for_byte_under_the_whole_id(tmp_path: Path) -> None:
    there_and_back(CocoSheets(), tmp_path / "set", sheet(DrawnBoxes.of([], SIZE)))
    assert (tmp_path / "set" / "images" / f"{CASE}.jpg").read_bytes() == b"a picture"
    with pytest.raises(Malformed, match="expected an empty folder"):
        there_and_back(CocoSheets(), tmp_path / "set", sheet(DrawnBoxes.of([], SIZE)))


def test_label_studio_gets_an_interface_with_the_classes_and_a_way_to_set_aside(tmp_path: Path) -> None:
    there_and_back(
        LabelStudioSheets("http://here/"), tmp_path / "set", sheet(DrawnBoxes.of([(BOX, 'a "b" <c>')], SIZE))
    )
    config = (tmp_path / "set" / "label_config.xml").read_text()
    for told in ('<Label value="person"/>', '<Label value="ignore"', "<Label value='a \"b\" &lt;c&gt;'/>"):
        assert told in config
    (task,) = json.loads((tmp_path / "set" / "tasks.json").read_text())
    assert task["data"]["image"] == f"http://here/{CASE}.jpg"


def test_a_task_as_label_studio_exports_it_is_understood() -> None:
    (found,) = read_tasks(
        annotated(TASK, ([25, 50, 25, 25], ["car"]), ([0, 0, 50, 50], ["person", "ignore"]))
    )
    assert found.case_id == CASE
    assert found.said_by == "user 7"
    assert found.drawn.boxes_xyxy.tolist() == [[16, 24, 32, 36], [0, 0, 32, 24]]
    assert [label.name for label in found.drawn.labels] == ["car", "person"]
    assert found.drawn.ignore.tolist() == [False, True]


def test_a_turned_box_becomes_the_upright_box_around_it() -> None:
    task = annotated(TASK, ([50, 50, 25, 25], ["car"]))
    task["annotations"][0]["result"][0]["value"]["rotation"] = 90
    (found,) = read_tasks(task)
    np.testing.assert_allclose(found.drawn.boxes_xyxy, [[32 - 12, 24, 32, 24 + 16]], atol=1e-3)


def test_of_several_annotations_the_newest_that_was_not_cancelled_counts() -> None:
    old = annotated(TASK, ([0, 0, 50, 50], ["car"]), updated_at="2025-01-01T00:00:00Z")
    new = annotated(
        TASK, ([50, 50, 50, 50], ["car"]), updated_at="2025-01-02T00:00:00Z", completed_by={"email": "a@b"}
    )
    gone = annotated(TASK, updated_at="2025-01-03T00:00:00Z", was_cancelled=True)
    both = TASK | {"annotations": [one["annotations"][0] for one in (new, old, gone)]}
    (found,) = read_tasks(both)
    assert found.drawn.boxes_xyxy.tolist() == [[32, 24, 64, 48]]
    assert found.said_by == "a@b"
    (skipped,) = read_tasks(gone)
    assert not skipped.is_usable


def test_an_annotation_without_a_box_is_an_empty_frame() -> None:
    (found,) = read_tasks(annotated(TASK))
    assert len(in_px_of(found.drawn, SIZE)) == 0
    assert found.is_usable


def test_coco_of_another_tool_is_understood_with_its_own_category_ids() -> None:
    (found,) = read_coco(coco())
    assert found.case_id == CASE
    assert found.drawn.boxes_xyxy.tolist() == [list(BOX)]
    assert found.drawn.labels == (label_named("car"),)
    assert not found.is_untouched


@pytest.mark.parametrize(
    ("read", "wrong", "told"),
    [
        (read_coco, [], "expected a JSON object"),
        (read_coco, {}, "COCO categories: expected a list"),
        (read_coco, coco(images=[{"id": "5"}]), "COCO images: expected a list of objects, each with an id"),
        (read_coco, coco(annotations=[{"id": 1, "image_id": 4}]), "annotation 1: image_id: no image 4"),
        (
            read_coco,
            coco(annotations=[{"id": 1, "image_id": 5, "category_id": 8, "bbox": [0, 0, 1, 1]}]),
            "no category 8",
        ),
        (
            read_coco,
            coco(annotations=[{"id": 1, "image_id": 5, "category_id": 3, "bbox": [0, 0, 1]}]),
            "bbox: expected four numbers",
        ),
        (
            read_coco,
            coco(annotations=[{"id": 1, "image_id": 5, "category_id": 3, "bbox": [70, 0, 9, 9]}]),
            "image 5: drawn boxes: expected a width and a height inside the picture",
        ),
        (
            read_coco,
            coco(annotations=[{"id": 1, "image_id": 5, "category_id": 3, "bbox": [0, 0, float("nan"), 9]}]),
            "expected finite values",
        ),
        (
            read_coco,
            coco(images=[{"id": 5, "file_name": "cat.jpg"}]),
            "expected the id of a case in file_name",
        ),
        (read_coco, coco(images=[{"id": 5, "file_name": CASE, "width": 0, "height": 1}]), "image size width"),
        (read_coco, coco(categories=[{"id": 3, "name": None}]), "category 3: name"),
        (read_coco, coco(categories=[{"id": 3, "name": ""}]), "label name"),
        (lambda tasks: read_tasks(*tasks), [3], "expected a list of tasks"),
        (lambda tasks: read_tasks(*tasks), [{"annotations": 3}], "annotations: expected a list"),
        (lambda tasks: read_tasks(*tasks), [annotated({"data": {}})], "expected the id of a case"),
        (
            lambda tasks: read_tasks(*tasks),
            [annotated(TASK, ([0, 0, 5, 5], ["car", "bus"]))],
            "expected one class",
        ),
        (
            lambda tasks: read_tasks(*tasks),
            [annotated(TASK, ([0, 0, 5, 5], ["ignore"]))],
            "expected one class",
        ),
        (lambda tasks: read_tasks(*tasks), [annotated(TASK, ([0, 0, 0, 5], ["car"]))], "expected a width"),
        (
            lambda tasks: read_tasks(*tasks),
            [annotated(TASK, (["a", 0, 0, 5], ["car"]))],
            "expected x, y, width and height",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_told(read: Callable[[Any], Any], wrong: object, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        read(wrong)


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff\xfe", b"[[[", b'{"images": 1'])
def test_a_file_that_is_no_json_is_refused_with_its_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(Malformed, match=r"x\.json: .*expected JSON"):
        read_sheets(tmp_path / "x.json")


def test_a_file_or_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        read_sheets(tmp_path / "nothing.json")
    with pytest.raises(NotFound, match=r"annotations\.json or tasks\.json"):
        read_sheets(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CASE}.jpg", CASE),
        (f"/data/local-files/?d=images/{CASE}.jpg", CASE),
        (f"f00d-{CASE}_v2.png", CASE),
        (f"{CASE}0.jpg", None),
        ("cat.jpg", None),
        (None, None),
    ],
)
def test_the_id_is_found_in_what_tools_make_of_a_name(text: object, expected: str | None) -> None:
    assert case_id_in(text) == expected


def test_boxes_of_a_smaller_copy_are_scaled_and_of_another_shape_refused() -> None:
    half = DrawnBoxes.of([((2, 2.5, 10.125, 15.25), "car")], ImageSize(32, 24))
    assert in_px_of(half, SIZE).boxes_xyxy.tolist() == [list(BOX)]
    with pytest.raises(Malformed, match="another shape"):
        in_px_of(DrawnBoxes.of([((0, 0, 5, 5), "car")], ImageSize(48, 48)), SIZE)


def prefilled(stores: Stores, count: int = 3) -> list[str]:
    ids = stores.add(*(hard_case(seed, tiers=(Tier.AGENT,)) for seed in range(1, count + 1)))
    detector = FakeDetector(lambda _pixels: [(BOX, 0.9, 0)], LABELS)
    Teacher(detector, stores.cases, stores.labels).label_all(stores.case(each) for each in ids)
    return ids


def returned(case_id: str, *boxes: tuple[float, float, float, float], **more: Any) -> Returned:
    return Returned(case_id, DrawnBoxes.of([(box, "car") for box in boxes], SIZE), **more)


def test_every_picture_that_comes_back_is_accounted_for(stores: Stores) -> None:
    touched, untouched, empty, refused = prefilled(stores, 4)
    report = stores.reviews.take(
        [
            returned(touched, OTHER),
            returned(untouched, BOX, is_untouched=True),
            returned(empty),
            returned(refused, is_usable=False),
            returned("cd" * 32, BOX),
        ],
        TakeSettings("ada", "coco", skip_empty=True),
    )
    assert (report.taken, report.untouched, report.empty) == ([touched], [untouched], [empty])
    assert (report.unusable, report.unknown, report.unchanged) == ([refused], ["cd" * 32], [])
    assert stores.labels.find_person(untouched) is None
    assert "labelled" in stores.cases.protections_of(touched)


def test_untouched_and_empty_pictures_count_where_somebody_says_so(stores: Stores) -> None:
    untouched, empty = prefilled(stores, 2)
    given_back = [returned(untouched, BOX, is_untouched=True), returned(empty)]
    report = stores.reviews.take(given_back, TakeSettings("ada", "coco", accept_untouched=True))
    assert report.taken == [untouched, empty]
    label = stores.labels.find_person(empty)
    assert label is not None and len(label.drawn) == 0


def test_the_same_file_twice_is_kept_once_and_by_the_name_in_it(stores: Stores) -> None:
    (case_id,) = prefilled(stores, 1)
    settings_ = TakeSettings("ada", "coco")
    stores.reviews.take([returned(case_id, OTHER, BOX, said_by="bo")], settings_)
    report = stores.reviews.take([returned(case_id, BOX, OTHER)], settings_)
    assert report.unchanged == [case_id]
    assert [label.said_by for label in stores.labels.history(case_id)] == ["bo"]


def test_one_wrong_picture_and_nothing_of_the_file_is_taken(stores: Stores) -> None:
    good, bad = prefilled(stores, 2)
    square = Returned(bad, DrawnBoxes.of([((0, 0, 5, 5), "car")], ImageSize(48, 48)))
    with pytest.raises(Malformed, match=bad[:12]):
        stores.reviews.take([returned(good, OTHER), square], TakeSettings("ada", "coco"))
    assert stores.labels.find_person(good) is None


@pytest.mark.parametrize("form", FORMATS, ids=["coco", "label-studio"])
def test_a_review_goes_to_another_tool_and_its_corrections_come_back(
    stores: Stores, tmp_path: Path, form: SheetFormat
) -> None:
    ids = prefilled(stores)
    folder = tmp_path / "set"
    report = export_sheets(
        stores.reviews.sheets(ids), stores.reviews.load_image, folder, form, stores.reviews.classes(ids)
    )
    assert (report.pictures, report.boxes) == (3, 3)
    if isinstance(form, CocoSheets):
        index = folder / "annotations.json"
        whole = json.loads(index.read_text())
        for annotation in whole["annotations"]:
            del annotation["score"]  # as tools do that people draw with
            annotation["bbox"][0] += 2
        index.write_text(json.dumps(whole))
    else:
        index = folder / "tasks.json"
        tasks = json.loads(index.read_text())
        for task in tasks:
            task["annotations"] = [{"result": task.pop("predictions")[0]["result"], "completed_by": 3}]
            task["annotations"][0]["result"][0]["value"]["x"] += 100 * 2 / SIZE.width
        index.write_text(json.dumps(tasks))
    kind, back = read_sheets(folder)
    taken = stores.reviews.take(back, TakeSettings("ada", kind.value))
    assert sorted(taken.taken) == sorted(ids)
    for label in stores.labels.find_persons(ids).values():
        moved = (BOX[0] + 2, BOX[1], BOX[2] + 2, BOX[3])
        np.testing.assert_allclose(label.drawn.boxes_xyxy, [moved], atol=1e-3)


def test_a_sheet_shows_a_persons_word_before_the_teachers(stores: Stores) -> None:
    (case_id,) = prefilled(stores, 1)
    before = stores.reviews.sheet(case_id)
    assert before.prefilled_by is not None and before.scores == (pytest.approx(0.9, abs=1e-6),)
    stores.reviews.take([returned(case_id, OTHER)], TakeSettings("ada", "coco"))
    after = stores.reviews.sheet(case_id)
    assert (after.said_by, after.prefilled_by, after.scores) == ("ada", None, (None,))
    assert {label.name for label in stores.reviews.classes([case_id])} == {"person", "car", "scooter"}
    with pytest.raises(NotFound, match="there is no such case"):
        stores.reviews.sheet("ab" * 32)


def test_a_case_that_nobody_labelled_is_an_empty_sheet(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1, answers=(tier_answer(Tier.AGENT),)))
    blank = stores.reviews.sheet(case_id)
    assert len(blank.drawn) == 0
    assert (blank.prefilled_by, blank.said_by) == (None, None)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({}, "boxes: expected a list, got dict"),
        ([3], "box 1: expected box_xyxy, label and ignore"),
        ([{"box_xyxy": [0, 0, 1], "label": "car"}], "box 1: box_xyxy: expected four numbers"),
        ([{"box_xyxy": [0, 0, True, 1], "label": "car"}], "box 1: box_xyxy"),
        ([{"box_xyxy": [0, 0, 10**400, 1], "label": "car"}], "box 1: box_xyxy"),
        ([{"box_xyxy": [0, 0, float("nan"), 1], "label": "car"}], "box_xyxy|finite"),
        ([{"box_xyxy": [0, 0, 5, 5], "label": 3}], "box 1: label"),
        ([{"box_xyxy": [0, 0, 5, 5], "label": ""}], "label name"),
        ([{"box_xyxy": [0, 0, 5, 5], "label": "car", "ignore": 1}], "box 1: ignore"),
        ([{"box_xyxy": [0, 0, 5, 5], "label": "car", "more": 1}], "box 1: expected"),
        ([{"box_xyxy": [5, 0, 0, 5], "label": "car"}], "x1 <= x2"),
        ([{"box_xyxy": [0, 0, 5, 5], "label": "car"}] * 2001, "at most 2000"),
    ],
)
def test_boxes_that_make_no_sense_are_refused(rows: object, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        DrawnBoxes.from_json(rows, SIZE)


def test_boxes_that_stick_out_are_cut_to_the_picture() -> None:
    drawn = DrawnBoxes.of([((-5, -5, 10, 10), "car"), ((60, 40, 900, 900), "car")], SIZE)
    assert drawn.boxes_xyxy.tolist() == [[0, 0, 10, 10], [60, 40, 64, 48]]
