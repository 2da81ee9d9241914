"""`fovea edge`: runs the edge server."""

from __future__ import annotations

from pathlib import Path

import typer

from fovea.cli.autotune import autotune_edge
from fovea.core.errors import Malformed

app = typer.Typer(add_completion=False, help="Run the edge server: a detector that other machines ask.")
app.command("autotune")(autotune_edge)


@app.callback(invoke_without_command=True)
def edge(
    context: typer.Context,
    config: Path | None = typer.Option(
        None, "--config", "-c", help="Its configuration; see deploy/config/edge.yaml."
    ),
) -> None:
    """Run the edge server until it is told to stop (SIGTERM, Ctrl-C)."""
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise Malformed("fovea edge: expected --config FILE, or one of the commands that --help lists")
    from edge_server.config import load_config
    from edge_server.run import run

    run(load_config(config))
