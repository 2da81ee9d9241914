"""The real run of the tiers, as what an agent published becomes figures; and the policy of the replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from edge_agent.config import load_config
from fovea.bench.cascade_recording import Trio
from fovea.bench.result_lines import Published
from fovea.bench.tiers import TiersSettings
from fovea.bench.tiers_link import LTE
from fovea.bench.tiers_live import (
    WARM_UP_FRAMES,
    LiveFrame,
    agent_config,
    frames_of,
    live_figures,
    parted,
    shape_of,
)
from fovea.bench.tiers_outcome import Mode, Outcome, ReplayFrame, Said, TierTimes
from fovea.bench.tiers_policy import Gates, as_seen
from fovea.bench.tiers_replay import Network, replay
from fovea.core.errors import BrokenError, Malformed
from fovea.core.features import FEATURE_NAMES, FrameFeatures
from fovea.core.gate import Opinion, RuleGate
from fovea.core.learned_gate import LearnedGate, Perceptron
from fovea.core.routing import Reason
from fovea.core.scores import PlattCurve
from tests.unit.recorded_frames import FRAMES, PERSON


def published(sequence: int, revision: int, ms: float, is_asked: bool = True) -> Published:
    stages = {"wait": 1.0, "detect": ms - 1} if revision == 0 else {"since_capture": ms, "upper_infer": 5.0}
    return Published("front", sequence, revision, 100 + sequence / 2, is_asked, True, stages)


def live(sequence: int, latency_s: float, is_asked: bool, captured_s: float = 0.0) -> LiveFrame:
    revision = int(is_asked)
    return LiveFrame("front", sequence, captured_s, 0.01, latency_s, is_asked, revision)


def test_a_frame_has_its_first_and_its_best_answer() -> None:
    frames = frames_of(
        [published(0, 0, 10), published(1, 0, 12, False), published(0, 1, 80), published(0, 2, 300)]
    )
    assert [(f.sequence, f.revision) for f in frames] == [(0, 2), (1, 0)]
    assert [f.first_s for f in frames] == pytest.approx([0.010, 0.012])
    assert [f.latency_s for f in frames] == pytest.approx([0.3, 0.012])
    assert [f.is_asked for f in frames] == [True, False]


def test_frames_are_parted_by_what_the_links_were_like_and_those_in_between_are_left_out() -> None:
    frames = [live(n, 0.1, False, captured_s=100 + n / 2) for n in range(40)]
    run = parted(frames, 100.0, 110.0, 115.0)
    assert [f.sequence for f in run.modelled] == list(range(WARM_UP_FRAMES, 17))
    assert [f.sequence for f in run.lan] == list(range(20, 27))
    assert [f.sequence for f in run.cut] == list(range(30, 40))
    with pytest.raises(BrokenError, match="expected frames in each part"):
        parted(frames[:25], 100.0, 110.0, 115.0)


def test_the_error_of_the_replay_is_told_against_the_real_run() -> None:
    real = parted(
        [live(n, 0.2 if n % 2 else 0.01, bool(n % 2), 100 + n / 2) for n in range(40)], 100.0, 110.0, 115.0
    )
    replayed = {}
    for n in range(40):
        answers = [(0.01, Said.CAMERA), (0.22, Said.CAMERA_EDGE)] if n % 4 == 1 else [(0.01, Said.CAMERA)]
        replayed["front", n] = Outcome(0.0, answers, is_asked=len(answers) > 1)
    figures = live_figures(real, replayed)
    asked = [f for f in real.modelled if f.is_asked]
    assert figures["live.asked_pct"] == pytest.approx(100 * len(asked) / len(real.modelled))
    assert figures["replay.better_answer_error_pct"] == pytest.approx(10)
    assert figures["replay.asked_error_points"] < 0
    assert 0 < figures["replay.same_decision_pct"] < 100
    assert figures["replay.latency_error_pct"] < 0
    assert figures["live.first_ms_mean.cut"] == pytest.approx(10)
    with pytest.raises(BrokenError, match="that were replayed"):
        live_figures(real, {})


def test_a_link_is_shaped_by_half_its_round_trip_and_its_bytes() -> None:
    shape = shape_of(LTE)
    assert (shape.delay_s, shape.bytes_per_s) == (0.03, 500_000)


def test_the_agent_takes_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    told = agent_config(
        Trio.street().camera, {"front": tmp_path / "pictures"}, 5000, 2.0, tmp_path / "results.jsonl"
    )
    file = tmp_path / "agent.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    config = load_config(file)
    assert config.audit_share == 0 and config.edge is not None and config.edge.encoding == "jpeg"


def test_the_second_opinion_doubts_more_where_tiers_contradict_each_other() -> None:
    gates = Gates(RuleGate(), RuleGate(), is_edge_fitted=False, told="")
    contradicted = FrameFeatures(**(dict.fromkeys(FEATURE_NAMES, 0.0) | {"vanished_count": 4.0}))
    assert gates.second(FrameFeatures(*[0.0] * len(FEATURE_NAMES))).p_ask == 0
    assert gates.second(contradicted).p_ask == pytest.approx(1 - 0.3 ** (0.1 * 2))


def test_a_fitted_gate_sees_doubts_by_its_class_weights_and_the_rules_what_was_recorded() -> None:
    frame = FRAMES[0]
    perceptron = Perceptron(
        np.zeros(12, np.float32),
        np.ones(12, np.float32),
        ((np.zeros((12, 1), np.float32), np.zeros(1, np.float32)),),
    )
    weighed = LearnedGate(perceptron, PlattCurve(1.0, 0.0), perceptron, class_weights={PERSON: 3.0})
    twice = replace(weighed, class_weights={PERSON: 6.0})
    assert as_seen(RuleGate(), frame.features, frame.edge) is frame.features
    seen = as_seen(weighed, frame.features, frame.edge)
    assert seen.weak_mass == pytest.approx(3 * 0.2) and seen.entropy_sum > 0
    assert as_seen(twice, frame.features, frame.edge).entropy_sum == pytest.approx(2 * seen.entropy_sum)


def test_budgets_are_those_of_the_configurations_or_a_share_of_the_frames() -> None:
    gates = Gates.of(Trio.street())
    usual, share = gates.policy(), gates.policy_within(0.25, 2.0, 100.0)
    assert usual.decide.ask_from == 0.7 and usual.ask_timeout_s == 1.5 and usual.decide.audit_share > 0
    assert share.decide.ask_from < 0.1 and share.decide.audit_share == 0
    assert usual.purse() is not usual.purse()
    assert gates.policy(audit_share=0.0).decide.audit_share == 0


@pytest.mark.parametrize("share", [0.25, 0.4])
def test_a_budget_that_is_a_share_is_never_exceeded_however_much_is_worth_a_question(share: float) -> None:
    gates, sure = Gates.of(Trio.street()), Opinion(1.0, 1.0, (Reason.UNCERTAIN_BOXES,))
    frames = [ReplayFrame(1 + n / 2, 1000, sure, sure) for n in range(200)]
    times = TierTimes((0.01,), (0.01,), (0.02,), (0.2,), 0.01, 0.002, 0.03, 0.4)
    outcomes = replay(frames, Mode.HYBRID, Network(LTE), times, gates.policy_within(share, 2.0, 100.0))
    asked = sum(each.is_asked for each in outcomes) / len(outcomes)
    assert 0.8 * share < asked <= share


@pytest.mark.parametrize(
    "wrong", [{"split": "train"}, {"clips": 0}, {"clips": 99}, {"count": 1}, {"fps": 0.0}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Malformed, match="tiers: expected"):
        TiersSettings(**wrong)  # type: ignore[arg-type]


def test_conditions_take_turns() -> None:
    spans = TiersSettings(clips=2).spans()
    assert len({span.condition for span in spans[:6]}) == 6 and spans[6].index == 1
    assert {span.every for span in spans} == {1}
