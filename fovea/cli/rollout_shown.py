"""What `fovea rollout status` says: facts for machines, and tables in plain words for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fovea.cli.label_room import shown, time_of

if TYPE_CHECKING:
    from cloud.rollout.deciding import Decision
    from cloud.rollout.evidence import Evidence
    from cloud.rollout.rollout import Rollout
    from cloud.rollout.sequential import Band

_COLOURS = {"running": "cyan", "paused": "yellow", "done": "green", "back": "red"}


@dataclass(frozen=True, slots=True)
class Standing:
    """A rollout with what its devices have shown, what would follow now (None: it is over), and its history."""

    rollout: Rollout
    evidence: Evidence
    opinion: Decision | None
    moves: Sequence[dict[str, Any]]
    now: datetime


def print_overview(console: Console, standings: Sequence[Standing]) -> None:
    """One line for each group."""
    table = Table(
        "group", "rollout", "candidate", "stage", "status", "for", "serial", box=SIMPLE, pad_edge=False
    )
    for each in standings:
        rollout = each.rollout
        status = f"[{_COLOURS[rollout.status.value]}]{rollout.status.value}[/]"
        table.add_row(
            shown(rollout.group),
            str(rollout.id),
            shown(f"{rollout.candidate.name} {rollout.candidate.version}"),
            rollout.stage.value,
            status,
            span((each.now - rollout.since).total_seconds()),
            str(rollout.serial) if rollout.is_published else f"{rollout.serial} (not out yet)",
        )
    console.print(table if standings else "no rollouts")


def print_standing(console: Console, standing: Standing) -> None:
    """What the devices have shown, what is missing, and every step so far."""
    rollout = standing.rollout
    console.print(
        f"group [bold]{shown(rollout.group)}[/]: {shown(str(rollout.candidate.ref))} in place of "
        f"{shown(str(rollout.champion.ref))}",
        highlight=False,
    )
    if standing.opinion is not None:
        table = Table("what", "new model", "beside it", box=SIMPLE, pad_edge=False)
        for row in evidence_rows(standing):
            table.add_row(*map(shown, row))
        console.print(table)
    for sentence in said_of(standing):
        console.print(f"  {shown(sentence)}", highlight=False)
    history = Table("when", "stage", "status", "serial", "by", "why", box=SIMPLE, pad_edge=False)
    for move in standing.moves:
        cells = (time_of(move["at"]), move["stage"], move["status"], str(move["serial"]), move["by"])
        history.add_row(*map(shown, (*cells, "; ".join(move["reasons"]))))
    console.print(history)


def evidence_rows(standing: Standing) -> list[tuple[str, str, str]]:
    """Of the stage so far, both models side by side."""
    evidence, new, old = standing.evidence, standing.evidence.candidate, standing.evidence.champion
    rows = [
        ("devices", f"{new.devices} of {evidence.due}", str(old.devices)),
        ("failed", str(len(new.failed)), str(len(old.failed))),
        ("frames", f"{new.frames:,}", f"{old.frames:,}" if old.frames else "-"),
        ("p95 latency", _ms(new.p95_ms), _ms(old.p95_ms)),
        ("asked rate", _percent(new.asked_rate), _percent(old.asked_rate)),
        ("agreement with the tier above", _share(new.agreement.mean), _share(old.agreement.mean)),
    ]
    return [row for row in rows if row[1:] != ("-", "-")]


def said_of(standing: Standing) -> list[str]:
    """The difference, who is away, and what would be decided now and why."""
    rollout, evidence, opinion = standing.rollout, standing.evidence, standing.opinion
    if opinion is None:
        return list(rollout.reasons)
    said = [difference_text(opinion.difference)]
    if evidence.silent:
        said.append(f"{evidence.silent} devices have not reported for {span(rollout.plan.silent_after_s)}")
    if rollout.status.value == "paused":
        return [*said, *(f"paused: {reason}" for reason in rollout.reasons)]
    word = {"stay": "still missing", "advance": "goes on", "pause": "will pause", "back": "will go back"}
    return [*said, *(f"{word[opinion.move.value]}: {reason}" for reason in opinion.reasons)]


def difference_text(difference: Band) -> str:
    """Agreement of the new model minus that of the old one, with its interval."""
    if math.isnan(difference.value):
        return "agreement with the tier above: too few frames were sent up to say anything yet"
    return (
        f"agreement with the tier above: {difference.value:+.3f} "
        f"(between {difference.low:+.3f} and {difference.high:+.3f})"
    )


def facts_of(standing: Standing) -> dict[str, Any]:
    """As JSON."""
    rollout, evidence, opinion = standing.rollout, standing.evidence, standing.opinion
    new, old = evidence.candidate, evidence.champion
    return {
        "id": rollout.id,
        "group": rollout.group,
        "stage": rollout.stage.value,
        "status": rollout.status.value,
        "since": rollout.since.isoformat(),
        "serial": rollout.serial,
        "is_published": rollout.is_published,
        "champion": rollout.champion.to_json(),
        "candidate": rollout.candidate.to_json(),
        "reasons": list(rollout.reasons),
        "evidence": {
            "active": evidence.active,
            "due": evidence.due,
            "told": evidence.told,
            "silent": evidence.silent,
            "devices": new.devices,
            "failed": list(new.failed),
            "frames": new.frames,
            "p95_ms": _number(new.p95_ms),
            "champion_devices": old.devices,
            "champion_p95_ms": _number(old.p95_ms),
        },
        "would": None if opinion is None else opinion.move.value,
        "missing": [] if opinion is None else list(opinion.reasons),
        "difference": None
        if opinion is None
        else [
            _number(each)
            for each in (opinion.difference.value, opinion.difference.low, opinion.difference.high)
        ],
        "moves": [{**move, "at": move["at"].isoformat()} for move in standing.moves],
    }


def span(seconds: float) -> str:
    """A length of time, in the largest unit that it fills."""
    for unit, length_s in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "-"


def _share(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"
