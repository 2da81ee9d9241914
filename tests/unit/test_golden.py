"""The golden set: frames that differ, people who label them, and a site that runs in the shadow until they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from cloud.golden.golden_set import FrameState, GoldenSet, GoldenSettings
from cloud.golden.picking import Pick, pick_diverse, stratum_of
from cloud.golden.sites import DEFAULT, Sites
from cloud.golden.start import start
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Returned
from cloud.labels.review import TakeSettings
from fovea.bench.street_person import label_by_truth
from fovea.core.errors import Malformed, NotFound
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg
from fovea.sim.suite import load_suite
from tests.unit.hard_cases import CAPTURED_AT, SIZE, hard_case, tier_answer
from tests.unit.labelled_cases import Stores, stores_in

SITES = Sites.of({"yard": ["yard-*", "gate"], "hall": ["*-hall", "yard-9"]})


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path / "kept") as opened:
        yield opened


def golden_of(stores: Stores, frames: int = 4, enough: int = 3) -> GoldenSet:
    return GoldenSet(stores.labels, SITES, GoldenSettings(frames, enough))


def said(case_id: str, *, usable: bool = True) -> Returned:
    return Returned(case_id, DrawnBoxes.of([((1, 1, 9, 9), "car")], SIZE), "ada", is_usable=usable)


def filled(stores: Stores, count: int, camera: str = "gate", first: int = 0) -> list[str]:
    """Hours apart, so that none is like another."""
    return stores.add(
        *(
            hard_case(
                first + number, camera=camera, captured_at=CAPTURED_AT + timedelta(hours=5 * (first + number))
            )
            for number in range(count)
        )
    )


@pytest.mark.parametrize(
    ("camera", "site"),
    [
        ("yard-1", "yard"),
        ("gate", "yard"),
        ("yard-9", "yard"),
        ("big-hall", "hall"),
        ("lane", DEFAULT),
        ("Gate", DEFAULT),
    ],
)
def test_a_camera_is_of_the_first_site_that_names_it(camera: str, site: str) -> None:
    assert SITES.site_of(camera) == site


def test_there_is_always_a_site() -> None:
    assert Sites().names == (DEFAULT,)
    assert SITES.names == ("yard", "hall", DEFAULT)
    assert Sites.of({DEFAULT: ["a*"]}).names == (DEFAULT,)
    with pytest.raises(NotFound, match="there are yard, hall, default"):
        SITES.checked("cellar")


@pytest.mark.parametrize(
    "wrong", [{"": ["a"]}, {" yard": ["a"]}, {"y" * 61: ["a"]}, {"yard": []}, {"yard": [""]}]
)
def test_sites_that_make_no_sense_are_refused(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(Malformed, match="site"):
        Sites.of(wrong)


@pytest.mark.parametrize(("frames", "enough"), [(0, 0), (5, 6), (5, 0)])
def test_counts_that_make_no_sense_are_refused(frames: int, enough: int) -> None:
    with pytest.raises(Malformed, match="golden enough"):
        GoldenSettings(frames, enough)


def test_rare_kinds_of_frames_are_picked_beside_the_usual_ones(stores: Stores) -> None:
    filled(stores, 20)
    empty = tier_answer(Tier.EDGE, [])
    rare = stores.add(
        hard_case(50, camera="yard-1", answers=(empty,), captured_at=CAPTURED_AT + timedelta(hours=13)),
        hard_case(51, reasons=("audit",), captured_at=CAPTURED_AT + timedelta(days=30)),
    )
    cases = list(stores.cases.walk())
    picks = pick_diverse(cases, 8)
    assert len(picks) == len({pick.case_id for pick in picks}) == 8
    assert set(rare) <= {pick.case_id for pick in picks}
    assert picks == pick_diverse(list(reversed(cases)), 8)
    by_id = {case.id: case for case in cases}
    assert all(stratum_of(by_id[pick.case_id]) == pick.stratum for pick in picks)


def test_within_one_kind_picks_are_far_apart_in_time(stores: Stores) -> None:
    day = [CAPTURED_AT + timedelta(minutes=7 * number) for number in range(16)]
    stores.add(*(hard_case(number, captured_at=at) for number, at in enumerate(day)))
    cases = {case.id: case for case in stores.cases.walk()}
    (stratum, size), *_ = Counter(stratum_of(case) for case in cases.values()).most_common()
    one_kind = [case for case in cases.values() if stratum_of(case) == stratum]
    taken = sorted(cases[pick.case_id].captured_at for pick in pick_diverse(one_kind, 3))
    gaps = [b - a for a, b in pairwise(taken)]
    assert min(gaps) >= timedelta(minutes=7 * (size // 4 - 1))


def test_fewer_cases_than_wanted_are_all_picked(stores: Stores) -> None:
    filled(stores, 3)
    assert len(pick_diverse(list(stores.cases.walk()), 10)) == 3
    assert pick_diverse([], 10) == []


def test_a_site_is_shadow_only_until_people_have_labelled_enough(stores: Stores) -> None:
    golden = golden_of(stores)
    assert golden.golden_state("yard").is_shadow_only
    assert str(golden.golden_state("yard")) == (
        "site yard: shadow only, it has no golden frames yet (`fovea golden start`)"
    )
    filled(stores, 6)
    picked = start(stores.cases, golden, "yard")
    assert len(picked) == 4
    for number, case in enumerate(picked[:3]):
        state = golden.golden_state("yard")
        assert (state.wanted, state.done, state.is_shadow_only) == (4 - number, number, True)
        assert f"shadow only, {number} of 3 golden frames are labelled" in str(state)
        stores.reviews.take([said(case.id)], TakeSettings("ada", "console"))
    state = golden.golden_state("yard")
    assert not state.is_shadow_only
    assert str(state) == "site yard: 3 golden frames are labelled; new models can be judged"
    assert golden.golden_state("hall").is_shadow_only


def test_only_cameras_of_the_site_are_picked_and_kept_from_being_deleted(stores: Stores) -> None:
    filled(stores, 3, "gate")
    lane = filled(stores, 3, "lane", first=10)
    golden = golden_of(stores)
    picked = start(stores.cases, golden, "yard", frames=6)
    assert {case.frame_id.camera for case in picked} == {"gate"}
    assert "golden:yard" in stores.cases.protections_of(picked[0].id)
    assert stores.cases.protections_of(lane[0]) == ()
    assert {case.frame_id.camera for case in start(stores.cases, golden, DEFAULT)} == {"lane"}


def test_started_again_it_picks_what_is_missing_and_replaces_what_is_of_no_use(stores: Stores) -> None:
    filled(stores, 2)
    golden = golden_of(stores)
    first = start(stores.cases, golden, "yard")
    assert len(first) == 2
    filled(stores, 6, first=10)
    assert len(start(stores.cases, golden, "yard")) == 2
    assert start(stores.cases, golden, "yard") == []
    stores.reviews.take([said(first[0].id, usable=False)], TakeSettings("ada", "console"))
    state = golden.golden_state("yard")
    assert (state.wanted, state.done, state.unusable) == (3, 0, 1)
    (more,) = start(stores.cases, golden, "yard")
    assert more.id != first[0].id


def test_what_is_wanted_already_stays_with_its_site(stores: Stores) -> None:
    (case_id,) = filled(stores, 1)
    golden = golden_of(stores)
    assert golden.want("yard", [Pick(case_id, "a")]) == 1
    assert golden.want("hall", [Pick(case_id, "b")]) == 0
    (frame,) = golden.frames()
    assert (frame.site, frame.stratum, frame.state) == ("yard", "a", FrameState.WANTED)


def test_frames_come_with_what_people_said(stores: Stores) -> None:
    filled(stores, 4)
    golden = golden_of(stores)
    picked = start(stores.cases, golden, "yard")
    stores.reviews.take([said(picked[0].id)], TakeSettings("ada", "console"))
    done = [frame for frame in golden.frames("yard") if frame.state is FrameState.DONE]
    assert [frame.case_id for frame in done] == [picked[0].id]
    assert done[0].label is not None and done[0].label.said_by == "ada"


def test_another_picker_can_be_put_in(stores: Stores) -> None:
    filled(stores, 5)
    newest = start(
        stores.cases,
        golden_of(stores),
        "yard",
        picker=lambda cases, count: [Pick(cases[0].id, "newest")][:count],
    )
    assert [case.id for case in newest] == [next(stores.cases.walk()).id]


def test_on_the_street_the_truth_plays_the_person(stores: Stores) -> None:
    clip = load_suite("street-v1").clip("val", "day", 0)
    frames = {index: clip.frame(index) for index in (20, 160, 280)}
    for index, frame in frames.items():
        stores.cases.add(
            HardCase(
                encode_jpeg(frame.pixels),
                FrameId("gate", clip.id, index),
                CAPTURED_AT + timedelta(hours=index),
                (),
                ("audit",),
            )
        )
    golden = golden_of(stores, frames=3)
    picked = start(stores.cases, golden, "yard")
    ids = [case.id for case in picked]
    with pytest.raises(NotFound, match="does not know this frame"):
        label_by_truth(stores.reviews, ids, lambda case: None)
    report = label_by_truth(stores.reviews, ids, lambda case: frames[case.frame_id.sequence].objects)
    assert sorted(report.taken) == sorted(ids)
    assert not golden.golden_state("yard").is_shadow_only
    for frame in golden.frames("yard"):
        truth = frames[stores.case(frame.case_id).frame_id.sequence].objects
        assert frame.label is not None and frame.label.said_by == "the street"
        drawn = frame.label.drawn
        assert drawn.image_size == ImageSize(*clip.frame_size)
        assert drawn.class_ids.tolist() == [thing.class_id for thing in truth]
        assert drawn.ignore.tolist() == [thing.ignore for thing in truth]
        assert len(drawn)
