"""The cloud as a process: reads what it is told, builds its parts and serves."""

from __future__ import annotations

from pathlib import Path

import structlog

from cloud.bootstrap import NAME, build
from cloud.config import CloudConfig
from fovea.process.logs import configure_logs
from fovea.serving.run_server import run_server


def run(config: CloudConfig, source: Path | None = None) -> None:
    """Builds a cloud and serves until SIGTERM or SIGINT; `source` is the file of the configuration. Raises what
    `bootstrap.build` raises, and Unavailable for an address that is taken."""
    configure_logs(config.log)
    structlog.get_logger(NAME).info("loading", bundles=list(config.models), device=config.device)
    run_server(config, build(config, source))
