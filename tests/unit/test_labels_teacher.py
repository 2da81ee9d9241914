"""The teacher: looks once, takes what is there, judges anew, and is never worth more than a person."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from cloud.labels.drawn import DrawnBoxes
from cloud.labels.judging import Doubt, JudgeSettings, Verdict
from cloud.labels.label import PersonLabel, TeacherLabel
from cloud.labels.teacher import Teacher
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import DetectorFailed, Malformed, NotFound, StoreCorrupt
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.routing import Tier
from tests.fakes import FAKE_REF, FakeDetector
from tests.unit.hard_cases import LABELS, SIZE, hard_case, tier_answer
from tests.unit.labelled_cases import Stores, stores_in

BOX = (4.0, 5.0, 20.25, 30.5)
OTHER = (30.0, 1.0, 60.0, 40.0)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path / "kept") as opened:
        yield opened


def looking(
    *seen: tuple[tuple[float, float, float, float], float, int], ref: ModelRef = FAKE_REF
) -> FakeDetector:
    return FakeDetector(lambda _pixels: list(seen), LABELS, ref)


def labelled(stores: Stores, detector: FakeDetector, *ids: str, **more: object) -> list[TeacherLabel]:
    teacher = Teacher(detector, stores.cases, stores.labels, **more)  # type: ignore[arg-type]
    return list(teacher.label(stores.case(case_id) for case_id in ids))


def drawn(*boxes: tuple[float, float, float, float], name: str = "car", size: ImageSize = SIZE) -> DrawnBoxes:
    return DrawnBoxes.of([(box, name) for box in boxes], size)


def person(
    stores: Stores, case_id: str, boxes: DrawnBoxes, by: str = "ada", usable: bool = True
) -> PersonLabel:
    return PersonLabel(case_id, boxes, by, stores.clock.now(), "console", usable)


def test_a_label_comes_back_from_the_store_to_the_last_bit(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1))
    (given,) = labelled(stores, looking((BOX, 1 / 3, 2), (OTHER, 0.875, 0)), case_id, views="frame+hflip")
    found = stores.labels.find_teacher(case_id)
    assert found is not None
    for label in (given, found):
        assert label.case_id == case_id
        assert (label.teacher, label.views, label.is_reused) == (FAKE_REF, "frame+hflip", False)
        assert label.labelled_at == stores.clock.now()
        assert label.names == ("person", "scooter")
        assert label.detections.image_size == SIZE
    np.testing.assert_array_equal(found.detections.boxes_xyxy, given.detections.boxes_xyxy)
    np.testing.assert_array_equal(found.detections.scores, given.detections.scores)
    np.testing.assert_array_equal(found.detections.class_ids, given.detections.class_ids)
    np.testing.assert_array_equal(found.weights, given.weights)
    np.testing.assert_array_equal(found.ignore_xyxy, given.ignore_xyxy)
    assert (found.verdict, found.doubts, found.agreement) == (given.verdict, given.doubts, given.agreement)


def test_a_case_is_looked_at_once_for_each_version_of_the_teacher(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1))
    detector = looking((BOX, 0.9, 0))
    first, second = labelled(stores, detector, case_id), labelled(stores, detector, case_id)
    assert detector.batch_sizes == [1]
    assert len(first) == len(second) == 1
    stores.clock.advance(60)
    newer = looking((OTHER, 0.9, 0), ref=ModelRef("fake", "2", "e" * 64))
    labelled(stores, newer, case_id)
    assert newer.batch_sizes == [1]
    last = stores.labels.find_teacher(case_id)
    assert last is not None and last.teacher.version == "2"
    old = stores.labels.find_teacher(case_id, FAKE_REF.sha256)
    assert old is not None and old.teacher == FAKE_REF
    assert old.labelled_at == stores.clock.now() - timedelta(seconds=60)


def test_what_the_cloud_answered_with_the_very_same_model_is_taken(stores: Stores) -> None:
    seen = tier_answer(Tier.CLOUD).detections
    cloud = Detections(seen.boxes_xyxy, seen.scores, seen.class_ids, SIZE, FAKE_REF)
    answer = TierAnswer(Tier.CLOUD, cloud, LABELS)
    (case_id,) = stores.add(hard_case(1, answers=(tier_answer(Tier.AGENT), answer)))
    detector = looking()
    teacher = Teacher(detector, stores.cases, stores.labels)
    report = teacher.label_all([stores.case(case_id)])
    assert (report.looked, report.reused, report.cached) == (0, 1, 0)
    assert detector.batch_sizes == []
    label = stores.labels.find_teacher(case_id)
    assert label is not None and label.is_reused
    np.testing.assert_array_equal(label.detections.boxes_xyxy, answer.detections.boxes_xyxy)
    assert label.names == ("person", "scooter")
    assert label.judgement.witnesses == 1


def test_an_answer_of_another_version_is_a_witness_and_not_the_teacher(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1, tiers=(Tier.AGENT, Tier.CLOUD)))
    (label,) = labelled(stores, looking((BOX, 0.6, 0)), case_id)
    assert not label.is_reused
    assert label.judgement.witnesses == 2
    assert label.weights[0] > 0.6


def test_a_witness_that_looked_at_another_size_is_understood(stores: Stores) -> None:
    half = ImageSize(SIZE.width // 2, SIZE.height // 2)
    seen = tier_answer(Tier.AGENT, [[2, 2.5, 10.125, 15.25]], size=half, scores=[0.8])
    (case_id,) = stores.add(hard_case(1, answers=(seen,)))
    (label,) = labelled(stores, looking((BOX, 0.6, 0)), case_id)
    assert label.agreement == pytest.approx(1.0)


def test_new_thresholds_judge_anew_without_a_new_look(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1, answers=()))
    detector = looking((BOX, 0.6, 0))
    (label,) = labelled(stores, detector, case_id)
    assert (label.verdict, label.doubts) == (Verdict.ASK, (Doubt.LITTLE_AGREEMENT,))
    (again,) = labelled(stores, detector, case_id, settings=JudgeSettings(sure_from=0.5))
    assert again.verdict is Verdict.ACCEPT
    assert detector.batch_sizes == [1]
    found = stores.labels.find_teacher(case_id)
    assert found is not None and found.verdict is Verdict.ACCEPT


def test_a_damaged_picture_is_reported_and_the_others_are_labelled(stores: Stores, tmp_path: Path) -> None:
    bad, good = stores.add(hard_case(1), hard_case(2, sequence=2))
    (tmp_path / "kept" / "images" / stores.case(bad).image_path).write_bytes(b"not what was sent")
    teacher = Teacher(looking((BOX, 0.9, 0)), stores.cases, stores.labels, batch=8)
    report = teacher.label_all([stores.case(bad), stores.case(good)])
    assert report.damaged == [bad]
    assert report.looked == 1
    assert stores.labels.find_teacher(bad) is None
    assert stores.labels.find_teacher(good) is not None


def test_a_run_that_fails_half_way_goes_on_where_it_was(stores: Stores) -> None:
    ids = stores.add(*(hard_case(seed) for seed in range(1, 4)))
    detector = looking((BOX, 0.9, 0))
    labels = Teacher(detector, stores.cases, stores.labels).label(stores.case(each) for each in ids)
    next(labels)
    detector.fail_with = DetectorFailed("the model fell over")
    with pytest.raises(DetectorFailed):
        next(labels)
    detector.fail_with = None
    report = Teacher(detector, stores.cases, stores.labels).label_all(stores.case(each) for each in ids)
    assert (report.cached, report.looked) == (1, 2)


def test_a_label_without_its_case_is_refused(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1))
    (label,) = labelled(stores, looking((BOX, 0.9, 0)), case_id)
    stray = TeacherLabel(
        "a" * 64, label.detections, label.names, label.judgement, label.views, False, label.labelled_at
    )
    with pytest.raises(NotFound, match="no such case"):
        stores.labels.keep_teacher(stray, JudgeSettings())
    with pytest.raises(NotFound, match="no such case"):
        stores.labels.say(person(stores, "b" * 64, drawn(BOX)))


def test_a_persons_word_beats_every_teachers_and_a_later_teachers_too(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1))
    labelled(stores, looking((BOX, 0.9, 0)), case_id)
    by_teacher = stores.labels.targets(case_id)
    assert by_teacher is not None and by_teacher.teacher == FAKE_REF
    stores.labels.say(person(stores, case_id, drawn(OTHER)))
    stores.clock.advance(60)
    labelled(stores, looking((BOX, 0.99, 0), ref=ModelRef("fake", "2", "e" * 64)), case_id)
    by_person = stores.labels.targets(case_id)
    assert by_person is not None and by_person.teacher is None
    assert by_person.boxes_xyxy.tolist() == [list(OTHER)]
    assert by_person.weights.tolist() == [1.0]
    assert stores.labels.targets(case_id, FAKE_REF.sha256) is not None


def test_what_people_set_aside_is_not_learned_and_what_they_refuse_counts_for_nothing(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1))
    labelled(stores, looking((BOX, 0.9, 0)), case_id)
    both = DrawnBoxes.of([(BOX, "car"), (OTHER, "person")], SIZE, [False, True])
    stores.labels.say(person(stores, case_id, both))
    targets = stores.labels.targets(case_id)
    assert targets is not None
    assert targets.class_ids.tolist() == [2]
    assert targets.ignore_xyxy.tolist() == [list(OTHER)]
    stores.labels.say(person(stores, case_id, drawn(), usable=False))
    assert stores.labels.targets(case_id) is None
    assert stores.labels.all_targets([case_id]) == {}


def test_every_word_is_kept_with_what_it_replaced(stores: Stores, tmp_path: Path) -> None:
    (case_id,) = stores.add(hard_case(1))
    labelled(stores, looking((BOX, 0.9, 0)), case_id)
    stores.labels.say(person(stores, case_id, drawn(BOX), by="ada"))
    stores.labels.say(person(stores, case_id, drawn(OTHER), by="bo"))
    assert [label.said_by for label in stores.labels.history(case_id)] == ["ada", "bo"]
    newest = stores.labels.find_person(case_id)
    assert newest is not None and newest.said_by == "bo"
    with sqlite3.connect(tmp_path / "kept" / "cases.sqlite") as database:
        rows = database.execute(
            "SELECT replaces_teacher_sha256, replaces_id FROM person_labels ORDER BY id"
        ).fetchall()
    assert rows == [(FAKE_REF.sha256, None), (None, 1)]


def test_the_review_lists_what_the_newest_teacher_asks_the_least_agreed_first(stores: Stores) -> None:
    ghosts = [
        [0.0, 40.0, 4.0, 46.0],
        [10.0, 40.0, 14.0, 46.0],
        [20.0, 40.0, 24.0, 46.0],
        [62.0, 40.0, 64.0, 46.0],
    ]
    hardly = tier_answer(Tier.AGENT, [*ghosts, list(BOX)], scores=[0.8] * 4 + [0.02], channels=[1] * 4 + [2])
    never = tier_answer(Tier.AGENT, ghosts, scores=[0.8] * 4, channels=[1] * 4)
    sure, little, less = stores.add(
        hard_case(1, answers=()), hard_case(2, answers=(hardly,)), hard_case(3, answers=(never,))
    )
    labelled(stores, looking((BOX, 0.95, 0)), sure)
    labelled(stores, looking((BOX, 0.55, 2)), little, less)
    assert stores.labels.to_review() == (less, little)
    assert stores.labels.to_review(1) == (less,)
    counts = stores.labels.count()
    assert (counts.by_people, counts.accepted, counts.dropped, counts.asked) == (0, 1, 0, 2)
    stores.labels.say(person(stores, less, drawn(BOX)))
    assert stores.labels.to_review() == (little,)
    assert stores.labels.to_review(done=True) == (less,)
    stores.clock.advance(60)
    labelled(stores, looking((BOX, 0.95, 0), ref=ModelRef("fake", "2", "e" * 64)), little)
    assert stores.labels.to_review() == ()
    assert stores.labels.count().asked == 0
    assert stores.labels.count().by_people == 1


def test_rows_that_make_no_sense_are_told_by_their_case(stores: Stores, tmp_path: Path) -> None:
    (case_id,) = stores.add(hard_case(1))
    labelled(stores, looking((BOX, 0.9, 0)), case_id)
    with sqlite3.connect(tmp_path / "kept" / "cases.sqlite") as database:
        database.execute("UPDATE teacher_labels SET boxes = '[[1, 2, 3]]'")
    with pytest.raises(StoreCorrupt, match=case_id[:12]):
        stores.labels.find_teacher(case_id)


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb"])
def test_who_labels_has_a_name(stores: Stores, name: str) -> None:
    with pytest.raises(Malformed, match="who labels"):
        person(stores, "a" * 64, drawn(BOX), by=name)


def test_many_cases_are_asked_for_in_portions(stores: Stores) -> None:
    (case_id,) = stores.add(hard_case(1))
    labelled(stores, looking((BOX, 0.9, 0)), case_id)
    many = [f"{number:064x}" for number in range(1200)]
    assert list(stores.labels.find_teachers([*many, case_id])) == [case_id]


def test_a_tier_answer_of_the_teachers_own_model_is_no_witness(stores: Stores) -> None:
    seen = tier_answer(Tier.CLOUD)
    (case_id,) = stores.add(hard_case(1, answers=(TierAnswer(Tier.CLOUD, seen.detections, LABELS),)))
    detector = FakeDetector(lambda _pixels: [], LABELS, seen.detections.model)
    (label,) = labelled(stores, detector, case_id)
    assert label.judgement.witnesses == 0
