"""What the cloud counts of cases, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge

from cloud.cases.writer import Fate, Way


class CaseMetrics:
    """A CaseCounter; the fates add up to the cases that came."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cases = Counter(
            "fovea_cases", "Frames to be kept, by what became of them.", ("way", "fate"), registry=registry
        )
        self._waiting = Gauge("fovea_cases_waiting", "Frames that are not kept yet.", registry=registry)
        for way, fate in product(Way, Fate):
            self._cases.labels(way.value, fate.value)

    def count(self, way: Way, fate: Fate) -> None:
        self._cases.labels(way.value, fate.value).inc()

    def watch_waiting(self, waiting: Callable[[], int]) -> None:
        """Who knows how many frames wait, asked whenever somebody looks."""
        self._waiting.set_function(waiting)

    def totals(self) -> dict[str, int]:
        """Cases by fate so far, whatever their way."""
        totals = dict.fromkeys((f"cases_{fate.value}" for fate in Fate), 0)
        for family in self._cases.collect():
            for sample in family.samples:
                if sample.name == "fovea_cases_total":
                    totals[f"cases_{sample.labels['fate']}"] += int(sample.value)
        return totals
