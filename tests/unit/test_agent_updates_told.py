"""What an agent tells of its updates: in figures, in health, to Prometheus, and nothing at all without them."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from edge_agent.metrics import PrometheusMetrics
from fovea.core.release import ReportedState
from tests.builders import model_ref
from tests.unit.test_agent_figures import Watched, busy

REPORTED: dict[str, Any] = {
    "device": "porch",
    "group": "north",
    "agent_version": "0.1.0",
    "boot_id": "b00t",
    "at": "2026-03-10T12:00:00Z",
    "clock_synced": True,
    "serial": 7,
    "counter_floor": 3,
    "running": None,
    "last_good": None,
    "phase": "stepped_back",
    "reason": "it broke on 2 of 9 frames",
    "health": {
        "frames": 9,
        "restarts": 1,
        "detect_ms_p95": None,
        "rss_mb": 50.0,
        "uptime_s": 4.0,
        "failures": 2,
    },
    "asked": {"frames": 9, "asked": 4},
    "agreement": None,
    "shadow": None,
}


def watched_with(state: dict[str, Any]) -> Watched:
    watched = busy(Watched(), 0.0)
    watched.view._updates = lambda: state
    return watched


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """By name and the value of its last label."""
    return {
        (sample.name, list(sample.labels.values())[-1]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.labels
    }


def test_the_whole_state_is_in_the_figures_and_the_short_of_it_in_health() -> None:
    ReportedState.from_json(REPORTED)
    view = watched_with(REPORTED).view
    assert view.figures().as_json()["updates"] == REPORTED
    short = {"phase": "stepped_back", "reason": "it broke on 2 of 9 frames", "serial": 7}
    assert view.health_facts()["updates"] == short
    assert view.health().facts["updates"] == short


def test_prometheus_is_told_phase_and_numbers() -> None:
    metrics = PrometheusMetrics(model_ref(), "cpu")
    metrics.watch(watched_with(REPORTED).view.figures)
    told = samples(metrics.registry)
    assert told["fovea_update_phase", "stepped_back"] == 1
    assert told["fovea_updates", "serial"] == 7
    assert told["fovea_updates", "health_failures"] == 2
    assert told["fovea_updates", "asked_asked"] == 4
    assert ("fovea_updates", "health_detect_ms_p95") not in told


def test_the_model_that_runs_is_the_only_one_that_is_told() -> None:
    metrics = PrometheusMetrics(model_ref(version="1"), "cpu")
    metrics.model_changed(model_ref(version="2", digit="b"))
    [family] = [family for family in metrics.registry.collect() if family.name == "fovea_model"]
    [sample] = family.samples
    assert sample.labels["version"] == "2" and sample.value == 1


def test_without_updates_nothing_is_told_of_them() -> None:
    view = busy(Watched(), 0.0).view
    metrics = PrometheusMetrics(model_ref(), "cpu")
    metrics.watch(view.figures)
    assert "updates" not in view.health_facts() and "updates" not in view.health().facts
    assert not any(name.startswith("fovea_update") for name, _ in samples(metrics.registry))
