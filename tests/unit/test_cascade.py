"""Mixtures of weak and merged answers, and the reward of asking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.cascade import CascadeFrame, CascadeTable, mean_ap, top_share
from calibration.evaluate import EvaluatedFrame, evaluate
from calibration.reward import context_reward, found_more
from fovea.core.errors import Malformed
from tests.unit.evaluation_frames import LABELS, random_frames


def cascade_frames(count: int = 18, seed: int = 3) -> list[CascadeFrame]:
    """Weak answers with much noise and merged ones with little, about the same truth."""
    weak = random_frames(count, seed, jitter_px=14)
    strong = random_frames(count, seed, jitter_px=2)
    return [CascadeFrame(w.group, w.truth, w.seen, s.seen) for w, s in zip(weak, strong, strict=True)]


def test_a_mixture_has_the_ap_of_the_same_answers_evaluated_afresh() -> None:
    frames = cascade_frames()
    table = CascadeTable.of(frames, LABELS.ids)
    asked = np.random.default_rng(0).random((len(frames), 5)) < 0.4
    for column in range(5):
        mixed = [
            EvaluatedFrame(f.clip, f.truth, f.merged if is_asked else f.weak)
            for f, is_asked in zip(frames, asked[:, column], strict=True)
        ]
        assert table.ap(asked)[column] == pytest.approx(evaluate(mixed, LABELS.ids).ap, abs=1e-12)


def test_a_clip_that_counts_twice_is_as_good_as_two_copies_of_it() -> None:
    frames = cascade_frames(6)
    table = CascadeTable.of(frames, LABELS.ids)
    twice = np.array([[2.0], [1.0]])
    copies = [f for f in frames if f.clip == table.clips[0]]
    both = CascadeTable.of([*frames, *copies], LABELS.ids)
    nobody = np.zeros(len(frames), bool)
    assert table.ap(nobody, twice)[0] == pytest.approx(both.ap(np.zeros(len(both), bool))[0], abs=1e-12)


def test_the_reward_of_a_frame_in_an_empty_context_is_the_change_of_ap() -> None:
    frames = cascade_frames(8)
    table = CascadeTable.of(frames, LABELS.ids)
    rewards = context_reward(table, contexts_per_share=0)
    one = np.zeros(len(frames), bool)
    one[5] = True
    expected = (table.ap(one)[0] - table.ap(np.zeros(len(frames), bool))[0]) * len(frames)
    assert rewards[5] == pytest.approx(expected, abs=1e-12)


def test_asking_by_reward_beats_asking_the_other_way_round() -> None:
    table = CascadeTable.of(cascade_frames(40), LABELS.ids)
    rewards = context_reward(table)
    best, worst = top_share(rewards, 0.3), top_share(-rewards, 0.3)
    assert table.ap(best)[0] > table.ap(worst)[0]


def test_the_reward_of_an_answer_that_stays_the_same_is_nothing() -> None:
    frames = [CascadeFrame(f.clip, f.truth, f.weak, f.weak) for f in cascade_frames(8)]
    table = CascadeTable.of(frames, LABELS.ids)
    assert not context_reward(table).any()
    assert not found_more(table).any()


def test_found_more_counts_the_objects_that_only_the_merged_answer_has() -> None:
    frames = cascade_frames(30)
    table = CascadeTable.of(frames, LABELS.ids)
    assert found_more(table).sum() > 0


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.floats(0, 1))
def test_the_top_share_has_the_size_asked_for_and_nothing_better_is_left_out(
    scores: list[float], share: float
) -> None:
    values = np.array(scores)
    asked = top_share(values, share)
    assert asked.sum() == round(share * len(values))
    if asked.any() and not asked.all():
        assert values[asked].min() >= values[~asked].max()


def test_ties_are_drawn_at_random_when_asked_to() -> None:
    flat = np.zeros(100)
    draws = {tuple(top_share(flat, 0.1, np.random.default_rng(seed)).tolist()) for seed in range(5)}
    assert len(draws) == 5


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(Malformed, match="ask scores: expected finite numbers, got 1 others"):
        top_share(np.array([0.1, np.nan]), 0.5)
    with pytest.raises(Malformed, match="asked share: expected 0 to 1"):
        top_share(np.array([0.1]), 1.5)


def test_a_cascade_of_nothing_is_refused() -> None:
    with pytest.raises(Malformed, match="cascade: expected at least one frame"):
        CascadeTable.of([], LABELS.ids)
    table = CascadeTable.of(cascade_frames(3), LABELS.ids)
    with pytest.raises(Malformed, match="cascade asked: expected 3 rows, got 2"):
        table.ap(np.zeros(2, bool))
    single = CascadeTable.of(cascade_frames(1), LABELS.ids)
    with pytest.raises(Malformed, match="context reward: expected two frames"):
        context_reward(single)


def test_a_mixture_by_clips_has_the_ap_of_the_mixture_by_frames_under_any_weighting() -> None:
    table = CascadeTable.of(cascade_frames(24), LABELS.ids)
    asked = np.random.default_rng(2).random(24) < 0.5
    weights = np.random.default_rng(3).integers(0, 3, (len(table.clips), 6)).astype(float)
    by_frames = table.ap(np.repeat(asked[:, None], 6, axis=1), weights)
    assert mean_ap(table.mixed(asked), weights) == pytest.approx(by_frames, abs=1e-12)
