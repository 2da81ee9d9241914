"""What golden frames are for: never two things at once, and the same for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.cases.stored_case import CaseFilter
from cloud.golden.golden_set import GoldenSet
from cloud.golden.picking import Pick
from cloud.labels.drawn import DrawnBoxes
from cloud.labels.label import PersonLabel, Targets
from cloud.learn.golden_parts import GoldenPart, block_of, golden_cases, kept_apart, part_of
from cloud.learn.looked_at import truth_of, truth_of_golden
from cloud.learn.shown import CONDITION_TAG, UNKNOWN, filter_of, shown_condition
from tests.unit.hard_cases import CAPTURED_AT, SIZE, hard_case
from tests.unit.labelled_cases import Stores, stores_in


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path / "kept") as opened:
        yield opened


def labelled(stores: Stores, minutes: list[float], usable: bool = True) -> GoldenSet:
    """A golden frame at each of these minutes, that a person has labelled."""
    ids = stores.add(
        *(
            hard_case(number, captured_at=CAPTURED_AT + timedelta(minutes=minute))
            for number, minute in enumerate(minutes)
        )
    )
    golden = GoldenSet(stores.labels)
    golden.want("default", [Pick(case_id, "any") for case_id in ids])
    drawn = DrawnBoxes.of([((1, 1, 9, 9), "car"), ((20, 5, 40, 30), "person")], SIZE, [False, True])
    stores.labels.say_all(
        PersonLabel(case_id, drawn, "ada", stores.clock.now(), "console", usable) for case_id in ids
    )
    return golden


@given(st.text(min_size=1, max_size=40))
def test_a_block_has_one_part_for_ever(block: str) -> None:
    assert part_of(block) is part_of(block)


def test_about_three_fifths_judge_and_a_fifth_each_teaches_and_fits() -> None:
    counts = Counter(part_of(f"yard/{number}") for number in range(5000))
    assert 0.57 < counts[GoldenPart.JUDGE] / 5000 < 0.63
    assert 0.17 < counts[GoldenPart.LEARN] / 5000 < 0.23
    assert 0.17 < counts[GoldenPart.FIT] / 5000 < 0.23


def test_frames_of_the_same_ten_minutes_go_the_same_way(stores: Stores) -> None:
    golden = labelled(stores, [0, 0.5, 1, 300, 300.5])
    found = golden_cases(golden.frames("default"), stores.cases)
    assert len(found) == 5
    by_block: dict[str, set[GoldenPart]] = {}
    for each in found:
        by_block.setdefault(block_of(each.case), set()).add(each.part)
    assert len(by_block) == 2
    assert all(len(parts) == 1 for parts in by_block.values())


def test_nothing_beside_what_judges_or_fits_may_be_trained_on(stores: Stores) -> None:
    golden = labelled(stores, [11.0 * number for number in range(30)])
    found = golden_cases(golden.frames("default"), stores.cases)
    apart = kept_apart(found)
    assert {part for each in found if block_of(each.case) in apart for part in [each.part]} == {
        GoldenPart.JUDGE,
        GoldenPart.FIT,
    }
    assert len(apart) + sum(each.part is GoldenPart.LEARN for each in found) == 30


def test_frames_of_which_nobody_can_tell_anything_are_left_out(stores: Stores) -> None:
    golden = labelled(stores, [0, 11], usable=False)
    assert golden_cases(golden.frames("default"), stores.cases) == []


def test_what_a_person_set_aside_counts_on_neither_side(stores: Stores) -> None:
    golden = labelled(stores, [0])
    [found] = golden_cases(golden.frames("default"), stores.cases)
    truth = truth_of_golden(found)
    assert sorted(truth.ignore.tolist()) == [False, True]


def test_a_place_where_nothing_is_known_may_hold_any_class() -> None:
    known, doubtful = (np.array([box], np.float32) for box in ([0, 0, 5, 5], [10, 10, 20, 20]))
    exact = Targets(known, np.array([2], np.int32), np.ones(1, np.float32), doubtful, None)
    truth = truth_of(exact, (0, 2, 5))
    assert truth.class_ids.tolist() == [2, 0, 2, 5]
    assert truth.ignore.tolist() == [False, True, True, True]


def test_the_word_of_the_site_counts_before_what_was_measured(stores: Stores) -> None:
    [case_id] = stores.add(hard_case(1))
    measured = shown_condition(stores.case(case_id))
    assert measured != UNKNOWN
    stores.cases.tag([case_id], ["yard", f"{CONDITION_TAG}fog"])
    assert shown_condition(stores.case(case_id)) == "fog"


def test_cases_are_found_by_tag_and_else_as_they_were_measured(stores: Stores) -> None:
    [case_id] = stores.add(hard_case(1))
    stores.cases.tag([case_id], [f"{CONDITION_TAG}fog"])
    assert filter_of(stores.cases, "fog") == CaseFilter(tag=f"{CONDITION_TAG}fog")
    assert filter_of(stores.cases, "night") == CaseFilter(condition="night")
    assert filter_of(stores.cases, None) == CaseFilter()
