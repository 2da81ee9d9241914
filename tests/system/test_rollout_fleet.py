"""Rollouts to a small fleet with real processes: a killed cloud, a new broker, and weeks without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud.rollout.plan import ORDER, RolloutPlan, StagePlan
from cloud.rollout.rollout import Status
from fovea.bench.rollout_site import GROUP, RolloutSite, SiteSettings
from fovea.core.release import Stage
from fovea.sim.fleet_truth import ModelTruth

FIRST, GOOD, WORSE = "1.0", "2.0", "3.0"
TRUTHS = {FIRST: ModelTruth(0.8), GOOD: ModelTruth(0.84), WORSE: ModelTruth(0.74)}
PLAN = RolloutPlan(
    stages={
        stage: StagePlan(share, min_frames=200, min_s=60)
        for stage, share in zip(ORDER, (0.5, 0.2, 0.5, 1.0), strict=True)
    },
)
SETTINGS = SiteSettings(devices=12, processes=4, away=1, speed=120.0, tick_s=20.0, interval_s=120.0)
LONG_S = 86_400.0
WEEKS_S = 3 * 7 * 86_400.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RolloutSite]:
    with RolloutSite(tmp_path, TRUTHS, SETTINGS) as made:
        yield made


def until(site: RolloutSite, what: str, is_so: Callable[[], bool]) -> None:
    if not site.run(is_so, LONG_S):
        newest = site.newest()
        raise AssertionError(
            f"not {what}: {newest.stage}, {newest.status}, {newest.reasons}, {site.running()}"
        )


def test_a_good_model_reaches_all_and_a_bad_one_goes_back_whatever_else_happens(site: RolloutSite) -> None:
    until(site, "all there", lambda: len(site.store.reports(GROUP)) == 11)

    rollout = site.roll_out(FIRST, GOOD, PLAN)
    until(site, "beyond the shadow", lambda: site.newest().stage not in (Stage.SHADOW, Stage.BACK))
    site.kill_cloud()
    site.stop_broker()
    site.start_broker()
    site.start_cloud()
    until(site, "done", lambda: site.newest().status is Status.DONE)
    until(site, "everywhere", lambda: site.running() == {GOOD: 11})
    moves = site.store.moves(rollout.id)
    assert [move["stage"] for move in moves] == ["shadow", "canary", "quarter", "all", "idle"]
    assert [move["serial"] for move in moves] == sorted(move["serial"] for move in moves)

    site.roll_out(GOOD, WORSE, PLAN)
    until(site, "back", lambda: site.newest().status is Status.BACK)
    assert "agreement" in site.newest().reasons[0]
    until(site, "settled", lambda: site.running() == {GOOD: 11})
    assert site.answered()[WORSE] == 0

    [lost] = site.fleet.away
    assert site.fleet.devices[lost].running == FIRST
    site.clock.advance_to(site.clock.monotonic_s() + WEEKS_S)
    site.fleet.call_back()
    until(site, "caught up", lambda: site.running() == {GOOD: 12})
    until(site, "heard of", lambda: lost in {each.state.device for each in site.store.reports(GROUP)})
    assert site.fleet.dropped() + site.processes.dropped() == 0
