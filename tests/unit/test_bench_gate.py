"""Rules, their replay under a budget, and the evidence: on made-up frames whose doubt tells how much asking gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit_gate import GateFitSettings, fit_gate
from calibration.gain_share import Verdict
from calibration.gate_rules import DRAWS, LINEAR, OTHERS, OURS, RANDOM, LinearRule, chosen
from fovea.bench.calibration_report import ReportPart, report_html
from fovea.bench.gate_figures import PCTS, GateEvidence, decide_cpu_ms, evidence
from fovea.bench.gate_fit import GateSample, priced, samples_of
from fovea.bench.gate_plots import curves_png
from fovea.bench.gate_replay import Offer, ranked_offer, replay, start_price
from fovea.bench.gate_set import AskFrame, AskSet, class_weights
from fovea.core.detections import Candidates, Detections
from fovea.core.features import FEATURE_NAMES, FrameFeatures
from fovea.core.gate import Opinion
from fovea.core.routing import Reason
from tests.builders import model_ref
from tests.unit.evaluation_frames import LABELS, SIZE, random_frames

ASK = (Reason.EXPECTED_GAIN,)


def ask_frames(count: int, seed: int) -> list[AskFrame]:
    """Every other frame is hard: its weak answer is empty, its doubt large; the rest is the same either way."""
    strong = random_frames(count, seed, jitter_px=2)
    frames = []
    for number, frame in enumerate(strong):
        seen = frame.seen
        assert isinstance(seen, Candidates)
        channel = seen.class_scores.argmax(axis=1)
        merged = Detections(
            seen.boxes_xyxy,
            seen.class_scores.max(axis=1),
            np.array(LABELS.ids, np.int32)[channel],
            SIZE,
            model_ref(),
        ).above(0.0)
        order = np.argsort(-merged.scores, kind="stable")
        merged = Detections(
            merged.boxes_xyxy[order], merged.scores[order], merged.class_ids[order], SIZE, model_ref()
        )
        is_hard = bool(number % 2)
        values = dict.fromkeys(FEATURE_NAMES, 0.1) | {
            "weak_mass": 3.0 * is_hard,
            "vanished_count": 2.0 * is_hard,
        }
        weak = Detections.empty(SIZE, model_ref()) if is_hard else merged
        features = FrameFeatures(**values)
        frames.append(
            AskFrame(frame.group, number * 0.5, frame.truth, weak, merged, merged, features, weak, 1000)
        )
    return frames


@pytest.fixture(scope="module")
def sets() -> tuple[AskSet, AskSet, AskSet]:
    fit, val, test = (AskSet.of(ask_frames(120, seed), LABELS.ids, 1) for seed in (1, 2, 3))
    return fit, val, test


@pytest.fixture(scope="module")
def found(sets: tuple[AskSet, AskSet, AskSet]) -> GateEvidence:
    fit, val, test = sets
    gate = fit_gate(samples_of(fit), GateFitSettings(trees=2, ridge=1.0))
    return evidence("made up", test, val, priced(gate, val), LinearRule.fit(samples_of(fit)), resamples=100)


def test_a_gate_that_knows_the_hard_frames_is_above_chance(found: GateEvidence) -> None:
    assert found.figures["gain_share.ours.20"] > found.figures["gain_share.random.20"]
    assert found.verdicts[RANDOM][30].verdict is Verdict.ABOVE
    assert found.figures["gain_share.oracle.20"] == 1


def test_every_figure_that_is_promised_is_there(found: GateEvidence) -> None:
    names = {f"gain_share.{rule}.{pct}" for rule in (OURS, *OTHERS, "oracle") for pct in PCTS}
    names |= {"ap.weak", "ap.strong", "ap.merged_all", "merged_equals_strong_at_pct"}
    names |= {"misroute_over_best_rule", "needless_ask_pct_at_25"}
    assert names <= set(found.figures)
    assert all(np.isfinite(value) for value in found.figures.values())
    assert found.figures["ap.weak"] < found.figures["ap.merged_all"]
    assert found.figures["ap.merged_all"] == pytest.approx(found.figures["ap.strong"])


def test_the_online_rules_keep_to_their_budget(found: GateEvidence) -> None:
    for pct in PCTS:
        for rule in (OURS, *OTHERS):
            assert found.figures[f"asked_pct.{rule}.{pct}"] <= pct + 4


def test_plots_are_pictures(found: GateEvidence) -> None:
    pngs = curves_png(found.curves)
    assert set(pngs) == {"ap", "found", "bytes"}
    assert all(png.startswith(b"\x89PNG") for png in pngs.values())


def test_the_gate_is_timed_once_for_each_frame(sets: tuple[AskSet, AskSet, AskSet]) -> None:
    gate = fit_gate(samples_of(sets[0]), GateFitSettings(trees=2))
    assert len(decide_cpu_ms(gate, sets[2], rounds=2)) == 240


def test_chance_is_drawn_where_it_decides_and_only_there() -> None:
    scores = {"flat": np.zeros(50), "plain": np.arange(50.0)}
    assert chosen("plain", scores, 0.1, 50).shape == (50, 1)
    assert chosen("flat", scores, 0.1, 50).shape == chosen(RANDOM, scores, 0.1, 50).shape == (50, DRAWS)
    assert (chosen("flat", scores, 0.1, 50).sum(axis=0) == 5).all()


def test_the_linear_rule_finds_a_line(sets: tuple[AskSet, AskSet, AskSet]) -> None:
    samples = samples_of(sets[0])
    line = LinearRule.fit(replace(samples, reward=2 * samples.x[:, 4].astype(float) + 1))
    said = line.scores([frame.features for frame in sets[0].frames])
    assert said == pytest.approx(2 * samples.x[:, 4] + 1, abs=1e-4)
    assert LINEAR in OTHERS


def test_a_frame_that_the_gate_would_keep_is_not_asked_however_rich_the_budget() -> None:
    frames = ask_frames(60, 5)
    unsure = [Opinion(0.6, 1.0, ASK)] * 60
    assert not replay(frames, Offer(unsure, 1e-9, 1000.0), 1.0).any()
    certain = [Opinion(0.8, 1.0, ASK)] * 60
    assert replay(frames, Offer(certain, 1e-9, 1000.0), 0.9).mean() > 0.7


def test_the_price_of_validation_frames_asks_the_best_of_them_first() -> None:
    frames = ask_frames(200, 6)
    scores = np.random.default_rng(0).random(200)
    asked = replay(frames, ranked_offer(scores, scores, 0.2), 0.2)
    assert 0.12 < asked.mean() < 0.26
    assert scores[asked].mean() > 0.8


def test_the_start_price_is_the_one_that_asks_the_share() -> None:
    opinions = [Opinion(0.9, number / 100, ASK) for number in range(100)]
    price = start_price(opinions, np.full(100, 1000.0), 0.25)
    assert sum(each.expected_gain / 1000.0 >= price for each in opinions) == 25  # type: ignore[operator]


def test_rare_classes_weigh_more_and_the_average_box_weighs_one() -> None:
    frames = ask_frames(60, 7)
    weights = class_weights(frames)
    ids = np.concatenate([frame.truth.class_ids[~frame.truth.ignore] for frame in frames])
    counts = {each: int((ids == each).sum()) for each in weights}
    assert sum(weights[each] * counts[each] for each in weights) == pytest.approx(len(ids))
    assert sorted(weights, key=weights.__getitem__) == sorted(counts, key=counts.__getitem__, reverse=True)


def test_a_sample_takes_training_clips_that_nobody_was_trained_on() -> None:
    sample = GateSample(fit_clips=2, val_clips=1, test_clips=3)
    assert {span.index for span in sample.spans("train")} == {5000, 5001}
    assert {span.index for span in sample.spans("test")} == {0, 1, 2}
    assert len(sample.spans("val")) == 6


def test_a_report_holds_its_pictures_and_escapes_what_it_says() -> None:
    page = report_html("A <title>", [ReportPart("Part", ["1 < 2"], {"d_ece": 0.25}, {"plot": b"png"})])
    assert "A &lt;title&gt;" in page and "1 &lt; 2" in page
    assert "data:image/png;base64,cG5n" in page and "<td>0.25</td>" in page
