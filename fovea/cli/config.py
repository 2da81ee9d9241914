"""`fovea config ...`: check configuration files, and say what may stand in them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from fovea.core.errors import NotFound

if TYPE_CHECKING:
    from pydantic import BaseModel

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Check configuration files, and say what may stand in them.",
)

KINDS = {
    "agent": ("edge_agent.config", "AgentConfig"),
    "cloud": ("cloud.config", "CloudConfig"),
    "edge": ("edge_server.config", "EdgeConfig"),
}
"""Where the model of each kind of configuration lives."""

_USUAL = "edge"


@app.command()
def check(
    file: Path = typer.Argument(help="A configuration file."),
    kind: str = typer.Option("", help=f"One of {', '.join(KINDS)}; by the file's name if left out."),
) -> None:
    """Say whether a configuration is right, or every mistake in it with its line and what was allowed."""
    from fovea.runtime.config_file import read_config

    of_kind = kind or (file.stem if file.stem in KINDS else _USUAL)
    read_config(file, _model(of_kind))
    Console().print(
        f"good: {escape(str(file))} is a sound {of_kind} configuration", highlight=False, soft_wrap=True
    )


@app.command()
def schema(kind: str = typer.Argument(help=f"One of {', '.join(KINDS)}.")) -> None:
    """Print the JSON schema of a kind of configuration, for editors."""
    typer.echo(json.dumps(_model(kind).model_json_schema(), indent=2))


def _model(kind: str) -> type[BaseModel]:
    if kind not in KINDS:
        raise NotFound(f"configuration kind {kind!r}: not found; there are {', '.join(sorted(KINDS))}")
    module, name = KINDS[kind]
    model: type[BaseModel] = getattr(importlib.import_module(module), name)
    return model
