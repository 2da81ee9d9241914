"""`fovea demo`: a first look at what the three models see."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fovea.cli.street_demo import run_demo

app = typer.Typer(add_completion=False, help="See the street through the three bundled models.")


@app.callback(invoke_without_command=True)
def demo(
    out: Path = typer.Option(Path("out/demo"), help="Folder for the pictures."),
    per_condition: int = typer.Option(4, min=1, max=12, help="Frames of each of the six conditions."),
) -> None:
    """Render the street in six conditions, look at it as camera, edge and cloud, and show who finds what."""
    console = Console()
    looks = run_demo(out, per_condition, lambda step: console.print(f"[dim]{step} ...[/]"))
    title = "objects found (right class, IoU >= 0.5), and ms per frame on one CPU thread"
    table = Table(title=title, box=SIMPLE)
    for heading in ("tier", "model", "found", "boxes on nothing", "ms"):
        table.add_column(heading, justify="left" if heading in ("tier", "model") else "right", no_wrap=True)
    for look in looks:
        share = f"{look.found} of {look.objects} ({100 * look.found / max(look.objects, 1):.0f} %)"
        table.add_row(look.tier, look.model, share, str(look.false_boxes), f"{look.median_ms:.1f}")
    console.print(table)
    console.print(f"pictures: {out / 'street.jpg'}")
