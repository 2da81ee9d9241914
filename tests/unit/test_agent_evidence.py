"""What speaks for the model that runs: its frames, its times, and how far the tier above agrees with it."""

from __future__ import annotations

import pytest

from edge_agent.observing import FrameSeen
from edge_agent.updates.evidence import ModelWatch, UpperAgreement, upper_of
from fovea.core.release import Asked
from tests.fakes import FakeClock
from tests.unit.walked_frames import (
    ASKED,
    AUDITED,
    CANDIDATE,
    CHAMPION,
    KEPT,
    SKIPPED,
    ended,
    walked,
)

TELL_FROM = 0.25


def test_frames_that_were_looked_at_count_with_those_that_were_asked_about() -> None:
    clock, watch = FakeClock(), ModelWatch(CHAMPION)
    for sequence, decision in enumerate((KEPT, ASKED, AUDITED, SKIPPED)):
        watch.frame_seen(FrameSeen("front", walked(clock, sequence, decision).result, 0.1))
    watch.frame_failed("front")
    assert watch.asked() == Asked(3, 2)
    assert (watch.frames, watch.failures) == (3, 1)


def test_times_are_of_the_model_that_runs_now_and_none_while_they_are_few() -> None:
    clock, watch = FakeClock(), ModelWatch(CHAMPION)
    assert watch.detect_ms_p95() is None
    for sequence in range(20):
        watch.frame_seen(FrameSeen("front", walked(clock, sequence).result, 0.1))
    assert watch.detect_ms_p95() == pytest.approx(10)
    watch.model_changed(CANDIDATE)
    for sequence in range(20):
        watch.frame_seen(FrameSeen("front", walked(clock, sequence).result, 0.1))
    assert watch.detect_ms_p95() is None and watch.frames == 40


def test_agreement_is_summed_with_the_inverse_of_the_probability_of_being_sent() -> None:
    clock, agreement = FakeClock(), UpperAgreement(CHAMPION, lambda: TELL_FROM)
    agreement.ended(ended(walked(clock, 1, ASKED)))
    agreement.ended(ended(walked(clock, 2, AUDITED, sees=False)))
    agreement.ended(ended(walked(clock, 3, AUDITED), is_answered=False))
    sums = agreement.sums
    assert (sums.model_sha256, sums.n) == (CHAMPION.sha256, 2)
    assert (sums.sum_w, sums.sum_wx, sums.sum_wxx, sums.sum_ww) == pytest.approx((11, 1, 1, 101))


def test_after_a_switch_it_begins_anew_and_late_answers_about_the_old_model_do_not_count() -> None:
    clock, agreement = FakeClock(), UpperAgreement(CHAMPION, lambda: TELL_FROM)
    agreement.ended(ended(walked(clock, 1, ASKED)))
    agreement.model_changed(CANDIDATE)
    assert (agreement.sums.model_sha256, agreement.sums.n) == (CANDIDATE.sha256, 0)
    agreement.ended(ended(walked(clock, 2, ASKED)))
    assert agreement.sums.n == 0
    agreement.ended(ended(walked(clock, 3, ASKED, model=CANDIDATE)))
    assert agreement.sums.n == 1


def test_the_highest_tier_speaks_and_never_the_camera_itself() -> None:
    found = ended(walked(FakeClock(), 1, ASKED))
    upper = upper_of(found)
    assert upper is not None and found.answer is not None and upper is found.answer.answers[1]
