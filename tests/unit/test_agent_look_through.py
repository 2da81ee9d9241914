"""A model that looks through a source: COCO JSON, pictures with boxes, and a report in one line."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_agent.capture.source import SourceSpec, open_source
from edge_agent.look.annotated_output import AnnotatedOutput
from edge_agent.look.look_through import LookReport, LookSettings, look_through
from fovea.core.errors import BrokenError, Malformed, Unavailable
from tests.builders import scene
from tests.fake_sources import FakeSource, flat
from tests.fakes import FakeClock, FakeDetector, Seen
from tests.unit.test_agent_sources import write_picture, write_video

CLOCK = FakeClock()


def two_boxes(pixels: np.ndarray) -> Seen:
    return [((2.0, 3.0, 12.0, 23.0), 0.9, 0), ((20.0, 3.0, 30.5, 13.0), 0.4, 1)]


def look(source: Path, save: Path, settings: LookSettings = LookSettings()) -> LookReport:
    opened = open_source(SourceSpec(str(source)), CLOCK)
    try:
        return look_through(opened, FakeDetector(two_boxes), save, settings, {"source": "s"})
    finally:
        opened.close()


def coco(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads((folder / "detections.json").read_text())
    return found


def test_a_video_gives_a_video_with_boxes_and_every_box_in_coco(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 6, size=(64, 48))
    report = look(video, tmp_path / "out")
    found = coco(tmp_path / "out")
    assert [image["frame_index"] for image in found["images"]] == [0, 1, 2, 3, 4, 5]
    assert found["images"][0] == {
        "id": 1,
        "file_name": "000000.jpg",
        "width": 64,
        "height": 48,
        "frame_index": 0,
    }
    assert len(found["annotations"]) == 12
    first = found["annotations"][0]
    assert (first["bbox"], first["image_id"], first["score"]) == ([2.0, 3.0, 10.0, 20.0], 1, 0.9)
    names = {category["id"]: category["name"] for category in found["categories"]}
    assert [names[note["category_id"]] for note in found["annotations"][:2]] == ["person", "car"]
    assert dict(report.found) == {"person": 6, "car": 6}
    assert str(report).startswith("found 6 person, 6 car in 6 frames at ")
    annotated = cv2.VideoCapture(str(tmp_path / "out" / "annotated.mp4"))
    assert annotated.get(cv2.CAP_PROP_FRAME_COUNT) == 6
    is_there, picture = annotated.read()
    assert is_there and picture.shape == (48, 64, 3)
    assert int(picture.max()) > 100, "frame 0 is black but for its boxes"
    assert {path.name for path in report.written} == {"detections.json", "annotated.mp4", "busiest.jpg"}


def test_only_some_frames_are_looked_at_where_that_is_wanted(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 10)
    report = look(video, tmp_path / "out", LookSettings(every=3, limit=3, min_score=0.5))
    found = coco(tmp_path / "out")
    assert [image["frame_index"] for image in found["images"]] == [0, 3, 6]
    assert dict(report.found) == {"person": 3}


def test_pictures_keep_their_names_and_those_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg", "deep/b.jpg"):
        write_picture(tmp_path / "in" / name, 80)
    (tmp_path / "in" / "bad.jpg").write_bytes(b"\xff\xd8\xff")
    report = look(tmp_path / "in", tmp_path / "out")
    pictures = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.jpg"))
    assert pictures == ["a.jpg", "a.png.jpg", "deep/b.jpg"]
    assert {image["file_name"] for image in coco(tmp_path / "out")["images"]} == {
        "a.png",
        "a.jpg",
        "deep/b.jpg",
    }
    assert len(report.unusable) == 1 and "bad.jpg" in report.unusable[0]
    assert report.frames == 3 and "1 could not be used" in str(report)
    before = (tmp_path / "in" / "a.jpg").read_bytes()
    assert (tmp_path / "out" / "a.jpg").read_bytes() != before


def test_a_source_that_breaks_leaves_what_was_found_until_then(tmp_path: Path) -> None:
    source = FakeSource([flat(1), flat(2), Unavailable("the stream ended")], CLOCK)
    report = look_through(source, FakeDetector(two_boxes), tmp_path, LookSettings(), {})
    assert report.broke == "the stream ended"
    assert len(coco(tmp_path)["images"]) == 2


def test_a_source_without_one_usable_frame_is_an_error_that_names_it(tmp_path: Path) -> None:
    source = FakeSource([Malformed("half a picture")], CLOCK)
    with pytest.raises(Malformed, match="half a picture"):
        look_through(source, FakeDetector(), tmp_path, LookSettings(), {})
    assert not (tmp_path / "detections.json").exists()


def test_a_resolution_that_changes_begins_another_video(tmp_path: Path) -> None:
    output = AnnotatedOutput(tmp_path, 10.0)
    for number, size in enumerate([(48, 64), (48, 64), (64, 48)]):
        output.add(scene(*size), None, number, 1.0)
    output.close()
    assert [path.name for path in output.written] == ["annotated.mp4", "annotated-2.mp4", "busiest.jpg"]


def test_frames_are_written_as_pictures_where_no_video_can_be_encoded(tmp_path: Path) -> None:
    output = AnnotatedOutput(tmp_path, 10.0, lambda *_: None)
    output.add(scene(), None, 0, 1.0)
    output.add(scene(), None, 7, 2.0)
    output.close()
    assert sorted(path.name for path in (tmp_path / "frames").iterdir()) == ["000000.jpg", "000007.jpg"]
    assert [path.name for path in output.written] == ["frames", "busiest.jpg"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BrokenError, match="cannot make the folder"):
        AnnotatedOutput(tmp_path / "file" / "out", 10.0)


@pytest.mark.parametrize("wrong", [{"every": 0}, {"limit": 0}, {"min_score": 1.5}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="looking through"):
        LookSettings(**wrong)  # type: ignore[arg-type]
