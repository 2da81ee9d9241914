"""What an agent counts and shows: the figures of the moment, Prometheus, health, files; and its small queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_agent.agent import FAILURES_UNHEALTHY, Agent
from edge_agent.built_agent import plain_counts, status_of
from edge_agent.capture.camera_state import CameraPhase, CameraState, DropCause
from edge_agent.case_keeping import CaseKeeping
from edge_agent.figures import AgentView, StatsFile
from edge_agent.held_results import HeldResults
from edge_agent.idle import Pace
from edge_agent.inbox import Inbox
from edge_agent.metrics import PrometheusMetrics
from edge_agent.observing import AnswerSeen, ErrandEnding, ErrandSeen, FrameSeen, Observers
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import CameraCondition
from edge_agent.purse import RULES_PRICE, Purse, worth_of
from edge_agent.results_file import ResultsFile
from edge_agent.stats import AgentFigures, AgentStats, Quantiles
from edge_agent.track.tracking import Tracking
from edge_agent.turns import Turns
from fovea.core.budget import Budget
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId, ImageSize
from fovea.core.gate import Opinion
from fovea.core.price import AskPrice
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from fovea.link.case_spool import SpoolCounts
from tests.agent_fakes import FakePublisher
from tests.builders import model_ref
from tests.fakes import FakeClock, FakeDetector

SIZE = ImageSize(64, 48)


def result(
    sequence: int = 0,
    tier: Tier = Tier.AGENT,
    route: Route = Route.LOCAL,
    reasons: tuple[Reason, ...] = (Reason.SURE,),
    degraded: str | None = None,
) -> FrameResult:
    return FrameResult(
        frame_id=FrameId("front", "boot", sequence),
        revision=tier.value,
        detections=Detections.empty(SIZE, model_ref()),
        answered_by=tier,
        decision=RouteDecision(route, reasons),
        captured_at=datetime(2025, 1, 1, tzinfo=UTC),
        captured_mono_s=1000.0,
        stage_ms={"detect": 10.0},
        degraded=degraded,
    )


ASKED = result(route=Route.EDGE, reasons=(Reason.WEAK_BOXES, Reason.VANISHED_TRACK))
LOST = result(reasons=(Reason.WEAK_BOXES, Reason.LINK_DOWN), degraded="edge_lost")
STILL = result(route=Route.SKIP, reasons=(Reason.STILL,))


# The figures of the moment


def test_frames_answers_and_questions_of_a_camera_are_counted() -> None:
    stats = AgentStats(["front", "back"], FakeClock())
    for seen in (result(), ASKED, LOST, STILL):
        stats.frame_seen(FrameSeen("front", seen, 0.05, 0.0002, 0.0003))
    stats.answer_seen(AnswerSeen("front", result(tier=Tier.EDGE), 0.3))
    stats.errand_seen(ErrandSeen("front", ErrandEnding.ANSWERED, 50_000, 0.2))
    stats.frame_failed("front")
    front, back = stats.camera("front"), stats.camera("back")
    assert (front.frames, front.skipped, front.asked, front.degraded, front.failed) == (4, 1, 1, 1, 1)
    assert front.asked_pct == pytest.approx(33.33)
    assert front.answers == {"agent": 4, "edge": 1, "cloud": 0}
    assert front.reasons["weak_boxes"] == 2 and front.reasons["link_down"] == 1
    assert (front.errands, front.sent_bytes) == ({"answered": 1}, 50_000)
    assert (front.latency_ms.p50, front.latency_ms.count) == (50.0, 4)
    assert front.upper_ms.p99 == 300.0
    assert (back.frames, back.latency_ms) == (0, Quantiles())
    assert stats.sent_bytes == 50_000


def test_frames_per_second_are_those_of_the_last_five_seconds() -> None:
    clock = FakeClock()
    stats = AgentStats(["front"], clock)
    for _ in range(10):
        clock.advance(0.2)
        stats.frame_seen(FrameSeen("front", result(), 0.05))
    assert stats.camera("front").fps == pytest.approx(5.0)
    for _ in range(40):
        clock.advance(0.1)
        stats.frame_seen(FrameSeen("front", result(), 0.05))
    clock.advance(1.0)
    assert stats.camera("front").fps == pytest.approx(40 / 5, abs=0.3)
    clock.advance(100.0)
    assert stats.camera("front").fps == 0.0


def test_times_of_decisions_and_stages_are_told_apart() -> None:
    stats = AgentStats(["front"], FakeClock())
    for number in range(100):
        stats.frame_seen(FrameSeen("front", result(), 0.05, number / 1e6, number / 1e5))
    cpu, wall, stages = stats.times()
    assert cpu.p50 == pytest.approx(0.0495) and wall.p50 == pytest.approx(0.495)
    assert cpu.p99 == pytest.approx(0.098, abs=0.001)
    assert stages["detect"].p50 == 10.0 and stages["detect"].count == 100


# Prometheus


def sample(metrics: PrometheusMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_prometheus_counts_each_frame_once_and_all_its_reasons() -> None:
    metrics = PrometheusMetrics(model_ref(), "cpu")
    for seen in (result(), ASKED, LOST, STILL):
        metrics.frame_seen(FrameSeen("front", seen, 0.05, 0.0002))
    metrics.answer_seen(AnswerSeen("front", result(tier=Tier.EDGE), 0.3))
    metrics.errand_seen(ErrandSeen("front", ErrandEnding.LATE, 50_000, 0.2))
    metrics.frame_failed("front")
    routes = {route: sample(metrics, "fovea_frames_total", camera="front", route=route) for route in Route}
    assert routes == {Route.LOCAL: 2, Route.EDGE: 1, Route.SKIP: 1, Route.CLOUD: None}
    weak = {"camera": "front", "reason": "weak_boxes"}
    assert sample(metrics, "fovea_reasons_total", route="edge", **weak) == 1
    assert sample(metrics, "fovea_reasons_total", route="local", **weak) == 1
    assert sample(metrics, "fovea_degraded_frames_total", camera="front", cause="edge_lost") == 1
    assert sample(metrics, "fovea_answers_total", camera="front", tier="agent") == 4
    assert sample(metrics, "fovea_answers_total", camera="front", tier="edge") == 1
    assert sample(metrics, "fovea_questions_total", camera="front", ending="late") == 1
    assert sample(metrics, "fovea_question_bytes_total", camera="front") == 50_000
    assert sample(metrics, "fovea_failed_frames_total", camera="front") == 1
    assert sample(metrics, "fovea_publish_latency_seconds_count", camera="front") == 4
    assert sample(metrics, "fovea_decide_cpu_seconds_sum") == pytest.approx(0.0008)


def test_several_observers_all_see() -> None:
    stats, metrics = AgentStats(["front"], FakeClock()), PrometheusMetrics(model_ref(), "cpu")
    both = Observers([stats, metrics])
    both.frame_seen(FrameSeen("front", result(), 0.05))
    both.frame_failed("front")
    both.answer_seen(AnswerSeen("front", result(tier=Tier.EDGE), 0.3))
    both.errand_seen(ErrandSeen("front", ErrandEnding.ANSWERED, 1, 0.2))
    assert stats.camera("front").answers["edge"] == 1
    assert sample(metrics, "fovea_questions_total", camera="front", ending="answered") == 1


# The whole agent, seen from outside


class Watched:
    """An AgentView of an agent that is made of facts."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.busy_s, self.failures, self.has_broken = 0.0, 0, False
        self.state = CameraState("front", CameraPhase.ONLINE, self.clock.now(), 0.0)
        self.drops: Mapping[DropCause, int] = {DropCause.NOT_DUE: 7, DropCause.FROZEN: 0}
        self.stats = AgentStats(["front"], self.clock)
        self.view = AgentView(
            "porch",
            FakeDetector(ref=model_ref()),
            cast(Agent, self),
            {"front": self},
            self.stats,
            None,
            CaseKeeping(None, 90),
            lambda: {"waiting": 3},
            lambda: {"delivered": 2},
            FakePublisher(),
            self.clock,
            stuck_after_s=60.0,
            resources=lambda: {"memory_used_share": 0.25, "temperature_c": 61.5},
            forecasts=lambda: {"edge_ms": 42.0},
        )
        self.idling: Any = None
        self._busy_s = 0.0

    @property
    def seats(self) -> Mapping[str, Any]:
        return {"front": SimpleNamespace(switched_off_frames=4, idling=self.idling)}

    @property
    def failures_in_a_row(self) -> int:
        return self.failures


