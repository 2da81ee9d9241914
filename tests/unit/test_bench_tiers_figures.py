"""All figures of the replay together, by the names under which they are published."""

from __future__ import annotations

import math

import pytest

from fovea.bench.result import BenchResult
from fovea.bench.tiers_figures import BUDGETS_PCT, LINKS, replayed_figures, times_figures
from fovea.bench.tiers_outcome import Mode
from fovea.bench.tiers_policy import Gates
from fovea.core.features import FrameFeatures
from fovea.core.gate import Gate, Opinion
from fovea.core.routing import Reason
from tests.unit.recorded_frames import FRAMES, TIMES

PROMISED = (
    "ap",
    "f1",
    "latency_ms_mean",
    "latency_ms_p95",
    "latency_ms_p99",
    "bytes_per_frame",
    "joules_per_frame",
    "streaming_ap",
)
ALIKE = [frame for _ in range(10) for frame in FRAMES]


class AlwaysAsks:
    """A gate to which every frame is worth a question."""

    def judge(self, features: FrameFeatures) -> Opinion:
        return Opinion(1.0, None, (Reason.UNCERTAIN_BOXES,))


ASKING: Gate = AlwaysAsks()


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    gates = Gates(ASKING, ASKING, is_edge_fitted=True, told="")
    return replayed_figures(ALIKE, gates.frames(ALIKE, 2.0), TIMES, gates, 2.0, resamples=20)


def test_every_promised_figure_is_there_and_can_be_published(figures: dict[str, float]) -> None:
    promised = {f"{link}.{mode}.{name}" for link in LINKS for mode in Mode for name in PROMISED}
    promised |= {"hybrid.asked_pct", *(f"hybrid.ap_over_cloud.{pct}" for pct in BUDGETS_PCT)}
    assert promised <= set(figures)
    assert all(math.isfinite(value) for value in figures.values())
    BenchResult.now("tiers", {}, figures | times_figures(TIMES))


def test_the_agent_is_first_and_sends_nothing_and_the_cloud_sends_everything(
    figures: dict[str, float],
) -> None:
    for link in LINKS:
        assert figures[f"{link}.agent.latency_ms_mean"] == pytest.approx(10)
        assert figures[f"{link}.agent.bytes_per_frame"] == 0
        assert figures[f"{link}.cloud.bytes_per_frame"] > 100
        assert figures[f"{link}.agent.joules_per_frame"] < figures[f"{link}.cloud.joules_per_frame"]


def test_the_cloud_is_further_away_over_slower_links(figures: dict[str, float]) -> None:
    latencies = [figures[f"{link}.cloud.latency_ms_mean"] for link in ("lan", "wan", "lte")]
    assert latencies == sorted(latencies) and latencies[0] < latencies[-1]


def test_an_outage_takes_answers_from_the_cloud_and_none_from_the_camera(figures: dict[str, float]) -> None:
    assert figures["outage.cloud.unanswered_pct"] > 30 > figures["outage.hybrid.unanswered_pct"] == 0
    assert figures["outage.cloud.ap"] < figures["wan.cloud.ap"]
    assert figures["first_answer_ms.cut"] == figures["first_answer_ms.lan"] == pytest.approx(10)


def test_asking_more_is_worth_more_and_costs_more(figures: dict[str, float]) -> None:
    few, many = (figures[f"hybrid.ap_over_cloud.{pct}"] for pct in BUDGETS_PCT)
    assert figures["wan.agent.ap"] / figures["wan.cloud.ap"] < few < many <= 1
    for name in ("asked_pct", "bytes_over_cloud", "energy_over_cloud", "latency_over_cloud"):
        assert figures[f"hybrid.{name}.25"] < figures[f"hybrid.{name}.40"]
    assert figures["hybrid.asked_pct.25"] <= 25 and figures["hybrid.asked_pct.40"] <= 40
    assert figures["hybrid.ap_over_cloud_low.40"] <= many <= figures["hybrid.ap_over_cloud_high.40"]


def test_times_are_told_in_milliseconds() -> None:
    assert times_figures(TIMES)["times.cloud_ms"] == pytest.approx(200)
