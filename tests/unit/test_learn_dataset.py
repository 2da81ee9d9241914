"""Snapshots keep what was written, split by camera and time, and are named by their content."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.learn.dataset import BLOCK_S, LABELS, LabelledImage, Origin, Snapshot, Split
from fovea.core.errors import Malformed, NotFound, StoreCorrupt
from fovea.core.labels import LabelSet
from tests.learning_images import START, STREET, image, snapshot


def test_what_was_written_is_read_back_whole(tmp_path: Path) -> None:
    given_images = {
        i.id: i
        for i in [image(1), image(2, Origin.GOLDEN, boxes=0, by_teacher=False), image(3, Origin.REPLAY)]
    }
    written = Snapshot.write(tmp_path, given_images.values(), STREET)
    opened = Snapshot.open(written.folder)
    assert (opened.digest, opened.labels.names, len(opened)) == (written.digest, STREET.names, 3)
    for read in opened.load():
        wanted = given_images[read.id]
        assert read.jpeg == wanted.jpeg and read.origin is wanted.origin and read.teacher == wanted.teacher
        assert read.camera == wanted.camera and read.captured_at == wanted.captured_at
        for name in ("boxes_xyxy", "class_ids", "weights", "ignore_xyxy"):
            np.testing.assert_array_equal(getattr(read, name), getattr(wanted, name))


def test_the_same_content_in_another_order_is_the_same_snapshot(tmp_path: Path) -> None:
    images = [image(n) for n in range(4)]
    first = Snapshot.write(tmp_path, images, STREET)
    again = Snapshot.write(tmp_path, reversed(images), STREET)
    assert (first.folder, first.digest) == (again.folder, again.digest)
    assert [p.name for p in tmp_path.iterdir()] == [first.folder.name]


def test_another_label_or_weight_is_another_snapshot(tmp_path: Path) -> None:
    one = image(1)
    changed = [
        one,
        replace(one, weights=one.weights * 0.5),
        replace(one, boxes_xyxy=one.boxes_xyxy + 1),
        replace(one, origin=Origin.REPLAY),
        replace(one, teacher=None),
    ]
    assert len({Snapshot.write(tmp_path, [each], STREET).digest for each in changed}) == len(changed)
    more = LabelSet.from_names((*STREET.names, "dog"))
    assert Snapshot.write(tmp_path, [one], more).digest != Snapshot.write(tmp_path, [one], STREET).digest


def test_frames_of_one_camera_within_ten_minutes_are_never_split(tmp_path: Path) -> None:
    images = []
    for number in range(120):
        at = START + timedelta(seconds=(number // 6) * BLOCK_S + (number % 6) * 90)
        images.append(replace(image(number, boxes=0), camera="gate", captured_at=at))
    kept = Snapshot.write(tmp_path, images, STREET, val_share=0.5)
    sides: dict[str, set[Split]] = {}
    for each in kept.images:
        sides.setdefault(each.block, set()).add(each.split)
    assert len(sides) == 20
    assert all(len(found) == 1 for found in sides.values())
    assert {split for found in sides.values() for split in found} == set(Split)


def test_an_image_stays_on_its_side_when_the_data_set_grows(tmp_path: Path) -> None:
    few = Snapshot.write(tmp_path, [image(n) for n in range(20)], STREET, val_share=0.3)
    many = Snapshot.write(tmp_path, [image(n) for n in range(60)], STREET, val_share=0.3)
    later = {i.id: i.split for i in many.images}
    assert all(later[i.id] is i.split for i in few.images)


def test_origins_can_be_asked_for_by_themselves(tmp_path: Path) -> None:
    kept = snapshot(tmp_path)
    parts = [kept.of(split, origin) for split in Split for origin in Origin]
    assert sum(map(len, parts)) == len(kept) == 18
    assert set(kept.of(Split.TRAIN)) == {i for part in parts for i in part if i.split is Split.TRAIN}


def test_a_changed_label_file_is_noticed(tmp_path: Path) -> None:
    kept = Snapshot.write(tmp_path, [image(1)], STREET)
    path = kept.folder / LABELS
    path.write_bytes(path.read_bytes().replace(b'"camera-1"', b'"camera-2"'))
    with pytest.raises(StoreCorrupt, match="digest differs"):
        Snapshot.open(kept.folder)


def test_a_changed_or_missing_picture_is_noticed_when_it_is_needed(tmp_path: Path) -> None:
    kept = Snapshot.write(tmp_path, [image(1)], STREET)
    [path] = (kept.folder / "images").iterdir()
    path.write_bytes(image(2).jpeg)
    with pytest.raises(StoreCorrupt, match="not the image that was written"):
        kept.jpeg(kept.images[0])
    path.unlink()
    with pytest.raises(StoreCorrupt, match="cannot read"):
        kept.jpeg(kept.images[0])


def test_no_snapshot_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no data set snapshot"):
        Snapshot.open(tmp_path)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([], "at least one"),
        ([image(1), image(1)], "stands twice"),
        ([replace(image(1), class_ids=[77, 77])], "class 77 is not one of person, bicycle"),
    ],
)
def test_a_snapshot_that_cannot_be_learned_from_is_refused(
    tmp_path: Path, images: list[LabelledImage], said: str
) -> None:
    with pytest.raises(Malformed, match=said):
        Snapshot.write(tmp_path, images, STREET)
    assert not list(tmp_path.iterdir())


@given(weight=st.floats(allow_nan=False, width=32).filter(lambda w: not 0 < w <= 1))
def test_a_weight_is_more_than_0_up_to_1(weight: float) -> None:
    with pytest.raises(Malformed, match="weights"):
        replace(image(1), weights=[weight, 1.0])


@pytest.mark.parametrize(
    "change", [{"id": ""}, {"camera": ""}, {"captured_at": START.replace(tzinfo=None)}, {"class_ids": [1]}]
)
def test_an_image_without_a_place_or_time_zone_or_with_labels_missing_is_refused(
    change: dict[str, object],
) -> None:
    with pytest.raises(Malformed):
        replace(image(1), **change)  # type: ignore[arg-type]
