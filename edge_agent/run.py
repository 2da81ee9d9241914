"""The agent as a process: says what it runs, looks until it is told to stop, and always ends in time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from edge_agent.bootstrap import build
from edge_agent.built_agent import BuiltAgent
from edge_agent.config import AgentConfig
from edge_agent.figures import AgentView, StatsFile
from fovea.process import notify
from fovea.process.config_parts import watchdog_every_s
from fovea.process.logs import configure_logs
from fovea.process.metrics_http import exposed
from fovea.runtime.tuned_file import find_tuned

EXIT_BROKEN = 70

_STATS_EVERY_S = 1.0
_HEALTH_EVERY_S = 10.0
_TICK_S = 0.25
_TIME_TO_STOP_S = 4.0
_SWITCH_INTERVAL_S = 0.001
"""Threads that compute in Python make the one that answers frames wait for so long, each time it comes back from the
model or the network; the usual 5 ms add up to a frame's worth."""


def run(config: AgentConfig) -> None:
    """Builds an agent and runs it until SIGTERM, SIGINT, or (`exit_when_finished`) the end of its files. Raises what
    `bootstrap.build` raises, and Unavailable for an address that is taken."""
    configure_logs(config.log)
    config = tuned(config)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    structlog.get_logger("edge_agent").info("loading", bundle=config.bundle, cameras=len(config.cameras))
    run_built(config, build(config))


def tuned(config: AgentConfig) -> AgentConfig:
    """With the model and the threads that were found best on this machine, where they were looked for. Raises
    Malformed for a tuned_file that is none."""
    found = None if config.tuned_file is None else find_tuned(Path(config.tuned_file))
    if found is None:
        return config
    return config.model_copy(update={"bundle": found.bundle, "threads": found.threads})


def run_built(config: AgentConfig, built: BuiltAgent) -> None:
    """`run` with an agent that was built already. Threads that hang are left behind when the process ends."""
    told_to_stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: told_to_stop.set())
    log = structlog.get_logger("edge_agent")
    try:
        with exposed(built.metrics.registry, config.metrics, built.view.health) as metrics_address:
            built.start()
            log.info(
                "running",
                device=config.device,
                model=str(built.detector.ref),
                cameras=[camera.name for camera in config.cameras],
                edge=None if config.edge is None else config.edge.address,
                mqtt=None if config.mqtt is None else f"{config.mqtt.host}:{config.mqtt.port}",
                metrics=metrics_address,
            )
            notify.ready(f"running {built.detector.ref} on {len(config.cameras)} cameras")
            is_sound = _tend(config, built, told_to_stop)
            notify.stopping()
            log.info("stopping")
            ending = built.stop(_TIME_TO_STOP_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    figures = built.view.figures()
    log.info(
        "stopped",
        frames=sum(camera.frames for camera in figures.cameras),
        asked=sum(camera.asked for camera in figures.cameras),
        answers={
            tier: sum(camera.answers[tier] for camera in figures.cameras)
            for tier in ("agent", "edge", "cloud")
        },
        spool=figures.spool,
    )
    if config.stats_file is not None:
        StatsFile(Path(config.stats_file)).write(figures)
    if ending.is_hung or not is_sound:
        log.error("a frame never came back; ending without it" if ending.is_hung else "the agent broke")
    if ending.is_hung or ending.left or not is_sound:
        # A thread that sits in foreign code must not keep the process, nor crash it while the interpreter ends.
        sys.stderr.flush()
        os._exit(EXIT_BROKEN if ending.is_hung or not is_sound else 0)


def _tend(config: AgentConfig, built: BuiltAgent, told_to_stop: threading.Event) -> bool:
    """Tells systemd and others how it goes, until there is a reason to stop; False when the agent broke."""
    view = built.view
    chores = [_Chore(_HEALTH_EVERY_S, lambda: built.publisher.publish_health(view.health_facts()))]
    if config.stats_file is not None:
        file = StatsFile(Path(config.stats_file))
        chores.append(_Chore(_STATS_EVERY_S, lambda: file.write(view.figures())))
    chores.append(_Chore(watchdog_every_s() or config.stuck_after_s / 2, _Watchdog(view).feed))
    pause_s = min(_TICK_S, *(chore.every_s for chore in chores))
    while not told_to_stop.wait(pause_s):
        if built.agent.has_broken:
            return False
        for chore in chores:
            chore.do_if_due(time.monotonic())
        if config.exit_when_finished and built.agent.is_finished:
            structlog.get_logger("edge_agent").info("all cameras have come to their end")
            break
    return True


class _Chore:
    """Something to do every so often; for the first time at once."""

    def __init__(self, every_s: float, act: Callable[[], None]) -> None:
        self.every_s = every_s
        self._act = act
        self._due_mono_s = float("-inf")

    def do_if_due(self, now_mono_s: float) -> None:
        if now_mono_s >= self._due_mono_s:
            self._due_mono_s = now_mono_s + self.every_s
            self._act()


class _Watchdog:
    """Feeds systemd's watchdog while frames progress, and says when they cease to."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self._was_stuck = False

    def feed(self) -> None:
        is_stuck = self._view.is_stuck
        if is_stuck != self._was_stuck:
            said = "a frame hangs" if is_stuck else "frames go on"
            structlog.get_logger("edge_agent").error(said)
            self._was_stuck = is_stuck
        if not is_stuck:
            notify.alive()
