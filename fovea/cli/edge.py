"""`fovea edge`: runs the edge server."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(add_completion=False, help="Run the edge server: a detector that other machines ask.")


@app.callback(invoke_without_command=True)
def edge(
    config: Path = typer.Option(
        ..., "--config", "-c", help="Its configuration; see deploy/config/edge.yaml."
    ),
) -> None:
    """Run the edge server until it is told to stop (SIGTERM, Ctrl-C)."""
    from edge_server.config import load_config
    from edge_server.run import run

    run(load_config(config))
