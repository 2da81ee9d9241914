"""What the cloud counts of its fleet, of rollouts and of rounds of learning, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cloud.fleet.fleet_link import FleetLink
from cloud.fleet.rollout_loop import RolloutLoop
from cloud.rollout.deciding import Move


class FleetMetrics:
    """A collector of prometheus_client."""

    def __init__(self, link: FleetLink) -> None:
        self._link = link

    def collect(self) -> Iterable[Metric]:
        connected = GaugeMetricFamily("fovea_broker_connected", "Whether the broker is connected.")
        connected.add_metric((), float(self._link.is_connected))
        reports = CounterMetricFamily(
            "fovea_device_reports", "What devices reported, by what became of it.", labels=("fate",)
        )
        counts = dict(self._link.counts)
        waiting = GaugeMetricFamily("fovea_device_reports_waiting", "Reports that are not kept yet.")
        waiting.add_metric((), counts.pop("waiting"))
        for fate, number in counts.items():
            reports.add_metric((fate,), number)
        return connected, reports, waiting


class RolloutMetrics:
    """A collector of prometheus_client."""

    def __init__(self, loop: RolloutLoop) -> None:
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        stages = GaugeMetricFamily(
            "fovea_rollout", "1 for the newest rollout of each group.", labels=("group", "stage", "status")
        )
        serials = GaugeMetricFamily(
            "fovea_rollout_serial", "Of what the devices are told.", labels=("group",)
        )
        for each in self._loop.latest:
            stages.add_metric((each.group, each.stage.value, each.status.value), 1)
            serials.add_metric((each.group,), each.serial)
        decisions = CounterMetricFamily("fovea_rollout_decisions", "By what was decided.", labels=("move",))
        moves = self._loop.moves
        for move in Move:
            decisions.add_metric((move.value,), moves.get(move, 0))
        return stages, serials, decisions


class LearningMetrics:
    """A collector of prometheus_client."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], running: Callable[[], str | None]) -> None:
        self._counts = counts
        self._running = running

    def collect(self) -> Iterable[Metric]:
        rounds = CounterMetricFamily(
            "fovea_learning_processes", "Rounds of learning begun here, and how they ended.", labels=("what",)
        )
        for what, number in self._counts().items():
            rounds.add_metric((what,), number)
        running = GaugeMetricFamily("fovea_learning_running", "Whether a round is at work.")
        running.add_metric((), float(self._running() is not None))
        return rounds, running
