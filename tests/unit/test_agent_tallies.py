"""Counts kept as plain numbers are told to Prometheus as its own client would tell them."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from edge_agent.tallies import Tally, TimesTally

BOUNDS_S = (0.00002, 0.001, 0.5, 1.0, 10.0)
LABELS = st.sampled_from([("front", "local"), ("back", "edge"), ('a "quoted" name', "skip")])


def told(registry: CollectorRegistry) -> list[str]:
    """What is scraped, without the moments at which the client's own metrics began."""
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


@given(st.lists(st.tuples(LABELS, st.integers(0, 10**9))))
def test_counts_are_told_as_by_the_clients_own_counter(events: list[tuple[tuple[str, str], int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally(ours, "frames", "Frames.", "camera", "route")
    counter = Counter("frames", "Frames.", ("camera", "route"), registry=theirs)
    for labels, number in events:
        tally.add(*labels, number=number)
        counter.labels(*labels).inc(number)
    assert told(ours) == told(theirs)


@given(st.lists(st.tuples(LABELS, st.sampled_from([0.0, 0.00002, 0.0007, 0.5, 0.51, 1.0, 9.99, 10.0, 77.0]))))
def test_times_are_told_as_by_the_clients_own_histogram(events: list[tuple[tuple[str, str], float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = TimesTally(ours, "took", "Took.", BOUNDS_S, "camera", "route")
    histogram = Histogram("took", "Took.", ("camera", "route"), buckets=BOUNDS_S, registry=theirs)
    for labels, seconds in events:
        tally.add(*labels, seconds=seconds)
        histogram.labels(*labels).observe(seconds)
    assert told(ours) == told(theirs)


def test_times_without_labels_are_there_before_the_first() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    TimesTally(ours, "took", "Took.", (1, 2.5))
    Histogram("took", "Took.", buckets=(1, 2.5), registry=theirs)
    assert told(ours) == told(theirs)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    Tally(registry, "frames", "Frames.", "camera")
    with pytest.raises(ValueError, match="frames"):
        TimesTally(registry, "frames", "Frames.", BOUNDS_S)


def test_no_count_of_several_threads_is_lost() -> None:
    registry = CollectorRegistry()
    tally, times = (
        Tally(registry, "frames", "Frames.", "camera"),
        TimesTally(registry, "took", "Took.", (1.0,)),
    )

    def count() -> None:
        for _ in range(5000):
            tally.add("front")
            times.add(seconds=0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.get_sample_value("frames_total", {"camera": "front"}) == 20_000
    assert (
        registry.get_sample_value("took_count")
        == registry.get_sample_value("took_bucket", {"le": "1.0"})
        == 20_000
    )
    assert registry.get_sample_value("took_sum") == 10_000
