"""Counts and times of every frame, kept as plain numbers and told to Prometheus only when it asks.

A counter of its own client costs five microseconds, and each frame has a dozen of them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class Tally(Collector):
    """Counts by labels. Safe for several threads."""

    def __init__(self, registry: CollectorRegistry, name: str, about: str, *labels: str) -> None:
        self._told_as = (name, about, labels)
        self._counts: dict[Labels, float] = {}
        self._lock = threading.Lock()
        registry.register(self)

    def add(self, *labels: str, number: float = 1) -> None:
        with self._lock:
            self._counts[labels] = self._counts.get(labels, 0) + number

    def describe(self) -> Iterator[Metric]:
        name, about, labels = self._told_as
        yield CounterMetricFamily(name, about, labels=labels)

    def collect(self) -> Iterator[Metric]:
        name, about, labels = self._told_as
        family = CounterMetricFamily(name, about, labels=labels)
        with self._lock:
            counts = list(self._counts.items())
        for values, count in counts:
            family.add_metric(values, count)
        yield family


class TimesTally(Collector):
    """How many times of each label lie in which of some spans of seconds, and their sum. Safe for several threads.

    `bounds_s` rise; a time counts in the first span whose bound it does not exceed.
    """

    def __init__(
        self, registry: CollectorRegistry, name: str, about: str, bounds_s: Sequence[float], *labels: str
    ) -> None:
        self._told_as = (name, about, labels)
        self._bounds_s = tuple(map(float, bounds_s))
        self._spans: dict[Labels, list[int]] = {}
        self._sums_s: dict[Labels, float] = {}
        self._lock = threading.Lock()
        registry.register(self)
        if not labels:
            self._begin(())

    def add(self, *labels: str, seconds: float) -> None:
        with self._lock:
            spans = self._spans.get(labels) or self._begin(labels)
            spans[bisect_left(self._bounds_s, seconds)] += 1
            self._sums_s[labels] += seconds

    def describe(self) -> Iterator[Metric]:
        name, about, labels = self._told_as
        yield HistogramMetricFamily(name, about, labels=labels)

    def collect(self) -> Iterator[Metric]:
        name, about, labels = self._told_as
        family = HistogramMetricFamily(name, about, labels=labels)
        names = [*map(str, self._bounds_s), "+Inf"]
        with self._lock:
            told = [
                (each, list(accumulate(spans)), self._sums_s[each]) for each, spans in self._spans.items()
            ]
        for values, counts, sum_s in told:
            family.add_metric(values, list(zip(names, counts, strict=True)), sum_s)
        yield family

    def _begin(self, labels: Labels) -> list[int]:
        spans = self._spans[labels] = [0] * (len(self._bounds_s) + 1)
        self._sums_s[labels] = 0.0
        return spans
