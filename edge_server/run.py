"""The edge server as a process: reads what it is told, builds its parts and serves."""

from __future__ import annotations

from pathlib import Path

import structlog

from edge_server.bootstrap import NAME, build
from edge_server.config import EdgeConfig
from fovea.process.logs import configure_logs
from fovea.runtime.tuned_file import find_tuned
from fovea.serving.run_server import run_server


def run(config: EdgeConfig) -> None:
    """Builds an edge server and serves until SIGTERM or SIGINT. Raises what `bootstrap.build` raises, and Unavailable
    for an address that is taken."""
    configure_logs(config.log)
    config = tuned(config)
    structlog.get_logger(NAME).info("loading", bundle=config.bundle, device=config.device)
    run_server(config, build(config))


def tuned(config: EdgeConfig) -> EdgeConfig:
    """With the model and the threads that were found best on this machine, where they were looked for. Raises
    Malformed for a tuned_file that is none."""
    found = None if config.tuned_file is None else find_tuned(Path(config.tuned_file))
    if found is None:
        return config
    return config.model_copy(update={"bundle": found.bundle, "threads": found.threads})
