"""A serving process: says what it runs, serves until it is told to stop, and always ends in time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import structlog

from fovea.core.ports import Detector
from fovea.process import notify
from fovea.process.config_parts import watchdog_every_s
from fovea.process.metrics_http import Health, exposed
from fovea.process.resources import ResourceMonitor, machine_monitor
from fovea.serving.answerer import Answerer, CaseDesk
from fovea.serving.latency_model import LatencyModel
from fovea.serving.server import RunningServer, ServerSettings, serve
from fovea.serving.serving_config import ServingConfig
from fovea.serving.serving_metrics import ServingMetrics
from fovea.serving.worker import Worker

_EXIT_HUNG = 70
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def _no_trouble() -> None:
    return None


def _no_facts() -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class ServingParts:
    """What a serving process runs with, whatever its tier.

    name      of the program, as it calls itself in the log
    detector  warm; closed by `run_server`
    beside    what runs beside the server: entered before it serves and left when the last call is answered
    answerer, case_desk  see `fovea.serving.server.serve`
    facts     more that /healthz tells, from any thread
    trouble   why it does not do what else it is there for (cases cannot be kept), from any thread; None: all is well
    """

    name: str
    detector: Detector
    device: str
    settings: ServerSettings
    latency: LatencyModel
    metrics: ServingMetrics
    answerer: Answerer | None = None
    case_desk: CaseDesk | None = None
    beside: AbstractContextManager[object] = field(default_factory=nullcontext)
    facts: Callable[[], Mapping[str, object]] = _no_facts
    trouble: Callable[[], str | None] = _no_trouble


def run_server(config: ServingConfig, parts: ServingParts) -> None:
    """Serves until SIGTERM or SIGINT. Raises Unavailable for an address that is taken.

    A model that hangs is left behind: the process then ends at once, with exit code 70.
    """
    with parts.beside:
        is_hung = asyncio.run(_serve(config, parts))
    log = structlog.get_logger(parts.name)
    log.info("stopped", **parts.metrics.totals())
    if is_hung:
        log.error("the model did not return; ending without it")
        sys.stderr.flush()
        os._exit(_EXIT_HUNG)
    parts.detector.close()


async def _serve(config: ServingConfig, parts: ServingParts) -> bool:
    """True when the model still runs at the end."""
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    server: RunningServer | None = None
    monitor = machine_monitor(
        lambda: 0 if server is None else server.worker.waiting(),
        config.resources_every_ms / 1000,
    )
    parts.metrics.watch_resources(monitor.facts)

    def health() -> Health:
        return _health(config, parts, server, monitor)

    with exposed(parts.metrics.registry, config.metrics, health) as metrics_address:
        async with serve(
            parts.detector,
            config.listen,
            parts.settings,
            parts.metrics,
            parts.latency,
            parts.answerer,
            parts.case_desk,
        ) as server:
            _say_serving(config, parts, server, metrics_address)
            monitor.start()
            notify.ready(f"serving {parts.detector.ref} on {parts.device} at {server.address}")
            feeding = asyncio.create_task(_feed_watchdog(parts.name, server.worker, config.stuck_after_s))
            await told_to_stop.wait()
            feeding.cancel()
            monitor.stop(0)
            notify.stopping()
            structlog.get_logger(parts.name).info("stopping")
    return server.worker.busy_s() > 0


def _health(
    config: ServingConfig, parts: ServingParts, server: RunningServer | None, monitor: ResourceMonitor
) -> Health:
    if server is None:
        return Health(False, {"state": "starting"})
    is_stuck = server.worker.busy_s() > config.stuck_after_s
    trouble = parts.trouble()
    facts: dict[str, object] = {
        "state": "stuck" if is_stuck else "troubled" if trouble else "serving",
        "trouble": trouble,
        "model": str(parts.detector.ref),
        "device": parts.device,
        "address": server.address,
    }
    facts |= {**parts.metrics.totals(), **parts.facts(), "resources": monitor.facts()}
    return Health(not is_stuck and not trouble, facts)


def _say_serving(
    config: ServingConfig, parts: ServingParts, server: RunningServer, metrics_address: str | None
) -> None:
    log, latency, batching = structlog.get_logger(parts.name), parts.latency, parts.settings.batching
    log.info(
        "serving",
        address=server.address,
        metrics=metrics_address,
        model=str(parts.detector.ref),
        labels=len(parts.detector.labels),
        device=parts.device,
        max_batch=batching.max_batch,
        one_ms=round(latency.batch_s(1) * 1000, 2),
        batch_saves=round(latency.saving(config.max_batch), 2),
        tls=config.tls is not None,
    )
    if config.tls is None and server.host not in _LOOPBACK:
        log.warning("anybody who reaches this address may ask; set tls, or listen on 127.0.0.1")


async def _feed_watchdog(name: str, worker: Worker, stuck_after_s: float) -> None:
    """Tells systemd that all is well for as long as it is: this loop turns, and the model makes progress."""
    every_s = watchdog_every_s() or stuck_after_s / 2
    was_stuck = False
    while True:
        is_stuck = worker.busy_s() > stuck_after_s
        if is_stuck != was_stuck:
            said = "the model hangs" if is_stuck else "the model goes on"
            structlog.get_logger(name).error(said, busy_s=round(worker.busy_s(), 1))
            was_stuck = is_stuck
        if not is_stuck:
            notify.alive()
        await asyncio.sleep(every_s)
