"""Drift: false alarms are as rare as was said however long one looks, real changes are found soon, states survive."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.learn.drift import AskedRate, AuditAgreement, Evidence, ScoreShares, Watch
from fovea.core.errors import Malformed

ALPHA = 0.05
STREAMS = 150
REPORTS = 120
REFERENCE = np.array([0.05, 0.1, 0.15, 0.3, 0.25, 0.15])
SHARES = ScoreShares(tuple(REFERENCE.tolist()))
MOST_FALSE_ALARMS = int(ALPHA * STREAMS + 3 * math.sqrt(STREAMS * ALPHA * (1 - ALPHA)))
"""Three standard deviations above what alpha allows at most."""


def asked(rng: np.random.Generator, rate: float, frames: int = 60) -> np.ndarray:
    return AskedRate(0.1).report(int(rng.binomial(frames, rate)), frames)


def scored(rng: np.random.Generator, shares: np.ndarray, boxes: int = 60) -> np.ndarray:
    return SHARES.report(rng.multinomial(boxes, shares).tolist())


AGREEMENT = AuditAgreement(0.8, 0.02)


def audited(rng: np.random.Generator, mean: float, frames: int = 100) -> np.ndarray:
    """The audits of 100 frames: some frames are always sent and agree less, the rest is drawn at 5 %."""
    is_hard = rng.random(frames) < 0.3
    p = np.where(is_hard, 1.0, 0.05)
    is_sent = rng.random(frames) < p
    # hard frames agree by .3 less than the easy ones, so that all together agree by `mean`
    centre = np.where(is_hard, mean - 0.21, mean + 0.09)
    x = np.clip(centre + rng.uniform(-0.1, 0.1, frames), 0, 1)
    return AGREEMENT.report(x[is_sent].tolist(), p[is_sent].tolist())


def ran(evidence: Evidence, reports: list[np.ndarray], alpha: float = ALPHA, every: int = 10) -> Watch:
    watch = Watch(evidence, alpha, every)
    for report in reports:
        watch.update(report)
    return watch


def false_alarms(evidence: Evidence, report: object) -> int:
    alarms = 0
    for seed in range(STREAMS):
        rng = np.random.default_rng(seed)
        alarms += ran(evidence, [report(rng) for _ in range(REPORTS)]).is_alarmed  # type: ignore[operator]
    return alarms


def test_an_asked_rate_that_stays_raises_no_more_false_alarms_than_was_said() -> None:
    """At the edge of the tolerance, where it is hardest, and without any."""
    assert false_alarms(AskedRate(0.1, 0.0), lambda rng: asked(rng, 0.1)) <= MOST_FALSE_ALARMS
    assert false_alarms(AskedRate(0.1, 0.02), lambda rng: asked(rng, 0.12)) <= MOST_FALSE_ALARMS


def test_scores_that_stay_raise_no_more_false_alarms_than_was_said() -> None:
    exact = ScoreShares(tuple(REFERENCE.tolist()), tolerance=0.0)
    assert false_alarms(exact, lambda rng: scored(rng, REFERENCE)) <= MOST_FALSE_ALARMS


def test_a_reference_that_was_counted_itself_is_covered_by_the_tolerance() -> None:
    alarms = 0
    for seed in range(STREAMS):
        rng = np.random.default_rng(seed)
        evidence = ScoreShares.of_counts(rng.multinomial(2000, REFERENCE).tolist())
        alarms += ran(evidence, [scored(rng, REFERENCE) for _ in range(REPORTS)]).is_alarmed
    assert alarms <= MOST_FALSE_ALARMS


def test_an_agreement_that_stays_raises_no_more_false_alarms_than_was_said() -> None:
    assert false_alarms(AGREEMENT, lambda rng: audited(rng, 0.8)) <= MOST_FALSE_ALARMS


def test_frames_in_bursts_raise_no_more_false_alarms_when_they_count_for_less() -> None:
    """Ten neighbours are asked about together: each counts as a tenth."""

    def bursts(rng: np.random.Generator) -> np.ndarray:
        return AskedRate(0.1).report(10 * int(rng.binomial(6, 0.1)), 60)

    assert false_alarms(AskedRate(0.1, 0.0, weight=0.1), bursts) <= MOST_FALSE_ALARMS
    assert false_alarms(AskedRate(0.1, 0.0), bursts) > MOST_FALSE_ALARMS, "without that they would"


@pytest.mark.parametrize("calm", [0, 40, 400])
@pytest.mark.parametrize("seed", range(3))
def test_a_real_change_is_found_soon_also_after_a_long_calm(calm: int, seed: int) -> None:
    """Within 25 reports: 1500 frames whose asked rate doubled, 1500 boxes, or 2500 frames with some 850 audits."""
    rng = np.random.default_rng(seed)
    darker = np.array([0.2, 0.25, 0.2, 0.2, 0.1, 0.05])
    for evidence, before, after in (
        (AskedRate(0.1), lambda: asked(rng, 0.1), lambda: asked(rng, 0.2)),
        (AskedRate(0.1), lambda: asked(rng, 0.1), lambda: asked(rng, 0.01)),
        (SHARES, lambda: scored(rng, REFERENCE), lambda: scored(rng, darker)),
        (AGREEMENT, lambda: audited(rng, 0.82), lambda: audited(rng, 0.5)),
    ):
        watch = ran(evidence, [before() for _ in range(calm)], alpha=0.01)
        assert not watch.is_alarmed
        while not watch.update(after()):
            assert watch.reports < calm + 25, evidence.name
        assert watch.alarmed_at_report == watch.reports
        assert watch.strength >= 1


def test_an_agreement_that_rises_is_no_alarm() -> None:
    rng = np.random.default_rng(0)
    assert not ran(AGREEMENT, [audited(rng, 0.9) for _ in range(300)]).is_alarmed


def test_the_weights_of_audits_tell_a_change_from_a_change_of_what_is_sent() -> None:
    """The gate asks three times as much: the mean over what was sent falls, that over all frames does not."""
    rng = np.random.default_rng(1)
    evidence, plain = AuditAgreement(0.8, 0.02), AuditAgreement(0.8, 1.0)
    weighted, unweighted = Watch(evidence, 0.01, 10), Watch(plain, 0.01, 10)
    for _ in range(300):
        is_hard = rng.random(100) < 0.3
        p = np.where(is_hard, 0.9, 0.05)
        is_sent = rng.random(100) < p
        x = np.where(is_hard, 0.6, 0.92)[is_sent]
        weighted.update(evidence.report(x.tolist(), p[is_sent].tolist()))
        unweighted.update(plain.report(x.tolist(), [1.0] * len(x)))
    assert (weighted.is_alarmed, unweighted.is_alarmed) == (False, True)


def test_an_alarm_stays_and_says_when_it_was_raised() -> None:
    rng = np.random.default_rng(2)
    watch = ran(AskedRate(0.1), [asked(rng, 0.5) for _ in range(5)])
    raised = watch.alarmed_at_report
    assert raised is not None
    for _ in range(200):
        assert watch.update(asked(rng, 0.1))
    assert watch.alarmed_at_report == raised


@pytest.mark.parametrize("evidence", [AskedRate(0.1), SHARES, AGREEMENT], ids=lambda one: type(one).__name__)
def test_nothing_reported_is_no_evidence(evidence: Evidence) -> None:
    np.testing.assert_allclose(evidence.log_values(np.zeros((3, evidence.size))), 0, atol=1e-12)
    watch = Watch(evidence)
    assert (watch.is_alarmed, watch.strength) == (False, 0.0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), before=st.integers(0, 60), after=st.integers(0, 20))
def test_a_watch_that_was_written_and_read_goes_on_as_if_nothing_had_been(
    seed: int, before: int, after: int
) -> None:
    rng = np.random.default_rng(seed)
    reports = [scored(rng, REFERENCE) for _ in range(before + after)]
    whole = ran(SHARES, reports, every=3)
    stopped = ran(SHARES, reports[:before], every=3)
    resumed = Watch.from_json(SHARES, json.loads(json.dumps(stopped.to_json())))
    for report in reports[before:]:
        resumed.update(report)
    assert resumed.to_json() == whole.to_json()


def test_a_state_of_another_reference_or_one_that_is_damaged_is_refused() -> None:
    watch = ran(AskedRate(0.1), [AskedRate(0.1).report(1, 10)] * 3)
    state = watch.to_json()
    with pytest.raises(Malformed, match=r"asked_rate:0\.2"):
        Watch.from_json(AskedRate(0.2), state)
    for wrong in ({"sums": [[1.0]]}, {"numbers": "x"}, {"alpha": 7}, {"sums": None}):
        with pytest.raises(Malformed, match="watch"):
            Watch.from_json(AskedRate(0.1), {**state, **wrong})
    with pytest.raises(Malformed, match="reports"):
        Watch.from_json(AskedRate(0.1), {name: value for name, value in state.items() if name != "reports"})


def test_a_watch_of_years_remembers_little() -> None:
    rng = np.random.default_rng(3)
    watch = ran(AskedRate(0.1), [asked(rng, 0.1) for _ in range(3000)], every=2)
    assert len(watch.numbers) <= 33
    assert watch.numbers[-1] == 1500
    assert len(json.dumps(watch.to_json())) < 5000


def test_the_beta_mixture_is_the_mean_likelihood() -> None:
    """Against the integral itself, by quadrature over 400,000 rates."""
    rates = (np.arange(400_000) + 0.5) / 400_000
    prior = 1 / (math.pi * np.sqrt(rates * (1 - rates)))
    mean = float((rates**7 * (1 - rates) ** 5 * prior).mean())
    expected = math.log(mean / (0.1**7 * 0.9**5))
    [found] = AskedRate(0.1, tolerance=0).log_values(np.array([[7.0, 5.0]]))
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AskedRate(0.0),
        lambda: AskedRate(0.5, weight=0),
        lambda: AskedRate(0.5).report(3, 2),
        lambda: ScoreShares((0.5, 0.4)),
        lambda: ScoreShares((1.0,)),
        lambda: ScoreShares((0.5, 0.5), tolerance=math.nan),
        lambda: ScoreShares.of_counts([0, 0]),
        lambda: SHARES.report([1, 2]),
        lambda: SHARES.report([1, 2, 3, 4, 5, -6]),
        lambda: AuditAgreement(1.0),
        lambda: AGREEMENT.report([1.1], [1.0]),
        lambda: AGREEMENT.report([math.nan], [1.0]),
        lambda: AGREEMENT.report([0.5], [0.001]),
        lambda: AGREEMENT.report([0.5, 0.5], [1.0]),
        lambda: Watch(AskedRate(0.1), alpha=1.0),
        lambda: Watch(AskedRate(0.1), every=0),
    ],
)
def test_what_makes_no_sense_is_refused(make: object) -> None:
    with pytest.raises(Malformed):
        make()  # type: ignore[operator]
