"""`fovea demo`: all tiers on this machine, live, measured, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fovea.core.errors import Malformed

app = typer.Typer(add_completion=False, help="See all tiers at work on this machine, and measure them.")


@app.callback(invoke_without_command=True)
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for report.html, logs and figures.")] = Path(
        "out/demo"
    ),
    seconds: Annotated[float, typer.Option(min=3, max=3600, help="How long the live part lasts.")] = 40.0,
    frames: Annotated[
        str, typer.Option(help="full: 216 test frames; small: 18, a quick look that proves nothing.")
    ] = "full",
    source: Annotated[
        str, typer.Option(help="Your own footage: files, folders or addresses, several with commas between.")
    ] = "",
    bundles: Annotated[
        str,
        typer.Option(
            help="Folder with agent.fovea, edge.fovea and cloud.fovea; the bundled ones if left out."
        ),
    ] = "",
    asked: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of frames that the agent may ask about.")
    ] = 0.3,
) -> None:
    """Run broker, cloud, edge and agent as processes, watch them live, measure each alone and all together."""
    from fovea.cli.demo_frames import FULL, SMALL
    from fovea.cli.demo_run import DemoOptions, run_demo
    from fovea.cli.ended_by_sigterm import ended_by_sigterm
    from fovea.cli.tier_plan import BUNDLED, TierPlan, find_bundles, named_cameras, street_cameras

    if frames not in ("full", "small"):
        raise Malformed(f"frames: expected full or small, got {frames!r}")
    sources = [each.strip() for each in source.split(",") if each.strip()]
    cameras = named_cameras(sources) if sources else street_cameras()
    plan = TierPlan(
        out / "run",
        cameras,
        find_bundles(Path(bundles)) if bundles else dict(BUNDLED),
        asked_at_most=asked,
    )
    options = DemoOptions(
        out,
        seconds,
        FULL if frames == "full" else SMALL,
        plan,
        is_own_footage=bool(sources),
    )
    with ended_by_sigterm():
        run_demo(options, Console())
