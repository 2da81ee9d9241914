"""What a person sees while the second act is played: the act, the fleet, and what the cloud is at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from calibration.evaluate import Interval
from fovea.cli.demo_loop_findings import LoopFindings, sentences
from fovea.cli.demo_loop_report import clock
from fovea.cli.demo_loop_watch import DeviceNow

ACTS = ("day", "night falls", "the round", "the rollout", "afterwards")


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is shown at one moment. ap: points by a short name, such as "day, old"."""

    act: str
    at_s: float
    said: str
    devices: Sequence[DeviceNow]
    asked_share: float
    cases: int
    bytes_up: float
    ap: Mapping[str, float] = field(default_factory=dict)


def scene_view(scene: Scene) -> RenderableType:
    """One screenful."""
    acts = Text()
    for act in ACTS:
        acts.append(f" {act} ", "bold reverse" if act == scene.act else "dim")
        acts.append("  ")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("device", "frames", "asked", "model", "updates"):
        table.add_column(heading, justify="right" if heading in ("frames", "asked") else "left")
    for each in scene.devices:
        beside = " + candidate beside it" if each.shadows else ""
        table.add_row(
            each.device,
            str(each.frames),
            percent(each.asked_share),
            f"{each.version or '-'}{beside}",
            each.phase or "-",
        )
    told = "   ".join(f"{name} {100 * value:.1f}" for name, value in scene.ap.items())
    foot = f"asked {percent(scene.asked_share)}   cases {scene.cases}   {scene.bytes_up / 1e6:.1f} MB up"
    parts: list[RenderableType] = [
        acts,
        Text(f"{clock(scene.at_s)}  {scene.said}", "bold"),
        table,
        Text(foot),
    ]
    return Group(*parts, Text(f"AP on held-out clips: {told}" if told else "", "dim"))


def scene_line(scene: Scene) -> str:
    """The same in one line."""
    models = ", ".join(f"{each.device} {each.version or '-'}" for each in scene.devices)
    return (
        f"{clock(scene.at_s)}  {scene.act}: asked {percent(scene.asked_share)}, {scene.cases} cases, "
        f"{scene.bytes_up / 1e6:.1f} MB up; {models}; {scene.said}"
    )


def show_findings(console: Console, findings: LoopFindings) -> None:
    """The table at the end, and what it says."""
    table = Table(box=SIMPLE_HEAD, title="AP50-95, points (95 %)", title_justify="left", padding=(0, 1, 0, 0))
    for heading in ("held out", "frames", "before", "after", "gain"):
        table.add_column(heading, no_wrap=True)
    for found in findings.qualities:
        cells = [_told(found.old, ".1f"), _told(found.new, ".1f"), _told(found.gain, "+.1f")]
        table.add_row(found.condition, str(found.frames), *cells)
    console.print(table)
    for sentence in sentences(findings):
        console.print(f"- {sentence}", highlight=False, markup=False)


def _told(found: Interval | None, form: str) -> str:
    if found is None:
        return "-"
    value, low, high = (format(100 * each, form) for each in (found.value, found.low, found.high))
    return f"{value} ({low} {high})" if form.startswith("+") else f"{value} ({low}-{high})"


def percent(share: float) -> str:
    """A share for people; nothing where it is not known."""
    return "-" if math.isnan(share) else f"{share:.0%}"