def busy(watched: Watched, seconds: float) -> Watched:
    watched.busy_s = lambda: seconds  # type: ignore[assignment]
    return watched


@pytest.mark.parametrize(
    ("seconds", "failures", "has_broken", "is_healthy"),
    [
        (0.0, 0, False, True),
        (59.0, FAILURES_UNHEALTHY - 1, False, True),
        (61.0, 0, False, False),
        (0.0, FAILURES_UNHEALTHY, False, False),
        (0.0, 0, True, False),
    ],
)
def test_it_is_healthy_while_frames_that_come_are_answered(
    seconds: float, failures: int, has_broken: bool, is_healthy: bool
) -> None:
    watched = busy(Watched(), seconds)
    watched.failures, watched.has_broken = failures, has_broken
    assert watched.view.health().is_healthy is is_healthy
    assert watched.view.figures().is_healthy is is_healthy


def test_a_camera_that_is_away_makes_nobody_unhealthy_and_is_told() -> None:
    watched = busy(Watched(), 0.0)
    watched.state = CameraState("front", CameraPhase.LOST, watched.clock.now(), 0.0, "no answer")
    health = watched.view.health()
    assert health.is_healthy and health.facts["cameras"] == {"front": "lost"}
    camera = watched.view.figures().cameras[0]
    assert (camera.condition, camera.condition_reason) == ("lost", "no answer")
    assert status_of(watched.state).condition is CameraCondition.LOST


