"""`fovea golden ...`: has frames of each site labelled by people, so that new models are judged by truth."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fovea.cli.label_room import (
    AcceptUntouched,
    AsJson,
    By,
    Cert,
    Config,
    Form,
    FromFile,
    ImageUrl,
    Key,
    Listen,
    SheetForm,
    SkipEmpty,
    Store,
    To,
    export,
    login_name,
    open_desk,
    opened_room,
    take,
    teach,
    told_teaching,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Have frames labelled by people, to judge new models by.",
)

Site = Annotated[str, typer.Option(help="The site, as the configuration calls it.")]
DEFAULT_SITE = "default"


@app.command()
def start(
    config: Config = None,
    store: Store = None,
    site: Site = DEFAULT_SITE,
    frames: Annotated[int | None, typer.Option(min=1, help="How many; as configured if left out.")] = None,
    teacher: Annotated[
        bool, typer.Option("--teacher/--no-teacher", help="Whether the large model fills boxes in.")
    ] = True,
) -> None:
    """Pick frames that differ, keep them from being deleted, and let the teacher fill in what it sees.

    Started again it picks what is missing: after more frames came, or for those that nobody could tell anything of.
    """
    from cloud.golden.start import start as start_golden

    with opened_room(config, store) as room:
        picked = start_golden(room.cases, room.golden, site, frames=frames)
        typer.echo(f"{len(picked)} frames picked")
        if teacher and picked:
            typer.echo(told_teaching(teach(room, [case.id for case in picked])))
        typer.echo(str(room.golden.golden_state(site)))


@app.command()
def status(config: Config = None, store: Store = None, as_json: AsJson = False) -> None:
    """Say how far the golden set of each site is, and what follows."""
    with opened_room(config, store) as room:
        states = room.golden.states()
    if not as_json:
        typer.echo("\n".join(str(state) for state in states))
        return
    rows = [
        {
            "site": state.site,
            "wanted": state.wanted,
            "done": state.done,
            "unusable": state.unusable,
            "enough": state.enough,
            "shadow_only": state.is_shadow_only,
        }
        for state in states
    ]
    typer.echo(json.dumps(rows, ensure_ascii=False))


@app.command("export")
def export_golden(
    to: To,
    config: Config = None,
    store: Store = None,
    site: Site = DEFAULT_SITE,
    form: Form = SheetForm.COCO,
    image_url: ImageUrl = "images/",
    only_wanted: Annotated[
        bool, typer.Option("--wanted/--all", help="Only frames that nobody has labelled yet.")
    ] = False,
) -> None:
    """Write the golden frames with what people said, or else with what the teacher filled in, for another tool."""
    from cloud.golden.golden_set import FrameState

    with opened_room(config, store) as room:
        wanted = [
            frame.case_id
            for frame in room.golden.frames(site)
            if frame.state is FrameState.WANTED or (frame.state is FrameState.DONE and not only_wanted)
        ]
        export(room, wanted, to, form, image_url)


@app.command("import")
def import_golden(
    path: FromFile,
    config: Config = None,
    store: Store = None,
    site: Site = DEFAULT_SITE,
    by: By = "",
    accept_untouched: AcceptUntouched = False,
    skip_empty: SkipEmpty = False,
) -> None:
    """Take what people labelled in another tool."""
    with opened_room(config, store) as room:
        among = [frame.case_id for frame in room.golden.frames(site)]
        take(room, path, by, among, accept_untouched, skip_empty)
        typer.echo(str(room.golden.golden_state(site)))


@app.command()
def label(
    config: Config = None,
    store: Store = None,
    site: Site = DEFAULT_SITE,
    by: By = "",
    listen: Listen = "127.0.0.1:0",
    cert: Cert = None,
    key: Key = None,
) -> None:
    """Open the labelling page for the golden frames of a site, and print its URL."""
    from cloud.console.desk import golden_desk

    with opened_room(config, store) as room:
        typer.echo(str(room.golden.golden_state(site)))
        desk = golden_desk(room.reviews, room.labels, room.golden, site, by or login_name())
        open_desk(desk, listen, cert, key)
