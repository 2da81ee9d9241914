"""What a serving process counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fovea.core.detections import ModelRef
from fovea.serving.outcomes import Ending, Outcome
from protos.calls import Timings

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServingMetrics:
    """An Observer (see `fovea.serving.outcomes`) with a registry of its own. The outcomes of `fovea_requests_total`
    add up to the Detect calls."""

    def __init__(self, model: ModelRef, device: str) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "fovea_requests", "Detect calls by how they ended.", ("outcome", "reason"), registry=self.registry
        )
        self._request_s = Histogram(
            "fovea_request_seconds",
            "From the call to its end.",
            ("outcome",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._deliveries = Counter(
            "fovea_deliveries",
            "Deliveries of cases by how they ended.",
            ("outcome", "reason"),
            registry=self.registry,
        )
        self._stage_s = Histogram(
            "fovea_stage_seconds",
            "Where the time of an answer went: opening the picture, waiting, being looked at, asking above.",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batch_size = Histogram(
            "fovea_batch_size", "Pictures looked at together.", buckets=_SIZES, registry=self.registry
        )
        self._batch_s = Histogram(
            "fovea_batch_seconds", "The model's time for a batch.", buckets=_SECONDS, registry=self.registry
        )
        self._device = device
        self._model = Gauge(
            "fovea_model",
            "1 for the model that runs.",
            ("name", "version", "sha256", "device"),
            registry=self.registry,
        )
        self.model_changed(model)
        for outcome in (Outcome.SERVED, Outcome.EXPIRED, Outcome.CANCELLED):
            self._requests.labels(outcome, "")

    def model_changed(self, model: ModelRef) -> None:
        """Another one runs from now on."""
        self._model.clear()
        self._model.labels(model.name, model.version, model.sha256, self._device).set(1)

    def watch_resources(self, facts: Callable[[], Mapping[str, float]]) -> None:
        """Also tells what the machine has left, asked at every scrape."""
        self.registry.register(_ResourceCollector(facts))

    def call_ended(self, ending: Ending, seconds: float) -> None:
        self._requests.labels(ending.outcome, ending.reason).inc()
        self._request_s.labels(ending.outcome).observe(seconds)

    def call_answered(self, timings: Timings) -> None:
        self._stage_s.labels("open").observe(timings.decode_ms / 1000)
        self._stage_s.labels("queue").observe(timings.queue_ms / 1000)
        self._stage_s.labels("infer").observe(timings.infer_ms / 1000)
        self._stage_s.labels("above").observe(timings.above_ms / 1000)

    def delivery_ended(self, ending: Ending, seconds: float) -> None:
        self._deliveries.labels(ending.outcome, ending.reason).inc()

    def batch_ran(self, size: int, seconds: float) -> None:
        self._batch_size.observe(size)
        self._batch_s.observe(seconds)

    def totals(self) -> dict[str, int]:
        """Calls by outcome so far."""
        totals = dict.fromkeys((outcome.value for outcome in Outcome), 0)
        for family in self._requests.collect():
            for sample in family.samples:
                if sample.name == "fovea_requests_total":
                    totals[sample.labels["outcome"]] += int(sample.value)
        return totals


class _ResourceCollector(Collector):
    def __init__(self, facts: Callable[[], Mapping[str, float]]) -> None:
        self._facts = facts

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("fovea_resources", "What resources counts, by name.", labels=("what",))
        for what, number in self._facts().items():
            family.add_metric((what,), number)
        yield family
