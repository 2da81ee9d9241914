"""`fovea loop ...`: rounds of learning, by hand; what they found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fovea.cli.label_room import AsJson, shown, time_of
from fovea.core.errors import NotFound, RejectedError

if TYPE_CHECKING:
    from cloud.config import CloudConfig
    from cloud.learn.round_plan import RoundPlan, RoundRecord
    from cloud.learn.rounds import RoundStore

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run and follow rounds of learning.")

Config = Annotated[Path, typer.Option("--config", "-c", help="The cloud's configuration.")]
Site = Annotated[str | None, typer.Option(help="Whose cameras; `default` if left out.")]


@app.command()
def run(
    config: Config,
    site: Site = None,
    condition: Annotated[
        str | None, typer.Option(help="What is to be taught, such as night; else all that is new.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Of training.")] = None,
    epochs: Annotated[
        float | None, typer.Option(min=0.01, help="Turns through the images, in place of minutes.")
    ] = None,
    mode: Annotated[str | None, typer.Option(help="none, pseudo or pseudo_kd.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    why: Annotated[str, typer.Option(help="Why, for those who look at the rounds.")] = "by hand",
    fresh: Annotated[bool, typer.Option(help="Give up a round that was not finished.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run one round of learning. A round that was killed is gone on with, at the step where it was."""
    from cloud.learn.round import give_up, run_round
    from cloud.learn.round_bootstrap import opened_round_room

    told = _loaded(config)
    plan = replace(_plan(told, site, condition, minutes, epochs, mode, seed), why=why)
    console = Console(stderr=as_json)
    with opened_round_room(told) as room:
        if fresh and (left := room.rounds.find_running(plan.site)) is not None:
            give_up(room, left.id, "given up for a fresh one")
        with RoundScreen(console) as screen:
            record = run_round(room, plan, screen)
    if as_json:
        typer.echo(json.dumps(facts_of(record)))
    else:
        _print_outcome(console, record)
    if record.verdict is None:
        raise RejectedError(f"round {record.id} failed: {record.reasons[0]}")


@app.command()
def status(config: Config, site: Site = None) -> None:
    """Say where the loop stands: a round at work, the last verdict, and what a site lacks."""
    from cloud.golden.golden_set import GoldenSet
    from cloud.golden.sites import Sites
    from cloud.labels.store import LabelStore

    told, console = _loaded(config), Console()
    with _rounds(told) as rounds:
        found = rounds.find_running(site)
        last = next((each for each in rounds.rounds(site) if each.ended_at is not None), None)
    if found is None:
        console.print("no round is at work", highlight=False)
    else:
        at = found.steps[-1].step if found.steps else "its beginning"
        console.print(
            f"round {found.id}, site {shown(found.plan.site)}: at {at} (or killed there)", highlight=False
        )
    if last is not None:
        _print_outcome(console, last)
    labels = LabelStore.open(told.store.address().database)
    try:
        for state in GoldenSet(labels, Sites.of(told.sites), told.golden.settings()).states():
            if site in (None, state.site):
                console.print(shown(str(state)), highlight=False)
    finally:
        labels.close()


@app.command("list")
def list_rounds(config: Config, site: Site = None, as_json: AsJson = False) -> None:
    """Say which rounds there were, the newest first."""
    with _rounds(_loaded(config)) as rounds:
        found = rounds.rounds(site)
    if as_json:
        for record in found:
            typer.echo(json.dumps(facts_of(record)))
        return
    table = Table(
        "round", "site", "taught", "why", "minutes", "outcome", "reason", box=SIMPLE, pad_edge=False
    )
    for record in found:
        cells = (
            record.id,
            record.plan.site,
            record.plan.condition or "what was new",
            record.plan.why,
            f"{record.spent_s / 60:.1f}",
            outcome_of(record),
            record.reasons[0] if record.reasons else "",
        )
        table.add_row(*map(shown, cells))
    Console().print(table if found else "no rounds")