def test_the_figures_put_together_what_each_part_counts_and_are_json() -> None:
    watched = busy(Watched(), 0.0)
    watched.stats.frame_seen(FrameSeen("front", ASKED, 0.05, 0.0002))
    figures = watched.view.figures()
    assert figures.cameras[0].drops == {"not_due": 7, "switched_off": 4}
    assert figures.spool["waiting"] == 3 and figures.spool["kept"] == 0
    assert figures.uploads == {"delivered": 2}
    assert figures.link == {} and figures.published == {"connected": 1}
    again = json.loads(json.dumps(figures.as_json(), allow_nan=False))
    assert again["cameras"][0]["latency_ms"]["p50"] == 50.0
    facts = watched.view.health_facts()
    assert json.loads(json.dumps(facts))["cameras"]["front"]["latency_ms_p95"] == 50.0


def test_prometheus_also_tells_what_others_count() -> None:
    watched, metrics = busy(Watched(), 0.0), PrometheusMetrics(model_ref(), "cpu")
    metrics.watch(watched.view.figures)
    assert sample(metrics, "fovea_drops_total", camera="front", cause="not_due") == 7
    assert sample(metrics, "fovea_camera_online", camera="front") == 1
    assert sample(metrics, "fovea_healthy") == 1
    assert sample(metrics, "fovea_link_up") == 0
    assert sample(metrics, "fovea_spool", what="waiting") == 3


def test_what_the_machine_has_left_and_what_is_foretold_is_told_everywhere() -> None:
    watched, metrics = busy(Watched(), 0.0), PrometheusMetrics(model_ref(), "cpu")
    metrics.watch(watched.view.figures)
    assert watched.view.health().facts["resources"] == {"memory_used_share": 0.25, "temperature_c": 61.5}
    facts = watched.view.health_facts()
    assert facts["resources"] == watched.view.figures().resources
    assert facts["forecasts"] == watched.view.figures().forecasts == {"edge_ms": 42.0}
    assert sample(metrics, "fovea_resources", what="temperature_c") == 61.5
    assert sample(metrics, "fovea_forecasts", what="edge_ms") == 42.0


def test_a_camera_that_idles_says_so() -> None:
    watched, metrics = busy(Watched(), 0.0), PrometheusMetrics(model_ref(), "cpu")
    metrics.watch(watched.view.figures)
    assert watched.view.figures().cameras[0].wanted_fps is None
    watched.idling = SimpleNamespace(pace=Pace(2, 1.25, 1))
    camera = watched.view.figures().cameras[0]
    assert (camera.idle_level, camera.wanted_fps) == (2, 1.25)
    assert sample(metrics, "fovea_idle_level", camera="front") == 2
    assert json.loads(json.dumps(watched.view.health_facts()))["cameras"]["front"]["idle_level"] == 2


def test_counts_of_a_part_are_plain_numbers() -> None:
    counts = plain_counts(SpoolCounts(waiting=2, refused={"no_room": 3, "too_large": 1}))
    assert (counts["waiting"], counts["refused"]) == (2, 4)
    assert json.loads(json.dumps(counts)) == counts


# Files


def figures() -> AgentFigures:
    return busy(Watched(), 0.0).view.figures()


def test_the_stats_file_is_always_whole(tmp_path: Path) -> None:
    file = StatsFile(tmp_path / "stats.json")
    for _ in range(2):
        file.write(figures())
        assert json.loads((tmp_path / "stats.json").read_text())["device"] == "porch"
    assert [path.name for path in tmp_path.iterdir()] == ["stats.json"]


def test_a_stats_file_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = StatsFile(tmp_path / "nowhere" / "stats.json")
    file.write(figures())
    file.write(figures())
    assert len(caplog.records) == 1


def test_the_results_file_has_a_line_for_each_result_and_goes_on_where_it_was(tmp_path: Path) -> None:
    tracking = Tracking(1000.0, SIZE, (), (), ())
    for sequence in range(2):
        file = ResultsFile(tmp_path / "r.jsonl", "porch", LabelNames())
        file.publish_result("front", result(sequence), tracking)
        file.stop(1.0)
        file.publish_result("front", result(9), tracking)
        assert file.counts == {"file_results": 1, "file_dropped": 1}
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [(line["device"], line["camera"], line["sequence"]) for line in lines] == [
        ("porch", "front", 0),
        ("porch", "front", 1),
    ]


