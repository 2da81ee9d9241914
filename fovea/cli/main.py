"""`fovea ...`: names the command groups and prints errors as one sentence."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command

from fovea import __version__
from fovea.core.errors import BrokenError, Cancelled, FoveaError, RetryableError

EXIT_REJECTED = 2
EXIT_RETRYABLE = 75  # EX_TEMPFAIL of sysexits.h
EXIT_BROKEN = 70  # EX_SOFTWARE of sysexits.h
EXIT_CANCELLED = 130


@dataclass(frozen=True, slots=True)
class Group:
    """A command group: where its Typer app lives, and the line that the overview shows without importing it."""

    module: str
    help: str


GROUPS: dict[str, Group] = {
    "agent": Group("fovea.cli.agent", "Run the camera agent, or check that a board can run a model."),
    "bench": Group("fovea.cli.bench", "Measure the published figures on this machine."),
    "bundle": Group("fovea.cli.bundle", "Make, quantize, look into and verify model bundles."),
    "calibrate": Group("fovea.cli.calibrate", "Compare and align models, and fit what a bundle carries."),
    "camera": Group("fovea.cli.camera", "Try cameras, and add them to a configuration."),
    "cases": Group("fovea.cli.cases", "Look at, import, export and prune the cloud's hard cases."),
    "cloud": Group("fovea.cli.cloud", "Run the cloud: the large model, and the store of hard cases."),
    "config": Group("fovea.cli.config", "Check configuration files, and say what may stand in them."),
    "demo": Group("fovea.cli.demo", "See all tiers at work on this machine, and measure them."),
    "demo-loop": Group("fovea.cli.demo_loop", "See a day-only fleet meet night, learn, and get better."),
    "detect": Group("fovea.cli.detect", "Look through pictures, a video or a camera with a model."),
    "edge": Group("fovea.cli.edge", "Run the edge server."),
    "golden": Group("fovea.cli.golden", "Have frames labelled by people, to judge new models by."),
    "loop": Group("fovea.cli.loop", "Run and follow rounds of learning."),
    "models": Group("fovea.cli.models", "Models for real cameras, published by others."),
    "registry": Group("fovea.cli.registry", "Look at the models of the cloud, and name the champion."),
    "release": Group("fovea.cli.release", "Sign models and orders for the fleet, and serve them."),
    "review": Group("fovea.cli.review", "Look at what the teacher doubts, and say what is there."),
    "rollout": Group("fovea.cli.rollout", "New models on their way to the devices, step by step."),
    "policy": Group("fovea.cli.policy", "Named ways to spend: what they give, and which is better."),
    "sim": Group("fovea.cli.sim", "Render the street: clips, labels, contact sheets."),
    "up": Group("fovea.cli.up", "Run all tiers of one machine."),
    "zoo": Group("fovea.cli.zoo", "The bundled street models."),
}


class LazyGroups(TyperGroup):
    """Imports a group's module only when one of its commands is asked for."""

    def list_commands(self, ctx: object) -> list[str]:
        return sorted(GROUPS)

    def get_command(self, ctx: object, cmd_name: str) -> object:  # type: ignore[override]
        group = GROUPS.get(cmd_name)
        if group is None:
            return None
        if _is_overview():
            return get_command(typer.Typer(help=group.help, callback=lambda: None, name=cmd_name))
        command = get_command(importlib.import_module(group.module).app)
        command.name = cmd_name
        command.help = command.help or group.help
        return command


def _is_overview() -> bool:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    return not words


app = typer.Typer(
    cls=LazyGroups, no_args_is_help=True, help="Cheap sight everywhere, sharp sight where it pays."
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fovea {__version__}")
        raise typer.Exit


@app.callback()
def fovea(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Say the version."
    ),
) -> None:
    """Cheap sight everywhere, sharp sight where it pays."""


def main() -> None:
    """Entry point of the `fovea` command: a FoveaError becomes one sentence and an exit code, never a traceback."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        app()
    except FoveaError as error:
        Console(stderr=True).print(f"[bold red]fovea:[/] {_plain(error)}", highlight=False, soft_wrap=True)
        sys.exit(exit_code(error))


def exit_code(error: FoveaError) -> int:
    """2: change the request; 75: try again later; 70: this machine is at fault; 130: cancelled."""
    if isinstance(error, RetryableError):
        return EXIT_RETRYABLE
    if isinstance(error, BrokenError):
        return EXIT_BROKEN
    return EXIT_CANCELLED if isinstance(error, Cancelled) else EXIT_REJECTED


def _plain(error: FoveaError) -> str:
    from rich.markup import escape

    from fovea.cli.terminal_text import printable

    return escape(printable(str(error)))


if __name__ == "__main__":
    main()
