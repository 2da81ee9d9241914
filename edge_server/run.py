"""The edge server as a process: reads what it is told, builds its parts and serves."""

from __future__ import annotations

import structlog

from edge_server.bootstrap import NAME, build
from edge_server.config import EdgeConfig
from fovea.process.logs import configure_logs
from fovea.serving.run_server import run_server


def run(config: EdgeConfig) -> None:
    """Builds an edge server and serves until SIGTERM or SIGINT. Raises what `bootstrap.build` raises, and Unavailable
    for an address that is taken."""
    configure_logs(config.log)
    structlog.get_logger(NAME).info("loading", bundle=config.bundle, device=config.device)
    run_server(config, build(config))
