"""`fovea models ...`: models for real cameras, published by others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table

from fovea.cli.model_catalogue import TRIOS, find_trio

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Models for real cameras, published by others."
)


@app.command("list")
def list_command() -> None:
    """Say which models can be fetched, for which tier, and on what terms."""
    table = Table(box=SIMPLE)
    for heading in ("trio", "tier", "model", "MB", "licence", "from"):
        table.add_column(
            heading,
            justify="right" if heading == "MB" else "left",
            no_wrap=heading != "from",
            overflow="fold",
        )
    for trio in TRIOS:
        for model in trio.models:
            table.add_row(
                trio.name, model.tier.name.lower(), model.name, f"{model.size_bytes / 1e6:.1f}", model.licence,
                model.urls[0],
            )  # fmt: skip
    console = Console()
    console.print(table)
    for trio in TRIOS:
        console.print(f"{trio.name}: {trio.about}", highlight=False)


@app.command()
def fetch(
    trio: Annotated[str, typer.Argument(help="Which trio, see `fovea models list`.")] = "yolox",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the bundles; models/TRIO if left out.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Folder with the files, where they were fetched already.")
    ] = None,
) -> None:
    """Fetch a model for each tier, check it, and pack it: agent.fovea, edge.fovea, cloud.fovea."""
    from fovea.cli.model_fetch import fetch_trio

    chosen = find_trio(trio)
    folder = out or Path("models") / chosen.name
    console = Console()
    console.print(f"{chosen.about}. Licence of the weights: {chosen.licence}.", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, every: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=every)
            bars.update(tasks[name], completed=done, total=every)

        paths = fetch_trio(
            chosen, folder, source, progress=show, note=lambda text: bars.console.print(f"[dim]{text}[/]")
        )
    for path in paths:
        console.print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", highlight=False)
    console.print(f"next: make demo SOURCE=video.mp4 BUNDLES={folder}", highlight=False)
