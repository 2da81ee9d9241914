"""What the edge counts of the cloud and of the cases on their way there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from edge_server.metrics import EscalationMetrics, SpoolMetrics
from edge_server.outcomes import Escalated
from fovea.core.frame import FrameId
from fovea.core.hard_case import HardCase
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader
from fovea.link.link import LinkState, LinkStatus
from fovea.link.spool_index import SpoolLimits
from tests.unit.test_edge_escalation import FakeLink


def told(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_each_frame_is_counted_once_by_outcome_and_reason() -> None:
    registry, link = CollectorRegistry(), FakeLink()
    metrics = EscalationMetrics(registry, link)
    metrics.frame_ended(Escalated.KEPT, "sure", None)
    metrics.frame_ended(Escalated.ANSWERED, "uncertain_boxes", 0.2)
    metrics.frame_ended(Escalated.ANSWERED, "tiers_disagree", 0.3)
    metrics.frame_ended(Escalated.FAILED, "unavailable", 2.0)
    counts = told(registry)
    assert counts['fovea_escalations_total{outcome="answered",reason="tiers_disagree"}'] == 1
    assert counts['fovea_escalation_seconds_count{outcome="answered"}'] == 2
    assert metrics.totals() == {
        "kept": 1,
        "spared": 0,
        "hindered": 0,
        "answered": 2,
        "failed": 1,
        "left": 0,
    }


def test_whether_the_cloud_is_there_is_told_as_it_is_now() -> None:
    registry, link = CollectorRegistry(), FakeLink()
    EscalationMetrics(registry, link)
    assert told(registry)["fovea_cloud_up"] == 1
    link.state = LinkState(LinkStatus.DOWN, 0.0, "gone")
    assert told(registry)["fovea_cloud_up"] == 0


def test_the_spool_and_who_empties_it_are_told(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    limits = SpoolLimits(max_bytes=1_000, max_cases=10, min_free_bytes=0)
    spool = CaseSpool.open(tmp_path / "spool", limits)
    SpoolMetrics(registry, spool, CaseUploader(spool, FakeLink().deliver))
    for size in (10, 2_000):
        spool.put(
            HardCase(bytes(size), FrameId("c", "b", 1), datetime(2030, 1, 1, tzinfo=UTC), (), ("audit",))
        )
    counts = told(registry)
    assert counts["fovea_spool_waiting"] == 1 and counts["fovea_spool_bytes"] > 10
    assert counts['fovea_spool_refused_total{cause="too_large"}'] == 1
    assert counts['fovea_case_uploads_total{outcome="delivered"}'] == 0
    spool.close()
