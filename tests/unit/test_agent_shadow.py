"""A candidate beside the champion: which frames it gets, what is made of them, and that it hurts nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from edge_agent.updates.shadow import Shadow, ShadowLimits
from fovea.core.errors import DetectorFailed
from tests.builders import model_ref
from tests.fakes import FakeClock, FakeDetector, Seen, bright_parts
from tests.mqtt_listener import wait_until
from tests.unit.walked_frames import ASKED, AUDITED, CANDIDATE, CHAMPION, KEPT, SKIPPED, ended, walked

LIVENESS_S = 20.0
TELL_FROM = 0.25


class Bench:
    """A shadow whose candidate looks when it is let, and takes 20 ms by the clock."""

    def __init__(self, share: float = 1.0, draw: float = 0.5, waiting: int = 4, sees: bool = True) -> None:
        self.clock = FakeClock()
        self.may_look = threading.Event()
        self.may_look.set()
        self.sees = sees
        self.looked: list[int] = []
        self.candidate = FakeDetector(look=self._look, ref=CANDIDATE)
        limits = ShadowLimits(share, busy_share=1.0, waiting=waiting)
        self.shadow = Shadow(self.candidate, CHAMPION, limits, lambda: TELL_FROM, self.clock, lambda: draw)
        self.shadow.start()

    def _look(self, pixels: np.ndarray) -> Seen:
        assert self.may_look.wait(LIVENESS_S)
        self.clock.advance(0.02)
        return list(bright_parts(pixels)) if self.sees else []

    def has_looked(self, frames: int) -> None:
        wait_until(lambda: self.shadow.report().frames == frames)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.may_look.set()
    assert made.shadow.stop(LIVENESS_S) and made.candidate.is_closed


def test_it_counts_frames_times_and_agreement_with_the_champion(bench: Bench) -> None:
    for sequence in range(20):
        bench.shadow.offer(walked(bench.clock, sequence, sees=sequence % 2 == 0))
        bench.has_looked(sequence + 1)
    report = bench.shadow.report()
    assert (report.candidate_sha256, report.frames, report.crashes) == (CANDIDATE.sha256, 20, 0)
    assert report.candidate_ms_p95 == pytest.approx(20)
    assert report.agreement_with_champion_mean == pytest.approx(0.5)
    assert report.paired_n == 0


def test_of_frames_that_nobody_is_asked_about_only_its_share_is_looked_at() -> None:
    for share, frames in ((0.4, 0), (0.6, 1)):
        bench = Bench(share=share, draw=0.5)
        bench.shadow.offer(walked(bench.clock, 1, KEPT))
        bench.shadow.offer(walked(bench.clock, 2, SKIPPED))
        bench.has_looked(frames)
        assert bench.shadow.stop(LIVENESS_S)
        assert bench.shadow.report().frames == frames


def test_frames_that_were_asked_about_are_looked_at_whatever_the_share() -> None:
    bench = Bench(share=0.0)
    bench.shadow.offer(walked(bench.clock, 1, ASKED))
    bench.has_looked(1)
    bench.shadow.offer(walked(bench.clock, 2, AUDITED))
    bench.has_looked(2)
    assert bench.shadow.stop(LIVENESS_S)


def test_while_it_is_busy_the_newest_waits_and_those_asked_about_come_first(bench: Bench) -> None:
    bench.may_look.clear()
    bench.shadow.offer(walked(bench.clock, 0))
    wait_until(lambda: bench.shadow._sampled is None)  # it is being looked at
    for sequence in (1, 2, 3):
        bench.shadow.offer(walked(bench.clock, sequence))
    for sequence in range(10, 16):
        bench.shadow.offer(walked(bench.clock, sequence, ASKED))
    bench.may_look.set()
    bench.has_looked(1 + 4 + 1)  # the one under way, four that were asked about, the newest of the others
    for sequence in range(10, 16):
        bench.shadow.ended(ended(walked(bench.clock, sequence, ASKED)))
    assert bench.shadow.report().paired_n == 4


def test_an_offer_returns_at_once_while_the_candidate_hangs(bench: Bench) -> None:
    bench.may_look.clear()
    offered = threading.Event()

    def offer_all() -> None:
        for sequence in range(100):
            bench.shadow.offer(walked(bench.clock, sequence, ASKED))
        offered.set()

    threading.Thread(target=offer_all, daemon=True).start()
    assert offered.wait(LIVENESS_S)
    assert len(bench.shadow._asked) <= 4


@pytest.mark.parametrize("is_answer_first", [True, False])
def test_a_look_and_the_answer_from_above_make_a_pair_whichever_comes_first(
    bench: Bench, is_answer_first: bool
) -> None:
    """The champion saw nothing where the edge and the candidate see something: d is 1."""
    for sequence, decision in ((1, ASKED), (2, AUDITED)):
        look = walked(bench.clock, sequence, decision, sees=False)
        if is_answer_first:
            bench.shadow.ended(ended(look))
        bench.shadow.offer(look)
        bench.has_looked(sequence)
        if not is_answer_first:
            bench.shadow.ended(ended(look))
    report = bench.shadow.report()
    assert report.paired_n == 2
    assert report.sum_w == pytest.approx(1 + 10)
    assert report.sum_wd == report.sum_wdd == pytest.approx(1 + 10)
    assert report.sum_ww == pytest.approx(1 + 100)


def test_a_candidate_that_misses_what_edge_and_champion_see_counts_against_it() -> None:
    bench = Bench(sees=False)
    look = walked(bench.clock, 1, ASKED)
    bench.shadow.offer(look)
    bench.has_looked(1)
    bench.shadow.ended(ended(look))
    report = bench.shadow.report()
    assert (report.paired_n, report.sum_wd, report.sum_wdd) == (1, -1.0, 1.0)
    assert bench.shadow.stop(LIVENESS_S)


def test_a_question_without_an_answer_pairs_with_nothing(bench: Bench) -> None:
    look = walked(bench.clock, 1, ASKED)
    bench.shadow.offer(look)
    bench.has_looked(1)
    bench.shadow.ended(ended(look, is_answered=False))
    assert bench.shadow.report().paired_n == 0


def test_where_the_tier_above_was_shown_a_part_only_that_part_is_compared(bench: Bench) -> None:
    """What the edge does not see lies outside of what it was shown: nobody is blamed."""
    elsewhere = np.array([[40, 30, 60, 46]], np.float32)
    look = walked(bench.clock, 1, ASKED, sees=False)
    bench.shadow.offer(look)
    bench.has_looked(1)
    bench.shadow.ended(ended(look, sees=False, looked_xyxy=elsewhere))
    report = bench.shadow.report()
    assert (report.paired_n, report.sum_wd) == (1, 0.0)


def test_a_candidate_that_breaks_is_counted_and_goes_on(bench: Bench) -> None:
    bench.candidate.fail_with = DetectorFailed("no")
    for sequence in range(3):
        bench.shadow.offer(walked(bench.clock, sequence, ASKED))
        wait_until(lambda: bench.shadow.report().crashes == sequence + 1)  # noqa: B023
    bench.candidate.fail_with = None
    bench.shadow.offer(walked(bench.clock, 3))
    bench.has_looked(1)
    assert bench.shadow.report().crashes == 3


def test_with_another_champion_the_comparison_begins_anew(bench: Bench) -> None:
    other = model_ref("student", "3", "c")
    look = walked(bench.clock, 1, ASKED)
    bench.shadow.offer(look)
    bench.has_looked(1)
    bench.shadow.champion_changed(other)
    bench.shadow.ended(ended(look))
    bench.shadow.offer(walked(bench.clock, 2, ASKED))
    assert (bench.shadow.report().frames, bench.shadow.report().paired_n) == (0, 0)
    newer = walked(bench.clock, 3, ASKED, model=other)
    bench.shadow.ended(ended(newer))
    bench.shadow.offer(newer)
    bench.has_looked(1)
    assert bench.shadow.report().paired_n == 1


def test_what_waits_for_its_other_half_is_bounded(bench: Bench) -> None:
    for sequence in range(500):
        bench.shadow.ended(ended(walked(bench.clock, sequence, ASKED)))
    assert len(bench.shadow._pairs._answers) == 64


def test_one_that_never_started_is_closed_all_the_same() -> None:
    candidate = FakeDetector(ref=CANDIDATE)
    assert Shadow(candidate, CHAMPION, ShadowLimits(1.0), lambda: 0.25, FakeClock(), lambda: 0.5).stop(0)
    assert candidate.is_closed
