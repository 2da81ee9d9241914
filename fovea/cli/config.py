"""`fovea config ...`: check configuration files, and say what may stand in them."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from fovea.core.errors import Malformed, NotFound

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


@app.command()
def check(
    file: Path = typer.Argument(help="A configuration file."),
    kind: str = typer.Option("", help=f"One of {', '.join(KINDS)}; by the file's name if left out."),
) -> None:
    """Say whether a configuration is right, or every mistake in it with its line and what was allowed."""
    from fovea.runtime.config_file import read_config

    of_kind = kind or kind_named(file)
    read_config(file, _model(of_kind))
    Console().print(
        f"good: {escape(str(file))} is a sound {of_kind} configuration", highlight=False, soft_wrap=True
    )


@app.command()
def schema(kind: str = typer.Argument(help=f"One of {', '.join(KINDS)}.")) -> None:
    """Print the JSON schema of a kind of configuration, for editors."""
    typer.echo(json.dumps(_model(kind).model_json_schema(), indent=2))


def kind_named(file: Path) -> str:
    """The kind that the words of a file's name say, as in my-agent.yaml. Raises Malformed when they say none, or more
    than one."""
    said = [kind for kind in KINDS if kind in re.split(r"[^a-z]+", file.stem.lower())]
    if len(said) != 1:
        raise Malformed(
            f"{file}: expected a name that says its kind, such as agent.yaml or my-agent.yaml, "
            f"or --kind {'|'.join(KINDS)}"
        )
    return said[0]


def _model(kind: str) -> type[BaseModel]:
    if kind not in KINDS:
        raise NotFound(f"configuration kind {kind!r}: not found; there are {', '.join(sorted(KINDS))}")
    module, name = KINDS[kind]
    model: type[BaseModel] = getattr(importlib.import_module(module), name)
    return model
