"""`fovea zoo`: the bundled street models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fovea import zoo
from fovea.runtime.bundle import Bundle

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The bundled street models.")

_CONDITIONS = ("all", "day", "dusk", "night", "rain", "fog", "snow")


@app.command("list")
def list_models() -> None:
    """Show each bundled model with the figures in its manifest (AP50-95 on street-v1 test, in points)."""
    # Narrow on purpose: it has to fit a terminal of 80 columns.
    table = Table(
        title="bundled models: AP50-95 in points on street-v1 test", box=SIMPLE, padding=(0, 1, 0, 0)
    )
    for heading in ("model", "MB", *_CONDITIONS):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for name in zoo.names():
        path = zoo.path_of(name)
        manifest = Bundle.open(path).manifest
        figures = [manifest.report.get(f"ap.{condition}") for condition in _CONDITIONS]
        table.add_row(
            name,
            f"{path.stat().st_size / 1e6:.1f}",
            *(f"{100 * figure:.1f}" if isinstance(figure, float) else "-" for figure in figures),
        )
    Console().print(table)


@app.command("path")
def show_path(name: str = typer.Argument(help="Name of a bundled model, see `fovea zoo list`.")) -> None:
    """Print where a bundled model lies, for use in other commands."""
    typer.echo(zoo.path_of(name))


@app.command()
def build(
    trained: Annotated[Path, typer.Argument(help="Folder with a folder for each run of cloud.pretrain.")],
    out: Annotated[Path, typer.Option(help="Folder for the bundles.")] = Path("out/zoo/bundles"),
    version: Annotated[str, typer.Option(help="Version of the bundles.")] = "1.0.0",
    only: Annotated[str, typer.Option(help="Some of the runs, with commas; empty: all.")] = "",
    work: Annotated[Path, typer.Option(help="Rendered frames and search tables are kept here.")] = Path(
        "out/zoo/fit"
    ),
) -> None:
    """Pack trained street models: fit their scores, quantize the students, add golden frames."""
    from fovea.bench.zoo_bundles import build_zoo

    console = Console()
    work.mkdir(parents=True, exist_ok=True)
    runs = tuple(name.strip() for name in only.split(",") if name.strip())
    for path in build_zoo(
        trained, out, version, work, lambda step: console.print(f"[dim]{step} ...[/]"), runs
    ):
        console.print(f"written to {path}", highlight=False)


@app.command()
def figures(
    json_file: Annotated[Path, typer.Argument(help="What `fovea bench zoo --json` wrote.")],
    bundles: Annotated[Path, typer.Option(help="Folder of the bundles to change.")] = Path("out/zoo/bundles"),
) -> None:
    """Write measured figures into the manifests of bundles."""
    import json

    from fovea.bench.zoo import MODELS
    from fovea.bench.zoo_bundles import write_figures

    measured = json.loads(json_file.read_text(encoding="utf-8"))["figures"]
    names = {bundle: figure for figure, bundle in MODELS.items()}
    for path in write_figures(sorted(bundles.glob("*.fovea")), measured, names):
        Console().print(f"written to {path}", highlight=False)
