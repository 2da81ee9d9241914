"""The published rules that our gate is measured against."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.ask_rules import RULES, WeakView, binary_entropy


def view(*scores: float, side_px: float = 100.0, answer_score: float = 0.35) -> WeakView:
    boxes = np.array([[0, 0, side_px, side_px]] * len(scores), np.float32).reshape(-1, 4)
    return WeakView(boxes, np.array(scores, np.float32), answer_score, 960 * 540)


@pytest.mark.parametrize("rule", ["threshold", "ibt", "cross_entropy"])
def test_an_empty_answer_is_hard_for_the_filters_that_only_look_at_answers(rule: str) -> None:
    assert RULES[rule](view()) >= RULES[rule](view(0.9, 0.8))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_frame_of_certain_boxes_is_the_last_to_be_asked(rule: str) -> None:
    certain, open_question = view(0.99, 0.98), view(0.99, 0.45, 0.2)
    assert RULES[rule](certain) < RULES[rule](open_question)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_gives_a_finite_number_for_a_frame_with_nothing_in_it(rule: str) -> None:
    assert np.isfinite(RULES[rule](view()))


def test_mass_is_what_stays_below_the_answer() -> None:
    assert RULES["mass"](view(0.9, 0.3, 0.2)) == pytest.approx(0.5)


def test_small_boxes_count_twice_for_the_two_threshold_rule() -> None:
    assert RULES["dcsb"](view(0.3, side_px=10)) == 2
    assert RULES["dcsb"](view(0.3, side_px=200)) == 1


def test_entropy_is_one_bit_for_an_even_chance() -> None:
    np.testing.assert_allclose(binary_entropy(np.array([0.0, 0.5, 1.0], np.float32)), [0, 1, 0], atol=1e-6)
