"""`fovea cloud`: runs the cloud."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(add_completion=False, help="Run the cloud: the large model, and the store of hard cases.")


@app.callback(invoke_without_command=True)
def cloud(
    config: Path = typer.Option(
        ..., "--config", "-c", help="Its configuration; see deploy/config/cloud.yaml."
    ),
) -> None:
    """Run the cloud until it is told to stop (SIGTERM, Ctrl-C)."""
    from cloud.config import load_config
    from cloud.run import run

    run(load_config(config), config.absolute())
