"""From replayed frames to AP, F1, streaming AP, latency and energy."""

from __future__ import annotations

from collections import Counter

import pytest

from fovea.bench.tiers_outcome import Mode, Outcome, Said
from fovea.bench.tiers_scores import (
    Answers,
    Quality,
    ap_ratios,
    best_looks,
    qualities,
    run_figures,
    streaming_looks,
    work_of,
)
from fovea.core.energy import EnergyConstants
from fovea.core.errors import BrokenError
from tests.unit.recorded_frames import FRAMES, TIMES

CLIPS = [each.clip for each in FRAMES]


def outcomes(*answers: tuple[float, Said]) -> list[Outcome]:
    """Every frame has these answers, so long after its capture."""
    return [Outcome(n / 2, [(n / 2 + late_s, said) for late_s, said in answers]) for n in range(len(FRAMES))]


AGENT = outcomes((0.01, Said.CAMERA))
CLOUD = outcomes((0.3, Said.CLOUD))
HYBRID = outcomes((0.01, Said.CAMERA), (0.3, Said.ALL))


def test_ap_is_of_the_best_answer_and_streaming_ap_of_what_is_known_meanwhile() -> None:
    found = qualities(Answers(FRAMES), {"agent": AGENT, "cloud": CLOUD, "hybrid": HYBRID}, 0.5)
    assert found["agent"].ap == pytest.approx(0.5, abs=0.01)
    assert found["cloud"].ap == pytest.approx(1.0)
    assert found["hybrid"].ap == pytest.approx(1.0)
    # The camera's answer is always there; the cloud's is about where people were for the first half of the time.
    assert found["agent"].streaming_ap == pytest.approx(0.5, abs=0.01)
    assert found["cloud"].streaming_ap < 0.8
    assert found["hybrid"].streaming_ap > found["cloud"].streaming_ap + 0.1


def test_an_answer_that_never_comes_counts_as_an_empty_one() -> None:
    lost = [each if n % 2 else Outcome(each.captured_s) for n, each in enumerate(CLOUD)]
    found = qualities(Answers(FRAMES), {"whole": CLOUD, "half": lost}, 0.5)
    assert found["half"].ap == pytest.approx(0.5, abs=0.01)
    assert found["half"].f1 == pytest.approx(2 / 3)
    assert found["whole"].f1 == 1


def test_f1_counts_what_is_told_and_nothing_weaker() -> None:
    found = qualities(Answers(FRAMES), {"edge": outcomes((0.01, Said.EDGE)), "agent": AGENT}, 0.5)
    assert found["edge"].f1 == 0
    assert found["edge"].ap > 0
    assert found["agent"].f1 == pytest.approx(2 / 3)


def test_best_looks_hold_every_answer_against_its_own_frame() -> None:
    assert best_looks(HYBRID) == Counter({(n, (n, Said.ALL)): 1 for n in range(len(FRAMES))})


def test_streaming_looks_take_the_newest_frame_first_and_never_one_of_another_clip() -> None:
    looks = streaming_looks(CLIPS, HYBRID, 0.5)
    assert {truth for truth, _ in looks} == {1, 2, 4, 5}
    assert looks[1, (1, Said.CAMERA)] == 2 and looks[1, (1, Said.ALL)] == 3
    late = streaming_looks(CLIPS, outcomes((0.75, Said.CLOUD)), 0.5)
    # At the first instants the newest answer is to the frame two before, or, at a clip's second frame, nothing.
    assert late[2, (0, Said.CLOUD)] == 2 and late[2, (1, Said.CLOUD)] == 3
    assert late[4, (4, Said.NOTHING)] == 2 and late[4, (3, Said.CLOUD)] == 3


def test_an_answer_that_comes_sooner_is_never_worth_less_to_who_streams() -> None:
    runs = {f"{late_s}": outcomes((late_s, Said.CLOUD)) for late_s in (0.05, 0.15, 0.25, 0.35, 0.45, 0.9)}
    found = [each.streaming_ap for each in qualities(Answers(FRAMES), runs, 0.5).values()]
    assert found == sorted(found, reverse=True) and found[0] > found[-1]


def test_the_ratio_of_two_runs_is_that_of_their_aps_with_an_interval_around_it() -> None:
    answers = Answers(FRAMES)
    ratio = ap_ratios(answers, {"agent": AGENT}, CLOUD, 200)["agent"]
    found = qualities(answers, {"agent": AGENT, "cloud": CLOUD}, 0.5)
    assert ratio.value == pytest.approx(found["agent"].ap / found["cloud"].ap)
    assert ratio.low <= ratio.value <= ratio.high
    with pytest.raises(BrokenError, match="AP of 0"):
        ap_ratios(answers, {"agent": AGENT}, outcomes(), 10)


def test_merged_answers_are_merged_once_and_hold_what_all_tiers_saw() -> None:
    answers = Answers(FRAMES)
    merged = answers.of((0, Said.ALL))
    assert answers.of((0, Said.ALL)) is merged
    assert len(merged) == 2
    assert len(answers.of((0, Said.NOTHING))) == 0


def test_a_run_s_figures_are_of_the_answers_that_came() -> None:
    lost = [*HYBRID[:-1], Outcome(9.0)]
    for each in lost[:3]:
        each.is_asked, each.sent_bytes, each.edge_looks = True, 200.0, 1
    figures = run_figures(Mode.HYBRID, lost, Quality(0.5, 0.6, 0.4), TIMES, EnergyConstants())
    assert figures["latency_ms_mean"] == pytest.approx(300)
    assert figures["unanswered_pct"] == pytest.approx(100 / 6)
    assert figures["bytes_per_frame"] == pytest.approx(100)
    assert (figures["ap"], figures["f1"], figures["streaming_ap"]) == (0.5, 0.6, 0.4)
    work = work_of(Mode.HYBRID, lost, TIMES)
    assert work.camera_cpu_s == pytest.approx(0.01 + 0.002 / 2)
    assert work.edge_cpu_s == pytest.approx(0.03 / 2)
    assert work.cloud_cpu_s == 0
    assert work_of(Mode.CLOUD, lost, TIMES).camera_cpu_s == pytest.approx(0.002 / 2)
    with pytest.raises(BrokenError, match="no frame was answered by cloud"):
        run_figures(Mode.CLOUD, [Outcome(0.0)], Quality(0, 0, 0), TIMES, EnergyConstants())
