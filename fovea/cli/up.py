"""`fovea up`: all tiers of one machine, in one terminal."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fovea.cli.terminal_text import printable
from fovea.core.errors import Cancelled

if TYPE_CHECKING:
    from fovea.cli.tiers import TierCommand

app = typer.Typer(add_completion=False, help="Run all tiers of one machine.")

_CHECK_EVERY_S = 0.25
_COLOURS = {"broker": "magenta", "cloud": "blue", "edge": "yellow", "agent": "green"}
_NAME_CELLS = 8


@app.callback(invoke_without_command=True)
def up(
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            "-c",
            help="agent.yaml, edge.yaml, cloud.yaml, or a folder of them; may be given again.",
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Without --config: where configurations, cases and figures go.")
    ] = Path("out/up"),
    bundles: Annotated[
        Path | None, typer.Option(help="Without --config: agent.fovea, edge.fovea and cloud.fovea.")
    ] = None,
    source: Annotated[
        str, typer.Option(help="Without --config: your own cameras or files, with commas between.")
    ] = "",
) -> None:
    """Start broker, cloud, edge and agent as processes, show what they say, and stop them all together.

    Without --config: two simulated cameras, the bundled models, and free ports on this machine alone.
    """
    console = Console(highlight=False, soft_wrap=True)
    if config:
        from fovea.cli.up_files import commands_of

        commands = commands_of(config)
    else:
        from fovea.cli.tier_plan import (
            BUNDLED,
            TierPlan,
            find_bundles,
            named_cameras,
            street_cameras,
            write_plan,
        )

        sources = [each.strip() for each in source.split(",") if each.strip()]
        planned = write_plan(
            TierPlan(
                folder,
                named_cameras(sources) if sources else street_cameras(),
                dict(BUNDLED) if bundles is None else find_bundles(bundles),
                device="up",
            )
        )
        commands = planned.commands
        console.print(
            f"configurations in {folder}; MQTT at 127.0.0.1:{planned.mqtt_port}, topics fovea/up/#; "
            f"health at {planned.agent_health_url}"
        )
    _run(commands, console)


def _run(commands: Sequence[TierCommand], console: Console) -> None:
    from fovea.cli.tiers import TierProcesses

    def say(text: str) -> None:
        console.print(Text(f"{'up':{_NAME_CELLS}}", "bold") + Text(f" {text}"))

    with _told_to_stop() as told, TierProcesses(commands, _shower(console)) as tiers:
        try:
            tiers.start(told, say)
            say("all ready; Ctrl-C stops them")
            while not told.wait(_CHECK_EVERY_S):
                tiers.check()
        except Cancelled:
            pass
        finally:
            say("stopping")
            codes = tiers.stop(say)
            say("stopped: " + ", ".join(f"{name} ({code})" for name, code in codes.items()))


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGTERM and Ctrl-C while the block lasts."""
    told = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: told.set())
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shower(console: Console) -> Callable[[str, str], None]:
    """Prints a line of a process behind its name; called from several threads."""
    lock = threading.Lock()

    def show(name: str, line: str) -> None:
        colour = next((colour for tier, colour in _COLOURS.items() if name.startswith(tier)), "white")
        with lock:
            console.print(Text(f"{name:{_NAME_CELLS}}", colour) + Text(f" {printable(plain_log(line))}"))

    return show


def plain_log(line: str) -> str:
    """A log line of JSON as `level event key=value ...`; any other line as it is."""
    try:
        said = json.loads(line)
    except ValueError:
        return line
    if not isinstance(said, dict) or "event" not in said:
        return line
    level, event = said.pop("level", "info"), said.pop("event")
    for key in ("at", "logger"):
        said.pop(key, None)
    details = " ".join(f"{key}={value}" for key, value in said.items())
    return f"{level:7} {event} {details}".rstrip()
