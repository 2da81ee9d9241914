"""Logs on the standard error output: JSON for machines, colours for people, the same events for both."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

from fovea.process.config_parts import LogConfig

_CHATTY = ("alembic",)
"""Libraries that tell of their inner life at INFO."""


def configure_logs(config: LogConfig) -> None:
    """Sends what the product and its libraries log through one formatter; for the start of a process."""
    is_json = config.format == "json" or (config.format == "auto" and not sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_json:
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        last += [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    logging.root.handlers = [handler]
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(
            max(logging.WARNING, logging.getLevelNamesMapping()[config.level.upper()])
        )
    logging.root.setLevel(config.level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
