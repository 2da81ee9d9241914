"""What an agent counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edge_agent.observing import AnswerSeen, ErrandSeen, FrameSeen
from edge_agent.stats import AgentFigures
from fovea.core.detections import ModelRef
from fovea.core.routing import Tier

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TIERS = {tier: tier.name.lower() for tier in Tier}
_Family = TypeVar("_Family", Counter, Histogram)
_DECIDE_SECONDS = (0.00002, 0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01)


class PrometheusMetrics:
    """An Observer with a registry of its own. `fovea_frames_total` counts each published frame once; its reasons,
    of which a frame has one or more, are counted apart."""

    def __init__(self, model: ModelRef, device: str) -> None:
        self.registry = CollectorRegistry()
        self._children: dict[tuple[object, tuple[str, ...]], Any] = {}
        self._frames = self._counter("fovea_frames", "Frames with an answer, by route.", "camera", "route")
        self._reasons = self._counter("fovea_reasons", "Why they went there.", "camera", "route", "reason")
        self._degraded = self._counter(
            "fovea_degraded_frames", "Frames whose answer is less than was meant.", "camera", "cause"
        )
        self._failed = self._counter(
            "fovea_failed_frames", "Frames on which the model, or a later step, broke.", "camera"
        )
        self._answers = self._counter(
            "fovea_answers", "Published answers, by the tier that gave them.", "camera", "tier"
        )
        self._errands = self._counter(
            "fovea_questions", "Questions to the tier above, by how they ended.", "camera", "ending"
        )
        self._sent = self._counter("fovea_question_bytes", "Bytes of pictures sent with questions.", "camera")
        self._latency_s = self._histogram(
            "fovea_publish_latency_seconds", "From capture to the first publication.", _SECONDS, "camera"
        )
        self._upper_s = self._histogram(
            "fovea_upper_latency_seconds", "From capture to the answer from above.", _SECONDS, "tier"
        )
        self._stage_s = self._histogram(
            "fovea_frame_stage_seconds", "Where the time of a frame went.", _SECONDS, "stage"
        )
        self._question_s = self._histogram(
            "fovea_question_seconds", "From the start of a question to its end.", _SECONDS, "ending"
        )
        self._decide_s = self._histogram(
            "fovea_decide_cpu_seconds", "CPU time of features, gate and decision.", _DECIDE_SECONDS
        )
        info = Gauge(
            "fovea_model",
            "1 for the model that runs.",
            ("name", "version", "sha256", "device"),
            registry=self.registry,
        )
        info.labels(model.name, model.version, model.sha256, device).set(1)

    def watch(self, figures: Callable[[], AgentFigures]) -> None:
        """Also tells what stands in `figures`, asked at every scrape."""
        self.registry.register(_FiguresCollector(figures))

    def frame_seen(self, seen: FrameSeen) -> None:
        result = seen.result
        route = result.decision.route.value
        self._child(self._frames, seen.camera, route).inc()
        for reason in result.decision.reasons:
            self._child(self._reasons, seen.camera, route, reason.value).inc()
        if result.degraded is not None:
            self._degraded.labels(seen.camera, result.degraded).inc()
        self._child(self._answers, seen.camera, _TIERS[result.answered_by]).inc()
        self._child(self._latency_s, seen.camera).observe(seen.latency_s)
        for stage, ms in result.stage_ms.items():
            self._child(self._stage_s, stage).observe(ms / 1000)
        if seen.decide_cpu_s is not None:
            self._decide_s.observe(seen.decide_cpu_s)

    def answer_seen(self, seen: AnswerSeen) -> None:
        tier = _TIERS[seen.result.answered_by]
        self._answers.labels(seen.camera, tier).inc()
        self._upper_s.labels(tier).observe(seen.latency_s)

    def frame_failed(self, camera: str) -> None:
        self._failed.labels(camera).inc()

    def errand_seen(self, seen: ErrandSeen) -> None:
        self._errands.labels(seen.camera, seen.ending.value).inc()
        self._sent.labels(seen.camera).inc(seen.sent_bytes)
        self._question_s.labels(seen.ending.value).observe(seen.seconds)

    def _child(self, family: _Family, *labels: str) -> _Family:
        """`family.labels(...)`, found without its lock and its checks: several for each frame."""
        key = (family, labels)
        child: _Family | None = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels)
        return child

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, about, labels, buckets=buckets, registry=self.registry)


class _FiguresCollector(Collector):
    """What others count already, told when it is asked for."""

    def __init__(self, figures: Callable[[], AgentFigures]) -> None:
        self._figures = figures

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        drops = CounterMetricFamily("fovea_drops", "Frames dropped, by cause.", labels=("camera", "cause"))
        online = GaugeMetricFamily("fovea_camera_online", "1 while frames come.", labels=("camera",))
        for camera in figures.cameras:
            for cause, number in camera.drops.items():
                drops.add_metric((camera.name, cause), number)
            online.add_metric((camera.name,), float(camera.condition == "online"))
        yield drops
        yield online
        yield GaugeMetricFamily("fovea_in_flight", "Questions under way.", value=figures.in_flight)
        yield GaugeMetricFamily("fovea_healthy", "1 while frames progress.", value=float(figures.is_healthy))
        yield GaugeMetricFamily("fovea_link_up", "1 while the tier above is there.", value=_link_up(figures))
        yield _by_name("spool", figures.spool)
        yield _by_name("uploads", figures.uploads)
        yield _by_name("published", figures.published)


def _by_name(name: str, counts: Mapping[str, object]) -> Metric:
    family = GaugeMetricFamily(f"fovea_{name}", f"What {name} counts, by name.", labels=("what",))
    for what, number in counts.items():
        if isinstance(number, int | float):
            family.add_metric((what,), number)
    return family


def _link_up(figures: AgentFigures) -> float:
    return float(figures.link.get("status") == "up")
