"""What the edge counts beside what every server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from edge_server.outcomes import Escalated
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader
from fovea.link.link import Link

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class EscalationMetrics:
    """An EscalationObserver. The outcomes of `fovea_escalations_total` add up to the frames that the edge looked at
    while it had a cloud to ask."""

    def __init__(self, registry: CollectorRegistry, link: Link) -> None:
        self._frames = Counter(
            "fovea_escalations",
            "Frames by what became of them with respect to the cloud.",
            ("outcome", "reason"),
            registry=registry,
        )
        self._asked_s = Histogram(
            "fovea_escalation_seconds",
            "How long the cloud was asked.",
            ("outcome",),
            buckets=_SECONDS,
            registry=registry,
        )
        is_up = Gauge("fovea_cloud_up", "1 while the cloud is there.", registry=registry)
        is_up.set_function(lambda: float(link.state.is_up))

    def frame_ended(self, outcome: Escalated, reason: str, asked_s: float | None) -> None:
        self._frames.labels(outcome, reason).inc()
        if asked_s is not None:
            self._asked_s.labels(outcome).observe(asked_s)

    def totals(self) -> Mapping[str, int]:
        """Frames by outcome so far."""
        totals = dict.fromkeys((outcome.value for outcome in Escalated), 0)
        for family in self._frames.collect():
            for sample in family.samples:
                if sample.name == "fovea_escalations_total":
                    totals[sample.labels["outcome"]] += int(sample.value)
        return totals


class SpoolMetrics(Collector):
    """The counts of a spool and of who empties it, as they are when somebody looks."""

    def __init__(self, registry: CollectorRegistry, spool: CaseSpool, uploader: CaseUploader) -> None:
        self._spool = spool
        self._uploader = uploader
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        there = self._spool.counts
        yield GaugeMetricFamily("fovea_spool_waiting", "Cases that wait for the cloud.", there.waiting)
        yield GaugeMetricFamily("fovea_spool_bytes", "What all cases take on disk.", there.total_bytes)
        refused = CounterMetricFamily("fovea_spool_refused", "Cases that found no room.", labels=("cause",))
        for cause, count in there.refused.items():
            refused.add_metric((cause,), count)
        yield refused
        sent = CounterMetricFamily(
            "fovea_case_uploads", "Cases sent on, by how it went.", labels=("outcome",)
        )
        for outcome, count in asdict(self._uploader.counts).items():
            if outcome != "sent_bytes":
                sent.add_metric((outcome,), count)
        yield sent
