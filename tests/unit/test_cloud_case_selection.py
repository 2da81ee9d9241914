"""Which cases are chosen: gain, diversity and balance each do what they say, audits come along, golden ones never."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.cases.selection import Pool, Selection, choose, descriptors, expected_gains
from cloud.cases.store import CaseStore, StoreAddress
from cloud.cases.stored_case import CaseFilter
from fovea.core.errors import Malformed
from fovea.core.routing import Tier
from tests.unit.hard_cases import hard_case, tier_answer


def pool(count: int, seed: int = 0, **columns: object) -> Pool:
    """Cases of one camera at noon, all pictures unrelated, each with the one class; `columns` say otherwise."""
    rng = np.random.default_rng(seed)
    usual: dict[str, object] = {
        "gains": np.full(count, 0.5),
        "reasons": [("weak_boxes",)] * count,
        "send_probabilities": np.ones(count),
        "hashes": rng.integers(0, 2**64, count, np.uint64),
        "cameras": np.zeros(count, np.int64),
        "conditions": np.zeros(count, np.int64),
        "hours": np.full(count, 12.0),
        "has_class": np.ones((count, 1), bool),
    }
    return Pool(**(usual | columns))  # type: ignore[arg-type]


GAIN_ALONE = Selection(5, diversity=0, balance=0)
DIVERSITY_ALONE = Selection(5, gain=0, balance=0)
BALANCE_ALONE = Selection(6, gain=0, diversity=0)


def test_by_gain_alone_the_largest_come_first() -> None:
    gains = np.array([0.1, 0.9, 0.0, 0.5, 0.7, 0.3])
    assert choose(pool(6, gains=gains), GAIN_ALONE).tolist() == [1, 4, 3, 5, 0]


def test_by_diversity_alone_every_group_is_seen_before_any_is_seen_twice() -> None:
    """Three scenes of which one fills most of the store."""
    scenes = np.random.default_rng(1).integers(0, 2**64, 3, np.uint64)
    group = np.array([0] * 40 + [1] * 5 + [2] * 2)
    noise = np.uint64(1) << np.random.default_rng(2).integers(0, 64, len(group), np.uint64)
    chosen = choose(pool(len(group), hashes=scenes[group] ^ noise), DIVERSITY_ALONE)
    assert set(group[chosen[:3]].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("column", ["cameras", "conditions"])
def test_by_diversity_alone_every_camera_and_condition_is_seen(column: str) -> None:
    strata = np.array([0] * 50 + [1, 2, 3, 4])
    hashes = np.zeros(len(strata), np.uint64)
    chosen = choose(pool(len(strata), hashes=hashes, **{column: strata}), DIVERSITY_ALONE)
    assert set(strata[chosen].tolist()) == {0, 1, 2, 3, 4}


def test_by_diversity_alone_times_of_day_are_spread_and_midnight_has_no_edge() -> None:
    hours = np.array([0.1, 23.9, 0.2, 23.8, 12.0, 6.0, 18.0])
    twins = pool(7, hashes=np.zeros(7, np.uint64), hours=hours)
    chosen = choose(twins, replace(DIVERSITY_ALONE, count=4))
    assert sum(bool(abs((hour + 12) % 24 - 12) < 1) for hour in hours[chosen]) == 1


def test_by_balance_alone_rare_classes_are_taken_as_often_as_common_ones() -> None:
    has_class = np.zeros((60, 3), bool)
    has_class[:50, 0] = True
    has_class[50:57, 1] = True
    has_class[57:, 2] = True
    chosen = choose(pool(60, has_class=has_class), BALANCE_ALONE)
    assert has_class[chosen].sum(axis=0).tolist() == [2, 2, 2]


def test_empty_frames_are_a_class_of_their_own() -> None:
    has_class = np.zeros((20, 1), bool)
    has_class[:18] = True
    chosen = choose(pool(20, has_class=has_class), replace(BALANCE_ALONE, count=4))
    assert has_class[chosen].sum() == 2


def test_all_three_together_take_gain_where_it_is_without_taking_one_scene_alone() -> None:
    """One scene with much gain, another with some, one without any."""
    scenes = np.random.default_rng(3).integers(0, 2**64, 3, np.uint64)
    group = np.repeat([0, 1, 2], 20)
    flips = np.random.default_rng(4).integers(0, 64, (4, 60), np.uint64)
    hashes = scenes[group] ^ np.bitwise_xor.reduce(np.uint64(1) << flips)
    gains = np.array([0.9, 0.5, 0.0])[group]
    chosen = choose(pool(60, hashes=hashes, gains=gains), Selection(12))
    taken = np.bincount(group[chosen], minlength=3)
    assert taken[0] > taken[1] >= 1 >= taken[2]


def test_what_resembles_what_is_taken_already_is_wanted_less() -> None:
    scenes = np.random.default_rng(5).integers(0, 2**64, 2, np.uint64)
    hashes = scenes[[0, 0, 1]]
    given_already = np.array([True, False, False])
    assert choose(pool(3, hashes=hashes), replace(DIVERSITY_ALONE, count=1), given_already).tolist() == [2]


def test_equal_seeds_choose_equally_and_others_break_ties_otherwise() -> None:
    alike = pool(200, hashes=np.zeros(200, np.uint64))
    first = [choose(alike, Selection(10, seed=seed)).tolist() for seed in (1, 1, 2)]
    assert first[0] == first[1] != first[2]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999), count=st.integers(0, 30), wanted=st.integers(0, 40), taken=st.integers(0, 30)
)
def test_as_many_as_wanted_are_chosen_each_once_and_none_that_is_given(
    seed: int, count: int, wanted: int, taken: int
) -> None:
    rng = np.random.default_rng(seed)
    cases = pool(
        count,
        seed,
        gains=np.where(rng.random(count) < 0.5, np.nan, rng.random(count)),
        cameras=rng.integers(0, 3, count),
        has_class=rng.random((count, 4)) < 0.3,
    )
    is_given = np.arange(count) < taken
    chosen = choose(cases, Selection(wanted, seed), is_given).tolist()
    assert len(chosen) == len(set(chosen)) == min(wanted, count - int(is_given.sum()))
    assert not set(chosen) & set(np.flatnonzero(is_given).tolist())


def test_a_gain_that_was_not_measured_is_that_of_its_reason() -> None:
    cases = pool(
        62,
        gains=np.array([0.9] * 30 + [0.1] * 30 + [math.nan] * 2),
        reasons=[("vanished_track",)] * 30 + [("weak_boxes",)] * 30 + [("vanished_track",), ("new",)],
    )
    expected = expected_gains(cases)
    np.testing.assert_array_equal(expected[:60], cases.gains[:60])
    assert expected[60] == pytest.approx((30 * 0.9 + 10 * 0.5) / 40)
    assert expected[61] == pytest.approx(0.5)


def test_where_nothing_was_measured_the_gate_is_believed() -> None:
    cases = pool(3, gains=np.full(3, math.nan), send_probabilities=np.array([1.0, 0.02, 0.5]))
    np.testing.assert_allclose(expected_gains(cases), [0.5, 0.01, 0.25])


def test_distances_are_as_they_were_described() -> None:
    cases = pool(
        4,
        hashes=np.array([0, 2**32 - 1, 0, 0], np.uint64),
        cameras=np.array([0, 0, 1, 0]),
        conditions=np.array([0, 0, 0, 1]),
    )
    points = descriptors(cases).astype(np.float64)
    squares = ((points[0] - points[1:]) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, 0.5, atol=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"count": -1}, {"look_at": 0}, {"gain": -1.0}, {"balance": math.nan}, {"diversity": math.inf}]
)
def test_a_selection_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="selection"):
        replace(Selection(1), **wrong)  # type: ignore[arg-type]


# From the store.


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"))
    for seed in range(12):
        strong = tier_answer(Tier.CLOUD, [] if seed % 3 == 0 else None)
        opened.add(
            hard_case(
                seed,
                camera=f"camera {seed % 2}",
                answers=(tier_answer(Tier.AGENT), strong),
                reasons=("audit",) if seed >= 10 else ("weak_boxes",),
                send_probability=0.02 if seed >= 10 else 1.0,
            )
        )
    yield opened
    opened.close()


def sequences(store: CaseStore, selection: Selection) -> list[int]:
    return [case.frame_id.sequence for case in store.select(selection)]


def test_cases_where_the_tiers_disagreed_come_first_and_all_audits_last(store: CaseStore) -> None:
    found = sequences(store, Selection(4, diversity=0, balance=0))
    assert set(found[:4]) == {0, 3, 6, 9}
    assert set(found[4:]) == {10, 11}
    audits = [case for case in store.select(Selection(0)) if case.is_audit]
    assert [case.send_probability for case in audits] == [0.02, 0.02]


def test_audits_can_be_cases_like_others(store: CaseStore) -> None:
    assert sorted(sequences(store, Selection(100, with_audits=False))) == list(range(12))


def test_golden_cases_are_never_selected_not_even_as_audits(store: CaseStore) -> None:
    golden = [case.id for case in store.walk() if case.frame_id.sequence in (0, 11)]
    store.protect(golden, "golden:yard")
    assert sorted(sequences(store, Selection(100))) == list(range(1, 11))
    assert sorted(sequences(store, Selection(100, without=None))) == list(range(12))
    assert (
        sequences(store, Selection(100, wanted=CaseFilter(camera="camera 1"), with_audits=False)).count(11)
        == 0
    )


def test_a_filter_limits_cases_and_audits(store: CaseStore) -> None:
    found = sequences(store, Selection(100, wanted=CaseFilter(camera="camera 0")))
    assert sorted(found) == [0, 2, 4, 6, 8, 10]


def test_a_selection_of_a_store_is_the_same_for_equal_seeds(store: CaseStore) -> None:
    selection = Selection(5, seed=7, look_at=6)
    assert sequences(store, selection) == sequences(store, selection)
    assert {len(set(sequences(store, replace(selection, seed=seed)))) for seed in range(5)} == {7}
    assert len({tuple(sequences(store, replace(selection, seed=seed))) for seed in range(5)}) > 1


def test_an_empty_store_has_nothing_to_select(tmp_path: Path) -> None:
    empty = CaseStore.open(StoreAddress.in_folder(tmp_path / "empty"))
    assert empty.select(Selection(10)) == []
    empty.close()
