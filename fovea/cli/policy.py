"""`fovea policy ...`: the named policies of a bundle, and how two of them do on live cameras."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.core.errors import Malformed, NotFound

if TYPE_CHECKING:
    from fovea.core.ab import ArmFigures, Estimate

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Named ways to spend: what they give, and which is better.",
)

_TITLES = {
    "asked_share": "asked, % of frames",
    "agreement": "agreement with the upper tier, %",
    "latency_ms": "final answer, ms",
    "bytes_per_frame": "kB a frame",
}
_SCALES = {"asked_share": 100.0, "agreement": 100.0, "bytes_per_frame": 1e-3}
_LARGEST_FILE_BYTES = 10_000_000


@app.callback()
def policy() -> None:
    """Named ways to spend: what they give, and which is better."""


@app.command("list")
def list_policies(
    bundle: Annotated[str, typer.Argument(help="A .fovea file, or zoo:NAME.")],
) -> None:
    """Show the policies that a bundle carries, and what they were measured to give."""
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.bundle import Bundle

    own = Bundle.open(bundle_path(bundle))
    table = Table(title=f"Policies of {escape(str(own.ref.name))} {escape(own.ref.version)}")
    headings = (
        "policy",
        "ask from",
        "asked at most",
        "told from",
        "AP",
        "asked",
        "ms",
        "kB",
        "J",
        "measured",
    )
    for heading in headings:
        table.add_column(heading)
    for each in own.policies():
        found = each.measured
        told = ("-",) * 6
        if found is not None:
            told = (
                f"{found.ap.value:.3f} ({found.ap.low:.3f} to {found.ap.high:.3f})",
                f"{found.asked_share:.0%}",
                f"{found.latency_ms.value:.0f}",
                f"{found.bytes_per_frame.value / 1000:.0f}",
                f"{found.joules_per_frame.value:.2f}",
                escape(f"{found.at:%Y-%m-%d}, {found.on}"),
            )
        table.add_row(
            each.name, f"{each.ask_from:g}", f"{each.asked_share:.0%}", f"{each.tell_from:g}", *told
        )
    console = Console()
    if not own.policies():
        console.print("This bundle has none; `fovea calibrate grid` finds some.", highlight=False)
        return
    console.print(table)


@app.command()
def compare(
    figures: Annotated[
        list[Path], typer.Argument(help="The stats files of agents that compare two policies (`ab:`).")
    ],
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the comparison here.")] = None,
) -> None:
    """Compare the two policies that agents run side by side: how much is asked, how far the final answers agree with
    the upper tier, what it costs; with 95 % intervals."""
    from fovea.core.ab import COMPARED, Arm

    sites = [_arms_of(path) for path in figures]
    names = [_one_name(sites, arm) for arm in Arm]
    a, b = (_together(sites, arm) for arm in Arm)
    table = Table(
        title=f"{escape(names[0])} and {escape(names[1])} on {len(sites)} agent{'s' * (len(sites) > 1)}"
    )
    for place, heading in enumerate(("", f"a: {names[0]}", f"b: {names[1]}", "b minus a", "")):
        table.add_column(escape(heading), justify="right" if 0 < place < 4 else "left")
    table.add_row("frames looked at", *(f"{_frames(sites, arm):,}" for arm in Arm), "", "")
    said: dict[str, Any] = {"a": names[0], "b": names[1]}
    for what in COMPARED:
        own, other = a[what], b[what]
        difference = None if own is None or other is None else other.minus(own)
        scale = _SCALES.get(what, 1.0)
        cells = [_told(each, scale) for each in (own, other, difference)]
        table.add_row(_TITLES[what], *cells, _verdict(difference))
        said[what] = [_plain(each) for each in (own, other, difference)]
    Console().print(table)
    if json_file is not None:
        from fovea.runtime.atomic_file import write_atomically

        write_atomically(json_file, (json.dumps(said, indent=2, allow_nan=False) + "\n").encode())


def _arms_of(path: Path) -> dict[str, ArmFigures]:
    from fovea.core.ab import Arm, ArmFigures
    from fovea.core.json_form import from_json_form

    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise Malformed(
                f"{path}: expected the stats file of an agent, got one of {path.stat().st_size} bytes"
            )
        data = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"no stats file at {path}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise Malformed(f"{path}: expected the stats file of an agent, in JSON ({error})") from error
    arms = data.get("ab") if isinstance(data, Mapping) else None
    if not isinstance(arms, Mapping) or set(arms) != {arm.value for arm in Arm}:
        raise Malformed(f"{path}: this agent compares no policies; its configuration has no `ab:`")
    return {name: from_json_form(ArmFigures, arms[name], f"{path}: ab.{name}") for name in arms}


def _one_name(sites: Sequence[Mapping[str, ArmFigures]], arm: str) -> str:
    names = sorted({site[arm].policy for site in sites})
    if len(names) > 1:
        raise Malformed(f"arm {arm}: expected agents that compare the same policies, got {', '.join(names)}")
    return names[0]


def _together(sites: Sequence[Mapping[str, ArmFigures]], arm: str) -> dict[str, Estimate | None]:
    from fovea.core.ab import COMPARED, pooled

    return {
        what: pooled([each for site in sites if (each := getattr(site[arm], what)) is not None])
        for what in COMPARED
    }


def _frames(sites: Sequence[Mapping[str, ArmFigures]], arm: str) -> int:
    return sum(site[arm].frames for site in sites)


def _told(each: Estimate | None, scale: float) -> str:
    if each is None:
        return "-"
    if each.low is None or each.high is None:
        return f"{each.value * scale:.1f} (too short for an interval)"
    return f"{each.value * scale:.1f} ({each.low * scale:.1f} to {each.high * scale:.1f})"


def _verdict(difference: Estimate | None) -> str:
    if difference is None or difference.low is None or difference.high is None:
        return "nobody knows yet"
    if difference.low > 0:
        return "b has more"
    return "b has less" if difference.high < 0 else "no difference seen"


def _plain(each: Estimate | None) -> dict[str, float | None] | None:
    if each is None:
        return None
    return {"value": each.value, "low": each.low, "high": each.high, "count": each.count}
