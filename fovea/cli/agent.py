"""`fovea agent`: the camera side."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from edge_agent.board_check import BoardReport, check_board
from fovea.cli.autotune import autotune_agent
from fovea.core.errors import Malformed

app = typer.Typer(
    add_completion=False,
    help="Run the camera agent, or check that this board can run a model.",
)
app.command("autotune")(autotune_agent)


@app.callback(invoke_without_command=True)
def agent(
    context: typer.Context,
    config: Path | None = typer.Option(
        None, "--config", "-c", help="Its configuration; see deploy/config/agent.yaml."
    ),
) -> None:
    """Run the camera agent until it is told to stop (SIGTERM, Ctrl-C)."""
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise Malformed("fovea agent: expected --config FILE, or one of the commands that --help lists")
    from edge_agent.config import load_config
    from edge_agent.run import run

    run(load_config(config))


@app.command()
def check(
    bundle: Path = typer.Argument(help="A model bundle, NAME-VERSION.fovea."),
    frames: int = typer.Option(50, min=5, max=10_000, help="How many frames to time."),
    threads: int = typer.Option(1, min=1, max=64, help="Threads of the model."),
    timeout_s: float = typer.Option(
        120.0, min=1, help="Longest time that the trial in a child process may take."
    ),
) -> None:
    """Say whether this board can run a model, whether it answers as it did when it was made, and how fast.

    The model runs in a child process first: a runtime that does not fit the board dies there and not here.
    """
    _print(check_board(bundle, frames=frames, threads=threads, timeout_s=timeout_s))


def _print(report: BoardReport) -> None:
    table = Table(title=f"{report.model} on this board", show_header=False)
    table.add_row("machine", report.machine)
    table.add_row("ONNX Runtime", report.runtime)
    table.add_row("trial in a child process", f"runs; first inference {report.first_run_ms:.0f} ms")
    golden = (
        "none in this bundle" if report.golden_frames == 0 else f"{report.golden_frames} answered as expected"
    )
    table.add_row("golden frames", golden)
    table.add_row(
        "time per frame",
        f"median {report.p50_ms:.1f} ms, p95 {report.p95_ms:.1f} ms ({report.frames} frames)",
    )
    table.add_row(
        "of that", " + ".join(f"{name} {ms:.1f}" for name, ms in report.stages_ms.items()) + " ms (median)"
    )
    table.add_row(
        "frames per second", f"{1000 / report.p50_ms:.1f}, one after another, {report.threads} thread(s)"
    )
    Console().print(table)
