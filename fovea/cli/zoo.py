"""`fovea zoo`: the bundled street models."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from fovea import zoo
from fovea.runtime.bundle import Bundle

app = typer.Typer(no_args_is_help=True, help="The bundled street models.")

_CONDITIONS = ("all", "day", "dusk", "night", "rain", "fog", "snow")


@app.command("list")
def list_models() -> None:
    """Show each bundled model with the figures in its manifest (AP50-95 on street-v1 test, in points)."""
    table = Table(title="bundled street models: AP50-95 on street-v1 test")
    for heading in ("name", "version", "precision", "input", "parameters", "MB", *_CONDITIONS):
        table.add_column(heading, justify="left" if heading in ("name", "version", "precision") else "right")
    for name in zoo.names():
        path = zoo.path_of(name)
        manifest = Bundle.open(path).manifest
        figures = [manifest.report.get(f"ap.{condition}") for condition in _CONDITIONS]
        table.add_row(
            name,
            manifest.version,
            manifest.precision.value,
            str(manifest.input.size),
            f"{manifest.parameters or 0:,}",
            f"{path.stat().st_size / 1e6:.2f}",
            *(f"{100 * figure:.1f}" if isinstance(figure, float) else "-" for figure in figures),
        )
    Console().print(table)


@app.command("path")
def show_path(name: str = typer.Argument(help="Name of a bundled model, see `fovea zoo list`.")) -> None:
    """Print where a bundled model lies, for use in other commands."""
    typer.echo(zoo.path_of(name))