def test_a_results_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="results_file: cannot write"):
        ResultsFile(tmp_path, "porch", LabelNames())


# Queues and the purse


def test_turns_are_in_order_and_a_camera_stands_in_line_once() -> None:
    turns = Turns()
    for camera in ("a", "b", "a", "c"):
        turns.add(camera)
    assert len(turns) == 3
    assert [turns.next() for _ in range(4)] == ["a", "b", "c", None]
    turns.add("a")
    assert turns.next() == "a"


def test_an_inbox_gives_all_that_came_and_one_camera_at_a_time() -> None:
    inbox = Inbox()
    inbox.frame_ready("a")
    inbox.frame_ready("b")
    inbox.camera_lost("c")
    first = inbox.take(0)
    assert first is not None and (first.camera, first.lost) == ("a", ("c",))
    second = inbox.take(0)
    assert second is not None and (second.camera, second.lost) == ("b", ())
    empty = inbox.take(0)
    assert empty is not None and empty.camera is None and inbox.is_empty


def test_a_closed_inbox_says_so_though_something_is_in_it() -> None:
    inbox = Inbox()
    inbox.frame_ready("a")
    inbox.close()
    assert inbox.take(None) is None


def test_held_results_are_due_in_order_and_taken_once() -> None:
    held = HeldResults()
    for sequence, until_mono_s in ((0, 3.0), (1, 1.0), (2, 2.0)):
        held.hold(cast(Any, SimpleNamespace(result=result(sequence))), until_mono_s)
    assert held.next_due_mono_s == 1.0
    assert [each.walked.result.frame_id.sequence for each in held.take_due(2.0)] == [1, 2]
    assert held.take(FrameId("front", "boot", 1)) is None
    assert held.take(FrameId("front", "boot", 0)) is not None
    assert held.take_all() == []
    assert len(held) == 0 and held.next_due_mono_s is None


def opinion(p_ask: float, gain: float | None = None) -> Opinion:
    return Opinion(p_ask, gain, (Reason.WEAK_BOXES,))


def test_an_ample_budget_pays_for_every_question() -> None:
    purse = Purse(Budget(asks_per_s=1000.0), AskPrice(RULES_PRICE))
    for tick in range(500):
        assert purse.allows(opinion(0.7), tick * 0.2)
        purse.spend_ask(tick * 0.2)


def test_a_scarce_budget_goes_to_the_frames_that_promise_most() -> None:
    purse, asked = Purse(Budget(asks_per_s=1.0, burst_s=10.0), AskPrice(RULES_PRICE)), []
    for tick in range(2000):  # 400 s at 5 frames/s: every fifth frame is worth more
        now_s, worth = tick * 0.2, 0.9 if tick % 5 == 0 else 0.75
        if purse.allows(opinion(worth), now_s):
            purse.spend_ask(now_s)
            asked.append((tick, worth))
    later = [worth for tick, worth in asked if tick > 500]
    assert 240 <= len(later) <= 330, "the budget is used, and not more"
    assert sum(worth == 0.9 for worth in later) > 0.8 * len(later)


def test_bytes_in_debt_pay_for_nothing_until_they_are_paid_back() -> None:
    purse = Purse(Budget(asks_per_s=1000.0, bytes_per_s=1000.0, burst_s=1.0), AskPrice(RULES_PRICE))
    purse.spend_bytes(0.0, 3000)
    assert not purse.can_pay(0.0) and not purse.allows(opinion(0.99), 1.0)
    assert purse.can_pay(2.5)


def test_worth_is_the_gain_where_it_is_known_and_doubt_that_adds_up_where_not() -> None:
    assert worth_of(opinion(0.9, gain=0.02)) == 0.02
    assert worth_of(opinion(1 - 0.3**2)) == pytest.approx(2 * worth_of(opinion(0.7)))
    assert worth_of(opinion(1.0)) > worth_of(opinion(0.999999))


def test_the_level_of_a_budget_is_that_of_its_scarcer_part() -> None:
    budget = Budget(asks_per_s=10.0, bytes_per_s=1000.0, burst_s=1.0)
    assert budget.level(0.0) == 1.0
    budget.spend_bytes(0.0, 750)
    assert budget.level(0.0) == pytest.approx(0.25)
    budget.spend_bytes(0.0, 750)
    assert budget.level(0.0) == 0.0
    assert Budget(asks_per_s=10.0).level(0.0) == 1.0, "bytes without a limit are never scarce"
