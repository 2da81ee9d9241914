"""The edge server as a process: says what it runs, serves until it is told to stop, and always ends in time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import sdnotify
import structlog

from edge_server.bootstrap import EdgeParts, build
from edge_server.config import EdgeConfig, watchdog_every_s
from edge_server.logs import configure_logs
from edge_server.metrics import exposed
from fovea.serving.server import RunningServer, serve
from fovea.serving.worker import Worker

_EXIT_HUNG = 70
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def run(config: EdgeConfig) -> None:
    """Builds an edge server and serves until SIGTERM or SIGINT. Raises what `bootstrap.build` raises, and Unavailable
    for an address that is taken."""
    configure_logs(config.log)
    structlog.get_logger("edge_server").info("loading", bundle=config.bundle, device=config.device)
    run_parts(config, build(config))


def run_parts(config: EdgeConfig, parts: EdgeParts) -> None:
    """`run` with parts that were built already. A model that hangs is left behind: the process then ends at once,
    with exit code 70."""
    is_hung = asyncio.run(_serve(config, parts))
    log = structlog.get_logger("edge_server")
    log.info("stopped", **parts.metrics.totals())
    if is_hung:
        log.error("the model did not return; ending without it")
        sys.stderr.flush()
        os._exit(_EXIT_HUNG)
    parts.detector.close()


async def _serve(config: EdgeConfig, parts: EdgeParts) -> bool:
    """True when the model still runs at the end."""
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    notifier = sdnotify.SystemdNotifier()
    with exposed(parts.metrics, config.metrics) as metrics_address:
        async with serve(
            parts.detector, config.listen, parts.settings, parts.metrics, parts.latency
        ) as server:
            _say_serving(config, parts, server, metrics_address)
            notifier.notify(
                f"READY=1\nSTATUS=serving {parts.detector.ref} on {parts.device} at {server.address}"
            )
            feeding = asyncio.create_task(_feed_watchdog(notifier, server.worker, config.stuck_after_s))
            await told_to_stop.wait()
            feeding.cancel()
            notifier.notify("STOPPING=1")
            structlog.get_logger("edge_server").info("stopping")
    return server.worker.busy_s() > 0


def _say_serving(
    config: EdgeConfig, parts: EdgeParts, server: RunningServer, metrics_address: str | None
) -> None:
    log, latency, batching = structlog.get_logger("edge_server"), parts.latency, parts.settings.batching
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


async def _feed_watchdog(notifier: sdnotify.SystemdNotifier, worker: Worker, stuck_after_s: float) -> None:
    """Tells systemd that all is well for as long as it is: this loop turns, and the model makes progress."""
    every_s = watchdog_every_s() or stuck_after_s / 2
    was_stuck = False
    while True:
        is_stuck = worker.busy_s() > stuck_after_s
        if is_stuck != was_stuck:
            said = "the model hangs" if is_stuck else "the model goes on"
            structlog.get_logger("edge_server").error(said, busy_s=round(worker.busy_s(), 1))
            was_stuck = is_stuck
        if not is_stuck:
            notifier.notify("WATCHDOG=1")
        await asyncio.sleep(every_s)