@app.command()
def show(
    config: Config,
    round_id: Annotated[str, typer.Argument(metavar="ROUND", help="As `fovea loop list` has it.")],
    as_json: AsJson = False,
) -> None:
    """Say what each step of a round found, and every question of its verdict."""
    told = _loaded(config)
    with _rounds(told) as rounds:
        record = rounds.get(round_id)
    if as_json:
        typer.echo(json.dumps(facts_of(record)))
        return
    console = Console()
    console.print(
        f"round {record.id}, site {shown(record.plan.site)}, {shown(record.plan.why)}, began "
        f"{time_of(record.began_at)}",
        highlight=False,
    )
    for step in record.steps:
        said = step.result.said if step.result else "not done"
        console.print(f"  {step.step:9} {step.spent_s or 0:6.0f} s  {shown(said)}", highlight=False)
    file = Path(told.learning.folder) / record.id / "verdict.json"
    if file.is_file():
        for finding in json.loads(file.read_bytes())["findings"]:
            mark = "passed" if finding["passed"] else "[red]failed[/]"
            console.print(f"  {mark}  {shown(finding['said'])}", highlight=False)
    _print_outcome(console, record)


def facts_of(record: RoundRecord) -> dict[str, Any]:
    """A round as JSON."""
    return {
        "id": record.id,
        "plan": record.plan.to_json(),
        "state": record.state.value,
        "began_at": record.began_at.isoformat(),
        "ended_at": record.ended_at.isoformat() if record.ended_at else None,
        "spent_s": round(record.spent_s, 1),
        "champion": record.champion,
        "candidate": record.candidate,
        "verdict": record.verdict.value if record.verdict else None,
        "reasons": list(record.reasons),
        "steps": {
            step.step.value: {
                "said": step.result.said,
                "spent_s": step.spent_s,
                "facts": dict(step.result.facts),
            }
            for step in record.steps
            if step.result is not None
        },
    }


def outcome_of(record: RoundRecord) -> str:
    """In a word or two."""
    return record.verdict.value.replace("_", " ") if record.verdict else record.state.value


class RoundScreen:
    """One line for each step, and what it is doing while it does it."""

    def __init__(self, console: Console) -> None:
        self._console, self._status, self._step = console, console.status("beginning"), ""

    def __enter__(self) -> RoundScreen:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def began(self, record: RoundRecord, goes_on: bool) -> None:
        what = record.plan.condition or "what is new"
        verb = "goes on" if goes_on else "begins"
        self._console.print(
            f"round {record.id} {verb}: site {shown(record.plan.site)}, {shown(what)}", highlight=False
        )

    def step_began(self, step: str) -> None:
        self._step = step
        self._status.update(step)

    def note(self, said: str) -> None:
        self._status.update(f"{self._step}: {shown(said)}")

    def step_done(self, step: str, result: Any, spent_s: float) -> None:
        self._console.print(f"  {step:9} {spent_s:6.0f} s  {shown(result.said)}", highlight=False)


def _print_outcome(console: Console, record: RoundRecord) -> None:
    console.print(
        f"round {record.id}: [bold]{outcome_of(record)}[/] after {record.spent_s / 60:.1f} minutes of work",
        highlight=False,
    )
    for reason in record.reasons:
        console.print(f"  {shown(reason)}", highlight=False)


def _loaded(config: Path) -> CloudConfig:
    from cloud.config import load_config

    return load_config(config)


def _plan(
    told: CloudConfig,
    site: str | None,
    condition: str | None,
    minutes: float | None,
    epochs: float | None,
    mode: str | None,
    seed: int,
) -> RoundPlan:
    from cloud.golden.sites import DEFAULT, Sites
    from cloud.learn.distil import Mode
    from cloud.learn.round_bootstrap import plan_of

    named = Sites.of(told.sites).checked(site or DEFAULT)
    plan = replace(plan_of(told, named, condition, "by hand"), seed=seed)
    if mode is not None:
        if mode not in list(Mode):
            raise NotFound(f"mode {mode!r:.40}: there are {', '.join(Mode)}")
        plan = replace(plan, mode=Mode(mode))
    if epochs is not None:
        return replace(plan, minutes=minutes, epochs=epochs)
    return plan if minutes is None else replace(plan, minutes=minutes)


@contextmanager
def _rounds(told: CloudConfig) -> Iterator[RoundStore]:
    from cloud.cases.store import CaseStore
    from cloud.learn.rounds import RoundStore

    address = told.store.address()
    CaseStore.open_existing(address).close()
    rounds = RoundStore.open(address.database)
    try:
        yield rounds
    finally:
        rounds.close()
