"""`fovea registry ...`: the models that the cloud has made, and which of them is champion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.cli.terminal_text import printable
from fovea.core.errors import Malformed, NotFound

if TYPE_CHECKING:
    from cloud.release.registered import RegisteredModel
    from cloud.release.registry import Registry

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Look at the models of the cloud, and name the champion."
)


class AliasName(StrEnum):
    """See `cloud.release.registered.Alias`."""

    CHAMPION = "champion"
    CANDIDATE = "candidate"
    PREVIOUS = "previous"


Config = Annotated[Path | None, typer.Option("--config", "-c", help="The cloud's configuration.")]
Store = Annotated[Path | None, typer.Option("--store", "-s", help="The cloud's folder, in its place.")]
Model = Annotated[str, typer.Argument(help="First digits of its digest, NAME@VERSION, or FAMILY:ALIAS.")]
Why = Annotated[str, typer.Option(help="Why, for the history.")]


@app.command("list")
def list_models(
    config: Config = None,
    store: Store = None,
    family: Annotated[str | None, typer.Option(help="Only of this family.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each model and line.")] = False,
) -> None:
    """Say which models are kept, the newest first, and what they are called."""
    with _opened(config, store) as registry:
        models = registry.models(family)
        aliases = {
            model.ref.sha256: alias.value
            for name in sorted({model.family for model in models})
            for alias, model in registry.aliases(name).items()
        }
    if as_json:
        for model in models:
            typer.echo(
                json.dumps(_facts(model) | {"alias": aliases.get(model.ref.sha256)}, ensure_ascii=False)
            )
        return
    table = Table("model", "family", "called", "digest", "made", "MB", "verdict", box=SIMPLE, pad_edge=False)
    for model in models:
        cells = (
            f"{model.ref.name} {model.ref.version}",
            model.family,
            aliases.get(model.ref.sha256, ""),
            model.ref.sha256[:12],
            _time(model.made_at),
            f"{model.file_bytes / 1e6:.2f}",
            _verdict(model),
        )
        table.add_row(*(escape(printable(cell)) for cell in cells))
    Console().print(table if models else "no models")


@app.command()
def show(
    model: Model,
    config: Config = None,
    store: Store = None,
    save: Annotated[Path | None, typer.Option(help="Also write its bundle into this folder.")] = None,
) -> None:
    """Say all that is known of a model: what it was made from, and what the gates said. Its file is checked."""
    with _opened(config, store) as registry:
        found = registry.get(model)
        bundle = registry.load(found)
        history = [change for change in registry.history(found.family) if change.ref == found.ref]
    typer.echo(json.dumps(_facts(found), indent=2, ensure_ascii=False))
    for change in history:
        typer.echo(f"{_time(change.at)}: {change.alias.value} ({printable(change.why)})")
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        typer.echo(f"bundle: {bundle.write(save)}")


@app.command()
def add(
    family: Annotated[str, typer.Argument(help="The family.")],
    bundle: Annotated[Path, typer.Argument(help="A .fovea file.")],
    config: Config = None,
    store: Store = None,
) -> None:
    """Keep a model that was made elsewhere, such as the first one of a family."""
    from fovea.runtime.bundle import Bundle

    with _opened(config, store, may_make=True) as registry:
        typer.echo(f"kept: {registry.register(family, Bundle.open(bundle)).ref}")


@app.command()
def alias(
    family: Annotated[str, typer.Argument(help="The family.")],
    name: Annotated[AliasName, typer.Argument(help="What the model is called from now on.")],
    model: Annotated[str, typer.Argument(help="The model (see `show`), or none.")],
    why: Why = "by hand",
    config: Config = None,
    store: Store = None,
) -> None:
    """Call a model champion, candidate or previous. This orders nothing: `fovea rollout` and `fovea release` do."""
    from cloud.release.registered import Alias

    with _opened(config, store) as registry:
        ref = None if model == "none" else registry.get(model).ref
        registry.name(family, Alias(name.value), ref, why)
    typer.echo(f"{family}: {name.value} is {ref or 'nobody'}")


@app.command()
def promote(
    family: Annotated[str, typer.Argument(help="The family.")],
    why: Why = "by hand",
    config: Config = None,
    store: Store = None,
) -> None:
    """Make the candidate champion, and the champion previous."""
    with _opened(config, store) as registry:
        typer.echo(f"{family}: champion is {registry.promote(family, why).ref}")


@app.command()
def demote(
    family: Annotated[str, typer.Argument(help="The family.")],
    why: Why = "by hand",
    config: Config = None,
    store: Store = None,
) -> None:
    """Make the previous model champion again."""
    with _opened(config, store) as registry:
        typer.echo(f"{family}: champion is {registry.demote(family, why).ref}")


@contextmanager
def _opened(config: Path | None, store: Path | None, may_make: bool = False) -> Iterator[Registry]:
    from cloud.config import load_config
    from cloud.database import checked_database
    from cloud.release.registry import Registry, RegistryAddress

    if (config is None) == (store is None):
        raise Malformed("expected --store FOLDER or --config FILE, to say which registry is meant")
    if store is not None:
        address = RegistryAddress.in_folder(store)
    else:
        kept = load_config(config or Path()).store
        usual = RegistryAddress.in_folder(Path(kept.folder))
        address = RegistryAddress(kept.database or usual.database, usual.models)
    url = checked_database(address.database)
    if not may_make and url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise NotFound(f"no registry at {url.database}")
    registry = Registry.open(address)
    try:
        yield registry
    finally:
        registry.close()


def _facts(model: RegisteredModel) -> dict[str, Any]:
    return {
        "name": model.ref.name,
        "version": model.ref.version,
        "sha256": model.ref.sha256,
        "family": model.family,
        "bytes": model.file_bytes,
        "parent": model.parent_sha256,
        "dataset": model.dataset,
        "verdict": model.verdict,
        "made_at": model.made_at.isoformat(),
        "registered_at": model.registered_at.isoformat(),
    }


def _verdict(model: RegisteredModel) -> str:
    if model.verdict is None:
        return "not judged"
    told = model.verdict.get("verdict", model.verdict.get("passed", "?"))
    return {True: "yes", False: "no"}.get(told, str(told))


def _time(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
