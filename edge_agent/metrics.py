"""What an agent counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edge_agent.observing import AnswerSeen, ErrandSeen, FrameSeen
from edge_agent.stats import AgentFigures
from edge_agent.tallies import Tally, TimesTally
from fovea.core.ab import COMPARED, ArmFigures
from fovea.core.detections import ModelRef
from fovea.core.routing import Tier

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TIERS = {tier: tier.name.lower() for tier in Tier}
_DECIDE_SECONDS = (0.00002, 0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01)


class PrometheusMetrics:
    """An Observer with a registry of its own. `fovea_frames_total` counts each published frame once; its reasons,
    of which a frame has one or more, are counted apart."""

    def __init__(self, model: ModelRef, device: str) -> None:
        self.registry = CollectorRegistry()
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
        self._device = device
        self._model = Gauge(
            "fovea_model",
            "1 for the model that runs.",
            ("name", "version", "sha256", "device"),
            registry=self.registry,
        )
        self.model_changed(model)

    def model_changed(self, model: ModelRef) -> None:
        """Another one runs from now on."""
        self._model.clear()
        self._model.labels(model.name, model.version, model.sha256, self._device).set(1)

    def watch(self, figures: Callable[[], AgentFigures]) -> None:
        """Also tells what stands in `figures`, asked at every scrape."""
        self.registry.register(_FiguresCollector(figures))

    def frame_seen(self, seen: FrameSeen) -> None:
        result, camera = seen.result, seen.camera
        route = result.decision.route.value
        self._frames.add(camera, route)
        for reason in result.decision.reasons:
            self._reasons.add(camera, route, reason.value)
        if result.degraded is not None:
            self._degraded.add(camera, result.degraded)
        self._answers.add(camera, _TIERS[result.answered_by])
        self._latency_s.add(camera, seconds=seen.latency_s)
        for stage, ms in result.stage_ms.items():
            self._stage_s.add(stage, seconds=ms / 1000)
        if seen.decide_cpu_s is not None:
            self._decide_s.add(seconds=seen.decide_cpu_s)

    def answer_seen(self, seen: AnswerSeen) -> None:
        tier = _TIERS[seen.result.answered_by]
        self._answers.add(seen.camera, tier)
        self._upper_s.add(tier, seconds=seen.latency_s)

    def frame_failed(self, camera: str) -> None:
        self._failed.add(camera)

    def errand_seen(self, seen: ErrandSeen) -> None:
        self._errands.add(seen.camera, seen.ending.value)
        self._sent.add(seen.camera, number=seen.sent_bytes)
        self._question_s.add(seen.ending.value, seconds=seen.seconds)

    def _counter(self, name: str, about: str, *labels: str) -> Tally:
        return Tally(self.registry, name, about, *labels)

    def _histogram(self, name: str, about: str, bounds_s: tuple[float, ...], *labels: str) -> TimesTally:
        return TimesTally(self.registry, name, about, bounds_s, *labels)


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
        idle = GaugeMetricFamily("fovea_idle_level", "0 while it is wide awake.", labels=("camera",))
        for camera in figures.cameras:
            for cause, number in camera.drops.items():
                drops.add_metric((camera.name, cause), number)
            online.add_metric((camera.name,), float(camera.condition == "online"))
            idle.add_metric((camera.name,), camera.idle_level)
        yield drops
        yield online
        yield idle
        yield GaugeMetricFamily("fovea_in_flight", "Questions under way.", value=figures.in_flight)
        yield GaugeMetricFamily("fovea_healthy", "1 while frames progress.", value=float(figures.is_healthy))
        yield GaugeMetricFamily("fovea_link_up", "1 while the tier above is there.", value=_link_up(figures))
        yield _by_name("spool", figures.spool)
        yield _by_name("uploads", figures.uploads)
        yield _by_name("published", figures.published)
        yield _of_arms(figures.ab)
        yield _by_name("resources", figures.resources)
        yield _by_name("forecasts", figures.forecasts)
        if figures.updates:
            yield from _of_updates(figures.updates)


def _by_name(name: str, counts: Mapping[str, object]) -> Metric:
    family = GaugeMetricFamily(f"fovea_{name}", f"What {name} counts, by name.", labels=("what",))
    for what, number in counts.items():
        if isinstance(number, int | float):
            family.add_metric((what,), number)
    return family


def _of_arms(arms: Mapping[str, ArmFigures]) -> Metric:
    family = GaugeMetricFamily(
        "fovea_ab", "What came of each of two policies, by name.", labels=("arm", "policy", "what")
    )
    for arm, figures in arms.items():
        for what in ("frames", "asked", "audited"):
            family.add_metric((arm, figures.policy, what), getattr(figures, what))
        for what in COMPARED:
            estimate = getattr(figures, what)
            if estimate is not None:
                family.add_metric((arm, figures.policy, what), estimate.value)
    return family


def _of_updates(state: Mapping[str, Any]) -> Iterator[Metric]:
    """Of a ReportedState as JSON."""
    phase = GaugeMetricFamily("fovea_update_phase", "1 for what an update has come to.", labels=("phase",))
    phase.add_metric((str(state["phase"]),), 1)
    yield phase
    numbers: dict[str, object] = {name: state[name] for name in ("serial", "counter_floor")}
    for part in ("health", "asked", "agreement", "shadow"):
        numbers |= {f"{part}_{name}": number for name, number in (state[part] or {}).items()}
    yield _by_name("updates", numbers)


def _link_up(figures: AgentFigures) -> float:
    return float(figures.link.get("status") == "up")
