"""`fovea demo-loop`: hard cases become a better student, live on this machine, and a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fovea.core.errors import Malformed, NotFound

app = typer.Typer(add_completion=False, help="See a day-only fleet meet night, learn, and get better.")

_NEEDED = ("torch", "amqtt", "tuf", "sqlalchemy")


@app.callback(invoke_without_command=True)
def demo_loop(
    out: Annotated[
        Path, typer.Option("--out", help="Folder for report.html, figures.json, logs and data.")
    ] = Path("out/demo-loop"),
    minutes: Annotated[float, typer.Option(min=0.05, max=120, help="Of training.")] = 4.0,
    size: Annotated[
        str,
        typer.Option(help="full; or small: fewer clips and shorter acts, a quick look that proves nothing."),
    ] = "full",
    seed: Annotated[int, typer.Option(min=0, help="Of the streets that the cameras see.")] = 0,
) -> None:
    """Play the second act: day, night, a round of learning, shadow, canary, all; then before and after."""
    if size not in ("full", "small"):
        raise Malformed(f"size: expected full or small, got {size!r:.40}")
    _check_environment()
    from fovea.cli.demo_loop_plan import LoopPlan, small_plan
    from fovea.cli.demo_loop_run import run_demo_loop
    from fovea.cli.ended_by_sigterm import ended_by_sigterm

    plan = replace(LoopPlan(out / "run"), train_minutes=minutes, seed=seed)
    with ended_by_sigterm():
        run_demo_loop(small_plan(plan) if size == "small" else plan, out, Console())


def _check_environment() -> None:
    from importlib.util import find_spec

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise NotFound(f"demo-loop trains a model and needs {', '.join(missing)}: `make setup` installs it")
